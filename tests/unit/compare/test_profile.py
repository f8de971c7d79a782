"""The profile of emulated kernels: which line costs most, what its counters prove, and what moved between two runs."""

import pytest
from synthetic import profile, run

from warpwave.compare import compare
from warpwave.compare.profile import NO_SPEED, POOR_ORDER, advice, costly, fed, largest, moved
from warpwave.records import CounterLimit, ProfiledLine, Which
from warpwave.render.markdown import render_markdown
from warpwave.render.sections.profile import moved_sections, profile_sections


def line(number: int = 1, **counters: int) -> ProfiledLine:
    """A line of a kernel."""
    return ProfiledLine("/kernels/rows.py", number, "x = tl.load(x_ptr + i)", counters)


@pytest.mark.parametrize(
    ("counters", "said"),
    [
        ({"memory": 4, "lines64": 256, "least64": 16}, "64 lines of 64 bytes, and 4 would"),
        ({"memory": 4, "lines64": 20, "least64": 16}, ""),  # a copy that begins in the middle of a line
        ({"lds_cycles": 1024, "least_lds_cycles": 32}, "32 times the fewest cycles"),
        ({"lds_cycles": 40, "least_lds_cycles": 32}, ""),
        ({"scratch_bytes": 4096}, "4,096 bytes went to scratch"),
        ({"valu": 10, "vector_lanes": 640, "lanes_off": 480}, "75% of its lanes"),
        ({"valu": 10, "vector_lanes": 640, "lanes_off": 32}, ""),
        ({"memory": 4, "lines64": 512, "least64": 16, "lds_cycles": 64, "least_lds_cycles": 32}, "lines of 64 bytes"),
        ({"instructions": 9}, ""),
    ],
)
def test_advice_is_given_only_where_a_counter_proves_it(counters, said):
    """And about what costs most."""
    found = advice(line(**counters))

    assert said in found
    assert bool(said) == bool(found)


def test_the_line_with_the_largest_cost_over_the_least_comes_first():
    """However many instructions the others execute."""
    lines = (line(1, instructions=9000), line(2, lds_cycles=64, least_lds_cycles=32), line(3, lines64=512, least64=16))
    found = costly(largest(compare([run(profiles=(profile(lines=lines),))]).profiles))

    assert [one.line for _, one in found] == [3, 2, 1]


def test_of_several_tests_the_largest_stands_for_a_kernel():
    """Each function has one entry."""
    rows = [profile(case=f"test_a.py::test_{n}", counters={"instructions": n}) for n in (3, 9, 5)]
    (found,) = largest(compare([run(profiles=tuple(rows))]).profiles)

    assert (found.profile.case, found.tests) == ("test_a.py::test_9", 3)


def test_configurations_are_ordered_by_their_bounds():
    """By the largest, and by the next one where that differs by less than a percent. One test stands for all."""
    given = {"c": {"memory": 9.0, "vector": 1.0}, "a": {"memory": 2.0, "vector": 1.5}, "b": {"memory": 2.001, "vector": 1.0}}
    rows = [profile(configuration=name, bounds=bounds) for name, bounds in given.items()]
    (found,) = largest(compare([run(profiles=tuple(rows))]).profiles)
    (section,) = profile_sections(compare([run(profiles=tuple(rows))]))

    assert [one.configuration for one in found.candidates] == ["b", "a", "c"]
    assert (found.profile.configuration, found.tests) == ("b", 1)
    assert section.legend == (NO_SPEED, POOR_ORDER)


def test_a_configuration_is_compared_with_itself():
    """Or with the only one there was."""
    base = [profile(configuration=name, counters={"valu": n}) for name, n in (("a", 1), ("b", 2))]
    head = [profile(configuration="a", counters={"valu": 5})]

    assert [(row.before, row.after) for row in moved(base, head)] == [(1, 5)]
    assert [(row.before, row.after) for row in moved(base[1:], head)] == [(2, 5)]


def test_an_architecture_is_compared_with_itself():
    """Or with another one, if a run has no other; the row says which."""
    base = [profile(architecture=name, counters={"valu": n}) for name, n in (("gfx942", 1), ("gfx1100", 2))]
    head = [profile(architecture="gfx942", counters={"valu": 5})]

    assert [(row.before, row.function) for row in moved(base, head)] == [(1, "_softmax_fwd on gfx942")]
    assert [(row.before, row.function) for row in moved(base[1:], head)] == [(2, "_softmax_fwd on gfx1100 → gfx942")]


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({"counter": "lines64", "at_most": 2.0, "of": "least64"}, "lines64 of _softmax_fwd: 1,088, at most 2 times least64, which is 128"),
        ({"counter": "lines64", "at_most": 8.5, "of": "least64"}, ""),
        ({"counter": "memory", "at_most": 19}, "memory of _softmax_fwd: 20, at most 19"),
        ({"counter": "scratch_bytes", "at_most": 0}, ""),
        ({"counter": "memory", "at_most": 0, "which": Which(kernel=("add",))}, ""),
        ({"counter": "memory", "at_most": 0, "which": Which(architecture=("sy_*",))}, "memory of _softmax_fwd: 20, at most 0"),
    ],
)
def test_a_limit_of_a_counter_is_a_number_or_times_another_counter(limit, said):
    """A counter that is not there is 0."""
    assert CounterLimit(**{"which": Which(), **limit}).broken_by(profile()) == said


def test_what_moved_is_told_with_the_largest_change_first():
    """Also a counter that is new, and a bound; what is the same in both is not told."""
    before, after = (
        profile(counters={"lines64": 1000, "valu": 10, "lds": 7}),
        profile(counters={"lines64": 250, "valu": 12, "lds": 7, "lds_cycles": 8}),
    )
    after = profile(counters=after.counters, bounds={"memory": 4.1, "vector": 0.4})
    found = moved([before], [after])

    assert [(row.counter, row.before, row.after) for row in found] == [
        ("lds_cycles", 0, 8),
        ("lines64", 1000, 250),
        ("bound by vector (µs)", 0.2, 0.4),
        ("valu", 10, 12),
    ]
    assert moved([profile(case="another")], [after]) == []
    assert moved_sections(found, 2)[0].lines


def test_a_bound_is_told_with_the_words_that_it_is_no_speed():
    """In the summary of a job, too."""
    (section,) = profile_sections(compare([run(profiles=(profile(),))]))
    text = render_markdown(compare([run(profiles=(profile(),))]))

    assert profile().bound == "at least 4.1 µs by memory"
    assert section.legend == (NO_SPEED,)
    assert "at least 4.1 µs by memory" in text
    assert NO_SPEED.partition(";")[0] in text


def test_the_share_of_the_matrix_units_is_at_most_that_of_the_largest_bound():
    """Where memory needs four times as long, they are busy for a quarter of the time, or less."""
    assert fed(profile(bounds={"memory": 4.0, "matrix": 1.0})) == "matrix units are busy for at most 25% of the time"
    assert fed(profile(bounds={"memory": 4.0})) == ""


def test_nothing_is_shown_of_a_run_without_counts():
    """There is no empty section."""
    assert profile_sections(compare([run()])) == []
