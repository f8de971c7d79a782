"""Which image of an engine is used again, without an engine."""

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from engine_requests import ask, change
from wheels import make_package

from warpwave.config.targets import Image, load_targets
from warpwave.engines.docker import images
from warpwave.engines.docker.images import final_recipe, layer_recipe, pack, pinned, proxies, read_packages, recipe
from warpwave.engines.protocol import Request
from warpwave.errors import ConfigError, InfrastructureError, UsageError
from warpwave.options import Build, Install

BASE, OTHER = "sha256:base", "sha256:other"


class NoSuchImageError(OSError):
    status_code = 404


class Engine:
    """Knows images by name, as `docker image inspect` tells them."""

    def __init__(self, known):
        self.known = known

    def inspect_image(self, image):
        if image not in self.known:
            raise NoSuchImageError(image)
        return self.known[image]


def image(built_on=None):
    return {"Id": "sha256:image", "Config": {"Labels": {"io.warpwave.base-digest": built_on} if built_on else None}}


@pytest.mark.parametrize(
    ("built", "base", "used"),
    [
        (image(BASE), {"Id": BASE}, True),
        (image(BASE), {"Id": "sha256:local", "RepoDigests": [f"docker.io/library/python@{BASE}"]}, True),
        (image(BASE), {"Id": BASE, "RepoDigests": [f"docker.io/library/python@{OTHER}"]}, False),
        (image(BASE), {"Id": OTHER}, False),
        (image(), {"Id": BASE}, False),
        ({"Id": "sha256:image"}, {"Id": BASE}, False),
        (image(BASE), None, True),
        (None, {"Id": BASE}, False),
        (None, None, False),
    ],
)
def test_an_image_is_used_again_unless_its_base_was_replaced(built, base, used):
    """A base of the same name with another digest is another base; one that is gone from this engine can replace nothing."""
    known = {name: found for name, found in {"ours:1": built, "python:3": base}.items() if found}

    assert images.usable(Engine(known), SimpleNamespace(tag="ours:1", base="python:3")) == (built if used else None)


def test_an_engine_that_fails_is_not_an_image_that_is_missing():
    def broken(image):
        raise OSError("the connection broke")

    with pytest.raises(OSError, match="the connection broke"):
        images.find(SimpleNamespace(inspect_image=broken), "ours:1")


# What an image is built from: the tag follows every input that matters, and the files sent are exactly the ones meant.


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
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "addfile", full)
    with pytest.raises(InfrastructureError, match="No space left") as raised:
        pack(recipe(request_))
    assert "TMPDIR" in raised.value.remedy


# The layer of an image that holds what a package needs: its name, its files, and what is read from it.


@pytest.fixture
def request__of_layer(tmp_path):
    root = make_package(tmp_path / "ops")
    return ask(load_targets()["cpu"], root / "tests", tmp_path / "raw", root=root, install=Install(package="all"))


def test_the_layer_is_built_on_the_targets_image(request__of_layer):
    """Its name follows what decides it, and an edit of a kernel does not change it."""
    below = recipe(request__of_layer)
    found = final_recipe(request__of_layer)
    (request__of_layer.options.package.folder / "my_ops" / "relu.py").write_text("# a kernel\n")

    assert found.base == below.tag
    assert found.tag.startswith("warpwave/cpu-packages:")
    assert layer_recipe(request__of_layer, below).tag == found.tag
    assert final_recipe(change(request__of_layer, install=Install(package="alone"))).tag != found.tag
    assert final_recipe(change(request__of_layer, install=Install())) == below


class Api:
    """Hands out one file of an image, and notes what was created and removed."""

    def __init__(self, text: str) -> None:
        self.text, self.calls = text, []

    def create_container_from_config(self, config, name):
        self.calls.append(("create", config["Image"], name, config["Labels"]))
        return {"Id": "c1"}

    def get_archive(self, container, path):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            entry = tarfile.TarInfo(Path(path).name)
            entry.size = len(self.text)
            tar.addfile(entry, io.BytesIO(self.text.encode()))
        return iter([data.getvalue()]), {}

    def remove_container(self, container, *, force, v):
        self.calls.append(("remove", container))


def test_what_was_installed_is_read_from_the_image():
    """Through a container that is never started, and is gone afterwards, whatever the file holds."""
    api = Api(json.dumps({"packages": {"einops": "0.8"}, "notes": ["a note"]}))
    found = read_packages(api, "sha256:1", "warpwave-r1-cpu", {"io.warpwave.run": "r1"})

    assert (found.python, found.versions, found.notes) == ("/opt/packages/bin/python", {"einops": "0.8"}, ("a note",))
    assert api.calls == [("create", "sha256:1", "warpwave-r1-cpu", {"io.warpwave.run": "r1"}), ("remove", "c1")]
    broken = Api("not JSON")
    with pytest.raises(ValueError, match="Expecting value"):
        read_packages(broken, "sha256:1", "n", {})
    assert broken.calls[-1] == ("remove", "c1")
