"""Faults of a real GPU: each has its culprit, and nobody else is blamed. Without a card there is nothing to see here."""

import xml.etree.ElementTree as ElementTree

import pytest

from warpwave.records import Stage

torch = pytest.importorskip("torch", reason="needs a GPU, torch and Triton")


def test_a_spoilt_card_has_one_culprit_a_fault(run_inside, data):
    """Two wild stores, one allocation and one endless kernel: four tests, and the innocent between them pass."""
    if not torch.accelerator.is_available():
        pytest.skip("there is no GPU")
    output = run_inside(data / "gpu_faults", Stage.TEST, benches=(), interpret=False, test_s=30.0)
    found = {}
    for case in ElementTree.parse(output / "test" / "junit.xml").getroot().iter("testcase"):
        bad = next((child for child in case if child.tag in ("failure", "error")), None)
        found[case.get("name")] = "passed" if bad is None else bad.get("type")
    wild = {found.pop("test_wild_that_waits"), found.pop("test_wild_that_does_not_wait")}

    assert wild <= {"failed", "crashed"}  # one vendor's runtime raises, the other's aborts
    assert found.pop("test_too_large") == "failed"
    assert found.pop("test_endless") in ("timeout", "gpu-hang")
    assert set(found.values()) == {"passed"}
