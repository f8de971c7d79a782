"""`warpwave run` with a hosts file, from outside: one run of two legs that every test looks at, and the same run resumed."""

from __future__ import annotations

import json
import os

import command
import pytest
from light import light_python

pytest.importorskip("triton", reason="the local engine needs torch and triton; `nox -s tests` installs them")

# Nothing listens at port 1.
HOSTS = """
near: {{target: cpu, engine: local, python: {python}, shards: 2}}
gone: {{target: cpu, ssh: "ssh://127.0.0.1:1"}}
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder of a run of two shards here and a leg that cannot be reached, and what the command printed; then the run resumed."""
    folder = tmp_path_factory.mktemp("legs")
    (folder / "package").mkdir()
    for name in ("a", "b"):
        (folder / "package" / f"test_{name}.py").write_text("def test_x(): pass\n")
    (folder / "hosts.yml").write_text(HOSTS.format(python=light_python()))
    variables = {**os.environ, "COLUMNS": "200", "TMPDIR": str(folder), "DOCKER_HOST": f"unix://{folder}/no.sock"}
    words = ("run", "near", "gone", "--kernels", "package", "--hosts", "hosts.yml", "--stage", "test")
    first = command.warpwave(*words, "--out", "out", cwd=folder, env=variables, light=True)
    again = command.warpwave(*words, "--resume", "out", "--json", cwd=folder, env=variables, light=True)
    return folder, first, again


def test_a_leg_without_its_machine_is_absent(ran):
    """With the reason; the other leg is complete, its shards are one column, and the exit code is that of infrastructure."""
    folder, first, _ = ran
    written = json.loads((folder / "out" / "comparison.json").read_text())
    targets = {target["target"]: target for target in written["targets"]}

    assert first.returncode == 3, first.stderr
    assert list(targets) == ["near", "gone"]
    assert (targets["near"]["verdict"], targets["near"]["tests"]) == ("passed", {"passed": 2})
    assert targets["gone"]["verdict"] == "absent"
    assert "127.0.0.1" in targets["gone"]["reason"]
    assert "gone is absent" in first.stdout


def test_each_leg_names_itself_and_its_log(ran):
    """Line by line without a terminal; the logs are where the last line says."""
    folder, first, _ = ran

    assert "near 1/2: starting on this machine" in first.stderr
    assert "gone: absent: " in first.stderr
    assert "Logs: " in first.stderr
    assert {path.name for path in (folder / "out" / "logs").iterdir()} == {"near-1of2.log", "near-2of2.log", "gone.log"}


def test_all_legs_have_one_snapshot_and_one_commit(ran):
    """Also the shards, and the leg that did not run."""
    folder, _, _ = ran
    records = [json.loads(path.read_text()) for path in (folder / "out").glob("**/raw/*/run.json")]

    assert len(records) == 3
    assert len({(record["snapshot"], record["commit"]) for record in records}) == 1
    assert records[0]["snapshot"]
    assert {(record["target"], record["host"]) for record in records} == {("near", "this machine"), ("gone", "ssh://127.0.0.1:1")}


def test_a_run_is_resumed_leg_by_leg(ran):
    """What is finished is not run again, and the leg that was absent is tried again."""
    folder, _, again = ran
    told = json.loads(again.stdout)
    attempts = {target["target"]: len(target["attempts"]) for target in told["comparison"]["targets"]}

    assert again.returncode == 3
    assert attempts == {"near": 0, "gone": 1}
    assert "near 1/2: there is nothing left to do" in again.stderr
    assert "there is nothing left to do" in (folder / "out" / "logs" / "near-2of2.log").read_text()
