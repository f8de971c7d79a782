"""What the test stage's report says beside its counts."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path

from warpwave.inside.fake_gpu.launches import Account, LaunchRefusedError, executed
from warpwave.inside.process.outcomes import few, frames_in, place_in, raised_in_kernel, statement
from warpwave.records import CaseResult, Job, plural

COMPILED = "torch.compile"  # the property of a test without a card that called a function which torch would have compiled

ONLY_AFTER = "passed only after"  # so many tests of its file, which this process had left out
NOT_AFTER = "failed without"  # so many tests of its file that come before it, for which a budget had no time


def notes_of(job: Job, cases: list[CaseResult], again: int) -> Iterator[str]:
    """Say how many tests ran `again` without neighbours on their card, how much of a run was emulated, and what was not compiled."""
    if again:
        yield f"{plural(again, 'test')} ran again alone, because other tests on the card may have disturbed the first try; see test/log.txt"
    if after := [case.id for case in cases if ONLY_AFTER in case.properties]:
        yield f"passed only when the tests before it in its file had run, which were left out at first: {few(after)}"
    if without := [case.id for case in cases if NOT_AFTER in case.properties]:
        yield f"failed, and there was no time for all tests before it in its file: {few(without)}. --test FILE runs a whole file"
    if job.emulate is not None and cases:  # a test may pass without a launch
        counts = [count for case in cases if (count := executed(case.properties)) is not None]
        did = f"executed {sum(counts):,} wave-instructions of {job.emulate.name}"
        yield f"{len(counts)} of {len(cases)} tests launched kernels, which {did}"
    if several := sum(COMPILED in case.properties for case in cases):
        yield f"torch.compile was replaced by the function itself in {plural(several, 'test')}: what it generates was not tested"


def refusal(log: Path) -> str:
    """Return what pytest said instead of starting; empty if it did start."""
    text = "\n".join(log.read_text(errors="replace").splitlines()[-20:]) if log.exists() else ""
    if plugin := re.search(r"^Error while loading plugin .*\n(.*(?:\n.+)*)", text, re.MULTILINE):
        return f"a plugin of the environment does not load: {' '.join(plugin[1].split())}"
    found = re.search(r"^.*: error: (.*)|^ERROR: (.*)", "\n".join(reversed(text.splitlines())), re.MULTILINE)
    return (found[1] or found[2]) if found else ""


def failed_by(error: BaseException, root: Path) -> str:
    """Return what was raised, by which statement of a test, and in which function of the package; no number and no line, which vary.

    Empty if Hypothesis chose the data: in the next run it may find another failure.
    """
    if any("/hypothesis/" in frame.filename for frame in traceback.extract_tb(error.__traceback__)):
        return ""
    name, frames = type(raised_in_kernel(error) or error).__name__, frames_in(error, root)
    if not frames:
        return name
    first, last = frames[0], frames[-1]
    where = f" in {last.name}" if (last.filename, last.name) != (first.filename, first.name) else ""
    return f"{name} at {statement(first.filename, first.lineno or 0)}{where}"


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
