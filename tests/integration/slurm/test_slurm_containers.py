"""Real jobs in the containers of Slurm sites: Apptainer, and enroot through pyxis.

Two variables name an image each, made from the one that the other tests here build: `WARPWAVE_APPTAINER_IMAGE` (`apptainer build X.sif
docker-daemon://warpwave/cpu:TAG`) and `WARPWAVE_ENROOT_IMAGE` (`enroot import -o X.sqsh dockerd://warpwave/cpu:TAG`). pyxis is among
Slurm's plugins, or `WARPWAVE_PYXIS` names it.
"""

import os
import shutil
import signal
from dataclasses import replace

import own_slurm
import pytest
from own_slurm import Client, make_runs

from warpwave.collect import collect
from warpwave.config.hosts import Slurm
from warpwave.engines.slurm.script import runtime_of
from warpwave.records import Verdict

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(own_slurm.missing()), reason=own_slurm.missing()),
]


def _lacking(container):
    image = f"WARPWAVE_{container.upper()}_IMAGE"
    program = container if shutil.which(container) else ""
    if not program or (container == "enroot" and not own_slurm.pyxis()):
        return f"no {container} here" + (" with pyxis" if container == "enroot" else "")
    return "" if os.environ.get(image) else f"{image} names no image"


@pytest.fixture(scope="module")
def cluster():
    with own_slurm.running() as own:
        yield own


@pytest.fixture(scope="module")
def runs(cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("containers")
    made = make_runs(folder)
    made.package = made.package.rename(folder / "my_ops")  # a mount cannot name every path
    (made.package / "test_walls.py").write_text(WALLS)
    return made


@pytest.mark.parametrize(("container", "network", "processes"), [("apptainer", "lo", "own"), ("enroot", "host", "host")])
def test_kernels_run_in_the_sites_container(container, network, processes, runs):
    if why := _lacking(container):
        pytest.skip(why)
    slurm = Slurm(partition="h100", gres="gpu:h100:1")
    image = os.environ[f"WARPWAVE_{container.upper()}_IMAGE"]
    (leg,) = runs.leg(container, slurm, container=container, image=image, python="python3", environment={"A_SECRET": SECRET})
    record = runs.run(leg)
    cases = {case.id: case for case in collect(leg.raw).cases}

    assert record.verdict is Verdict.PASSED, record.reason
    assert record.environment.weakened == runtime_of(leg.options.where.host).weakened
    assert cases["test_add.py::test_add"].verdict is Verdict.PASSED
    seen = cases["test_walls.py::test_walls"].properties
    assert (seen["network"], seen["processes"], seen["secret"], seen["caller"]) == (network, processes, SECRET, "False")
    assert (seen["cards"], seen["user"]) == ("0", "warpwave")
    assert container == "enroot" or seen["capabilities"] == "0"  # enroot makes root, which runs this, root in a namespace of its own


@pytest.mark.parametrize("container", ["apptainer", "enroot"])
def test_an_image_that_is_missing_is_said(container, runs):
    if why := _lacking(container):
        pytest.skip(why)
    (leg,) = runs.leg(f"no-{container}", Slurm(partition="h100", gpus=0), container=container, image="/nowhere/image", python="python3")
    record = runs.run(leg)

    assert record.verdict is Verdict.INFRA
    assert "/nowhere/image" in record.reason


@pytest.mark.parametrize("container", ["apptainer", "enroot"])
def test_ctrl_c_ends_a_container_and_keeps_what_has_run(container, runs, cluster):
    """The signal goes through the runtime to the inside; what had ended before is in the results."""
    if why := _lacking(container):
        pytest.skip(why)
    image = os.environ[f"WARPWAVE_{container.upper()}_IMAGE"]
    package = runs.package.parent / f"slow-{container}"
    package.mkdir()
    (package / "test_slow.py").write_text("import time\ndef test_one(): pass\ndef test_slow(): time.sleep(120)\n")
    name = f"stopped-{container}"
    slow = replace(runs, package=package)
    more = {"container": container, "image": image, "python": "python3", "grace_s": 15.0}
    (leg,) = slow.leg(name, Slurm(partition="h100", gpus=0), **more)
    client = Client(leg)
    journal = runs.folder / name / "slurm" / name / "results" / "test" / "journal.jsonl"
    runs.wait_until(lambda: journal.exists() and "test_slow" in journal.read_text(), 240.0)
    record = client.ends(signal.SIGINT)
    verdicts = {case.id: case.verdict for case in collect(leg.raw).cases}

    assert (record.verdict, record.exit.interrupted) == (Verdict.INCOMPLETE, True)
    assert container == "enroot" or record.exit.code == 130  # the step of pyxis has been seen to end only when it is cancelled
    assert verdicts["test_slow.py::test_one"] is Verdict.PASSED
    assert cluster.command("squeue", "-h", "-o", "%i") == ""


SECRET = "$(touch pwned)'\"\n\\"
WALLS = """
import os
import pytest

def test_walls(record_property):
    for folder in ("/packages", "/warpwave", "/", "/usr"):
        with pytest.raises(OSError):
            open(f"{folder}/written", "w")
    with open("/tmp/written", "w") as file:
        file.write("x")
    interfaces = [line.partition(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]]
    record_property("network", "lo" if interfaces == ["lo"] else "host")
    names = [open(f"/proc/{number}/comm").read().strip() for number in os.listdir("/proc") if number.isdigit()]
    record_property("processes", "host" if "slurmd" in names else "own")
    record_property("secret", os.environ.get("A_SECRET"))
    record_property("caller", str("A_TOKEN_OF_THE_CALLER" in os.environ))
    record_property("cards", os.environ.get("CUDA_VISIBLE_DEVICES", "none"))
    record_property("user", os.environ["USER"])
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    record_property("capabilities", str(int(status["CapEff"], 16)))
"""
