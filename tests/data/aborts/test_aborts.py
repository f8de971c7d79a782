"""What AMD's runtime prints before it aborts the process, as users have reported it; and compilers that abort or never end.

The hang: github.com/komikndr/raylight/issues/102. The fault: github.com/ROCm/legacy-rocm-build/issues/4021.
"""

import os
import sys
import time
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


def endless_kernel():
    pass


ENDS = {kernel: os.abort, endless_kernel: lambda: time.sleep(600)}
sys.modules["triton.compiler"] = types.ModuleType("triton.compiler")
sys.modules["triton.compiler"].compile = lambda source: ENDS.get(source.fn.fn, int)()


@pytest.mark.parametrize("last", ENDS, ids=["aborts", "hangs"])
def test_compiler(last):
    for function in (test_abort, last):
        sys.modules["triton.compiler"].compile(types.SimpleNamespace(fn=types.SimpleNamespace(fn=function)))


def test_after():
    pass
