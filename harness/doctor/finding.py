"""The result of one check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

PASS, WARN, FAIL, SKIP = "pass", "warn", "fail", "skip"


@dataclass(frozen=True)
class Finding:
    """One check. `state` is pass, warn, fail or skip; `evidence` what was seen; `fix` the command that fixes it; `seconds` its duration."""

    check: str
    state: str
    evidence: str
    fix: str = ""
    seconds: float = 0.0


def found(check: str, good: bool, evidence: str, fix: str, *, otherwise: str = FAIL) -> Finding:
    """Return a pass without a fix, or `otherwise` with one."""
    return Finding(check, PASS, evidence) if good else Finding(check, otherwise, evidence, fix)


def bad(findings: Iterable[Finding], *, strict: bool) -> list[Finding]:
    """Return what must be fixed before a run; with `strict`, warnings too."""
    return [finding for finding in findings if finding.state == FAIL or (strict and finding.state == WARN)]


def fit(findings: Iterable[Finding], targets: Iterable[str]) -> list[str]:
    """Return the targets that are present and have no failed check. A target's checks are named `target` or `target: check`."""
    states: dict[str, set[str]] = {}
    for finding in findings:
        states.setdefault(finding.check.partition(":")[0], set()).add(finding.state)
    return [name for name in targets if states.get(name, {SKIP}) - {SKIP} and FAIL not in states[name]]
