"""What AMD's runtime prints before it aborts the process, as users have reported it.

The hang: github.com/komikndr/raylight/issues/102. The fault: github.com/ROCm/legacy-rocm-build/issues/4021.
"""

import os

import pytest

SAID = {
    "hang": "HW Exception by GPU node-1 (Agent handle: 0x3508fba0) reason :GPU Hang",
    "fault": "Memory access fault by GPU node-3 (Agent handle: 0x5a5c587a51c0) on address 0x709843600000. Reason: Write access to a read-only page.",
}


@pytest.mark.parametrize("kind", ["hang", "fault"])
def test_abort(kind):
    os.write(2, (SAID[kind] + "\n").encode())
    os.abort()


def test_after():
    pass
