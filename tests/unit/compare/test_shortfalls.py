"""Every field of a shortfall, and the bounds of what is held beside it. All data is made up."""

from __future__ import annotations

import dataclasses

import pytest
from synthetic import GPU_B, compiled, facts, run, sample

from warpwave.compare import compare
from warpwave.compare.answer import Shortfall, overview, shortfalls
from warpwave.records import Verdict

CARD_B = dataclasses.replace(facts(GPU_B), devices=(dataclasses.replace(facts(GPU_B).devices[0], architecture="syn942"),))
CASE = "softmax/N=1024"


def point(share, size=1024, **more):
    """A point that reaches this share of the made-up copy of 4000 GB/s."""
    return sample(size, 4000.0 * share, **more)


def code(architecture, provider="triton", **more):
    return compiled(architecture, origin=f"{CASE} [{provider}]", **more)


def short(*runs):
    comparison = compare(runs)
    return shortfalls(comparison, overview(comparison))


def evidence(*runs):
    return [hint.evidence for hint in short(*runs)[0].hints]


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
        ((code("syn942", "torch"),), (code("sy_90"),), "b", 0),
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
        rows = tuple(point(share, size, bytes_moved=size, median_ms=1 / size) for size, share in pairs)
        return evidence(run("a", samples=rows))

    assert hints(shares) == hints(shares[::-1]) == ["30% in 500 µs at softmax/N=2, 90% in 31.2 µs at softmax/N=32"]
    assert hints([*shares[:4], shares[5]]) == []
    assert hints([*shares[:2], (4, 0.9), (5, 0.6), (6, 0.6), *shares[3:]]) == []
    assert hints([*shares[:5], (32, 0.89)]) == []
