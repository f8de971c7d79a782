"""Check one vendor's part of a machine: is its GPU here, and what do the targets file's checks say? No vendor is named here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Union

from harness.config.doctor_checks import Check
from harness.config.target import Target
from harness.doctor.finding import FAIL, PASS, SKIP, Finding, found
from harness.doctor.machine import Machine
from harness.engines.protocol import Answer

_SHOWN_ROWS = 4
_LINE = 200
Info = Union[Mapping[str, Any], None]


def examine_vendor(target: Target, machine: Machine, info: Info, *, needed: bool, contained: bool = True) -> list[Finding]:
    """Return the findings about one target with a GPU. If the GPU is absent and was not requested, that is a single skip.

    `contained`: its runs use containers. If not, nothing needs to pass the GPU to a container.
    """
    if not machine.has_driver(target):
        return [_absent(target, machine, needed)]
    findings = [_access(target, machine)]
    checks = [check for check in target.doctor.checks if contained or not check.container]
    for name, alternatives in groupby(checks, key=lambda check: check.name):
        findings.append(_first_answer(f"{target.name}: {name}", list(alternatives), machine, info))
    return findings


def _absent(target: Target, machine: Machine, needed: bool) -> Finding:
    looked_for = ", ".join((*target.devices.nodes, *([target.probe.driver_file] if target.probe.driver_file else [])))
    if target.doctor.pci and (cards := machine.on_bus(target.doctor.pci)):
        evidence = f"{len(cards)} card(s) on the PCI bus ({', '.join(cards[:_SHOWN_ROWS])}) and no driver: {looked_for} is not there"
        return Finding(target.name, FAIL, evidence, target.doctor.no_driver or target.probe.fix)
    evidence = f"no card of this vendor, and no driver: {looked_for} is not there"
    return Finding(target.name, FAIL, evidence, target.probe.fix) if needed else Finding(target.name, SKIP, evidence)


def _access(target: Target, machine: Machine) -> Finding:
    """Check whether this user may open the device nodes. A target that requests GPUs from the engine has none."""
    nodes = machine.nodes(target)
    if missing := [pattern for pattern in target.devices.nodes if not machine.paths(pattern)]:
        return Finding(target.name, FAIL, f"no device node {', '.join(missing)}, though the driver is loaded", target.probe.fix)
    closed = [machine.name(node) for node in nodes if not machine.may_use(node)]
    driver = _driver(target, machine)
    evidence = f"no access to {', '.join(closed)}" if closed else f"{len(nodes)} device nodes, all accessible" if nodes else ""
    return found(target.name, not closed, "; ".join(filter(None, (driver, evidence))), target.probe.fix)


def _driver(target: Target, machine: Machine) -> str:
    """`driver loaded: /sys/module/x/version says 1.2`, if the kernel driver has such a file."""
    files = machine.paths(target.probe.driver_file) if target.probe.driver_file else []
    version = _clip((machine.read(files[0]) or "").splitlines()[:1]) if files else ""
    return f"driver loaded: {machine.name(files[0])}" + (f" says {version}" if version else "") if files else ""


def _first_answer(name: str, alternatives: Sequence[Check], machine: Machine, info: Info) -> Finding:
    for check in alternatives:
        answer = _ask(check, machine, info)
        if answer.trouble != "absent":
            return _judge(name, check, answer, machine)
    last = alternatives[-1]
    asked = " and no ".join(check.run[0] if check.run else "engine" if check.engine else check.files[0] for check in alternatives)
    return Finding(name, last.absent, f"there is no {asked}", last.fix if last.absent != SKIP else "")


def _ask(check: Check, machine: Machine, info: Info) -> Answer:
    if check.run:
        return machine.run(check.run, check.limit_s)
    if check.engine:
        return Answer(json.dumps(info)) if info is not None else Answer(trouble="absent")
    texts = [(path, machine.read(path)) for pattern in check.files for path in machine.paths(pattern)]
    lines = [f"{machine.name(path)}: {line}" for path, text in texts if text is not None for line in text.splitlines() or [""]]
    return Answer("\n".join(lines)) if lines else Answer(trouble="absent")


def _judge(name: str, check: Check, answer: Answer, machine: Machine) -> Finding:
    """Compare an answer with the rules of its check, and report the first rule that it breaks."""

    def say(state: str, evidence: str) -> Finding:
        return Finding(name, state, evidence, "" if state in (PASS, SKIP) else check.fix, answer.seconds)

    if answer.trouble == "silent":
        return say(FAIL, f"`{' '.join(check.run)}` did not answer within {check.limit_s:g} s: its driver may hang")
    if check.bad and (bad := re.search(check.bad, answer.text, re.MULTILINE)):
        return say(check.breach, _line_of(answer.text, bad))
    if answer.trouble == "refused":
        return say(check.refused, f"`{' '.join(check.run)}` failed: {_clip(answer.text.strip().splitlines()[-1:])}")
    rows = [match.groupdict() for match in re.finditer(check.rows or "", answer.text, re.MULTILINE)] if check.rows else []
    if check.rows and not rows:
        return say(check.breach, f"unexpected output: {_clip(answer.text.strip().splitlines()[:1]) or 'nothing at all'}")
    if breaches := list(_breaches(check, rows)):
        return say(check.breach, "; ".join(dict.fromkeys(breaches)))
    if check.count is not None and len(rows) != (there := len(machine.paths(check.count))):
        return say(check.breach, f"{len(rows)} reported, {there} at {check.count}")
    return say(PASS, _told(check, rows))


def _breaches(check: Check, rows: Iterable[Mapping[str, str | None]]) -> Iterable[str]:
    for row in rows:
        shown = f" ({_show(check, row)})" if check.shown else ""
        for group, floor in check.at_least.items():
            if _version(row[group] or "") < _version(floor):
                yield f"{group} {row[group]} is older than {floor}{shown}"
        for group, most in check.at_most.items():
            value = _number(row[group] or "")
            if value is not None and value > most:
                yield f"{group} {row[group]} is more than {most:g}{shown}"
        for group, pattern in check.equal.items():
            if re.fullmatch(pattern, row[group] or "") is None:
                yield f"{group} is {row[group]!r}{shown}"


def _told(check: Check, rows: Sequence[Mapping[str, str | None]]) -> str:
    if not check.rows:
        return check.shown or "no problem found"
    shown = list(dict.fromkeys(_show(check, row) for row in rows)) if check.shown else []
    more = f" and {len(shown) - _SHOWN_ROWS} more" if len(shown) > _SHOWN_ROWS else ""
    return "; ".join(shown[:_SHOWN_ROWS]) + more if shown else "no problem found"


def _show(check: Check, row: Mapping[str, str | None]) -> str:
    return check.shown.format(**{group: value or "" for group, value in row.items()})


def _version(text: str) -> tuple[int, ...]:
    """Return the release numbers: `1.17.8-rc.1` becomes 1.17.8, which is exact enough for the rules."""
    first = re.match(r"\d+(\.\d+)*", text.strip())
    return tuple(int(part) for part in first[0].split(".")) if first else ()


def _number(text: str) -> float | None:
    """Return None for `[N/A]` and the like: an unreadable value breaks no rule."""
    try:
        return float(text)
    except ValueError:
        return None


def _line_of(text: str, match: re.Match[str]) -> str:
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    return _clip([text[start : end if end >= 0 else len(text)]])


def _clip(lines: Sequence[str]) -> str:
    """Return one line for a terminal: a tool's output may contain anything."""
    line = "".join(character if character.isprintable() else " " for character in " ".join(lines)).strip()
    return line if len(line) <= _LINE else f"{line[:_LINE]} …"
