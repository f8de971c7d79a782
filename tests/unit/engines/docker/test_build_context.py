"""What an image is built from: the tag follows every input that matters, and the files sent are exactly the ones meant."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from engine_requests import ask, change

from warpwave.config.targets import Image, load_targets
from warpwave.engines.docker import images
from warpwave.engines.docker.images import pack, pinned, proxies, recipe
from warpwave.engines.protocol import Request
from warpwave.errors import ConfigError, InfrastructureError, UsageError
from warpwave.options import Build


@pytest.fixture
def request_(tmp_path) -> Request:
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "x.Dockerfile").write_text("FROM scratch\n")
    (folder / "install.sh").write_text("true\n")
    image = Image("x.Dockerfile", "vendor/base:1", build_args={"TORCH_VERSION": "1"})
    target = replace(load_targets()["cuda"], name="x", image=image, dockerfile=folder / "x.Dockerfile")
    return ask(target, tmp_path, tmp_path, commit="c0ffee")


def wheelhouse(folder: Path, size: int = 3) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "torch-1-py3-none-any.whl").write_bytes(b"x" * size)
    (folder / "notes.txt").write_text("not for the image")
    return folder


def names(request: Request) -> dict[str, tarfile.TarInfo]:
    with pack(recipe(request)) as file, tarfile.open(fileobj=file) as tar:
        return {entry.name: entry for entry in tar}


def test_the_tag_follows_what_matters(request_, tmp_path):
    """Dockerfile, script, base, digest, arguments, wheels and package settings give another image; commit and certificates do not."""
    before = recipe(request_).tag
    assert before.startswith("warpwave/x:")
    settings, bundle = tmp_path / "pip.conf", tmp_path / "ca.crt"
    settings.write_text("[global]\n")
    bundle.write_text("certificate")
    image = request_.target.image
    changed = [
        change(request_, build=Build(base_image="other:1")),
        change(request_, build=Build(args={"TORCH": "base"})),
        change(request_, build=Build(pip_config=settings)),
        change(request_, build=Build(wheelhouse=wheelhouse(tmp_path / "w1"))),
        change(request_, build=Build(wheelhouse=wheelhouse(tmp_path / "w2", 4))),
        change(request_, target=replace(request_.target, image=replace(image, digest="sha256:" + "0" * 64))),
        change(request_, target=replace(request_.target, image=replace(image, build_args={"TORCH_VERSION": "2"}))),
    ]
    tags = [recipe(request).tag for request in changed]
    for name in ("x.Dockerfile", "install.sh"):
        path = request_.target.dockerfile.parent / name
        path.write_text(path.read_text() + "# more\n")
        tags.append(recipe(request_).tag)
    assert len({before, *tags}) == len(tags) + 1
    same = change(request_, commit="other", build=Build(ca_bundle=bundle, network="host", rebuild=True))
    assert recipe(same).tag == tags[-1]


def test_the_wheels_do_not_have_to_be_read(request_, tmp_path):
    """Names and sizes are enough: gigabytes are not hashed, and a download of the same files at another time is the same."""
    first = change(request_, build=Build(wheelhouse=wheelhouse(tmp_path / "a")))
    second = change(request_, build=Build(wheelhouse=wheelhouse(tmp_path / "b")))
    assert recipe(first).tag == recipe(second).tag


def test_the_files_that_are_sent(request_, tmp_path):
    """Only what the Dockerfile may copy, owned by nobody in particular; the wheelhouse is there even when it is empty."""
    assert sorted(names(request_)) == ["Dockerfile", "install.sh", "wheelhouse"]
    for file in ("pip.conf", "ca.crt"):
        (tmp_path / file).write_text("x")
    build = Build(wheelhouse=wheelhouse(tmp_path / "w"), ca_bundle=tmp_path / "ca.crt", pip_config=tmp_path / "pip.conf")
    found = names(change(request_, build=build))
    expected = ["Dockerfile", "ca-bundle.crt", "install.sh", "pip.conf", "wheelhouse", "wheelhouse/torch-1-py3-none-any.whl"]
    assert sorted(found) == expected
    assert {(entry.uid, entry.gid, entry.mtime) for entry in found.values()} == {(0, 0, 0)}
    assert found["install.sh"].mode == 0o755


def test_locks_travel_with_their_target(request_):
    """Those of the target that is built, under names that install.sh finds, and the tag follows them."""
    folder = request_.target.dockerfile.parent / "locks"
    folder.mkdir()
    before = recipe(request_).tag
    for name in ("py3.12", "py3.12-torch"):
        (folder / f"{request_.target.name}-{name}.txt").write_text("triton==1 --hash=sha256:0\n")
    (folder / "another-py3.12.txt").write_text("")

    assert sorted(name for name in names(request_) if "locks" in name) == ["locks/py3.12-torch.txt", "locks/py3.12.txt"]
    assert recipe(request_).tag != before


def test_targets_with_the_same_packages_share_a_lock(request_):
    """`image.locks` names it; a lock of the target's own name is not taken then."""
    folder = request_.target.dockerfile.parent / "locks"
    folder.mkdir()
    shared = replace(request_, target=replace(request_.target, image=replace(request_.target.image, locks="shared")))
    (folder / "shared-py3.12.txt").write_text("triton==1 --hash=sha256:0\n")
    (folder / f"{request_.target.name}-py3.11.txt").write_text("")

    assert [name for name in names(shared) if "locks" in name] == ["locks/py3.12.txt"]


def test_labels(request_):
    """The image tells where it comes from."""
    labels = recipe(request_).labels("c0ffee", "sha256:1")
    assert labels.pop("io.warpwave.requirements") == recipe(request_).requirements
    assert labels == {
        "io.warpwave.target": "x",
        "io.warpwave.commit": "c0ffee",
        "io.warpwave.base": "vendor/base:1",
        "io.warpwave.base-digest": "sha256:1",
    }


def test_a_digest_overrules_the_tag():
    """A pinned base is named by its digest alone, whatever its registry looks like."""
    assert pinned("a/b:1", None) == "a/b:1"
    assert pinned("a/b:1", "sha256:0") == "a/b@sha256:0"
    assert pinned("host:5000/a/b", "sha256:0") == "host:5000/a/b@sha256:0"
    assert pinned("host:5000/a/b:1", "sha256:0") == "host:5000/a/b@sha256:0"


def test_only_proxies_are_forwarded():
    """Of the caller's environment a build sees the proxy settings, in the spelling used."""
    environment = {"HTTP_PROXY": "a", "https_proxy": "b", "no_proxy": "", "GITHUB_TOKEN": "c", "PATH": "d"}
    assert proxies(environment) == {"HTTP_PROXY": "a", "https_proxy": "b"}


def test_what_cannot_be_read_is_named(request_, tmp_path):
    """A wrong path is said before the engine is asked for anything."""
    nowhere = tmp_path / "nowhere"
    for build, what in (
        (Build(wheelhouse=nowhere), "no wheels"),
        (Build(ca_bundle=nowhere), "CA bundle"),
        (Build(pip_config=nowhere), "pip settings"),
    ):
        with pytest.raises(UsageError, match=what):
            recipe(change(request_, build=build))
    with pytest.raises(ConfigError, match="nowhere cannot be read"):
        recipe(change(request_, target=replace(request_.target, dockerfile=nowhere)))


def test_a_full_disk_is_said(request_, monkeypatch):
    """No room for the build context: the folder to make room in is named."""

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(images, "_write", full)
    with pytest.raises(InfrastructureError, match="No space left") as raised:
        pack(recipe(request_))
    assert "TMPDIR" in raised.value.remedy
