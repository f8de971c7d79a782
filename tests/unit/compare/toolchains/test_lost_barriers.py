"""Barriers at which accesses to shared memory are in flight, before and after an upgrade. All data is made up."""

from synthetic import compiled

from warpwave.compare.upgrade import changed_waits

READ = {"in_flight": ("one read",)}


def test_what_is_worse_now_comes_first_then_what_changed_most():
    shapes = [{"constants": {"N": n}} for n in range(3)]
    before = [compiled("sy_80", **READ), *(compiled("sy_90", **shape) for shape in shapes), *(compiled("sy_100", **one) for one in shapes)]
    after = [compiled("sy_80"), *(compiled("sy_90", **shape, **READ) for shape in shapes)]
    after += [compiled("sy_100", **shapes[0], **READ), *(compiled("sy_100", **one) for one in shapes[1:])]

    found = [(one.architecture, one.configurations, one.before, one.after, one.worse) for one in changed_waits(before, after)]

    assert found == [("sy_90", 3, 0, 3, True), ("sy_100", 3, 0, 1, True), ("sy_80", 1, 1, 0, False)]
