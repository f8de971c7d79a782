"""How a compiled kernel is judged by gates."""

import dataclasses
import json
import re
import shutil
import xml.etree.ElementTree as ElementTree

import command
import pytest
from engine_requests import make_job
from pydantic import TypeAdapter
from synthetic import compiled, run, write_raw

from warpwave.__main__ import _run_cli
from warpwave.collect import collect
from warpwave.compare import compare
from warpwave.compare.codegen import configuration
from warpwave.config.pyproject import load_gates, load_what
from warpwave.errors import ConfigError
from warpwave.inside.codegen.gates import POSSIBLE, judge, strictest, unnamed_products
from warpwave.records import ADVICE, OPEN, GateLimits, Gates, Job, NotRun, Rule, Stage, Verdict, Waiver, Which, dump, to_json
from warpwave.render.junit import render_junit
from warpwave.render.markdown import render_markdown


def row(**more):
    return compiled(**{"stack_bytes": 0, "load_widths": (32, 64), "store_widths": (32,), "instructions": {}, "occupancy": 0.25, **more})


def only(**limits):
    return Gates(dataclasses.replace(OPEN, **limits))


STRICT = Gates(dataclasses.replace(ADVICE, lds_waits=True, release_waits=True, undefined_lanes=True), advice=OPEN)


FOUND = [
    (row(spills=6, stack_bytes=24), only(spills=0, private_bytes=0), {"spills": "6 registers, 0 allowed"}),
    (row(spills=6, stack_bytes=24), only(spills=6, private_bytes=0), {}),
    (row(spills=28, stack_bytes=116), only(private_bytes=0), {}),
    (row(spills=None), only(spills=0), {}),
    (row(stack_bytes=24), only(private_bytes=16), {"private_bytes": "24 bytes, 16 allowed"}),
    (row(spills=2, stack_bytes=80), only(private_bytes=0), {"private_bytes": "64 bytes beside spilled registers, 0 allowed"}),
    (row(spills=None, stack_bytes=None), only(private_bytes=0), {}),
    (row(limited_by=("registers",)), only(occupancy=0.5), {"occupancy": "0.25 of the warps, 0.5 wanted; limited by registers"}),
    (row(), only(occupancy=0.25), {}),
    (row(limited_by=None), only(occupancy=0.5), {"occupancy": "0.25 of the warps, 0.5 wanted"}),
    (row(occupancy=None), only(occupancy=1), {}),
    (row(), only(load_bits=128), {"load_bits": "64 bits at most, 128 wanted"}),
    (row(), only(load_bits=64, store_bits=32), {}),
    (row(), only(store_bits=64), {"store_bits": "32 bits at most, 64 wanted"}),
    (row(store_widths=(), load_widths=None), only(load_bits=128, store_bits=128), {}),
    (row(), only(matrix=True), {"matrix": "no matrix instruction"}),
    (row(matrix=("wgmma",)), only(matrix=True), {}),
    (row(instructions=None), only(matrix=True), {}),
    (
        row(unnamed_precision=("a.py:3", "b.py:4")),
        only(explicit_precision=True),
        {"explicit_precision": "left to the compiler for fp32 operands at a.py:3, b.py:4"},
    ),
    (row(in_flight=("1 LDS read", "2 LDS writes")), only(lds_waits=True), {"lds_waits": "1 LDS read; 2 LDS writes"}),
    (row(), only(lds_waits=True), {}),
    (row(published_early=("an atomic",)), only(release_waits=True), {"release_waits": "an atomic"}),
    (row(), only(release_waits=True), {}),
    (row(undefined_lanes=("a.py:3: lanes",)), only(undefined_lanes=True), {"undefined_lanes": "a.py:3: lanes"}),
    (
        row(
            spills=6,
            stack_bytes=99,
            unnamed_precision=("a.py:3",),
            in_flight=("1 LDS read",),
            published_early=("an atomic",),
            undefined_lanes=("lanes",),
        ),
        Gates(OPEN),
        {},
    ),
]


def test_a_gate_without_a_figure_is_not_judged_and_says_why():
    bare = row(spills=None, stack_bytes=None, load_widths=None, store_widths=None, instructions=None, occupancy=None, registers=None)
    judged = judge(bare, Gates(GateLimits(occupancy=0.5, matrix=True)), {"occupancy": "no limits"})
    untold = "its binary does not tell"

    assert judged.unjudged == {"spills": untold, "private_bytes": untold, "occupancy": "no limits", "matrix": untold}
    assert (judged.verdict, judged.broken) == (Verdict.PASSED, {})
    assert judge(bare, Gates(OPEN, advice=OPEN)).unjudged == {}
    assert judge(row(spills=3), Gates(GateLimits())).unjudged == {}


def test_what_is_not_known_of_undefined_lanes_fails_nothing():
    """Unless the gate is open, it is advice, or not judged; what is known comes first."""
    unknown = {"undefined_lanes": "too long", POSSIBLE: "a.py:3: lanes"}
    judged = judge(row(), only(undefined_lanes=True), unknown)
    broken = judge(row(undefined_lanes=("b.py:4: lanes",)), only(undefined_lanes=True), unknown)

    assert (judged.verdict, judged.advice, judged.unjudged) == (
        Verdict.PASSED,
        {"undefined_lanes": "a.py:3: lanes"},
        {"undefined_lanes": "too long"},
    )
    assert (broken.broken, broken.advice) == ({"undefined_lanes": "b.py:4: lanes"}, {})
    assert judge(row(), Gates(OPEN, advice=OPEN), unknown) == row()


@pytest.mark.parametrize(("made", "gates", "broken"), FOUND)
def test_each_gate(made, gates, broken):
    """The figure and the limit, where the binary tells a figure; what lies on the limit is within it."""
    judged = judge(made, gates)

    assert judged.broken == broken
    assert judged.verdict is (Verdict.FAILED if broken else Verdict.PASSED)
    assert judged.reason == "; ".join(f"{gate}: {found}" for gate, found in broken.items())


def test_the_strictest_of_all_limits_holds():
    """Whatever their order, and 0 is a limit; a rule for other kernels is none."""
    rules = [
        Rule(Which(("soft*",)), dataclasses.replace(OPEN, spills=4, load_bits=32)),
        Rule(Which(("softmax",), ("_softmax_fwd",)), dataclasses.replace(OPEN, spills=0, load_bits=64)),
        Rule(Which(("softmax",), launched_by=("test",)), dataclasses.replace(OPEN, load_bits=128)),
        Rule(Which(("matmul", "rms_norm")), dataclasses.replace(OPEN, matrix=True)),
    ]
    made = row(spills=2, stack_bytes=8, load_widths=(32,))
    for some in (rules, rules[::-1]):
        judged = judge(made, Gates(GateLimits(spills=8), tuple(some)))
        assert judged.broken == {"spills": "2 registers, 0 allowed", "load_bits": "32 bits at most, 64 wanted"}


@pytest.mark.parametrize(
    ("gate", "loose", "strict"),
    [
        *[("spills", 4, 2), ("private_bytes", 64, 0), ("occupancy", 0.25, 0.5), ("load_bits", 32, 128), ("store_bits", 64, 128)],
        *[(gate, False, True) for gate in ("matrix", "explicit_precision", "lds_waits", "release_waits", "undefined_lanes")],
        *[("occupancy", None, 0.5), ("spills", None, 0), ("compile_time", 5.0, 3.0)],
    ],
)
def test_of_two_limits_the_one_that_is_harder_to_meet_holds(gate, loose, strict):
    """At most the smaller number, at least the larger one, and an open gate gives way."""
    some = [dataclasses.replace(OPEN, **{gate: value}) for value in (loose, strict)]

    assert strictest(some) == strictest(some[::-1]) == some[1]


def test_a_waiver_takes_its_gate_and_its_kernels_only():
    """The row passes where nothing is left, keeps the figure, and says why; the first waiver that fits gives the reason."""
    waivers = (
        Waiver("spills", "elsewhere", Which(architecture=("gfx*",))),
        Waiver("spills", "on purpose", Which(("softmax",), types=("*fp32*",))),
        Waiver("spills", "too late", Which()),
    )
    gates = Gates(GateLimits(spills=0, load_bits=128), waivers=waivers)
    spilling = row(spills=6, stack_bytes=24, load_widths=(128,))
    passed, failed = judge(spilling, gates), judge(dataclasses.replace(spilling, load_widths=(64,)), gates)

    assert (passed.verdict, passed.reason, passed.waived) == (Verdict.PASSED, "", {"spills": "on purpose"})
    assert passed.broken == {"spills": "6 registers, 0 allowed"}
    assert (failed.verdict, failed.reason) == (Verdict.FAILED, "load_bits: 64 bits at most, 128 wanted")


def test_a_gate_against_an_earlier_run_waits_for_it():
    """A row alone breaks none. It takes the limit with it, unless that is waived."""
    waiver = Waiver("compile_time", "on purpose", Which(function=("_softmax*",)))
    gates = dataclasses.replace(only(compile_time=3, compile_memory=2.0), waivers=(waiver,))
    judged, other = judge(row(seconds=99.0, peak_bytes=1), gates), judge(row(function="other"), gates)

    assert (judged.verdict, judged.against_base, judged.waived) == (
        Verdict.PASSED,
        {"compile_memory": 2.0},
        {"compile_time": "on purpose"},
    )
    assert (other.against_base, other.waived) == ({"compile_time": 3.0, "compile_memory": 2.0}, {})
    assert list(other.unjudged) == ["compile_time", "compile_memory"]
    assert judged.unjudged == {}


def test_advice_fails_no_row():
    """A default gate that the package does not set is told and passes; one that it sets fails; a waiver is about both."""
    spilling = row(spills=6, stack_bytes=24)
    advised, failed = judge(spilling, Gates()), judge(spilling, Gates(GateLimits(spills=0)))
    waived = judge(spilling, Gates(waivers=(Waiver("spills", "on purpose", Which()),)))

    assert (advised.verdict, advised.reason, advised.broken, advised.advice) == (Verdict.PASSED, "", {}, {"spills": "6 registers"})
    assert (failed.verdict, failed.advice) == (Verdict.FAILED, {})
    assert (waived.verdict, waived.waived) == (Verdict.PASSED, {"spills": "on purpose"})

    # In the first sentence and in a list, with the place; the run is good. Advice that is waived is not repeated.
    spilling = row(spills=6, stack_bytes=24, source="ops/softmax.py:41")
    comparison = compare([run(compiled=(judge(spilling, Gates()),), gates=Gates())])
    text = render_markdown(comparison)
    waived = Gates(waivers=(Waiver("spills", "on purpose", Which()),))

    assert comparison.exit_code == 0
    assert "1 kernel has advice" in text.replace("\\", "")
    assert "`softmax _softmax_fwd` on `alpha` for `sy_90`: ⚠️ spills: `6 registers`, at `ops/softmax.py:41" in text
    assert "advice" not in render_markdown(compare([run(compiled=(judge(spilling, waived),), gates=waived)]))

    dead = row(verdict=Verdict.FAILED, reason="needs 99999 bytes of shared memory", spills=6)

    assert judge(dead, Gates(waivers=(Waiver("spills", "why", Which()),))) == dead


# How a package spells its gates, waivers and launches, and what is refused.


@pytest.fixture
def package(tmp_path):
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


def test_every_key_arrives_and_travels_in_the_job(package, tmp_path):
    """The nearest file above the kernels counts; what it leaves out has its default, and a rule sets nothing else."""
    assert load_gates(package(SPELT)) == Gates(
        limits=GateLimits(spills=2),
        rules=(
            Rule(Which(("softmax", "log_*"), launched_by=("bench",)), dataclasses.replace(OPEN, load_bits=128, occupancy=0.5, matrix=True)),
        ),
        waivers=(Waiver("spills", "no time yet", Which(("matmul",), architecture=("gfx1*",), types=("*bf16*",))),),
        source="pyproject.toml",
        candidates="all",
        advice=dataclasses.replace(OPEN, explicit_precision=True),
    )
    assert load_gates(package(SPELT), strict=True).limits == GateLimits(spills=2, explicit_precision=True)

    # What was read is what the inside loads, and what the report reads again.
    job = make_job("run-1", "cpu", (Stage.COMPILE,), "/kernels", "/out", gates=load_gates(package(SPELT)))
    dump(job, tmp_path / "job.json")

    assert Job.load(tmp_path / "job.json") == job == TypeAdapter(Job).validate_json(to_json(job), strict=True)


@pytest.mark.parametrize("text", ["", "[project]\nname = 'kernels'\n", "[tool.warpwave]\n"])
def test_the_defaults_hold_where_nothing_is_said(package, text):
    """Lost waits fail a run. No spills, no private memory and a precision with each product are advice, unless `strict`."""
    assert load_gates(package(text)).limits == GateLimits(lds_waits=True, release_waits=True, undefined_lanes=True)
    assert load_gates(package(text)).advice == GateLimits(
        spills=0, private_bytes=0, explicit_precision=True, lds_waits=False, release_waits=False, undefined_lanes=False
    )
    assert load_gates(package(text), strict=True).limits == GateLimits(spills=0, private_bytes=0, explicit_precision=True)
    assert load_gates(package(text), strict=True).advice == OPEN
    assert load_gates(package(text)).candidates == "best"


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


def test_what_is_compiled_is_the_packages_to_say(package):
    """Whose launches, and which lines of its benchmarks have none of its kernels; of everything where it does not say."""
    kernels = package("[tool.warpwave]\nlaunches = ['test']\npeers = ['torch', 'copy', 'torch']")
    what = load_what(kernels, kernels)
    assert (what["launches"], what["peers"]) == (("test",), ("torch", "copy"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("launches = ['benches']", "launches: found ['benches'], allowed is a list of bench and test"),
        ("launches = []", "launches: found []"),
        ("peers = 'torch'", "peers: found 'torch', allowed is a list of providers' names"),
        ("peers = ['']", "peers: found ['']"),
    ],
)
def test_what_cannot_be_compiled_is_refused(package, text, told):
    with pytest.raises(ConfigError) as raised:
        load_what(kernels := package("[tool.warpwave]\n" + text), kernels)
    assert told in raised.value.happened


def test_a_wrong_file_stops_the_run_before_it_starts(package, tmp_path, capsys):
    """It is a wrong use of warpwave, exit code 2, and no folder is made."""
    kernels = package("[tool.warpwave.gates]\nspils = 0")
    code = _run_cli(["run", "cpu", "--kernels", str(kernels), "--out", str(tmp_path / "out"), "--stage", "compile"])

    assert (code, (tmp_path / "out").exists()) == (2, False)
    assert "tool.warpwave.gates.spils" in "".join(capsys.readouterr().err.split())


# What a reader sees of gates and waivers: in the report, in JUnit and in exit codes.


def judged_run(gates, *rows):
    """A run with no tests whose compiled kernels have been through the gates."""
    return run(compiled=tuple(judge(made, gates) for made in rows), gates=gates, cases=(), samples=())


WAIVERS = (
    Waiver("spills", "on purpose <b>", Which(("softmax",), architecture=("sy_90",))),
    Waiver("matrix", "not asked", Which(("softmax",))),
    Waiver("spills", "misspelt", Which(("sofmax",))),
)


def test_what_a_reader_sees_of_gates():
    """Broken gates apart from kernels that do not compile; each waiver with its reason and its use; what stands open."""
    gates = Gates(GateLimits(spills=0), waivers=WAIVERS, advice=OPEN)
    spilling = row(spills=6, stack_bytes=24)
    host = row(function="(host code)", verdict=Verdict.NOT_RUN, reason="needs data")
    comparison = compare([judged_run(gates, spilling, dataclasses.replace(spilling, architecture="sy_80"), row(num_warps=8), host)])
    text = render_markdown(comparison)

    assert comparison.exit_code == 1
    assert "compiled 3 binaries, broke a gate with 1 of them and did not run 1 case to the end (1 skipped)" in comparison.sentence
    assert "`softmax _softmax_fwd` on `alpha` for `sy_80`: ❌ failed: `spills: 6 registers, 0 allowed`" in text
    assert "Does not compile" not in text
    assert "`spills` of `softmax, sy_90`: ⚠️ waived for 1 of 2 kernels: `on purpose <b>`" in text
    assert "`matrix` of `softmax`: ⚠️ unused, every kernel it names meets the gate: `not asked`" in text
    assert "`spills` of `sofmax`: ⚠️ unused, no kernel it names was compiled here: `misspelt`" in text
    assert "`private_bytes switched off` for every kernel on `alpha`" in text


def test_a_bundle_may_not_keep_the_report_busy(tmp_path):
    """Each waiver is held against each kernel; a file from elsewhere with thousands of them costs itself their use, and says so."""
    folder = write_raw(tmp_path / "alpha", run())
    for number, problems in ((200, 0), (201, 1)):
        job = make_job("run-1", "alpha", (Stage.COMPILE,), "/kernels", "/out", gates=Gates(waivers=WAIVERS[:1] * number))
        dump(job, folder / "job.json")
        found = collect(folder)
        assert (len(found.problems), found.gates is None) == (problems, bool(problems)), found.problems


def test_junit_has_broken_and_waived_gates():
    """A broken gate is a failure with what to do about it, ready to paste; a waived one passes and says so."""
    gates = dataclasses.replace(STRICT, waivers=WAIVERS)
    spilling = row(spills=6, stack_bytes=24)
    root = ElementTree.fromstring(render_junit(compare([judged_run(gates, spilling, dataclasses.replace(spilling, architecture="sy_80"))])))
    passed, failed = (root.find(f"testsuite[@name='alpha/compile/{name}']/testcase") for name in ("sy_90", "sy_80"))
    told = {entry.get("name"): entry.get("value") for entry in passed.findall("properties/property")}
    failure = failed.find("failure")

    assert (passed.find("failure"), told) == (None, {"waived.spills": "6 registers, 0 allowed: on purpose <b>"})
    assert failure.get("message") == "spills: 6 registers, 0 allowed"
    assert (
        '[[tool.warpwave.waivers]]\ngate = "spills"\nkernel = "softmax"\nfunction = "_softmax_fwd"\narchitecture = "sy_80"' in failure.text
    )


def test_a_finding_names_its_configurations_and_their_place_in_the_source():
    """The first three, and how many more there are; equal ones of other architectures once."""
    several = [row(spills=6, stack_bytes=24, num_warps=2**power, source="ops/softmax.py:41") for power in range(5)]
    other = dataclasses.replace(several[0], architecture="sy_80")
    lines = render_markdown(compare([judged_run(STRICT, *several, other)])).splitlines()
    at = next(number for number, line in enumerate(lines) if "failed: `spills: 6 registers, 0 allowed`" in line)

    assert lines[at].startswith("- `softmax _softmax_fwd` on `alpha` for `sy_80, sy_90`, 6 times")
    places = [f"  - `ops/softmax.py:41, {configuration(made)}`" for made in several[:3]]
    assert "BLOCK=" in places[0]
    assert "1 warps" in places[0]
    assert lines[at + 1 : at + 5] == [*places, "  - and 2 more configurations"]


def test_the_waiver_to_paste_silences_the_finding_and_no_other(package):
    """Once per kernel and gate, whatever the number of configurations; names that are patterns by accident are taken literally."""
    odd = {"kernel": "soft[max]", "function": "_fwd"}
    broken = [
        *(row(spills=6, stack_bytes=24, num_warps=warps, architecture=name, **odd) for warps in (1, 2) for name in ("sy_90", "sy_80")),
        row(spills=6, stack_bytes=99, function="_bwd"),
    ]
    text = render_markdown(compare([judged_run(STRICT, *broken)]))
    pasted = re.search(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[1]
    found = load_gates(package(pasted), strict=True)

    assert [(waiver.gate, waiver.which.function) for waiver in found.waivers] == [
        ("spills", ("_fwd",)),
        ("private_bytes", ("_bwd",)),
        ("spills", ("_bwd",)),
    ]
    assert [judge(made, found).verdict for made in broken] == [Verdict.PASSED] * 5
    others = [dataclasses.replace(broken[0], architecture="sy_70"), dataclasses.replace(broken[0], kernel="softm")]
    assert [judge(made, found).verdict for made in others] == [Verdict.FAILED] * 2


def test_discarded_candidates_are_counted_and_never_red():
    """A row that an autotuner discards: in the count and in a list of its own, and no finding."""
    spilling = judge(row(spills=6, stack_bytes=24), STRICT)
    discarded = dataclasses.replace(spilling, verdict=Verdict.NOT_RUN, not_run=NotRun.DISCARDED, num_warps=1)
    comparison = compare([run(compiled=(row(), discarded), gates=STRICT)])
    text = render_markdown(comparison)

    assert comparison.exit_code == 0
    assert "compiled 1 binary (1 discarded for another candidate)" in comparison.sentence
    assert "`softmax _softmax_fwd` on `alpha` for `sy_90`, 1 candidate: " in text
    assert "host code that does not run" not in text
    assert "6s" not in text
    cases = ElementTree.fromstring(render_junit(comparison)).findall("testsuite[@name='alpha/compile/sy_90']/testcase")
    assert [case.find("skipped") is not None for case in cases] == [False, True]


@pytest.mark.slow
def test_a_spilling_package_end_to_end(data, tmp_path):
    """Two cards: the spill is waived on one and fails on the other, and so does the product without a precision on both."""
    pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
    shutil.copytree(data / "spilling", tmp_path / "spilling")
    (tmp_path / "two.yml").write_text("targets: {cpu: {architectures: [sm_80, gfx1100]}}\n")
    options = ["--targets", tmp_path / "two.yml", "--out", tmp_path / "out", "--stage", "compile", "--gates", "strict", "--quiet"]
    done = command.warpwave("run", "cpu", "--kernels", tmp_path / "spilling", *options)
    comparison = json.loads((tmp_path / "out" / "comparison.json").read_text())
    rows = {
        (cell["compiled"]["architecture"], cell["compiled"]["origin"].split("[")[1].rstrip("]")): cell["compiled"]
        for entry in comparison["codegen"]
        for cell in entry["cells"]
    }

    assert done.returncode == 1, done.stderr
    assert {name: made["verdict"] for name, made in rows.items()} == {
        ("sm_80", "wide"): "passed",
        ("gfx1100", "wide"): "failed",
        **{(card, what): verdict for card in ("sm_80", "gfx1100") for what, verdict in (("named", "passed"), ("unnamed", "failed"))},
    }
    assert list(rows["sm_80", "wide"]["waived"]) == ["spills"]
    assert rows["gfx1100", "wide"]["reason"] == f"spills: {rows['gfx1100', 'wide']['spills']} registers, 0 allowed"
    assert rows["sm_80", "unnamed"]["source"] == "wide/bench_wide.py:21"
    assert rows["sm_80", "unnamed"]["unnamed_precision"] == ["bench_wide.py:17"]
    assert [(use["covered"], use["used"]) for use in comparison["waivers"]] == [(1, 1), (6, 0)]


# Products of fp32 whose precision nobody named: found where they stand in the source.

SOURCE = """import triton.language as tl
def kernel(x, y, more, PRECISION):
    a = tl.dot(x, y)
    b = tl.dot(x, y, input_precision=PRECISION)
    c = tl.dot(x, y, None, "ieee")
    d = tl.dot(x, y, allow_tf32=False)
    e = tl.dot(x, y, **more)
    f = tl.dot(*more)
    g = tl.dot(x, y, input_precision=None)
    h = tl.dot(x, tl.dot(x, y), None, "ieee")
    i = dot(
        x, y).to(float)
    j = tl.sum(x)
"""


PRODUCT = "    %1 = tt.dot %x, %y, %z, inputPrecision = tf32 : tensor<32x16x{0}> * tensor<16x32x{0}> -> tensor<32x32xf32> loc({1})\n"


@pytest.mark.parametrize(
    ("line", "column", "named"),
    [
        *[(3, 9, False), (4, 9, True), (5, 9, True), (6, 9, True), (7, 9, True), (8, 9, True), (9, 9, False)],
        *[(10, 9, True), (10, 19, False), (11, 9, False), (13, 9, True), (3, 1, False), (10, 1, True), (99, 9, True)],
    ],
)
def test_a_call_that_names_no_precision_is_found_where_it_stands(tmp_path, line, column, named):
    """By line and column, or by line where only one product stands on it; what cannot be told is not claimed."""
    (tmp_path / "k.py").write_text(SOURCE)
    ttir = PRODUCT.format("f32", "#loc2") + f'#loc1 = loc("{tmp_path}/k.py":{line}:{column})\n#loc2 = loc("a"(#loc1))\n'

    assert unnamed_products(ttir) == (() if named else (f"k.py:{line}",))


def test_only_products_of_fp32_are_looked_at(tmp_path):
    """Half precision is the same everywhere; an inlined function is found where it is written; a file that is gone says nothing."""
    (tmp_path / "k.py").write_text(SOURCE)
    places = f'#loc1 = loc("{tmp_path}/k.py":3:9)\n#loc2 = loc(callsite(#loc1 at #loc3))\n#loc3 = loc("{tmp_path}/gone.py":3:9)\n'

    assert unnamed_products(PRODUCT.format("f16", "#loc1") + places) == ()
    assert unnamed_products(PRODUCT.format("f32", "#loc2") + places) == ("k.py:3",)
    assert unnamed_products(PRODUCT.format("f32", "#loc3") + places) == ()
    assert unnamed_products(PRODUCT.format("f32", "#loc4") + "#loc4 = loc(fused[#loc4, #loc5])\n") == ()
