"""What a reader sees of gates and waivers: in the report, in JUnit and in exit codes."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import xml.etree.ElementTree as ElementTree

import command
import pytest
from synthetic import compiled, run, write_raw

from warpwave.collect import collect
from warpwave.compare import compare
from warpwave.compare.changed_codegen import diff
from warpwave.compare.codegen import configuration
from warpwave.config.pyproject import load_gates
from warpwave.inside.codegen.gates import judge
from warpwave.records import Gates, Job, Limits, NotRun, Stage, Verdict, Waiver, Which, dump
from warpwave.render.junit import render_junit
from warpwave.render.markdown import render_markdown


@pytest.fixture
def package(tmp_path):
    """A kernel package whose `pyproject.toml` says what a test gives."""

    def write(text):
        (tmp_path / "pyproject.toml").write_text(text)
        (tmp_path / "kernels").mkdir(exist_ok=True)
        return tmp_path / "kernels"

    return write


def row(**more):
    return compiled(**{"stack_bytes": 0, "load_widths": (32, 64), "store_widths": (32,), "instructions": {}, "occupancy": 0.25, **more})


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
    gates = Gates(Limits(private_bytes=None), waivers=WAIVERS)
    spilling = row(spills=6, stack_bytes=24)
    host = row(function="(host code)", verdict=Verdict.NOT_RUN, reason="needs data")
    comparison = compare([judged_run(gates, spilling, dataclasses.replace(spilling, architecture="sy_80"), row(num_warps=8), host)])
    text = render_markdown(comparison)

    assert comparison.exit_code == 1
    assert "compiled 3 binaries (1 skipped) and broke a gate with 1 of them" in comparison.sentence
    assert "`softmax _softmax_fwd` on `alpha` for `sy_80`: ❌ failed: `spills: 6 registers, 0 allowed`" in text
    assert "Did not compile" not in text
    assert "`spills` of `softmax, sy_90`: ⚠️ waived for 1 of 2 kernels: `on purpose <b>`" in text
    assert "`matrix` of `softmax`: ⚠️ unused, every kernel it names meets the gate: `not asked`" in text
    assert "`spills` of `sofmax`: ⚠️ unused, no kernel it names was compiled here: `misspelt`" in text
    assert "`private_bytes switched off` for every kernel on `alpha`" in text


def test_peers_that_nobody_compiled_are_shown():
    """The report names the peers that the author left out, also if nothing else was compiled, but not without a compile stage."""
    peers = dataclasses.replace(judged_run(Gates(), row()), peers=("torch", "<copy>"))
    for stages, kernels, shown in ((peers.stages, peers.compiled, True), (peers.stages, (), True), ((), (), False)):
        text = render_markdown(compare([dataclasses.replace(peers, stages=stages, compiled=kernels)]))
        assert ("`torch, <copy>` on `alpha`, by pyproject.toml" in text) is shown
    assert "Not compiled" not in render_markdown(compare([judged_run(Gates(), row())]))


def test_peers_come_with_the_bundle(tmp_path):
    """From the job that the inside was given, as gates do."""
    folder = write_raw(tmp_path / "alpha", run())
    dump(Job("run-1", "alpha", (Stage.COMPILE,), "/kernels", "/out", peers=("torch",)), folder / "job.json")
    assert collect(folder).peers == ("torch",)


def test_a_bundle_may_not_keep_the_report_busy(tmp_path):
    """Each waiver is held against each kernel; a file from elsewhere with thousands of them costs itself their use, and says so."""
    folder = write_raw(tmp_path / "alpha", run())
    for number, problems in ((200, 0), (201, 1)):
        job = Job("run-1", "alpha", (Stage.COMPILE,), "/kernels", "/out", gates=Gates(waivers=WAIVERS[:1] * number))
        dump(job, folder / "job.json")
        found = collect(folder)
        assert (len(found.problems), found.gates is None) == (problems, bool(problems)), found.problems


def test_nothing_is_said_of_gates_that_all_meet():
    """The defaults, met, take no room."""
    assert "Gates" not in render_markdown(compare([judged_run(Gates(), row())]))


def test_junit_has_broken_and_waived_gates():
    """A broken gate is a failure with what to do about it, ready to paste; a waived one passes and says so."""
    gates = Gates(waivers=WAIVERS)
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
    lines = render_markdown(compare([judged_run(Gates(), *several, other)])).splitlines()
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
    text = render_markdown(compare([judged_run(Gates(), *broken)]))
    pasted = re.search(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[1]
    found = load_gates(package(pasted))

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
    spilling = judge(row(spills=6, stack_bytes=24), Gates())
    discarded = dataclasses.replace(spilling, verdict=Verdict.NOT_RUN, not_run=NotRun.DISCARDED, num_warps=1)
    comparison = compare([run(compiled=(row(), discarded), gates=Gates())])
    text = render_markdown(comparison)

    assert comparison.exit_code == 0
    assert "compiled 1 binary (1 discarded by an autotuner)" in comparison.sentence
    assert "`softmax _softmax_fwd` on `alpha` for `sy_90`, 1 candidate: " in text
    assert "host code that does not run" not in text
    assert "6s" not in text
    cases = ElementTree.fromstring(render_junit(comparison)).findall("testsuite[@name='alpha/compile/sy_90']/testcase")
    assert [case.find("skipped") is not None for case in cases] == [False, True]


def test_a_candidate_that_is_discarded_now_is_no_worse_verdict():
    """`codegen diff` compares its figures: with a base where it was clean, and with one where it was a finding."""
    clean, broken = row(registers=40, spills=0), judge(row(registers=40, spills=6, stack_bytes=24), Gates())
    discarded = dataclasses.replace(broken, verdict=Verdict.NOT_RUN, not_run=NotRun.DISCARDED)
    found = {
        name: [(delta.concern.value, delta.trend.value) for change in diff([before], [after]).changes for delta in change.deltas]
        for name, before, after in (("from clean", clean, discarded), ("from broken", broken, discarded), ("to broken", discarded, broken))
    }

    assert ("verdict", "worse") not in found["from clean"]
    assert ("spills", "worse") in found["from clean"]
    assert found["from broken"] == [("verdict", "better")]
    assert found["to broken"] == [("verdict", "worse")]
    assert diff([clean], [clean, dataclasses.replace(discarded, num_warps=2)]).changes[0].kind.value == "added"


@pytest.mark.slow
def test_a_spilling_package_end_to_end(data, tmp_path):
    """Two cards: the spill is waived on one and fails on the other, and so does the product without a precision on both."""
    pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
    shutil.copytree(data / "spilling", tmp_path / "spilling")
    (tmp_path / "two.yml").write_text("targets: {cpu: {architectures: [sm_80, gfx1100]}}\n")
    arguments = ["--kernels", tmp_path / "spilling", "--targets", tmp_path / "two.yml", "--out", tmp_path / "out", "--stage", "compile"]
    done = command.warpwave("run", "cpu", *arguments, "--quiet")
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
