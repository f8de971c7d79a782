"""What AMD's runtime prints before it aborts the process, as users have reported it; and a compiler that aborts.

The hang: github.com/komikndr/raylight/issues/102. The fault: github.com/ROCm/legacy-rocm-build/issues/4021.
"""

import os
import sys
import types

import pytest

SAID = {
    "hang": "HW Exception by GPU node-1 (Agent handle: 0x3508fba0) reason :GPU Hang",
    "fault": "Memory access fault by GPU node-3 (Agent handle: 0x5a5c587a51c0) on address 0x709843600000. Reason: Write access to a read-only page.",
}


@pytest.mark.parametrize("kind", ["hang", "fault"])
def test_abort(kind):
    os.write(2, (SAID[kind] + "\n").encode())
    os.abort()


def kernel():
    pass


sys.modules["triton.compiler"] = types.ModuleType("triton.compiler")
sys.modules["triton.compiler"].compile = lambda source: os.abort() if source.fn.fn is kernel else None


def test_compiler():
    for function in (test_abort, kernel):
        sys.modules["triton.compiler"].compile(types.SimpleNamespace(fn=types.SimpleNamespace(fn=function)))


def test_after():
    pass
