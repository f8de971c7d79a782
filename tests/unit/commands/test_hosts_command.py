"""hosts.yml: what it may say, what is refused and with which words, and what names and options come to."""

import json
import os
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest
from engine_requests import make_options

pytest.importorskip("triton", reason="the local engine needs torch and triton; `nox -s tests` installs them")

import command
from light import light_python
from rich.console import Console

from warpwave.__main__ import _run_cli
from warpwave.cli.legs import chosen_targets, legs_of
from warpwave.config.hosts import Host, Slurm, load_hosts
from warpwave.config.names import find_hosts, hosts_file
from warpwave.config.targets import load_targets
from warpwave.doctor import elsewhere
from warpwave.doctor.elsewhere import examine_leg
from warpwave.engines.protocol import Answer
from warpwave.errors import ConfigError, InfrastructureError, UnreachableError, UsageError
from warpwave.options import Build, Install
from warpwave.records import Declared, Shard
from warpwave.records.registry import ENGINES, Entry

TARGETS = load_targets()
EXAMPLE = """
cuda: {ssh: h100-01}
rocm: {slurm: {partition: mi300x, gpus: 1, time: "00:30:00"}, container: apptainer}
cuda-b200: {target: cuda, ssh: user@b200, engine: podman}
"""


def load(tmp_path: Path, text: str, *, trusted: bool = True) -> dict[str, Host]:
    path = tmp_path / "hosts.yml"
    path.write_text(text)
    return load_hosts(path, TARGETS, trusted=trusted)


def test_the_example_says_what_it_means(tmp_path):
    """Each leg has its target, its place in words, and the engine that runs there."""
    hosts = load(tmp_path, EXAMPLE, trusted=False)

    assert {name: (host.target, host.where, host.runs_with) for name, host in hosts.items()} == {
        "cuda": ("cuda", "h100-01", "ssh"),
        "rocm": ("rocm", "slurm mi300x", "slurm"),
        "cuda-b200": ("cuda", "user@b200", "ssh"),
    }
    assert (hosts["rocm"].slurm.time, hosts["rocm"].slurm.gpus) == ("00:30:00", 1)


REFUSED = {
    "a key that does not exist": ("cuda: {shh: a}", "cuda.shh: found a key that does not exist, allowed is one of target, ssh,"),
    "no legs": ("{}", "found 0 legs"),
    "a leg that is a path": ("../cuda: {target: cuda, ssh: a}", "found '../cuda'"),
    "a leg that is a test": ("test_x.py: {target: cuda, ssh: a}", "found 'test_x.py'"),
    "a leg that is a number": ("1: {ssh: a}", "found 1,"),
    "a leg without a target": ("mine: {ssh: a}", "mine.target: found nothing, and no target has the leg's name, allowed is one of cpu"),
    "a target that does not exist": ("mine: {target: cuad, ssh: a}", "mine.target: found 'cuad', allowed is one of"),
    "another target's name": ("rocm: {target: cuda, ssh: a}", "rocm.target: found 'cuda', allowed is 'rocm'"),
    "an emulated target by another name": ("mine: {target: gfx942-emulated, ssh: a}", "`emulated` in its name"),
    "an option as a destination": ("cuda: {ssh: -oProxyCommand=x}", "cuda.ssh: found '-oProxyCommand=x', allowed is a destination"),
    "an option as a host": ('cuda: {ssh: "user@-oProxyCommand=x"}', "cuda.ssh: found"),
    "a command as a destination": ('cuda: {ssh: "a; rm -rf /"}', "cuda.ssh: found 'a; rm -rf /'"),
    "a substitution as a destination": ('cuda: {ssh: "$(id)"}', "cuda.ssh: found '$(id)'"),
    "a line break in a destination": ('cuda: {ssh: "a\\nb"}', "cuda.ssh: found 'a\\nb'"),
    "a second destination that is an option": ("cuda: {ssh: [a, -b]}", "cuda.also[0]: found '-b'"),
    "a destination that is a number": ("cuda: {ssh: 7}", "cuda.ssh: found 7"),
    "a partition with a space": ('cuda: {slurm: {partition: "a b"}}', "cuda.slurm.partition: found 'a b'"),
    "a partition with an escape": ('cuda: {slurm: {partition: "a\\eb"}}', "cuda.slurm.partition: found"),
    "a time that YAML reads as a number": (
        "cuda: {slurm: {time: 1:30:00}}",
        "cuda.slurm.time: found 5400, allowed is a time limit in quotes",
    ),
    "a time in words": ("cuda: {slurm: {time: soon}}", "cuda.slurm.time: found 'soon'"),
    "more cards than any machine has": ("cuda: {slurm: {gpus: 1000000}}", "cuda.slurm.gpus: found 1000000, allowed is a whole number"),
    "cards below nothing": ("cuda: {slurm: {gpus: -1}}", "cuda.slurm.gpus: found -1"),
    "true cards": ("cuda: {slurm: {gpus: true}}", "cuda.slurm.gpus: found True"),
    "shards without end": ("cuda: {ssh: a, shards: 1e9}", "cuda.shards: found"),
    "an option of sbatch that runs text": ("cuda: {slurm: {options: [--wrap=id]}}", "not --wrap"),
    "the beginning of such an option": ("cuda: {slurm: {options: [--wra=id]}}", "not --wrap"),
    "two options in one": ('cuda: {slurm: {options: ["mem=1 --wrap=id"]}}', "an option of sbatch in one word"),
    "a variable that is none": ('cuda: {ssh: a, environment: {"A=B": c}}', "cuda.environment: found 'A=B'"),
    "a relative socket": ("cuda: {ssh: a, socket: docker.sock}", "cuda.socket: found 'docker.sock'"),
    "a folder that is an option": ('cuda: {slurm: {folder: "--x"}}', "cuda.slurm.folder"),
    "a container without slurm": ("cuda: {ssh: a, container: apptainer}", "cuda.container: found it without `slurm`"),
    "an engine beside slurm": ("cuda: {slurm: {}, engine: docker}", "cuda.engine: found it beside `slurm`"),
    "more machines without a first": ("cuda: {also: [a]}", "cuda.also: found it without `ssh`"),
    "slurm without a container": ("cuda: {slurm: {partition: a}}", "cuda.container: found nothing beside `slurm`, allowed is the site's"),
    "a list": ("[cuda]", "a mapping of legs"),
    "no YAML": ("cuda: {", "is not valid YAML"),
    "very deep": ("cuda: " + "[" * 500, "is not valid YAML"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_refused_by_its_key(tmp_path, what):
    """With the file, the key path, what was found and what is allowed; nothing of it has reached a shell."""
    text, said = REFUSED[what]
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, text)

    assert said in refused.value.happened
    assert str(tmp_path / "hosts.yml") in refused.value.happened


BEYOND = {
    "ssh_config": "{ssh: a, ssh_config: ssh.conf}",
    "socket": "{ssh: a, socket: /var/run/docker.sock}",
    "engine": "{ssh: a, engine: local}",
    "python": "{ssh: a, python: ./python}",
    "weaken": "{ssh: a, weaken: [network]}",
    "container": "{slurm: {}, container: none}",
    "module": "{slurm: {}, container: apptainer, module: [evil]}",
    "slurm.options": "{slurm: {options: [--reservation=x]}, container: apptainer}",
}


@pytest.mark.parametrize("key", BEYOND)
def test_a_packages_own_file_stays_in_the_container(tmp_path, key):
    """Its author is a stranger. In a file that the user wrote or named, the same is allowed."""
    text = f"cuda: {BEYOND[key]}"
    load(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, text, trusted=False)

    assert f"cuda.{key}: found" in refused.value.happened
    assert "--hosts" in refused.value.happened


def asked(tmp_path, *names, **more):
    return {"here": False, "hosts": None, "kernels": tmp_path / "package" / "kernels", "names": names, **more}


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "package" / "kernels").mkdir(parents=True)
    (tmp_path / "package" / "pyproject.toml").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "warpwave").mkdir(parents=True)
    return tmp_path / "package"


def test_the_file_is_found_beside_the_kernels_then_at_the_users(tmp_path, package):
    own = tmp_path / "config" / "warpwave" / "hosts.yml"
    places = [(own, True), (package / "hosts.yml", False), (package / "kernels" / "hosts.yml", False)]

    assert hosts_file(asked(tmp_path)) == (None, False)
    for path, trusted in places:
        path.write_text(EXAMPLE)
        assert hosts_file(asked(tmp_path)) == (path, trusted)
        assert find_hosts(package / "kernels", package) == path
    assert hosts_file(asked(tmp_path, hosts=own)) == (own, True)
    with pytest.raises(UsageError, match="--here and --hosts"):
        hosts_file(asked(tmp_path, here=True, hosts=own))


@pytest.mark.parametrize(
    ("names", "legs"), [(("cuda", "rocm"), ["cuda", "rocm"]), (("cuda-b200",), ["cuda-b200"]), (("cpu", "cuda"), ["cpu", "cuda"])]
)
def test_a_name_is_a_leg(tmp_path, package, names, legs):
    (package / "hosts.yml").write_text(EXAMPLE)
    chosen = chosen_targets(asked(tmp_path, *names), TARGETS)

    assert [target.name for target, _ in chosen] == legs
    assert all((host is None) == (target.name == "cpu") for target, host in chosen)


def test_a_target_without_a_leg_of_its_name_means_all_its_legs(tmp_path, package):
    (package / "hosts.yml").write_text("big: {target: cuda, ssh: a}\nsmall: {target: cuda, ssh: b}\n")
    chosen = chosen_targets(asked(tmp_path, "cuda", "small"), TARGETS)

    assert [(target.name, target.kind, host.ssh) for target, host in chosen] == [("big", "cuda", "a"), ("small", "cuda", "b")]
    with pytest.raises(UsageError, match="no target named 'large'"):
        chosen_targets(asked(tmp_path, "large"), TARGETS)

    # By its own name, as a job on the runner that has its card needs it; a target's name means the target.
    (package / "hosts.yml").write_text("big: {target: cuda, ssh: a}\n")
    chosen = chosen_targets(asked(tmp_path, "cuda", "big", here=True), TARGETS)

    assert [(target.name, target.kind, host) for target, host in chosen] == [("cuda", "cuda", None), ("big", "cuda", None)]
    (package / "hosts.yml").write_text("{")
    assert chosen_targets(asked(tmp_path, "cuda", here=True), TARGETS) == [(TARGETS["cuda"], None)]


def legs(tmp_path, entry, trusted=True, **more):
    host = load(tmp_path, f"cuda: {entry}", trusted=trusted)["cuda"]
    options = make_options("run-1", tmp_path / "out", **{"kernels": tmp_path, **more})
    return legs_of([(replace(TARGETS["cuda"], name="cuda"), host)], options)


def test_a_host_adds_to_the_options(tmp_path):
    (leg,) = legs(
        tmp_path,
        "{ssh: a, gpu: 3, weaken: [network], environment: {A: host, B: host}, build: {base_image: mine, args: {X: host, Y: host}}}",
        weaken=("shm",),
        variables={"A": "mine"},
        build=Build(args={"X": "mine"}),
    )
    options = leg.options

    assert (options.where.engine, options.where.gpu, options.build.weaken) == ("ssh", "3", ("shm", "network"))
    assert options.package.variables == {"A": "mine", "B": "host"}
    assert (options.build.base_image, options.build.args) == ("mine", {"X": "mine", "Y": "host"})

    # An untrusted hosts file sets variables for the package's stages alone; the user's own file sets the user's.
    entry = "{ssh: a, environment: {TRITON_DEBUG: file}}"
    (own,), (theirs,) = legs(tmp_path, entry), legs(tmp_path, entry, trusted=False)

    assert (own.options.package.variables, own.options.package.declared.variables) == ({"TRITON_DEBUG": "file"}, {})
    assert (theirs.options.package.variables, theirs.options.package.declared.variables) == ({}, {"TRITON_DEBUG": "file"})


def test_shards_are_legs_of_their_own(tmp_path):
    """Over the machines in turn, each with its part, its folder and its id; the run is named by the folder of the whole."""
    made = legs(tmp_path, "{ssh: [a, b], shards: 3}")

    assert [(leg.name, leg.options.where.host.ssh, leg.options.where.shard) for leg in made] == [
        ("cuda 1/3", "a", Shard(1, 3)),
        ("cuda 2/3", "b", Shard(2, 3)),
        ("cuda 3/3", "a", Shard(3, 3)),
    ]
    assert made[1].raw == tmp_path / "out" / "shards" / "2of3" / "raw" / "cuda"
    assert {leg.options.where.folder for leg in made} == {tmp_path / "out"}
    assert [leg.options.where.run_id for leg in made] == ["run-1-1of3", "run-1-2of3", "run-1-3of3"]
    assert len({leg.options.package.snapshot for leg in made}) == 1
    assert made[0].options.package.snapshot

    with pytest.raises(UsageError, match="divides cuda already"):
        legs(tmp_path, "{ssh: a, shards: 2}", shard=Shard(1, 2))

    # The file is read all the same: its other legs run, and doctor asks that site.
    with pytest.raises(ConfigError, match=r"cuda\.image: found nothing"):
        legs(tmp_path, "{slurm: {}, container: apptainer}")
    legs(tmp_path, "{slurm: {}, container: apptainer, image: /a.sif}")


@pytest.mark.parametrize(
    ("entry", "option", "more"),
    [("{ssh: a}", "--engine local", {"engine": "local"}), ("{slurm: {}, container: none}", "--python x", {"python": "x"})],
)
def test_options_of_this_machine_do_not_reach_another(tmp_path, entry, option, more):
    with pytest.raises(UsageError, match=option):
        legs(tmp_path, entry, **more)


SECRETS = {
    "--env TOKEN": {"variables": {"TOKEN": "secret"}},
    "build.args.TOKEN": {"build": Build(args={"TOKEN": "secret"})},
    "build.pip_config": {"build": Build(pip_config=Path("pip.conf"))},
    "build.wheelhouse": {"build": Build(wheelhouse=Path("wheels"))},
    "--requirements": {"install": Install((Path("private.txt"),))},
}


@pytest.mark.parametrize("option", SECRETS)
def test_what_the_user_gives_stays_off_a_machine_that_the_package_names(tmp_path, option):
    """Its author is a stranger. What the package itself has may go there, and everything to a machine that the user named."""
    (tmp_path / "pyproject.toml").write_text('[tool.warpwave]\nenv = {TRITON_DEBUG = "1"}\n')
    with pytest.raises(UsageError) as refused:
        legs(tmp_path, "{ssh: a}", trusted=False, kernels=tmp_path, **SECRETS[option])

    assert refused.value.happened.startswith(f"{option} would go to a,")
    assert "secret" not in str(refused.value)
    assert "--hosts FILE" in refused.value.remedy
    legs(tmp_path, "{ssh: a}", kernels=tmp_path, **SECRETS[option])
    legs(tmp_path, "{ssh: a}", trusted=False, kernels=tmp_path, declared=Declared(variables={"TRITON_DEBUG": "1"}))


# `warpwave doctor --hosts`: every leg's machine is asked at once, in one script, and what it says is believed no more than that.

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
    _, overlay = third
    (tmp_path / "hosts.yml").write_text("near: {target: third, ssh: far}\nother: {target: third, ssh: gone}\n")
    code = _run_cli(["doctor", "--targets", str(overlay), "--kernels", str(tmp_path), "--json", "--hosts", "other"])
    told = json.loads(capsys.readouterr().out)

    assert code == 3
    assert [(row["leg"], row["host"], [found["check"] for found in row["findings"]]) for row in told["hosts"]] == [
        ("other", "gone", ["answers"])
    ]


def test_without_a_file_it_says_how_to_write_one(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    code = _run_cli(["doctor", "--kernels", str(tmp_path), "--hosts"])

    assert code == 2
    assert "There is no hosts.yml." in capsys.readouterr().err


# `warpwave run` with a hosts file, from outside: one run of two legs that every test looks at, and the same run resumed.

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


def test_a_leg_without_its_machine_is_absent_and_tried_again(ran):
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

    # What is finished is not run again, and the leg that was absent is tried again.
    folder, _, again = ran
    told = json.loads(again.stdout)
    attempts = {target["target"]: len(target["attempts"]) for target in told["comparison"]["targets"]}

    assert again.returncode == 3
    assert attempts == {"near": 0, "gone": 1}
    assert "near 1/2: there is nothing left to do" in again.stderr
    assert "there is nothing left to do" in (folder / "out" / "logs" / "near-2of2.log").read_text()
