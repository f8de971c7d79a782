"""`warpwave doctor --hosts`: every leg's machine is asked at once, in one script, and what it says is believed no more than that."""

from __future__ import annotations

import json
import subprocess
import sys
import types

import pytest
from rich.console import Console

from warpwave.__main__ import _run_cli
from warpwave.config.hosts import Host, Slurm
from warpwave.config.targets import load_targets
from warpwave.doctor import elsewhere
from warpwave.doctor.elsewhere import examine_leg
from warpwave.engines.protocol import Answer
from warpwave.errors import InfrastructureError, UnreachableError
from warpwave.records.registry import ENGINES, Entry

VENDOR = """
targets:
  third:
    label: a third vendor
    stages: [test]
    image: {dockerfile: third.Dockerfile, base: "vendor/base:1"}
    devices: {nodes: [FOLDER/dev/third*]}
    probe: {driver_file: FOLDER/version, fix: Install the driver.}
    doctor:
      checks:
        - name: tool
          run: [FOLDER/tool, "a b", "$(id)"]
          rows: '^(?P<version>[0-9.]+)$'
          at_least: {version: "2.0"}
          fix: Update the tool.
        - {name: links, files: [FOLDER/links/*], rows: '(?P<state>up|down)', equal: {state: up}, fix: Plug it in.}
        - {name: hangs, run: [sleep, "60"], limit_s: 0.2, fix: Restart it.}
        - {name: missing, run: [FOLDER/no-such-tool], absent: warn, fix: Install it.}
"""


@pytest.fixture
def third(tmp_path, monkeypatch):
    """The target of a vendor whose machine is a folder here; `far` answers in a shell of its own, as a machine behind ssh does."""
    machine = tmp_path / "machine"
    for folder in ("dev", "links"):
        (machine / folder).mkdir(parents=True)
    (machine / "dev" / "third0").write_text("")
    (machine / "version").write_text("7.1\n")
    (machine / "links" / "0").write_text("up\n")
    tool = machine / "tool"
    tool.write_text('#!/bin/sh\n[ "$*" = "a b \\$(id)" ] && echo 1.9\n')
    tool.chmod(0o755)
    overlay = tmp_path / "targets.yml"
    overlay.write_text(VENDOR.replace("FOLDER", str(machine)))

    def ask(host, argv, limit_s):
        if host.ssh == "gone":
            raise UnreachableError("gone does not answer.", "It is off.", "Switch it on.")
        done = subprocess.run(argv, capture_output=True, text=True, timeout=limit_s)
        return Answer(done.stdout)

    def connect(host):
        raise InfrastructureError(f"{host.ssh} has no engine.", "It is not installed.", "Install Docker there.")

    module = types.ModuleType("far")
    module.ask, module.connect = ask, connect
    monkeypatch.setitem(sys.modules, "far", module)
    monkeypatch.setitem(ENGINES, "ssh", Entry("far", local_gpus=False, container=True, needs_host=True))
    return machine, overlay


def findings(overlay, ssh="far"):
    return {found.check: found for found in examine_leg(Host(name="third", target="third", ssh=ssh), load_targets(overlay)["third"])}


def test_the_vendors_questions_are_asked_there(third):
    """With their words unchanged; files, commands, a command that hangs and one that is missing are judged as on this machine."""
    _, overlay = third
    found = findings(overlay)

    assert found["answers"].state == "pass"
    assert (found["engine"].evidence, found["engine"].fix) == ("far has no engine.", "Install Docker there.")
    assert "version says 7.1" in found["third"].evidence
    assert (found["third: tool"].state, found["third: tool"].fix) == ("fail", "Update the tool.")
    assert "1.9 is older than 2.0" in found["third: tool"].evidence
    assert found["third: links"].state == "pass"
    assert "did not answer within 0.2 s" in found["third: hangs"].evidence
    assert found["third: missing"].state == "warn"


@pytest.mark.parametrize(
    ("entry", "check", "state", "evidence"),
    [
        ({"container": "no-runtime"}, "container", "fail", "no no-runtime there"),
        ({"container": "true"}, "container", "pass", "true"),
        ({"container": "none", "python": sys.executable}, "third: python", "pass", f"{sys.executable} has "),
        ({"container": "none", "python": "/no/python"}, "third: python", "warn", "/no/python lacks torch"),
    ],
)
def test_a_site_is_asked_for_its_runtime_or_its_python(third, monkeypatch, entry, check, state, evidence):
    """A Slurm site has no engine that could be asked."""
    monkeypatch.setitem(ENGINES, "slurm", ENGINES["ssh"])
    host = Host(name="third", target="third", slurm=Slurm(), **entry)
    found = {found.check: found for found in examine_leg(host, load_targets(third[1])["third"])}

    assert found[check].state == state
    assert found[check].evidence.startswith(evidence)


def test_a_machine_cannot_write_elsewhere(third, tmp_path, monkeypatch):
    """What it answers decides no path of ours, and no answer of another question."""
    _, overlay = third
    secret = tmp_path / "secret"
    mark = "ww" + "0" * 16
    lies = [f"{mark} file yes {path}\nmine" for path in (f"/../../../..{secret}", "relative", "/" + "x" * 600, "/a\0b", "")]
    lies += [f"{mark} run 99\nx", f"{mark} code 0", f"{mark} nonsense", f"{mark}"]
    monkeypatch.setattr(elsewhere.secrets, "token_hex", lambda size: "0" * 16)
    monkeypatch.setattr(sys.modules["far"], "ask", lambda *_: Answer("\n".join(lies)))
    found = findings(overlay)

    assert not secret.exists()
    assert found["third"].state == "fail"


def test_all_hosts_are_in_one_table(third, tmp_path, capsys, monkeypatch):
    """A host that does not answer is a row with its fix, and the exit code is that of infrastructure."""
    _, overlay = third
    hosts = tmp_path / "hosts.yml"
    hosts.write_text("near: {target: third, ssh: [far, gone]}\nother: {target: third, ssh: gone}\n")
    monkeypatch.setattr("warpwave.console.terminal", lambda err: Console(width=120))
    code = _run_cli(["doctor", "--targets", str(overlay), "--hosts", str(hosts)])
    table = capsys.readouterr().out

    assert code == 3
    assert "answers: gone does not answer." in table
    assert "Switch it on." in table
    assert "tool: version 1.9 is older than 2.0" in table
    assert "3 hosts asked, 3 not fit" in table


def test_one_leg_as_json(third, tmp_path, capsys):
    """With every finding; a name behind --hosts is a leg."""
    _, overlay = third
    (tmp_path / "hosts.yml").write_text("near: {target: third, ssh: far}\nother: {target: third, ssh: gone}\n")
    code = _run_cli(["doctor", "--targets", str(overlay), "--kernels", str(tmp_path), "--json", "--hosts", "other"])
    told = json.loads(capsys.readouterr().out)

    assert code == 3
    assert [(row["leg"], row["host"], [found["check"] for found in row["findings"]]) for row in told["hosts"]] == [
        ("other", "gone", ["answers"])
    ]


def test_without_a_file_it_says_how_to_write_one(tmp_path, capsys, monkeypatch):
    """And where it was looked for."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    code = _run_cli(["doctor", "--kernels", str(tmp_path), "--hosts"])

    assert code == 2
    assert "There is no hosts.yml." in capsys.readouterr().err
