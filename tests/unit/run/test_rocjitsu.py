"""A target that AMD's simulator runs, against a stub of its command line (tests/data/rocjitsu) and of what its race detector prints."""

import json
import re
from pathlib import Path

import command
import pytest

from warpwave.config.targets import load_targets
from warpwave.errors import ConfigError, InfrastructureError, UsageError
from warpwave.records import Defect

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

from engine_requests import ask, make_options

from warpwave.engines.local import LocalEngine
from warpwave.inside.fake_gpu.launches import Launched
from warpwave.inside.sanitize.rocjitsu import Printed, findings
from warpwave.run.target import check_target

NAME = "mi300x-emulated-by-rocjitsu"
PAGE = Path(__file__).parents[3] / "docs" / "guides" / "emulated.md"
EXAMPLE = re.search(r'```yaml title="mine.yml"\n(.*?)```', PAGE.read_text(), re.DOTALL)[1]
DISPATCH = '[rocjitsu] Kernel dispatch: "add"\n'
OLD = "RACE type=VGPR reg=2 wave=1 lane=5 wg=2,3,4 conflict=unknown\n"
NEW = "RACE kernel=add symbol=_Z3add dispatch=3 type=VGPR access=read reg=2 wave=1 lane=5 wg=2,3,4 conflict=unknown\n"
BODY = """Race on VGPR v2 [workgroup (2, 3, 4), wave 1, lane 5]
  ==>  0x100  global_load_dword v2, v[0:1], off  ; <-- wave 1
       0x104  s_waitcnt vmcnt(1)
  ==>  0x108  global_store_dword v[0:1], v2, off  ; <-- wave 1 lane 5
END_RACE
"""


@pytest.fixture
def targets(tmp_path):
    def write(text=EXAMPLE):
        (tmp_path / "mine.yml").write_text(text)
        return tmp_path / "mine.yml"

    return write


def run(data, tmp_path, targets, monkeypatch, architecture="gfx942"):
    monkeypatch.setenv("PATH", str(data / "rocjitsu"), prepend=":")
    overlay, out = targets(EXAMPLE.replace("gfx942", architecture)), tmp_path / "out"
    done = command.warpwave(
        *("run", NAME, "--targets", overlay, "--kernels", data / "rocjitsu" / "package", "--stage", "test", "--out", out, "--quiet")
    )
    return done, out / "raw" / NAME


def test_what_the_detector_prints_fails_the_test_that_launched_it(data, tmp_path, targets, monkeypatch):
    """And no other one. The report calls the target emulated, and names the simulator's version."""
    done, raw = run(data, tmp_path, targets, monkeypatch)
    (found,) = map(json.loads, (raw / "test" / "findings.jsonl").read_text().splitlines())
    record = json.loads((raw / "run.json").read_text())

    assert done.returncode == 1, done.stderr
    assert (found["case"], found["function"], found["program"]) == ("test_races.py::test_launch[racing]", "add", [2, 0, 0])
    assert "1 memory finding (race in `add`); 1 test fails" in done.stdout
    assert found["other"].startswith(
        "rocJITsu: Race on LDS byte 508 [workgroup (2, 0, 0), wave 0, lane 0]: ds_write_b32 v0, v1 (wave 1) and "
    )
    assert (record["emulated"], record["environment"]["packages"]) == ("gfx942", {"rocjitsu": "0.9.1 (stub)"})


def test_a_profile_that_it_does_not_have_is_a_missing_part(data, tmp_path, targets, monkeypatch):
    done, _ = run(data, tmp_path, targets, monkeypatch, "gfx1100")

    assert done.returncode == 3, done.stderr
    assert "rocJITsu did not start a session: error: profile 'rx-7900-xtx' not found" in done.stdout + done.stderr


def test_without_the_program_nothing_runs(tmp_path, targets, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureError, match="rocJITsu does not start"):
        LocalEngine().prepare(ask(load_targets(targets())[NAME], tmp_path, tmp_path / "raw"), print)


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        (f"{NAME}:", "mi300x:", "'emulated' in it"),
        ("engine: local", "engine: docker", "`engine: local` beside it"),
        ("[gfx942]", "[]", "an architecture"),
        ("[test, compile]", "[test, bench]", "measure nothing"),
    ],
)
def test_a_target_that_makes_no_sense_is_refused(targets, old, new, wanted):
    with pytest.raises(ConfigError, match=wanted):
        load_targets(targets(EXAMPLE.replace(old, new)))


def test_no_other_engine_runs_it(targets, tmp_path):
    """A container has no simulator: its tests would find no card, or a real one."""
    with pytest.raises(UsageError, match="local engine"):
        check_target(load_targets(targets())[NAME], make_options("r", tmp_path / "out", tmp_path, engine="docker"))


@pytest.mark.parametrize("text", [DISPATCH + OLD + BODY, NEW + BODY])
def test_a_register_that_is_read_too_early(text):
    (row,) = findings(f"collected 2 items\n{text}{text}noise\n")

    assert (row.defect, row.function, row.program, row.lane) == (Defect.EARLY, "add", (2, 3, 4), 5)
    assert row.sentence == (
        "used-before-wait in add: rocJITsu: Race on VGPR v2 [workgroup (2, 3, 4), wave 1, lane 5]: "
        "global_load_dword v2, v[0:1], off (wave 1) and global_store_dword v[0:1], v2, off (wave 1 lane 5)"
    )


@pytest.mark.parametrize(("launched", "printed", "followed"), [(True, DISPATCH, True), (True, "", False), (False, "", True)])
def test_a_test_whose_launches_the_detector_did_not_see_is_not_followed(tmp_path, monkeypatch, launched, printed, followed):
    monkeypatch.setattr(Launched, "functions", {"add": None} if launched else {})
    log = tmp_path / "log"
    log.touch()
    seen = Printed(log)
    log.write_text(printed)

    assert seen.take() == []
    assert (not seen.not_checked) == followed
