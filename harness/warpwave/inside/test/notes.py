"""What the test stage's report says beside its counts."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from warpwave.inside.fake_gpu.launches import Account, LaunchRefusedError, executed
from warpwave.inside.process.outcomes import place_in
from warpwave.records import CaseResult, Job

COMPILED = "torch.compile"  # the property of a test without a card that called a function which torch would have compiled


def executed_by_emulator(job: Job, cases: list[CaseResult]) -> list[str]:
    """Say how much of an emulated run the emulator did: a test may pass without a launch."""
    if job.emulate is None or not cases:
        return []
    counts = [count for case in cases if (count := executed(case.properties)) is not None]
    did = f"{len(counts)} of {len(cases)} tests launched kernels, which executed {sum(counts):,} wave-instructions of {job.emulate.name}"
    return [did]


def replaced_compiler(cases: list[CaseResult]) -> list[str]:
    """Say how many tests ran as plain Python what torch.compile would compile on a card."""
    if not (several := sum(COMPILED in case.properties for case in cases)):
        return []
    many = "1 test" if several == 1 else f"{several} tests"
    return [f"torch.compile was replaced by the function itself in {many}: what it generates was not tested"]


def again_alone(several: int) -> list[str]:
    """Say how many tests ran again without neighbours on their card."""
    if not several:
        return []
    many = "1 test" if several == 1 else f"{several} tests"
    return [f"{many} ran again alone, because other tests on the card may have disturbed the first try; see test/log.txt"]


def refusal(log: Path) -> str:
    """Return what pytest said instead of starting; empty if it did start."""
    text = "\n".join(log.read_text(errors="replace").splitlines()[-20:]) if log.exists() else ""
    if plugin := re.search(r"^Error while loading plugin .*\n(.*(?:\n.+)*)", text, re.MULTILINE):
        return f"a plugin of the environment does not load: {' '.join(plugin[1].split())}"
    found = re.search(r"^.*: error: (.*)|^ERROR: (.*)", "\n".join(reversed(text.splitlines())), re.MULTILINE)
    return (found[1] or found[2]) if found else ""


# Which failures in the emulator are host code's own: a card would fail the test, too, whatever the emulator computes.

# No wrong number ends in one of these.
_NEVER_BY_DATA = (NameError, ImportError, AttributeError, TypeError, NotImplementedError, SyntaxError, OSError)
# Their errors are about the numbers that they were given.
_COMPARES = ("/torch/testing/", "/numpy/", "/warpwave/inside/")


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
