"""What the test stage's report says beside its counts."""

from __future__ import annotations

import re
from pathlib import Path

from harness.inside.fake_gpu.emulated.account import executed
from harness.records import CaseResult, Job

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
