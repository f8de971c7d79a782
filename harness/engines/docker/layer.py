"""A layer on top of a target's image: what the package needs beside torch and Triton. Its name is a hash of what decides it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

from harness.config.targets import default_file
from harness.engines.docker.build_context import Recipe, recipe
from harness.engines.incoming import first_file
from harness.engines.packages.plan import is_wanted, make_plan
from harness.engines.packages.venv import Packages, read_result
from harness.engines.protocol import Request

PYTHON = "/opt/packages/bin/python"
_RESULT = "/opt/packages/warpwave.json"
_MOST_BYTES = 8 << 20


class Api(Protocol):
    """The methods of the SDK's client that this file uses."""

    def create_container_from_config(self, config: dict[str, Any], name: str) -> dict[str, Any]:
        """Create a container, and return its id."""
        ...

    def get_archive(self, container: str, path: str) -> tuple[Iterator[bytes], dict[str, Any]]:
        """Return a file of a container as a tar stream."""
        ...

    def remove_container(self, container: str, *, force: bool, v: bool) -> None:
        """Remove a container."""
        ...


def layer_recipe(request: Request, below: Recipe) -> Recipe:
    """Return the recipe of the layer on top of the image `below`."""
    plan = make_plan(request)
    files = {**plan.files, "Dockerfile": (default_file().parent / "packages.Dockerfile").read_bytes()}
    if "pip.conf" in below.files:
        files["pip.conf"] = below.files["pip.conf"]
    return replace(below, base=below.tag, files=files, arguments={"PYTHON": request.target.python}, layer=plan.key)


def final_recipe(request: Request) -> Recipe:
    """Return the recipe of the image that a run uses: the target's, or the layer on top of it."""
    below = recipe(request)
    return layer_recipe(request, below) if is_wanted(request.options) else below


def read_packages(api: Api, image: str, name: str, labels: dict[str, str]) -> Packages:
    """Return what the layer holds. A file of an image can be read only through a container; this one is never started."""
    body = {"Image": image, "Entrypoint": [PYTHON], "Cmd": ["-c", ""], "Labels": labels}
    container = str(api.create_container_from_config(body, name)["Id"])
    try:
        stream, _ = api.get_archive(container, _RESULT)
        # What is installed was somebody's code, and may have written anything here.
        text = first_file(stream, _MOST_BYTES).decode("utf-8", "replace")
    finally:
        api.remove_container(container, force=True, v=True)
    json.loads(text)
    return read_result(PYTHON, text)
