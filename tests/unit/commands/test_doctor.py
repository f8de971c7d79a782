"""`warpwave doctor` on machines that are not this one: recorded answers, a PATH of scripts, engines of all sorts. One recording is real."""

import dataclasses
import json
import os
import shlex
import sys
import time
from itertools import pairwise
from pathlib import Path

import command
import pytest
import yaml
from engine_requests import make_job
from hypothesis import given
from hypothesis import strategies as st

from warpwave import doctor
from warpwave.config.files import merge
from warpwave.config.names import check_names
from warpwave.config.targets import load_targets
from warpwave.doctor.checks import Engine, examine_engine, examine_host, examine_python, examine_vendor
from warpwave.doctor.machine import Machine, bad, fit
from warpwave.engines.docker.errors import no_engine
from warpwave.errors import ConfigError, UsageError
from warpwave.records import Job, Stage, dump
from warpwave.records.run import EMULATOR

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MACHINES = {path.stem: path for path in sorted((Path(__file__).parents[2] / "data" / "doctor").glob("*.yml"))}
HEALTHY = {
    "ServerVersion": "28.5.1",
    "CgroupVersion": "2",
    "MemoryLimit": True,
    "SwapLimit": True,
    "PidsLimit": True,
    "LiveRestoreEnabled": True,
}


def machine_of(recording, folder):
    """A machine below `folder`: its files, and a PATH of scripts that answer what was recorded and complain about anything else."""
    root, programs = folder / "root", folder / "bin"
    for name, text in recording.get("files", {}).items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    root.mkdir(exist_ok=True)
    programs.mkdir()
    answers = {}
    for line, (code, text) in recording.get("commands", {}).items():
        program, _, arguments = line.partition(" ")
        answers.setdefault(program, {})[arguments] = (code, text)
    for program, known in answers.items():
        cases = "\n".join(f"{shlex.quote(key)}) printf %s {shlex.quote(text)}; exit {code};;" for key, (code, text) in known.items())
        script(programs / program, f'case "$*" in\n{cases}\n*) echo "{program}: unexpected: $*"; exit 2;;\nesac\n')
    return Machine(root=root, variables={"PATH": str(programs)})


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)


@pytest.mark.parametrize("name", MACHINES)
def test_a_recorded_machine_comes_to_what_it_should(name, tmp_path):
    recording = yaml.safe_load(MACHINES[name].read_text())
    target = load_targets()[recording["target"]]
    findings = {
        finding.check: finding for finding in examine_vendor(target, machine_of(recording, tmp_path), recording.get("engine"), needed=False)
    }
    expected = recording["expect"]

    assert {check: findings[check].state for check in expected} == {check: state for check, (state, _) in expected.items()}
    assert {check: evidence in findings[check].evidence for check, (_, evidence) in expected.items()} == dict.fromkeys(expected, True), (
        findings
    )
    assert all(bool(finding.fix) == (finding.state in ("warn", "fail")) for finding in findings.values())


def test_every_check_of_both_vendors_has_passed_and_not_passed_somewhere():
    """A check that no recording trips, or none satisfies, may say anything."""
    passed, tripped = set(), set()
    for path in MACHINES.values():
        for check, (state, _) in yaml.safe_load(path.read_text())["expect"].items():
            (passed if state == "pass" else tripped).add(check)
    checks = {f"{target.name}: {check.name}" for target in load_targets().values() for check in target.doctor.checks}

    assert (checks - passed, checks - tripped) == (set(), set())


@pytest.mark.parametrize(("name", "target"), [("nvidia-sick", "cuda"), ("amd-healthy", "rocm")])
def test_without_a_container_no_image_asks_for_its_driver(tmp_path, name, target):
    """A Python of one's own brings another runtime: driver 570 is old for our image, and right for its torch. It is told, not judged."""
    recording = yaml.safe_load(MACHINES[name].read_text())
    findings = examine_vendor(load_targets()[target], machine_of(recording, tmp_path), None, needed=True, contained=False)
    files = [text.strip() for path, text in recording["files"].items() if path.startswith("/sys/module")]

    assert not {f"{target}: {check}" for check in ("driver", "toolkit", "hand-over")} & {f.check for f in findings}
    assert f"says {files[0]}" in findings[0].evidence


def pythons_packages(folder, cuda):
    """Packages that must not be imported, and a torch that says what it was built for."""
    for name, version in {"torch": "2.11.0+cu130", "triton": "3.6.0", "pytest": "9.0", "numpy": "2.4"}.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("raise SystemExit('imported')")
        (folder / f"{name}-{version}.dist-info").mkdir()
        (folder / f"{name}-{version}.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "torch" / "version.py").write_text(f"__version__ = '2.11.0+cu130'\ncuda = {cuda!r}\nhip = None\n")
    (folder / "sitecustomize.py").write_text("import sys; print('a warning', file=sys.stderr)")
    return Machine(root=folder, variables={"PATH": os.environ["PATH"], "PYTHONPATH": str(folder)})


def test_a_python_is_asked_for_its_versions_without_an_import(tmp_path):
    finding = examine_python(load_targets()["cuda"], pythons_packages(tmp_path, "13.0"))

    assert (finding.check, finding.state) == ("cuda: python", "pass"), finding
    assert finding.evidence == f"{sys.executable} has torch 2.11.0+cu130, triton 3.6.0, pytest 9.0, numpy 2.4"


@pytest.mark.parametrize(("target", "cuda", "state"), [("cuda", None, "warn"), ("rocm", "13.0", "warn"), ("cpu", None, "pass")])
def test_a_torch_that_was_built_for_another_vendor_is_found(tmp_path, target, cuda, state):
    """Before a run refuses it, with where to get another; a target without a card takes any."""
    targets = load_targets()
    finding = examine_python(targets[target], pythons_packages(tmp_path, cuda))

    assert finding.state == state, finding
    assert (targets["cuda"].image.build_args["TORCH_INDEX"] in finding.fix) == (target == "cuda" and state == "warn")


def test_a_python_that_lacks_the_emulator_is_found(tmp_path):
    target = next(entry for entry in load_targets().values() if entry.emulate)
    hidden = pythons_packages(tmp_path, None)
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\nfind = util.find_spec\nutil.find_spec = lambda name: None if name == 'elftools' else find(name)\n"
    )
    finding = examine_python(target, hidden)
    extra = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]["optional-dependencies"]["emulator"]

    assert finding.state == "warn", finding
    assert "elftools" in finding.evidence
    assert "-m pip install 'pyelftools>=0.31'" in finding.fix
    assert sorted(EMULATOR.values()) == sorted(extra)


def test_no_two_checks_have_one_name(tmp_path):
    """Who reads the JSON by name would lose one: without a container a target is asked for its Python as well as for its card."""
    machine = machine_of(yaml.safe_load(MACHINES["nvidia-h200"].read_text()), tmp_path)
    names = [finding.check for finding in doctor.examine(load_targets(), ["cuda"], machine, engine="local")]

    assert len(set(names)) == len(names)


def test_a_tool_that_hangs_is_a_finding_and_costs_no_more_than_its_time(tmp_path):
    recording = yaml.safe_load(MACHINES["amd-healthy"].read_text())
    machine = machine_of(recording, tmp_path)
    script(tmp_path / "bin" / "amd-smi", "trap '' TERM\n/bin/sleep 600 &\n/bin/sleep 600\n")
    machine.deadline = time.monotonic() + 0.3
    started = time.monotonic()
    findings = {f.check: f for f in examine_vendor(load_targets()["rocm"], machine, None, needed=False)}

    assert time.monotonic() - started < 30  # and not ten minutes
    assert findings["rocm: cards"].state == "fail"
    assert "did not answer" in findings["rocm: cards"].evidence
    assert findings["rocm: ecc"].state == "pass"  # files answer when tools do not


def test_a_node_that_is_closed_to_this_user_is_named(tmp_path, monkeypatch):
    machine = machine_of(yaml.safe_load(MACHINES["amd-healthy"].read_text()), tmp_path)
    monkeypatch.setattr("warpwave.doctor.machine.os.access", lambda path, _: "kfd" not in str(path))
    first = examine_vendor(load_targets()["rocm"], machine, None, needed=False)[0]

    assert (first.state, first.evidence) == ("fail", "driver loaded: /sys/module/amdgpu/version says 6.16.6; no access to /dev/kfd")
    assert "usermod -aG render,video" in first.fix


@pytest.mark.parametrize("needed", [False, True])
def test_an_absent_vendor_is_a_skip_unless_it_was_named(tmp_path, needed):
    findings = examine_vendor(load_targets()["rocm"], Machine(root=tmp_path, variables={}), None, needed=needed)

    assert [finding.state for finding in findings] == ["fail" if needed else "skip"]


def test_what_a_tool_prints_cannot_write_to_the_terminal(tmp_path):
    recording = {
        "files": {"/dev/kfd": "", "/dev/dri/renderD128": ""},
        "commands": {"amd-smi list --csv": [1, "boom \x1b[31mred\x1b[0m\x07" + "x" * 500]},
    }
    findings = {f.check: f for f in examine_vendor(load_targets()["rocm"], machine_of(recording, tmp_path), None, needed=False)}
    evidence = findings["rocm: cards"].evidence

    assert evidence.isprintable()
    assert len(evidence) < 300


ENGINES = {
    "healthy": (HEALTHY, {}),
    "cgroup v1": ({**HEALTHY, "CgroupVersion": "1"}, {"limits": "warn"}),
    "no limits": ({**HEALTHY, "PidsLimit": False}, {"limits": "warn"}),
    "no live-restore": ({**HEALTHY, "LiveRestoreEnabled": False}, {"live-restore": "skip"}),
    "says little": ({}, {"live-restore": "skip"}),
}


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_that_answers(name):
    info, odd = ENGINES[name]
    states = {f.check: f.state for f in examine_engine(Engine(info=info), Machine(variables={}), needed=True)}

    assert {check: state for check, state in states.items() if state != "pass"} == {"image room": "skip", **odd}


@pytest.mark.parametrize("needed", [False, True])
def test_no_engine_fails_only_where_a_card_needs_one(needed):
    engine = Engine(error=no_engine(FileNotFoundError("No such file or directory"), "unix:///nowhere"))
    findings = examine_engine(engine, Machine(variables={}), needed=needed)

    assert [f.state for f in findings] == ["fail" if needed else "warn"]
    assert "systemctl start docker" in findings[0].fix


def test_a_cache_that_may_not_be_executed_from_is_found(tmp_path):
    recording = {"files": {"/proc/mounts": "/dev/sda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw,nosuid,nodev,noexec 0 0\n"}}
    machine = machine_of(recording, tmp_path)

    def state(folder):
        machine.variables = {**machine.variables, "TRITON_CACHE_DIR": folder}
        return next(f.state for f in examine_host(machine) if f.check == "triton cache")

    assert (state("/tmp/cache"), state("/home/me/cache"), state("/tmpfoo")) == ("fail", "pass", "pass")


@pytest.mark.parametrize(("synchronized", "state"), [("yes\n", "pass"), ("no\n", "warn"), ("what?\n", "skip")])
def test_a_clock_that_nobody_sets(tmp_path, synchronized, state):
    machine = machine_of({"commands": {"timedatectl show --property=NTPSynchronized --value": [0, synchronized]}}, tmp_path)

    assert next(f.state for f in examine_host(machine) if f.check == "clock") == state


@pytest.mark.parametrize(("settings", "state"), [('\ufeff{"ephemeral": true}', "pass"), ("{}", "warn"), ("[", "warn"), (None, "warn")])
def test_a_self_hosted_runner_is_ephemeral_or_warned_about(tmp_path, settings, state):
    machine = machine_of({"files": {"/opt/runner/.runner": settings} if settings is not None else {}}, tmp_path)
    machine.variables = {"RUNNER_ENVIRONMENT": "self-hosted", "RUNNER_TEMP": "/opt/runner/_work/_temp", "RUNNER_NAME": "gpu-1"}

    assert next(f.state for f in examine_host(machine) if f.check == "runner") == state


def test_a_small_kernel_runs_where_nothing_is_missing(tmp_path):
    pytest.importorskip("triton", reason="the local engine needs torch and triton")
    done = command.warpwave("doctor", "cpu", "--run", "--json", cwd=tmp_path)
    finding = json.loads(done.stdout)["findings"][-1]

    assert (finding["check"], finding["state"]) == ("cpu: kernel", "pass"), finding


def test_strict_makes_a_warning_fail():
    findings = [doctor.Finding("a", "pass", ""), doctor.Finding("b", "skip", ""), doctor.Finding("c", "warn", "", "fix")]

    assert [len(bad(found, strict=strict)) for found, strict in ((findings, False), (findings, True), (findings[:2], True))] == [0, 1, 0]

    # Neither on a card that is not here, nor on one that is sick; a warning does not keep it from running.
    states = {"cpu": "warn", "cuda": "pass", "cuda: ecc": "fail", "rocm": "skip", "third": "pass", "third: clocks": "skip", "disk": "fail"}

    assert fit([doctor.Finding(check, state, "") for check, state in states.items()], ["cpu", "cuda", "rocm", "third"]) == ["cpu", "third"]

    findings = examine_engine(Engine(info=HEALTHY, left=("container warpwave-cuda-1",)), Machine(variables={}), needed=True)

    assert [(f.state, f.fix) for f in findings if f.check == "leftovers"] == [("warn", "`warpwave clean --yes`")]


WRONG = {
    "two sources": ("{name: a, fix: f, run: [x], engine: true}", "exactly one of run, files and engine"),
    "no regular expression": ("{name: a, fix: f, run: [x], rows: '('}", "regular expression"),
    "unknown group": ("{name: a, fix: f, run: [x], rows: '(?P<a>.)', at_most: {b: 1}}", "does not name b"),
    "unknown key": ("{name: a, fix: f, run: [x], colour: red}", "one of name, fix, run"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_check_that_cannot_be_answered_is_refused(tmp_path, name):
    check, told = WRONG[name]
    (tmp_path / "mine.yml").write_text(f"targets: {{cuda: {{doctor: {{checks: [{check}]}}}}}}")
    with pytest.raises(ConfigError) as refused:
        load_targets(tmp_path / "mine.yml")

    assert "targets.cuda.doctor.checks[0]" in str(refused.value)
    assert told in str(refused.value)


def test_this_machine_as_it_is(tmp_path):
    done = command.warpwave("doctor", "--json", cwd=tmp_path, env={**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/no.sock"})
    document = json.loads(done.stdout)
    states = {finding["check"]: finding["state"] for finding in document["findings"]}

    assert done.returncode == document["exit_code"]
    assert document["ok"] is (done.returncode == 0) is ("fail" not in states.values())
    assert states["docker"] in ("warn", "fail")
    assert set(document["findings"][0]) == {field.name for field in dataclasses.fields(doctor.Finding)}
    assert list(tmp_path.iterdir()) == []


# targets.yml: strict reading, overlays, and a third vendor that is data only.

THIRD = """
architectures:
  bmg: {backend: intel, arch: bmg, warp_size: 16, properties: {multiprocessor_count: 20, max_shared_mem: 131072}}
targets:
  third:
    label: a third vendor
    stages: [test, bench, compile]
    image: {dockerfile: third.Dockerfile, base: "vendor/base:1"}
    devices: {nodes: ["/dev/dri/renderD*"], groups_from_nodes: true}
    visible_devices: THIRD_VISIBLE_DEVICES
    probe: {require: torch.version.third, fix: "Plug the card in."}
    architectures: [bmg]
"""


EMULATED = ["gfx942-emulated", "gfx950-emulated", "gfx90a-emulated", "gfx1100-emulated", "gfx1200-emulated", "gfx1201-emulated"]


@pytest.fixture
def overlay(tmp_path):
    def write(text: str):
        path = tmp_path / "mine.yml"
        path.write_text(text)
        return path

    return write


def test_the_shipped_file_is_valid(tmp_path):
    """These targets, in this order, an emulated one for each architecture that can be, and eight for the one that has no GPU."""
    targets = load_targets()

    assert list(targets) == ["cpu", *EMULATED, "cuda", "rocm"]
    assert [targets[name].emulate.name for name in EMULATED] == [name.removesuffix("-emulated") for name in EMULATED]
    assert [name for name, target in targets.items() if target.needs_card] == ["cuda", "rocm"]
    assert len(targets["cpu"].architectures) == 8
    assert all(target.dockerfile.exists() for target in targets.values())

    # Else the comparison would be one of compilers.
    versions = {name: (t.image.build_args["TORCH_VERSION"], t.image.build_args["TRITON_VERSION"]) for name, t in load_targets().items()}

    assert len(set(versions.values())) == 1, versions

    check_names(targets, None)

    with pytest.raises(UsageError, match=f"but a folder[^$]*--kernels {tmp_path}"):
        check_names(["rocm", str(tmp_path)], None)


def test_an_architecture_may_be_a_mapping_on_a_device_of_its_own(overlay):
    """As Triton's driver describes it; every target redirects that type of device, the vendor's own to it first."""
    text = THIRD.replace("arch: bmg,", "torch_device: xpu, arch: {arch: bmg, fp64: true, sizes: [16, 32]},")
    targets = load_targets(overlay(text))

    assert targets["third"].architectures[0].arch == {"arch": "bmg", "fp64": True, "sizes": [16, 32]}
    assert targets["third"].torch_devices == ("xpu", "cuda")
    assert targets["cpu"].torch_devices == ("cuda", "xpu")
    assert load_targets()["cpu"].torch_devices == ("cuda",)


def test_a_job_brings_an_architecture_back_whole(overlay, tmp_path):
    """With its limits, which the inside computes occupancy from; a job of an earlier version has neither them nor a device."""
    cards = load_targets(overlay(THIRD.replace("arch: bmg,", "arch: {arch: bmg, sizes: [16]},")))["third"].architectures
    cards += load_targets()["cpu"].architectures
    job = make_job("run-1", "third", (Stage.COMPILE,), "/kernels", "/output", architectures=cards, torch_devices=("xpu", "cuda"))
    dump(job, tmp_path / "job.json")

    assert Job.load(tmp_path / "job.json") == job

    old = json.loads((tmp_path / "job.json").read_text())
    del old["torch_devices"]
    for card in old["architectures"]:
        for key in ("torch_device", "program_threads", "multiprocessor"):
            del card[key]
    (tmp_path / "job.json").write_text(json.dumps(old))
    loaded = Job.load(tmp_path / "job.json")

    assert loaded.torch_devices == ("cuda",)
    assert {(card.torch_device, card.program_threads, card.multiprocessor) for card in loaded.architectures} == {("cuda", 1024, None)}


def test_an_overlay_changes_one_key_and_keeps_the_rest(overlay):
    """Mappings merge, values and lists replace; the Dockerfile stays the shipped one."""
    plain = load_targets()["cuda"]
    laid = load_targets(overlay("targets: {cuda: {image: {base: 'my/base:2'}, stages: [test]}}"))["cuda"]

    assert (laid.image.base, laid.stages) == ("my/base:2", (Stage.TEST,))
    assert (laid.dockerfile, laid.image.build_args, laid.devices) == (plain.dockerfile, plain.image.build_args, plain.devices)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("targets: {cuda: {stages: [tests]}}", ["targets.cuda.stages[0]", "'tests'", "test", "bench", "compile"]),
        ("targets: {cuda: {device: x}}", ["targets.cuda.device", "devices", "stages"]),
        ("targets: {cuda: {devices: {gpu: 1}}}", ["targets.cuda.devices.gpu", "gpus"]),
        ("targets: {cuda: {probe: {fixx: a}}}", ["targets.cuda.probe.fixx", "fix"]),
        ("targets: {cuda: {probe: {cards: {row: a}}}}", ["targets.cuda.probe.cards.row", "rows"]),
        ("targets: {cuda: {probe: {cards: {rows: '('}}}}", ["targets.cuda.probe.cards.rows", "uuid"]),
        ("architectures: {sm_80: {grid: {w: 4}}}", ["architectures.sm_80.grid.w", "'x', 'y' or 'z'"]),
        (
            "architectures: {sm_80: {multiprocessor: {warp: 4}}}",
            ["architectures.sm_80.multiprocessor.warp", "schedulers, warps", "scalars"],
        ),
        ("architectures: {sm_80: {multiprocessor: {warps: 0}}}", ["architectures.sm_80.multiprocessor.warps", "0", "1"]),
        ("architectures: {x: {backend: b, arch: 1, warp_size: 8, properties: {}}}", ["architectures.x.properties.multiprocessor_count"]),
        ("targets: {new: {label: a}}", ["targets.new.image", "required"]),
        ("targets: {cuda: {architectures: [sm_20]}}", ["targets.cuda.architectures[0]", "'sm_20'", "gfx942"]),
        ("targets: {cuda: {stages: []}}", ["targets.cuda.stages", "at least one"]),
        ("targets: {gfx942-emulated: {emulate: sm_20}}", ["targets.gfx942-emulated.emulate", "'sm_20'", "gfx942"]),
        ("targets: {gfx942-emulated: {emulate: sm_80}}", ["targets.gfx942-emulated.emulate", "'sm_80'", "can_emulate", "gfx942"]),
        ("targets: {rocm: {emulate: gfx942, stages: [test]}}", ["targets.rocm", "emulate", "gfx942-emulated"]),
        ("targets: {gfx942-emulated: {stages: [test, bench]}}", ["targets.gfx942-emulated.stages", "emulated targets measure nothing"]),
        ("targets: {gfx942-emulated: {interpret: true}}", ["targets.gfx942-emulated.interpret", "one of the two"]),
        ("targets: {gfx942-emulated: {interpret_as: sm_80}}", ["targets.gfx942-emulated.interpret_as", "one of the two"]),
        ("schema_version: 2", ["schema_version", "2", "1"]),
        ("surprise: 1", ["surprise", "targets", "architectures"]),
        ("targets: [", ["not valid YAML", "line"]),
        (
            "a: &a [1, 1, 1, 1]\n" + "".join(f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in pairwise("abcdefg")),
            ["Anchors"],
        ),
        ("targets: &t\n  cpu: *t\n", ["without end", "Anchors"]),
        ("- a list", ["top level", "a list"]),
        ("targets: 5", ["targets", "5"]),
    ],
)
def test_wrong_yaml_names_file_path_found_and_allowed(overlay, text, words):
    """Every refusal says where, what was found and what is allowed, and has exit code 2."""
    with pytest.raises(ConfigError) as caught:
        load_targets(overlay(text))

    assert [word for word in ["mine.yml", *words] if word not in str(caught.value)] == []
    assert caught.value.exit_code == 2
    assert caught.value.meaning
    assert caught.value.remedy


leaf = st.integers() | st.text(max_size=3)
tree = st.recursive(leaf, lambda inner: st.dictionaries(st.text(max_size=2), inner, max_size=3), max_leaves=8)


@given(tree, tree)
def test_merging_keeps_what_the_overlay_does_not_name(below, above):
    """Laying a tree over itself changes nothing, and every leaf of the overlay wins."""
    assert merge(below, below) == below
    merged = merge(below, above)
    if isinstance(below, dict) and isinstance(above, dict):
        assert set(merged) == set(below) | set(above)
    else:
        assert merged == above


def test_a_file_that_replaces_the_architectures_need_not_name_those_of_a_quick_run(tmp_path):
    """What is left of them is compiled; a name that is no architecture is refused."""
    overlay = tmp_path / "targets.yml"
    overlay.write_text("schema_version: 1\ntargets:\n  cpu: {architectures: [sm_90]}\n")

    assert [card.name for card in load_targets(overlay)["cpu"].architectures] == ["sm_90"]
    overlay.write_text("schema_version: 1\ntargets:\n  cpu: {quick: [sm_99]}\n")
    with pytest.raises(ConfigError, match="quick"):
        load_targets(overlay)
