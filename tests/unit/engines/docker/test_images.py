"""Which image of an engine is used again, without an engine."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from warpwave.engines.docker import images

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
    """Only the engine's 404 says that there is no such image."""

    def broken(image):
        raise OSError("the connection broke")

    with pytest.raises(OSError, match="the connection broke"):
        images.find(SimpleNamespace(inspect_image=broken), "ours:1")
