"""Which failures in the emulator are host code's own: a card would fail the test, too, whatever the emulator computes."""

from __future__ import annotations

import traceback
from pathlib import Path

from harness.inside.fake_gpu.emulated.account import Account
from harness.inside.fake_gpu.launch_limits import LaunchRefusedError
from harness.inside.process.exceptions import place_in

# No wrong number ends in one of these.
_NEVER_BY_DATA = (NameError, ImportError, AttributeError, TypeError, NotImplementedError, SyntaxError, OSError)
# Their errors are about the numbers that they were given.
_COMPARES = ("/torch/testing/", "/numpy/", "/harness/inside/")


def raised_by_host(error: BaseException, account: Account, root: Path) -> str:
    """Return what host code raised, where, and why no result of a kernel can be its cause; empty if one can."""
    if account.fault:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1].filename if frames else ""
    if not account.launches:
        why = "before the first launch"
    elif isinstance(error, LaunchRefusedError):
        why = "by the driver, before a launch"
    elif "/triton/" in last and not any(part in last for part in _COMPARES):
        why = "by Triton, before a launch"
    elif isinstance(error, _NEVER_BY_DATA) or (isinstance(error, KeyError) and error.args and isinstance(error.args[0], str)):
        why = "by host code"
    elif not account.read and not any(part in last for part in _COMPARES):
        why = "before host code read a result"
    else:
        return ""
    place = place_in(error, root)
    return f"{type(error).__name__} was raised {f'at {place}, ' if place else ''}{why}"
