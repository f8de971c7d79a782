"""The layer of an image that holds what a package needs: its name, its files, and what is read from it."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from engine_requests import ask, change
from wheels import make_package

from warpwave.config.targets import load_targets
from warpwave.engines.docker.images import final_recipe, layer_recipe, pack, read_packages, recipe
from warpwave.options import Install


@pytest.fixture
def request_(tmp_path):
    root = make_package(tmp_path / "ops")
    return ask(load_targets()["cpu"], root / "tests", tmp_path / "raw", root=root, install=Install(package="all"))


def test_the_layer_is_built_on_the_targets_image(request_):
    """Its name follows what decides it, and an edit of a kernel does not change it."""
    below = recipe(request_)
    found = final_recipe(request_)
    (request_.options.package / "my_ops" / "relu.py").write_text("# a kernel\n")

    assert found.base == below.tag
    assert found.tag.startswith("warpwave/cpu-packages:")
    assert layer_recipe(request_, below).tag == found.tag
    assert final_recipe(change(request_, install=Install(package="alone"))).tag != found.tag
    assert final_recipe(change(request_, install=Install())) == below


def test_what_the_layer_is_built_from(request_):
    """The installer, the plan and the package's sources; no Dockerfile of the target, and none of its locks."""
    with pack(final_recipe(request_)) as context, tarfile.open(fileobj=context) as tar:
        names = set(tar.getnames())

    assert {"Dockerfile", "plan.json", "requirements.txt", "constraints.txt", "installing/__main__.py", "package/pyproject.toml"} <= names
    assert not any(name.startswith("locks/") or name == "install.sh" for name in names)


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
