"""A toolchain of the local engine: an environment with another Triton, beside the first one."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest
from engine_requests import ask, change
from wheels import wrap_triton

from warpwave.config.hosts import Host
from warpwave.config.targets import load_targets, load_toolchains
from warpwave.config.toolchains import leg
from warpwave.engines.docker.images import recipe
from warpwave.engines.packages.environments import on_toolchain, provide_toolchain, releases
from warpwave.engines.slurm.engine import SlurmEngine
from warpwave.errors import InfrastructureError, UsageError
from warpwave.options import Build
from warpwave.records.run import Toolchain

pytest.importorskip("pip", reason="the installer uses the pip of the kernels' Python")
WHICH = """
import importlib.metadata, importlib.util
print(importlib.metadata.version("triton"), *(importlib.util.find_spec(name).origin for name in ("triton", "torch")))
"""


@pytest.fixture
def request_(tmp_path, monkeypatch):
    """A request on a leg whose Triton is in a folder of wheels."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "raw").mkdir()
    for version in ("3.9.0.post2", "3.9.0.post10"):
        wrap_triton(tmp_path / "wheels", version)
    known = load_toolchains()
    target = leg(load_targets()["cpu"], Toolchain(name="mine", triton="3.9.0.post2", index=str(tmp_path / "wheels")), known)
    return ask(target, tmp_path, tmp_path / "raw")


def seen(python: str) -> list[str]:
    return subprocess.run([python, "-c", WHICH], capture_output=True, text=True, check=True).stdout.split()


def test_a_toolchain_costs_its_triton_alone(request_):
    """Its Triton hides the one below; torch is the one below; the second time nothing is made."""
    said = []
    found, packages = provide_toolchain(request_, said.append)
    provide_toolchain(request_, said.append)
    version, triton, torch = seen(found.options.python)

    assert (version, packages.versions, len(said)) == ("3.9.0.post2", {"triton": "3.9.0.post2"}, 1)
    assert (triton.startswith(str(request_.raw.parent)), torch.startswith(str(request_.raw.parent))) == (True, False)
    assert on_toolchain(request_).options.python == found.options.python


def test_two_toolchains_stand_side_by_side(request_):
    """Each has its own folder, by a hash of what decides it. Variables alone, and a name, decide nothing."""
    other = replace(request_.target.toolchain, triton="3.9.0.post10")
    renamed = replace(request_.target.toolchain, name="other", environment={"A": "1"})
    pythons = [on_toolchain(change(request_, target=replace(request_.target, toolchain=one))).options.python for one in (other, renamed)]

    assert on_toolchain(request_).options.python not in pythons[:1]
    assert on_toolchain(request_).options.python == pythons[1]
    variables = change(request_, target=replace(request_.target, toolchain=Toolchain(name="x", environment={"A": "1"})))
    assert on_toolchain(variables).options.python is None


def test_a_release_that_nobody_has(request_):
    """What pip says is in the message."""
    missing = replace(request_.target.toolchain, triton="1.2.3")
    with pytest.raises(InfrastructureError, match=r"triton==1\.2\.3"):
        provide_toolchain(change(request_, target=replace(request_.target, toolchain=missing)), print)


def test_releases_are_in_the_order_of_their_numbers(request_):
    """`post10` comes after `post2`."""
    assert releases(None, request_.raw.parent / "wheels") == ["3.9.0.post2", "3.9.0.post10"]


def test_builds_of_another_index(tmp_path):
    """Those of the night are no releases; pip is asked for them, too."""
    stub = tmp_path / "python"
    stub.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/asked\necho 'Available versions: 3.9.0+git1, 3.10.0+gitb, 3.10.0+gita'\n")
    stub.chmod(0o755)

    assert releases(str(stub), None, "https://example.org/nightly")[-1] == "3.10.0+gitb"
    assert "index versions triton --pre --index-url https://example.org/nightly" in (tmp_path / "asked").read_text()


def test_an_image_of_a_toolchain(request_):
    """Its build arguments name it, so its tag is another one."""
    known, cuda = load_toolchains(), load_targets()["cuda"]
    stack = Toolchain(name="x", triton="3.8.0", packages=("helper==1",), base_image="mine:1", torch="2.12.0", environment={"A": "1"})
    request = change(request_, target=leg(cuda, stack, known), build=Build())
    made = recipe(request)

    assert made.arguments.items() >= {"TRITON_VERSION": "3.8.0", "TOOLCHAIN": "triton==3.8.0 helper==1", "TORCH_VERSION": "2.12.0"}.items()
    assert (made.base, made.tag.partition(":")[0]) == ("mine:1", "warpwave/cuda")
    assert made.tag != recipe(change(request, target=leg(cuda, replace(stack, triton="3.9.0"), known))).tag
    assert request.target.environment["A"] == "1"


def test_a_site_that_brings_its_own_python_has_no_toolchain(request_):
    """Otherwise a leg would have the name of a Triton that it does not run."""
    engine = SlurmEngine(Host(name="site", target="cpu"), None, "")
    with pytest.raises(UsageError, match="no toolchain"):
        engine.prepare(request_, print)
