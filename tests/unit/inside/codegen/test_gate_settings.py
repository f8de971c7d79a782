"""How a package spells its gates, waivers and launches, and what is refused."""

from __future__ import annotations

import dataclasses
import json

import pytest
from pydantic import TypeAdapter

from warpwave.__main__ import _run_cli
from warpwave.config.pyproject import load_gates, load_launches, load_peers
from warpwave.errors import ConfigError
from warpwave.records import OPEN, Gates, Job, Limits, Rule, Stage, Waiver, Which, dump, to_json


@pytest.fixture
def package(tmp_path):
    """A kernel package whose `pyproject.toml` says what a test gives."""

    def write(text):
        (tmp_path / "pyproject.toml").write_text(text)
        (tmp_path / "kernels").mkdir(exist_ok=True)
        return tmp_path / "kernels"

    return write


SPELT = """
[tool.warpwave.gates]
spills = 2
private_bytes = false
candidates = "all"
[[tool.warpwave.rules]]
kernel = ["softmax", "log_*"]
launched_by = "bench"
load_bits = 128
occupancy = 0.5
matrix = true
[[tool.warpwave.waivers]]
gate = "spills"
kernel = "matmul"
architecture = "gfx1*"
types = "*bf16*"
reason = "no time yet"
"""


def test_every_key_arrives(package):
    """The nearest file above the kernels counts; what it leaves out has its default, and a rule sets nothing else."""
    assert load_gates(package(SPELT)) == Gates(
        limits=Limits(spills=2, private_bytes=None, explicit_precision=True),
        rules=(
            Rule(Which(("softmax", "log_*"), launched_by=("bench",)), dataclasses.replace(OPEN, load_bits=128, occupancy=0.5, matrix=True)),
        ),
        waivers=(Waiver("spills", "no time yet", Which(("matmul",), architecture=("gfx1*",), types=("*bf16*",))),),
        source="pyproject.toml",
        candidates="all",
    )


@pytest.mark.parametrize("text", ["", "[project]\nname = 'kernels'\n", "[tool.warpwave]\n"])
def test_the_defaults_hold_where_nothing_is_said(package, text):
    """No spills, no private memory, and a precision with each product."""
    assert load_gates(package(text)).limits == Limits(spills=0, private_bytes=0, explicit_precision=True)
    assert load_gates(package(text)).candidates == "best"


def test_gates_travel_in_the_job(package, tmp_path):
    """What was read is what the inside loads, and what the report reads again; a job from before there were gates has none."""
    job = Job("run-1", "cpu", (Stage.COMPILE,), "/kernels", "/out", gates=load_gates(package(SPELT)))
    dump(job, tmp_path / "job.json")
    old = {key: value for key, value in json.loads(to_json(job)).items() if key != "gates"}
    (tmp_path / "old.json").write_text(json.dumps(old))

    assert Job.load(tmp_path / "job.json") == job == TypeAdapter(Job).validate_json(to_json(job), strict=True)
    assert Job.load(tmp_path / "old.json").gates is None


WAIVER = "[[tool.warpwave.waivers]]\ngate = 'spills'\nkernel = 'matmul'\n"


WRONG = {
    "[tool.warpwave.gates]\nspils = 0": "tool.warpwave.gates.spils: found a key that does not exist, allowed is one of spills",
    "[tool.warpwave.gate]\nspills = 0": "tool.warpwave.gate: found a key that does not exist, allowed is one of gates, rules, waivers",
    "[tool.warpwave.gates]\nspills = -1": "gates.spills: found -1, allowed is a whole number of registers",
    "[tool.warpwave.gates]\nspills = true": "gates.spills: found True",
    "[tool.warpwave.gates]\noccupancy = 50": "gates.occupancy: found 50, allowed is a share above 0 and up to 1",
    "[tool.warpwave.gates]\noccupancy = nan": "gates.occupancy: found nan",
    "[tool.warpwave.gates]\nload_bits = 100": "gates.load_bits: found 100, allowed is one of 8, 16, 32, 64, 128",
    "[tool.warpwave.gates]\ncandidates = 'some'": "gates.candidates: found 'some', allowed is \"best\"",
    "[tool.warpwave]\ngates = 3": "tool.warpwave.gates: found 3, allowed is a table",
    "[tool.warpwave.rules]\nkernel = 'a'": "tool.warpwave.rules: found one table, allowed is a list of tables",
    "[[tool.warpwave.rules]]\nload_bits = 128": "rules[0].kernel: found nothing",
    "[[tool.warpwave.rules]]\nkernel = 'a'": "rules[0]: found a rule that sets no gate",
    "[[tool.warpwave.rules]]\nkernel = 'a'\nspills = false": "rules[0].spills: found False, allowed is a whole number",
    "[[tool.warpwave.rules]]\nkernel = []\nmatrix = true": "rules[0].kernel: found []",
    "[[tool.warpwave.rules]]\nkernel = 'a'\nlaunched_by = 'x'\nmatrix = true": "launched_by: found 'x', allowed is one of bench, test",
    WAIVER: "waivers[0].reason: found nothing",
    WAIVER + "reason = '  '": "waivers[0].reason: found '  ', allowed is a text that is not empty",
    WAIVER + "reason = 'why'\nfunctoin = 'x'": "waivers[0].functoin: found a key that does not exist",
    WAIVER.replace("spills", "compiles") + "reason = 'why'": "waivers[0].gate: found 'compiles', allowed is one of spills",
    WAIVER.replace("'spills'", "['spills']") + "reason = 'why'": "waivers[0].gate: found ['spills']",
    WAIVER.replace("kernel = 'matmul'", "reason = 'why'"): "waivers[0].kernel: found nothing",
    "[tool.warpwave.gates\n": "is not valid TOML",
}


@pytest.mark.parametrize("text", WRONG, ids=WRONG.values())
def test_what_is_misspelt_is_refused(package, text):
    """With the file, the key path, what was found and what is allowed; a gate that nobody reads would stand open."""
    kernels = package(text)
    with pytest.raises(ConfigError) as raised:
        load_gates(kernels)

    assert WRONG[text] in raised.value.happened
    assert str(kernels.parent / "pyproject.toml") in raised.value.happened


def test_what_a_value_may_be_says_how_a_gate_is_switched_off(package):
    """`false` opens a gate for the package; a rule can only tighten, and there a waiver is the way."""
    hints = []
    for text in ("[tool.warpwave.gates]\nspills = -1", "[[tool.warpwave.rules]]\nkernel = 'a'\nspills = -1"):
        with pytest.raises(ConfigError) as raised:
            load_gates(package(text))
        hints.append(raised.value.happened)

    assert ["; false " in hint for hint in hints] == [True, False]
    assert ["waiver" in hint for hint in hints] == [False, True]


def test_a_count_may_be_zero_and_a_share_all(package):
    """The edges of what each gate may be set to."""
    text = "[[tool.warpwave.rules]]\nkernel = 'a'\nspills = 0\nprivate_bytes = 0\noccupancy = 1\nload_bits = 8\nstore_bits = 128\n"
    limits = dataclasses.replace(OPEN, spills=0, private_bytes=0, occupancy=1, load_bits=8, store_bits=128)

    assert load_gates(package(text)).rules == (Rule(Which(("a",)), limits),)


@pytest.mark.parametrize("content", [b"\xff", b"[tool"])
def test_a_file_that_cannot_be_read_has_three_beats(package, content):
    """Its path, what that usually means, and what to do."""
    kernels = package("")
    (kernels.parent / "pyproject.toml").write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        load_gates(kernels)

    assert raised.value.happened.startswith(str(kernels.parent / "pyproject.toml"))
    assert all(text.endswith(".") for text in (raised.value.happened, raised.value.meaning, raised.value.remedy))


def test_what_is_compiled_is_the_packages_to_say(package):
    """Whose launches, and which lines of its benchmarks have none of its kernels; of everything where it does not say."""
    kernels = package("[tool.warpwave]\nlaunches = ['test']\npeers = ['torch', 'copy', 'torch']")
    assert (load_launches(kernels), load_peers(kernels)) == (("test",), ("torch", "copy"))
    kernels = package("")
    assert (load_launches(kernels), load_peers(kernels)) == (("bench", "test"), ())


@pytest.mark.parametrize(
    ("load", "text", "told"),
    [
        (load_launches, "launches = ['benches']", "launches: found ['benches'], allowed is a list of bench and test"),
        (load_launches, "launches = []", "launches: found []"),
        (load_peers, "peers = 'torch'", "peers: found 'torch', allowed is a list of providers' names"),
        (load_peers, "peers = ['']", "peers: found ['']"),
    ],
)
def test_what_cannot_be_compiled_is_refused(package, load, text, told):
    """Left out by a slip, a kernel would be looked at by nobody."""
    with pytest.raises(ConfigError) as raised:
        load(package("[tool.warpwave]\n" + text))
    assert told in raised.value.happened


def test_a_wrong_file_stops_the_run_before_it_starts(package, tmp_path, capsys):
    """It is a wrong use of warpwave, exit code 2, and no folder is made."""
    kernels = package("[tool.warpwave.gates]\nspils = 0")
    code = _run_cli(["run", "cpu", "--kernels", str(kernels), "--out", str(tmp_path / "out"), "--stage", "compile"])

    assert (code, (tmp_path / "out").exists()) == (2, False)
    assert "tool.warpwave.gates.spils" in "".join(capsys.readouterr().err.split())
