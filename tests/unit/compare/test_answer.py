"""The answer of a report: the headline, the order of the overview, and what differs where a kernel falls short. All data is made up."""

from __future__ import annotations

import dataclasses

import pytest
from synthetic import GPU_B, MADE_UP, case, compared, compiled, facts, record, run, sample

from warpwave.compare import compare
from warpwave.compare.answer import Compiled, Distance, KernelLine, Reached, Shortfall, Square, distance, headline, overview, shortfalls
from warpwave.compare.code_hints import Figure, Side, figures, hints
from warpwave.compare.model import Comparison, Since, TargetSummary
from warpwave.compare.verdict import sentence
from warpwave.records import BY_TORCH, HOST_CODE, NotRun, Verdict

CARD_B = dataclasses.replace(facts(GPU_B), devices=(dataclasses.replace(facts(GPU_B).devices[0], architecture="syn942"),))


def first_sentence(runs, expected=()):
    comparison = compare(runs, expected)
    return headline(comparison, overview(comparison)).text


def points(*shares, kernel="softmax", provider="triton", **more):
    """A point for each share of the made-up copy of 4000 GB/s, at ever larger sizes."""
    return tuple(
        sample(1024 << place, 4000.0 * share, kernel=kernel, provider=provider, bytes_moved=4096 << place, **more)
        for place, share in enumerate(shares)
    )


def code(architecture, case="softmax/N=1024", provider="triton", **more):
    return compiled(architecture, origin=f"{case} [{provider}]", **more)


def beside(here=(0.5,), there=(0.95,), mine=None, theirs=None):
    """Two vendors: the kernel falls short on beta. Their code of the case is given by its fields."""
    alpha = run("alpha", samples=points(*there), compiled=(code("sy_90", **(theirs or {})),))
    beta = run("beta", facts=CARD_B, samples=points(*here), compiled=(code("syn942", **mine),) if mine is not None else ())
    return [alpha, beta]


def short(*runs):
    comparison = compare(runs)
    return shortfalls(comparison, overview(comparison))


def evidence(*runs):
    return [hint.evidence for hint in short(*runs)[0].hints]


@pytest.mark.parametrize(("share", "far"), [(1.2, "near"), (0.9, "near"), (0.89, "short"), (0.7, "short"), (0.69, "far"), (0, "far")])
def test_the_distance_of_a_share(share, far):
    assert distance(share) is Distance(far)


def test_the_headline_tells_apart_what_does_not_compile_and_what_breaks_a_gate():
    dead = compiled(verdict=Verdict.FAILED, registers=None, reason="out of resource")
    gated = compiled("sy_80", verdict=Verdict.FAILED, spills=2, broken={"spills": "2 registers"}, reason="spills")

    assert first_sentence([run("a", compiled=(dead, gated))]) == (
        "1 kernel does not compile for sy_90 on a; 1 kernel breaks a gate (`_softmax_fwd`: spills) there."
    )


def test_the_headline_tells_apart_what_does_not_compile_and_what_no_driver_launches():
    dead = compiled("sy_80", verdict=Verdict.FAILED, registers=None, reason="out of resource")
    refused = compiled(verdict=Verdict.FAILED, binary_hash="ab" * 32, reason="the limit of y is 65535")

    assert first_sentence([run("a", compiled=(refused,))]) == "1 kernel cannot be launched on sy_90 on a."
    assert first_sentence([run("a", compiled=(dead, refused))]) == (
        "1 kernel does not compile for sy_80 on a; 1 kernel cannot be launched on sy_90 there."
    )


def test_what_does_not_compile_and_what_breaks_a_gate_are_counted_apart():
    dead, twice = (compiled(name, verdict=Verdict.FAILED, registers=None, reason="out of resource") for name in ("sy_80", "sy_100"))
    gated = compiled(verdict=Verdict.FAILED, spills=2, broken={"spills": "2 registers"}, reason="spills")
    comparison = compare([run("a", compiled=(dead, twice, gated, compiled("sy_75")))])

    assert overview(comparison)[0].squares[0].compiled == Compiled(n=4, failed=2, gated=1)


def host_code(origin, architecture, reason, verdict=Verdict.FAILED, **more):
    return compiled(architecture, function=HOST_CODE, origin=origin, verdict=verdict, reason=reason, signature={}, constants={}, **more)


@pytest.mark.parametrize(
    ("origin", "name"),
    [
        ("a/test_a.py::test_scale[x::1]", "test_scale[x::1]"),
        ("add [running bench_add.py --n 1]", "bench_add.py --n 1"),
        ("add/n=4", "add/n=4"),
    ],
)
def test_the_headline_names_both_architectures_of_a_case_that_one_runs(origin, name):
    rows = (host_code(origin, "gfx942", "it runs on sm_90 and raises KeyError on gfx942: 'hip'"),)
    more = (host_code("b.py::test_b", "gfx942", "it runs on sm_90 and raises KeyError on gfx942: 'x'"),)

    everywhere = (host_code("a/N=1 [triton]", "gfx942", "it raises KeyError on every architecture: 'size'"),)
    assert first_sentence([run("cpu", compiled=rows)]) == f"{name} runs on sm_90 and raises KeyError on gfx942."
    assert first_sentence([run("cpu", compiled=everywhere)]) == "a/N=1 [triton] raises KeyError on every architecture."
    assert first_sentence([run("cpu", compiled=rows + more)]).endswith("raises KeyError on gfx942, and 1 more case like it.")


@pytest.mark.parametrize(("end", "who"), [("", "code of the package"), (BY_TORCH, "torch, maybe for what is pretended")])
def test_what_raised_everywhere_comes_before_what_is_good(end, who):
    """Nothing failed, and a reader must not take that for the whole answer."""
    rows = tuple(
        host_code("a.py::test_a", name, f"KeyError: 'x'{end}", Verdict.NOT_RUN, not_run=NotRun.RAISED) for name in ("sm_90", "gfx942")
    )
    first = first_sentence([run("cpu", samples=(), compiled=rows)])

    assert first == f"1 case did not run to the end without a card (1 raised by {who}); all tests that ran pass on cpu."


def test_a_benchmark_file_that_does_not_load_is_no_test_that_fails():
    broken = (case("a/bench_a.py::module", verdict=Verdict.ERROR), case("a/test_a.py::test_a", verdict=Verdict.FAILED))

    assert first_sentence([run("cpu", cases=broken[:1])]) == "1 benchmark file does not load on cpu."
    assert first_sentence([run("cpu", cases=broken)]) == "1 test fails on cpu; 1 benchmark file does not load there."


def test_an_absent_target_comes_first():
    text = first_sentence([run("a", cases=(case(verdict=Verdict.FAILED),))], ["a", "b"])

    assert text == "b is absent (no raw folder was given); 1 test fails on a."


def test_failed_tests_come_first_then_the_largest_gap_then_what_has_no_share():
    samples = (*points(0.6, kernel="slow"), *points(0.95, kernel="broken"), *points(0.8, kernel="middle"))
    tests = (*(case(name, kernel=name) for name in ("quiet", "slow", "middle")), case("b", Verdict.FAILED, kernel="broken"))
    comparison = compare([run("a", cases=tests, samples=samples, compiled=())])

    assert [line.kernel for line in overview(comparison)] == ["broken", "slow", "middle", "quiet"]
    assert [line.gap and round(line.gap, 2) for line in overview(comparison)] == [0.05, 0.4, 0.2, None]


def test_without_a_ceiling_the_fastest_peer_is_the_measure():
    """And memory in use is no speed."""
    samples = (*points(0.5, unit="TFLOP/s"), *points(1.0, unit="TFLOP/s", provider="torch"), *points(0.1, unit="GiB", kernel="memory"))
    lines = {line.kernel: line for line in overview(compare([run("a", samples=samples)]))}

    assert (lines["softmax"].squares[0].reached[0].of_ceiling, lines["softmax"].squares[0].share) == (None, 0.5)
    assert lines["memory"].gap is None
    assert first_sentence([run("a", samples=samples)]) == "1 kernel is below 70% of its fastest peer on a."


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({"spills": 0}, {"spills": 12}),
        ({"load_bits": 128}, {"load_bits": 32}),
        ({"load_bits": None}, {"load_bits": 128}),
        ({"matrix": ("mfma",)}, {"matrix": ("mma",)}),
        ({"occupancy": 0.4}, {"occupancy": 0.5}),
        ({"num_stages": 2}, {"num_stages": 3}),
        ({}, {}),
    ],
)
def test_no_hint_without_a_difference_to_its_disadvantage(mine, theirs):
    """What is better here, nearly equal, unknown, or the backend's own default explains nothing."""
    assert evidence(*beside(mine=mine, theirs=theirs)) == []


def test_two_kernels_for_one_are_a_hint_and_their_configurations_are_not_compared():
    here = Side("b", (compiled("b", constants={"PHASE": 1}), compiled("b", constants={"PHASE": 2})))
    there = Side("a", (compiled("a"),))

    assert [hint.evidence for hint in hints(here, there)] == ["2 launches or configurations on b, 1 on a"]
    assert hints(there, here) == ()
    assert figures(here, there)[0].here == "2"


def test_the_case_that_loses_most_time_is_the_one_to_look_at():
    """A tiny case with a small share costs less than a large one with a larger share."""
    samples = (sample(1, 400.0, median_ms=0.001), sample(2, 2400.0, median_ms=10.0), sample(3, 3800.0, median_ms=10.0))
    found = short(run("a", samples=samples))[0]

    assert (found.case, round(found.case_share, 2), found.case_ms) == ("softmax/N=2", 0.6, 10.0)


def test_failed_tests_and_weak_points_come_before_any_tuning():
    """Neither a wrong result nor a disturbed measurement is worth it."""
    runs = [run("a", cases=(case(verdict=Verdict.FAILED),), samples=points(0.5, weak="the clock was at 900 MHz"))]

    assert evidence(*runs) == ["1 of its tests fails on a", "1 of 1 points: the clock was at 900 MHz"]
    assert short(*runs)[0].hints[0].text == "Fix its tests first: the speed of a wrong result says little."


def test_the_sample_of_two_vendors_shows_the_largest_shortfalls_first():
    """On real generated code of both architectures."""
    comparison = compared()
    lines = overview(comparison)
    found = shortfalls(comparison, lines)

    said = headline(comparison, lines)
    assert said.text == f"6 tests fail on {MADE_UP}."
    assert said.more.startswith("4 kernels reach less than 70% of the copy there; 1 kernel reaches less than 70% of a product there")
    assert [entry.kernel for entry in found[:4]] == ["attention", "attention", "softmax", "cross_entropy"]  # of a product, and of the copy
    assert sorted(entry.share for entry in found) == [entry.share for entry in found]
    assert (found[3].architecture, found[3].other) == ("gfx942", "sm_90")
    assert [hint.evidence for hint in found[3].hints] == ["PART 8192 here, 4096 there"]


def test_a_run_of_one_target_has_no_other_side():
    found = short(run("a", record=record("a"), samples=points(0.5), compiled=(code("sy_90", spills=3),)))[0]

    assert (found.against, found.other, found.other_share) == ("", "", None)
    assert [hint.evidence for hint in found.hints] == ["3 registers spilled on sy_90"]


def target(name="a", verdict=Verdict.PASSED, complete=True, **more):
    return TargetSummary(name, name, verdict, complete, **more)


def reached(share, ground="copy"):
    unit, of_ceiling, of_best = {"copy": ("GB/s", share, None), "product": ("TFLOP/s", share, None), "peer": ("GB/s", None, share)}[ground]
    return Reached(unit, "triton", 1, None, of_ceiling, of_best, True)


def line(kernel, slower=None, **by_target):
    """A kernel, with what it reaches by target; `slower` says for how many cases it is slower than before, by target."""
    since = {name: Since(kernel, "triton", name, 3, 0.5, {"slower": cases, "same": 1}, "c") for name, cases in (slower or {}).items()}
    names = dict.fromkeys([*by_target, *since])
    return KernelLine(kernel, tuple(Square(name, {}, {}, tuple(by_target.get(name, ())), since.get(name)) for name in names), None, ())


def said(targets, lines=(), exit_code=0):
    return headline(Comparison(sentence(targets), exit_code, tuple(targets)), lines).text


def many(count, **more):
    return [target(f"t{place}", **more) for place in range(count)]


FAR, NEAR = (reached(0.69),), (reached(0.7),)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([line("k", a=FAR)], "1 kernel reaches less than 70% of the copy on a."),
        ([line("k", a=FAR), line("l", a=FAR, b=FAR)], "2 kernels reach less than 70% of the copy on a, 1 on b."),
        ([line("k", a=(reached(0.5, "product"),))], "1 kernel reaches less than 70% of a product on a."),
        ([line(name, a=(reached(0.5, "product"),)) for name in "kl"], "2 kernels reach less than 70% of a product on a."),
        ([line("k", a=(reached(0.5, "peer"),))], "1 kernel is below 70% of its fastest peer on a."),
        ([line(name, a=(reached(0.5, "peer"),)) for name in "kl"], "2 kernels are below 70% of their fastest peers on a."),
        ([line("k", slower={"a": 1})], "1 kernel is slower than in the base run on a."),
        ([line("k", slower={"a": 2}), line("l", slower={"a": 1, "b": 0})], "2 kernels are slower than in the base run on a."),
        (
            [line("k", slower={"a": 1}, a=FAR)],
            "1 kernel is slower than in the base run on a; 1 kernel reaches less than 70% of the copy there.",
        ),
        (
            [line("k", slower={"a": 1}, b=FAR)],
            "1 kernel is slower than in the base run on a; 1 kernel reaches less than 70% of the copy on b.",
        ),
        (
            [line("k", slower={"a": 1, "b": 1}, a=FAR, b=FAR)],
            "1 kernel is slower than in the base run on a, 1 on b; 1 kernel reaches less than 70% of the copy on a, 1 on b.",
        ),
        ([line("k", a=NEAR)], "Every kernel reaches at least 70% of the copy (k on a is the furthest away)."),
        ([line("k", a=NEAR), line("l", b=(reached(0.8),))], "Every kernel reaches at least 70% of the copy (k on a is the furthest away)."),
        (
            [line("k", a=(reached(0.9, "product"), reached(0.95)))],
            "Every kernel reaches at least 95% of the copy (k on a is the furthest away).",
        ),
    ],
)  # fmt: skip
def test_each_clause_about_speeds(lines, expected):
    assert said([target("a"), target("b")], lines) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"tests": {"failed": 1, "passed": 4}}, "1 test fails on a."),
        ({"tests": {"failed": 1, "error": 1}}, "2 tests fail on a."),
        ({"tests": {"crashed": 1, "timeout": 2, "failed": 1}}, "4 tests fail on a (2 timeout, 1 crashed)."),
        ({"tests": {"failed": 2}, "suspected": 2}, "2 tests fail on a (suspected)."),
        ({"tests": {"failed": 2}, "suspected": 1}, "2 tests fail on a (1 suspected)."),
        ({"tests": {"failed": 2, "oom": 1}, "suspected": 1}, "3 tests fail on a (1 suspected, 1 oom)."),
        ({"points": {"error": 1}}, "1 point could not be measured on a."),
        ({"points": {"error": 1, "invalid": 1, "not-run": 4}}, "2 points could not be measured on a."),
        ({"points": {"error": 1, "passed": 1}, "tests": {"passed": 1}}, "All tests that ran pass on a."),
        ({"tests": {"failed": 1}, "points": {"error": 1}}, "1 test fails on a; 1 point could not be measured there."),
        ({"verdict": Verdict.INFRA, "complete": False, "reason": "no card"}, "a could not run (no card)."),
    ],
)
def test_each_clause_about_a_target(fields, expected):
    assert said([target(**fields)]) == expected


def test_a_clause_names_eight_targets():
    """Of more, it says how many."""
    names = [f"t{place}" for place in range(8)]

    assert said(many(8, tests={"passed": 1})) == f"All tests that ran pass on {', '.join(names)}."
    assert said(many(9, tests={"passed": 1})) == f"All tests that ran pass on {', '.join(names)} and 1 more targets."
    assert said(many(8, tests={"failed": 1})) == "1 test fails on t0, " + ", ".join(f"1 on {name}" for name in names[1:]) + "."
    assert said(many(10, tests={"failed": 1})).endswith(", 1 on t7, some on 2 more targets.")
    absent = many(9, verdict=Verdict.CRASHED, complete=False)
    assert said(absent) == f"{', '.join(names)} and 1 more crashed."


def test_all_that_is_good_is_one_sentence():
    found = said([target(tests={"passed": 1}), target("b")], [line("k", a=(reached(0.9),))])

    assert found == "All tests that ran pass on a; every kernel reaches at least 90% of the copy (k on a is the furthest away)."


def test_an_error_without_a_clause_is_the_comparisons_own_sentence():
    """What is good is no answer to why the command failed."""
    made = target(tests={"passed": 1})

    assert said([made], exit_code=4) == "1 of 1 target is complete: a passed 1 test."
    assert said([target()]) == "1 of 1 target is complete: a passed."
    stopped = Comparison(f"The disk is full. {sentence([made])}", 4, (made,))
    assert headline(stopped, ()).text == "The disk is full. All tests that ran pass on a."


BARE = {"registers": None, "spills": None, "shared_bytes": None, "constants": {}, "num_warps": None, "num_stages": None}


def side(architecture, *made):
    return Side(architecture, tuple(compiled(architecture, **fields) for fields in made))


def drawn(*made):
    """The figures of one side, by name."""
    return {figure.name: figure.here for figure in figures(side("a", *made))}


@pytest.mark.parametrize(
    ("made", "name", "text"),
    [
        ([{"registers": 96}], "registers a thread", "96"),
        ([{"registers": 96}, {"registers": 34}, {"registers": None}], "registers a thread", "34 to 96"),
        ([{"spills": 0}, {"spills": 12}], "spilled registers", "0 to 12"),
        ([{"occupancy": 0.25}, {"occupancy": 0.5}], "occupancy", "25% to 50%"),
        ([{"limited_by": ("registers", "shared")}, {"limited_by": ("shared",)}, {}], "limited by", "registers, shared"),
        ([{"resident_warps": 8}], "warps a multiprocessor", "8"),
        ([{"load_bits": 32}, {"load_bits": 128}], "widest global load", "32 bits to 128 bits"),
        ([{"shared_bytes": 0}], "shared memory", "0 B"),
        ([{"matrix": ("mma", "mfma")}, {"matrix": ("mma",)}], "matrix instructions", "mma, mfma"),
        ([{"matrix": ()}], "matrix instructions", "none"),
        ([{"constants": {"A": 1, "B": 2}, "num_warps": 1, "num_stages": 1}], "configuration", "A=1, B=2, 1 warp, 1 stage"),
        ([{"num_warps": None}, {"num_stages": None}], "configuration", "BLOCK=1024, 2 stages; BLOCK=1024, 4 warps"),
        ([{}, {}], "configuration", "BLOCK=1024, 4 warps, 2 stages"),
        ([{"constants": {"NAME": "x" * 155}}], "configuration", f"NAME={'x' * 155} …"),
        ([{"matrix": ("x" * 160,)}], "matrix instructions", "x" * 160),
    ],
)
def test_each_figure_as_text(made, name, text):
    """From the least to the most of all that the case launches; what is long ends with an ellipsis."""
    assert drawn(*made)[name] == text


def test_only_twenty_configurations_are_written_out():
    rows = [{"constants": {"B": place}, "num_warps": None, "num_stages": None} for place in range(21)]

    assert drawn(*rows)["configuration"] == "; ".join(f"B={place}" for place in range(20))


def test_a_figure_that_one_side_lacks_is_left_out():
    """With one side, only what it has is shown. The number of launches is shown if there are two sides."""
    assert figures(side("a", BARE)) == ()
    assert figures(side("a", {**BARE, "spills": 3})) == (Figure("spilled registers", "3", ""),)
    assert figures(side("a", BARE, BARE), side("b", {})) == (Figure("launches", "2", "1"),)
    assert figures(side("a", {}), side("b", BARE)) == (Figure("launches", "1", "1"),)


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        ([{"spills": 1}, {"spills": 12}, {"spills": None}], [{}], "12 registers spilled on a, 0 on b"),
        ([{"spills": 2}], [{"spills": None}], ""),
        ([{"occupancy": 0.3}], [{"occupancy": 0.5}], "occupancy 30% on a, 50% on b"),
        ([{"occupancy": 0.375}], [{"occupancy": 0.5}], ""),
        ([{"occupancy": 0.3, "resident_warps": 9}], [{"occupancy": 0.5}], "occupancy 30% (9 warps a multiprocessor) on a, 50% on b"),
        (
            [{"occupancy": 0.3, "resident_warps": 9, "limited_by": ("unknown", "warps", "shared")}],
            [{"occupancy": 0.5}],
            "occupancy 30% (9 warps a multiprocessor, limited by warps, shared) on a, 50% on b",
        ),
        ([{"matrix": ("mma",)}], [{"matrix": ("mma",)}], ""),
        ([{"load_bits": 64}], [{"load_bits": 64}], ""),
        ([{"load_bits": 64}], [{"load_bits": None}], ""),
        ([{"num_warps": 1}], [{}], "1 warp here, 4 there"),
        ([{"num_warps": None}], [{}], ""),
        ([{"constants": {"A": 1}}], [{"constants": {"B": 2}}], "A 1 here, none there; B none here, 2 there"),
    ],
)
def test_the_evidence_of_a_hint(mine, theirs, expected):
    assert [hint.evidence for hint in hints(side("a", *mine), side("b", *theirs))][:1] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("limits", "relief"),
    [
        (("registers",), ": fewer registers (a smaller block, more warps) would let more of them in."),
        (("scalars",), ": fewer scalar registers would let more of them in."),
        (("other", "warps", "shared"), ": smaller programs would let more of them in."),
        (("other",), "."),
        (None, "."),
    ],
)
def test_a_low_occupancy_names_what_relieves_it(limits, relief):
    """Of the configuration with the lowest one, by its first limit that something can be done about."""
    rows = [{"occupancy": 0.4, "limited_by": ("shared",)}, {"occupancy": 0.1, "limited_by": limits}, {"occupancy": None}]
    found = hints(side("a", *rows), side("b", {"occupancy": 0.9}))[0]

    assert found.text == f"Few warps are resident to hide the latency of memory{relief}"


def test_the_costliest_hint_comes_first_and_the_configuration_last():
    mine = {"spills": 9, "load_bits": 32, "occupancy": 0.1, "num_warps": 8}
    theirs = {"spills": 1, "load_bits": 64, "occupancy": 0.9, "matrix": ("mma",)}
    first_words = ["Spilled", "Its", "Narrow", "Few", "It"]

    assert [hint.text.split()[0] for hint in hints(side("a", mine), side("b", theirs))] == first_words


# Shortfalls.


CASE = "softmax/N=1024"


def point(share, size=1024, **more):
    """A point that reaches this share of the made-up copy of 4000 GB/s."""
    return sample(size, 4000.0 * share, **more)


def test_every_field_of_a_shortfall():
    """`b` stays behind, and `a` comes closer to the copy."""
    near = run("a", samples=(point(0.95),), compiled=(code("sy_90"),))
    far = run("b", facts=CARD_B, samples=(point(0.5),), compiled=(code("syn942", spills=2),))
    (found,) = short(near, far)

    assert dataclasses.replace(found, figures=(), hints=()) == Shortfall(
        kernel="softmax",
        target="b",
        provider="triton",
        unit="GB/s",
        share=0.5,
        of="the copy",
        n=1,
        case=CASE,
        case_share=0.5,
        case_ms=0.5,
        architecture="syn942",
        against="a",
        other="sy_90",
        other_share=0.95,
        cause="2 registers spilled",
    )
    assert [hint.evidence for hint in found.hints] == ["2 registers spilled on syn942, 0 on sy_90"]
    assert (found.figures[0].name, len(found.figures)) == ("launches", 6)


@pytest.mark.parametrize(
    ("mine", "theirs", "unknown", "figures"),
    [
        ((), (), "b", 0),
        ((), (code("sy_90"),), "b", 0),
        ((code("syn942"),), (), "a", 5),
        ((code("syn942"),), (code("sy_90"),), "", 6),
        ((code("syn942", provider="torch"),), (code("sy_90"),), "b", 0),
        ((code("syn942", verdict=Verdict.NOT_RUN),), (code("sy_90"),), "b", 0),
    ],
)
def test_code_that_is_missing_is_named_by_its_target(mine, theirs, unknown, figures):
    """What was not compiled, or by another provider, is no code of the case."""
    near, far = run("a", samples=(point(0.95),), compiled=theirs), run("b", facts=CARD_B, samples=(point(0.5),), compiled=mine)
    (found,) = short(near, far)

    assert found.unknown == (f"This report has no code of these cases for the card of {unknown}: run the compile stage." if unknown else "")
    assert len(found.figures) == figures


def test_code_of_the_same_card_may_come_from_another_target():
    """Its own first."""
    alone = run("a", samples=(point(0.5),), compiled=())
    other = run("c", samples=(), compiled=(code("sy_90", registers=7),))
    own = dataclasses.replace(alone, compiled=(code("sy_90", registers=9),))

    assert short(alone, other)[0].figures[0].here == "7"
    assert short(own, other)[0].figures[0].here == "9"


@pytest.mark.parametrize(("share", "count"), [(0.9, 0), (0.8996, 1)])
def test_a_share_of_90_percent_is_near(share, count):
    assert len(short(run("a", samples=(point(share),)))) == count


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ({"value": 2200.0}, ["torch is 1.10 times as fast at softmax/N=1024"]),
        ({"value": 2190.0}, []),
        ({"value": 3000.0, "provider": "copy"}, []),
        ({"value": 3000.0, "case": "softmax/N=1"}, []),
        ({"value": None, "verdict": Verdict.CRASHED}, []),
        ({"value": 9000.0}, []),  # more than the copy: suspect
        ({"value": 3000.0, "provider": "triton", "case": "softmax/N=2"}, []),
    ],
)
def test_which_peer_shows_that_more_is_possible(peer, expected):
    other = dataclasses.replace(sample(provider="torch"), median_ms=None, p20_ms=None, p80_ms=None, times_ms=())
    found = evidence(run("a", samples=(sample(value=2000.0), dataclasses.replace(other, **peer))))

    assert found == expected


def test_the_fastest_peer_is_named():
    """Of its own target; where less is better, the one with least."""
    rows = [sample(value=value, provider=provider) for provider, value in (("triton", 1500.0), ("torch", 3000.0), ("cub", 2000.0))]
    times = [sample(value=value, provider=provider, unit="ms") for provider, value in (("triton", 3.0), ("torch", 2.0), ("cub", 1.0))]

    assert evidence(run("a", samples=tuple(rows))) == ["torch is 2.00 times as fast at softmax/N=1024"]
    assert evidence(run("a", samples=tuple(times))) == ["cub is 3.00 times as fast at softmax/N=1024"]
    assert short(run("a", samples=tuple(times)))[0].of == "the fastest peer"
    beside = run("b", samples=(sample(value=1600.0), sample(value=3000.0, provider="torch")))
    assert evidence(run("a", samples=(sample(value=1500.0),)), beside) == []


def test_the_share_of_a_case_is_that_of_its_fastest_peer_on_the_same_target():
    """A speed that cannot be is none, and neither is that of another target."""
    speeds = {"triton": 10.0, "torch": 20.0, "cub": 40.0}
    rows = [sample(value=value, provider=provider, unit="TFLOP/s") for provider, value in speeds.items()]
    rows.append(sample(value=80.0, provider="odd", unit="TFLOP/s", verdict=Verdict.INVALID))
    other = run("b", samples=(sample(value=12.0, unit="TFLOP/s"), sample(value=160.0, provider="torch", unit="TFLOP/s")))
    found = {entry.target: (entry.share, entry.case_share, entry.of) for entry in short(run("a", samples=tuple(rows)), other)}

    assert found == {"a": (0.25, 0.25, "the fastest peer"), "b": (0.075, 0.075, "the fastest peer")}


def test_small_cases_need_three_at_either_end():
    """Five points are too few; the sizes order them, whatever the order of the file."""
    shares = [(1, 0.5), (2, 0.3), (4, 0.6), (8, 0.95), (16, 0.91), (32, 0.9)]

    def hints(pairs):
        rows = tuple(point(share, size, bytes_moved=size, median_ms=100 / size) for size, share in pairs)
        return evidence(run("a", samples=rows))

    assert hints(shares) == hints(shares[::-1]) == ["30% in 5e+04 µs at softmax/N=2, 90% in 3.12e+03 µs at softmax/N=32"]
    assert hints([*shares[:4], shares[5]]) == []
    assert hints([*shares[:2], (4, 0.9), (5, 0.6), (6, 0.6), *shares[3:]]) == []
    assert hints([*shares[:5], (32, 0.89)]) == []
