"""Real jobs in the containers of Slurm sites: Apptainer, and enroot through pyxis.

An image has Python, torch, triton, pytest and numpy. Two variables name one each, made from the image that the other integration tests build:
`WARPWAVE_APPTAINER_IMAGE` (`apptainer build cpu.sif docker-daemon://warpwave/cpu:TAG`) and `WARPWAVE_ENROOT_IMAGE` (`enroot import -o cpu.sqsh
dockerd://warpwave/cpu:TAG`).
"""

from __future__ import annotations

import json
import os
import shutil

import own_slurm
import pytest
from slurm_runs import make_runs

from harness.collect import collect
from harness.config.hosts import Slurm
from harness.records import Verdict

pytestmark = pytest.mark.skipif(bool(own_slurm.missing()), reason=own_slurm.missing())


def _lacking(container):
    image = f"WARPWAVE_{container.upper()}_IMAGE"
    program = container if shutil.which(container) else ""
    if not program or (container == "enroot" and not own_slurm.pyxis()):
        return f"no {container} here" + (" with pyxis" if container == "enroot" else "")
    return "" if os.environ.get(image) else f"{image} names no image"


@pytest.fixture(scope="module")
def cluster():
    own = own_slurm.OwnSlurm()
    patch = pytest.MonkeyPatch()
    try:
        own.start()
        for name, value in own.environment.items():
            patch.setenv(name, value)
        patch.setenv("A_TOKEN_OF_THE_CALLER", "secret")
        yield own
    finally:
        patch.undo()
        own.stop()


@pytest.fixture(scope="module")
def runs(cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("containers")
    made = make_runs(folder)
    made.package = made.package.rename(folder / "my_ops")  # a mount cannot name every path
    (made.package / "test_walls.py").write_text(WALLS)
    return made


@pytest.mark.parametrize("container", ["apptainer", "enroot"])
def test_kernels_run_in_the_sites_container(container, runs):
    if why := _lacking(container):
        pytest.skip(why)
    image = os.environ[f"WARPWAVE_{container.upper()}_IMAGE"]
    environment = {"A_SECRET": "$(touch pwned)'\"\n\\", "PYTHONHASHSEED": "7"}
    slurm = Slurm(partition="h100", gres="gpu:h100:1")
    (leg,) = runs.leg(container, slurm, container=container, image=image, python="python3", environment=environment)
    record = runs.run(leg)
    run = collect(leg.raw)
    print("\n".join(runs.said)); print(record); print([(c.id, c.verdict, c.properties if hasattr(c,'properties') else c) for c in run.cases])
    assert record.verdict is Verdict.PASSED


WALLS = """
import json, os, socket
import pytest

def test_walls(record_property):
    for folder in ("/packages", "/warpwave", "/", "/usr"):
        with pytest.raises(OSError):
            open(f"{folder}/written", "w")
    record_property("cards", os.environ.get("CUDA_VISIBLE_DEVICES", "none"))
    record_property("network", "lo" if [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]] == ["lo"] else "host")
    record_property("secret", os.environ.get("A_SECRET"))
    record_property("caller", str("A_TOKEN_OF_THE_CALLER" in os.environ))
    record_property("env", json.dumps(dict(os.environ)))
    record_property("home", os.path.expanduser("~"))
    record_property("status", open("/proc/self/status").read())
    open("/tmp/written", "w").write("x" * (1 << 20))
"""
