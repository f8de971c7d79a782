"""Known failures: what a package lists in its own file, or what an earlier run had. They are shown, and fail no run. Pure.

An entry is one line. Its words are the kind, the target (`*`: any), the reason, and what it is about. A word with spaces is in quotes:

    test cpu failed test_ladder.py::test_wrong  # forgets the factor of two
    gate cpu spills<=12 sm_90 ladder rank_kernel
    kernel cpu "needs N bytes of shared memory, gfx942 has N" gfx942 ladder gram_kernel until 2027-01-31

What fails for another reason than the listed one is a new failure. So is what the list has no more right to excuse: its date has passed, or
only the change that is being judged added it.
"""

from __future__ import annotations

import json
import math
import re
from calendar import monthrange
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Union

from warpwave.compare.model import FAILING, KnownFailures, KnownUse, Standing
from warpwave.errors import ANY, NEW, NOTHING, WORSE, ConfigError, ExitCode, Outcome
from warpwave.records import (
    FAILED_PROPERTY,
    HOST_CODE,
    RAISES,
    RUNS_ON,
    CaseResult,
    CompiledKernel,
    Sample,
    Stage,
    StageReport,
    TargetRun,
    Verdict,
    worst,
)
from warpwave.records.run import MARK, plain_target
from warpwave.records.selection import FOR_TIME
from warpwave.records.words import plural

FILE = "known-failures.txt"
# The words behind the target, by kind. A `case` is host code that did not get through while it was compiled.
KINDS = {
    "bench": ("reason", "case", "provider"),
    "case": ("reason", "architecture", "test or point"),
    "gate": ("gate", "architecture", "kernel", "function"),
    "kernel": ("reason", "architecture", "kernel", "function"),
    "test": ("reason", "test"),
    "seen": ("budget in seconds", "number", "stage", "test or function"),
}
KINDS_OF = {"test": ("test",), "compile": ("kernel", "gate", "case"), "bench": ("bench",)}  # by stage
SEEN = "seen"  # no failure: how many tests of a function a run had that a budget cut short
LISTABLE = (*FAILING, Verdict.INVALID)
_HEADER = (
    "# Known failures of this package: they are shown, and fail no run. What is not listed here fails.",
    "# `warpwave known update RUN` writes this file. It keeps comments (# …) and dates (until YYYY-MM-DD).",
)
_MOST_ENTRIES = 100_000
_LONGEST_REASON = 120
_LONGEST = 30_000  # characters of a line: an id of a test has up to 1,000, and each may be escaped
_AT_MOST = "<="  # in the gate of an entry: `spills<=12` excuses no larger spill, `spills` any
_AMOUNTS = ("spills", "private_bytes")  # the gates that are amounts, by the name of a row's figure
_EXAMPLE = "docs/guides/known.md shows each kind. `warpwave known update RUN` writes the file."

_Row = Union[CaseResult, CompiledKernel, Sample]
Key = tuple[str, ...]  # the kind and the words behind the target: what fails, and why


@dataclass(frozen=True)
class Entry:
    """One line of the file. `until` is its last day, `YYYY-MM-DD`. `above` are the comment lines before it."""

    key: Key
    target: str
    until: str = ""
    comment: str = ""
    above: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The entry as the file has it, without its comment."""
        kind, *words = self.key
        return " ".join([kind, *map(_quoted, (self.target, *words)), *(["until", self.until] if self.until else [])])

    def is_about(self, run: TargetRun) -> bool:
        """Return whether the entry counts for this run's target. One for `cpu` also counts on a toolchain, `cpu@triton-3.8`."""
        return self.target in ("*", run.record.target, plain_target(run.record.target, run.record.toolchain))


@dataclass(frozen=True)
class Listed:
    """The content of a file: its first lines, the entries, and the comment lines behind the last one."""

    entries: tuple[Entry, ...] = ()
    header: tuple[str, ...] = _HEADER
    rest: tuple[str, ...] = ()


@dataclass(frozen=True)
class Known:
    """What a report takes for known, and what its exit code depends on. `seen` is how far the run came that the list is from.

    `source` says where the entries are from. `added` are entries that only the judged change has: they are shown, and excuse nothing.
    `base` are the failures of an earlier run: what was there is known, and nobody keeps a list of it.
    `today` is `YYYY-MM-DD`. With `strict`, an entry that is not needed any more fails the run.
    """

    entries: tuple[Entry, ...] = ()
    source: str = ""
    added: tuple[Entry, ...] = ()
    base: tuple[Entry, ...] = ()
    today: str = ""
    fail_on: str = NEW
    strict: bool = False
    seen: tuple[Entry, ...] = ()

    def counting(self) -> tuple[Entry, ...]:
        """Return the entries that excuse something today."""
        return tuple(entry for entry in self.entries if not entry.until or entry.until >= self.today)

    def on(self, target: str) -> set[Key]:
        """Return what is known to fail on a target, which may be on a toolchain: `cpu@triton-3.8`."""
        names = ("*", target, target.partition(MARK)[0])
        return {entry.key for entry in (*self.counting(), *self.base) if entry.target in names}


def parse(text: str, source: str) -> Listed:
    """Read a file of known failures. Entries that a merge has doubled count once.

    Raises:
        ConfigError: a line is no entry; the message names it by its number.
    """
    lines = [line.strip() for line in text.removeprefix("\ufeff").split("\n")]
    start = next((place for place, line in enumerate(lines) if not line.startswith("#")), len(lines))
    start = start if start == len(lines) or not lines[start] else 0  # comments right above the first entry are about that one
    header, above = tuple(lines[:start]), list[str]()
    entries: dict[tuple[Key, str], Entry] = {}
    for number, line in enumerate(lines[start:], start=start + 1):
        if line.startswith("#"):
            above.append(line)
        elif line:
            entry = replace(_entry(line, f"{source}, line {number}"), above=tuple(above))
            known = entries.setdefault((entry.key, entry.target), entry)
            entries[entry.key, entry.target] = replace(known, comment=known.comment or entry.comment, until=min(known.until, entry.until))
            above = []
        if len(entries) > _MOST_ENTRIES:
            raise ConfigError(
                f"{source} has more than {_MOST_ENTRIES} entries.", "It is no list of known failures, or one of generated tests.", _EXAMPLE
            )
    return Listed(tuple(entries.values()), header or _HEADER, tuple(above))


def _entry(line: str, where: str) -> Entry:
    if line.startswith(("<<<<<<<", "=======", ">>>>>>>")):
        raise ConfigError(f"{where}: {line[:60]!r} is a mark of git.", "A merge left a conflict.", "Keep both sides, and delete the marks.")
    if len(line) > _LONGEST:
        raise ConfigError(f"{where} has {len(line)} characters.", "No id of a test is as long.", _EXAMPLE)
    try:
        (kind, *words), comment = _split(line)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}.", "A word with spaces is in double quotes, as in JSON.", _EXAMPLE) from None
    if kind not in KINDS:
        meaning = f"The first word is one of {', '.join(KINDS)}; a comment begins with #."
        raise ConfigError(f"{where}: {kind[:60]!r} is no kind of entry.", meaning, _EXAMPLE)
    count = 1 + len(KINDS[kind])
    own, end = words[:count], words[count:]
    if len(own) < count or not all(own) or (end and (len(end) != 2 or end[0] != "until")):
        raise ConfigError(
            f"{where}: {line[:100]!r} is no entry.",
            f"Behind `{kind}` stand the target, {', '.join(KINDS[kind])}, and nothing else but `until YYYY-MM-DD`.",
            _EXAMPLE,
        )
    until = end[1] if end else ""
    if until and not _is_day(until):
        raise ConfigError(f"{where}: {until[:60]!r} is no day.", "`until` takes the last day of the entry.", "Write it as 2027-01-31.")
    return Entry((kind, *own[1:]), own[0], until, comment)


def _is_day(text: str) -> bool:
    found = re.fullmatch(r"([1-9][0-9]{3})-(0[1-9]|1[0-2])-([0-9]{2})", text)
    return found is not None and 1 <= int(found[3]) <= monthrange(int(found[1]), int(found[2]))[1]


def _split(line: str) -> tuple[list[str], str]:
    """Return the words of a line, and its comment. A # within a word, as in `test_a[c#]`, begins none."""
    words: list[str] = []
    rest = line
    while rest and not rest.startswith("#"):
        if rest.startswith('"'):
            try:
                word, end = json.JSONDecoder().raw_decode(rest)
            except ValueError:
                raise ValueError(f"the quotes of {rest[:60]!r} are wrong") from None
            if rest[end : end + 1].strip():
                raise ValueError(f"{rest[end : end + 20]!r} stands right behind quotes")
        else:
            word = re.split(r"[ \t]", rest, maxsplit=1)[0]
            end = len(word)
        words.append(word)
        rest = rest[end:].strip(" \t")
    return words, rest[1:].strip()


def _quoted(word: str) -> str:
    """Return a word as the file has it: as it is, or as a JSON string in which all that cannot be seen is escaped."""
    if word and word.isprintable() and not word.startswith(('"', "#")) and " " not in word:
        return word
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in json.dumps(word, ensure_ascii=False))


def render(listed: Listed) -> str:
    """Return the file: its first lines, an empty one, and the entries in the order of their text, so that git merges them well."""
    lines = [*listed.header, ""]
    for entry in sorted(listed.entries, key=lambda entry: entry.line):
        lines += [*entry.above, entry.line + (f"  # {entry.comment}" if entry.comment else "")]
    return "\n".join([*lines, *listed.rest]) + "\n"


# What fails in a run, as keys of entries.


@dataclass
class _Failures:
    """What fails on one target, and what is known of the rest. `complete` are the kinds of which the run had all that there is."""

    failing: dict[Key, None] = field(default_factory=dict)
    about: set[Key] = field(default_factory=set)  # what fails, without the reason
    in_short: set[Key] = field(default_factory=set)  # as a person may list it
    gates: dict[Key, float] = field(default_factory=dict)  # by gate and kernel: how much of it the worst configuration has
    passed: set[Key] = field(default_factory=set)
    there: set[Key] = field(default_factory=set)
    complete: set[str] = field(default_factory=set)


def _about(key: Key) -> Key:
    """Return a key without its reason."""
    return (key[0], *key[2:])


def key_of_test(test: str, how: str, by: str) -> Key:
    """Return the key of a failing test: how it ended, and what it failed by, which is the same in each run."""
    return ("test", " ".join(f"{how} {by}".split())[:_LONGEST_REASON].strip(), test)


def is_listed(key: Key, listed: Collection[Key]) -> bool:
    """Return whether a list has a key. One that a person wrote may only have how a test ended."""
    return key in listed or _in_short(key) in listed


def _in_short(key: Key) -> Key:
    return (key[0], key[1].partition(" ")[0], *key[2:]) if key[0] == "test" else key


def _allowed(listed: Iterable[Key]) -> dict[Key, float]:
    """Return how much of each gate a list excuses, by gate and kernel."""
    most: dict[Key, float] = {}
    for key in listed:
        if key[0] == "gate":
            about, amount = _amount(key)
            most[about] = max(amount, most.get(about, 0))
    return most


def _is_excused(key: Key, listed: Collection[Key], allowed: Mapping[Key, float]) -> bool:
    """Return whether a list has a key, and of a gate as much. `allowed` is `_allowed(listed)`."""
    if key[0] != "gate":
        return is_listed(key, listed)
    gate, amount = _amount(key)
    return amount <= allowed.get(gate, 0)


def _amount(key: Key) -> tuple[Key, float]:
    """Return a gate's key without the amount, and the amount; infinite if it has none, or one that is no number."""
    gate, _, amount = key[1].partition(_AT_MOST)
    return (key[0], gate, *key[2:]), float(amount) if amount.isdecimal() else math.inf


def _test_keys(run: TargetRun) -> dict[str, dict[Key, None]]:
    """Return the keys of each failing test: how it ended, and each kind of defect that the sanitizer found in it, with the kernel."""
    found: dict[str, dict[Key, None]] = {}
    for case in run.cases:
        if case.verdict in LISTABLE:
            found.setdefault(case.id, {})[key_of_test(case.id, case.verdict.value, case.properties.get(FAILED_PROPERTY, ""))] = None
    for finding in run.findings:
        if finding.case in found:
            found[finding.case][key_of_test(finding.case, finding.defect.value, finding.function)] = None
    return found


def _row_keys(row: CompiledKernel) -> list[Key]:
    """Return the keys of a compiled row: a key for each gate that it breaks, or has advice about."""
    where = (row.architecture, row.kernel, row.function)
    amounts = {gate: f"{_AT_MOST}{amount}" for gate in _AMOUNTS if (amount := getattr(row, gate))}
    gates: list[Key] = [("gate", gate + amounts.get(gate, ""), *where) for gate in {**row.broken, **row.advice} if gate not in row.waived]
    if row.verdict not in LISTABLE or row.only_gates:
        return gates if row.only_gates or row.verdict is Verdict.PASSED else []
    if row.function == HOST_CODE:
        raised = re.search(r" raises (\w+) on ", row.reason) if row.reason.startswith((RUNS_ON, RAISES)) else None
        return [("case", raised[1] if raised else row.verdict.value, row.architecture, row.origin or row.kernel)]
    return [("kernel", _reason(row), *where)]


def _reason(row: CompiledKernel) -> str:
    """Return why a kernel does not compile or start, without what changes from run to run: numbers and folders."""
    text = next(iter(row.reason.strip().splitlines()), "") or row.verdict.value
    text = re.sub(r"0x[0-9a-fA-F]+|(?<![\w.])\d+(\.\d+)*", "N", re.sub(r"(/[\w.+-]+)+/", "", text))
    return (text if row.verdict is Verdict.FAILED else f"{row.verdict.value}: {text}")[:_LONGEST_REASON].strip()


def _failures(run: TargetRun) -> _Failures:
    found = _Failures(complete=_complete(run))
    for keys in _test_keys(run).values():
        found.failing.update(keys)
    for case in run.cases:
        found.there.add(("test", case.id))
        if case.verdict in (Verdict.PASSED, Verdict.XFAILED):
            found.passed.add(("test", case.id))
    of_gates: list[Key] = []
    for row in run.compiled:
        for key in _row_keys(row):
            if key[0] == "gate":
                of_gates.append(key)
            else:
                found.failing[key] = None
        where = (row.architecture, row.kernel, row.function)
        named: list[Key] = [("kernel", *where), ("gate", *where)]
        if row.function == HOST_CODE:
            named = [("case", row.architecture, row.origin or row.kernel)]
        found.there.update(named)
        if row.verdict is Verdict.PASSED:
            found.passed.update(named)
    found.gates = _allowed(of_gates)
    for (_, gate, *which), amount in found.gates.items():
        reason = gate if amount == math.inf else f"{gate}{_AT_MOST}{amount:.0f}"
        found.failing[("gate", reason, *which)] = None
    for sample in run.samples:
        subject = ("bench", sample.case, sample.provider)
        found.there.add(subject)
        if sample.verdict in LISTABLE:
            found.failing[("bench", sample.verdict.value, *subject[1:])] = None
        elif sample.verdict is Verdict.PASSED:
            found.passed.add(subject)
    found.about.update(map(_about, found.failing))
    found.in_short.update(map(_in_short, found.failing))
    return found


def _complete(run: TargetRun) -> set[str]:
    """Return the kinds of which the run had all that there is: only then can something be gone."""
    narrowed = [option for option in run.narrowed.by if option not in FOR_TIME]
    has_sweeps = bool(run.samples) or any(row.launched_by == "bench" and row.function != HOST_CODE for row in run.compiled)
    left_out = any(report.left_out or report.out_of_time for report in run.stages) or ("--quick" in run.narrowed.by and has_sweeps)
    if narrowed or left_out or run.missing or run.record.shard or run.some_launches:
        return set()
    return {kind for report in run.stages if report.explained for kind in KINDS_OF.get(report.stage.value, ())}


# Entries against runs.


def entries_of(runs: Iterable[TargetRun]) -> tuple[Entry, ...]:
    """Return an entry for each failure of each target: an earlier run in place of a file."""
    found = {(key, plain_target(run.record.target, run.record.toolchain)): None for run in runs for key in _failures(run).failing}
    return tuple(Entry(key, target) for key, target in found)


def reached(seen: Iterable[Entry], seconds: float) -> dict[str, dict[str, int]]:
    """Return how many tests the list has seen, by target, and by stage and function; all, if the budget is longer now."""
    found: dict[str, dict[str, int]] = {}
    for entry in seen:
        _, budget, number, stage, name = entry.key
        if budget.isdecimal() and number.isdecimal() and seconds <= int(budget):
            counts = found.setdefault(entry.target, {})
            counts[f"{stage} {name}"] = max(int(number), counts.get(f"{stage} {name}", 0))
    return found


def _seen_in(runs: Iterable[TargetRun]) -> Iterator[Entry]:
    for run in runs:
        for report in run.stages:
            for name, number in report.reached.items():
                key = (SEEN, str(math.ceil(report.budget_s or 0)), str(number), report.stage.value, name)
                yield Entry(key, plain_target(run.record.target, run.record.toolchain))


def apply(runs: Sequence[TargetRun], known: Known) -> tuple[list[TargetRun], KnownFailures]:
    """Return the runs with `known` as the verdict of what fails as listed, and what became of each entry.

    A stage that failed by nothing else has passed, and so has its run.
    """
    counting = known.counting()
    there = {(entry.key, entry.target) for entry in known.entries}
    base = [entry for entry in known.base if (entry.key, entry.target) not in there]
    marked = []
    for run in runs:
        listed = {entry.key for entry in (*counting, *base) if entry.is_about(run)}
        marked.append(_mark(run, listed) if listed else run)
    failures = [(run, _failures(run)) for run in runs] if known.entries or known.added or base else []
    expired = {id(entry) for entry in known.entries} - {id(entry) for entry in counting}
    uses = []
    for entry in known.entries:
        standing, on = _standing(entry, failures)
        standing = Standing.EXPIRED if standing is Standing.KNOWN and id(entry) in expired else standing
        uses.append(KnownUse(entry.line, standing, on, entry.comment))
    for entry in base:
        standing, on = _standing(entry, failures)
        uses += [KnownUse(entry.line, standing, on)] if standing is Standing.KNOWN else []
    uses += [KnownUse(entry.line, Standing.ADDED, _standing(entry, failures)[1], entry.comment) for entry in known.added]
    return marked, KnownFailures(known.source, tuple(uses), known.fail_on, known.strict)


def _standing(entry: Entry, failures: Sequence[tuple[TargetRun, _Failures]]) -> tuple[Standing, tuple[str, ...]]:
    """Return what became of an entry, and on which targets. An entry whose test or kernel was not run is `UNSEEN`."""
    there = [(run.record.target, _on_target(entry.key, found)) for run, found in failures if entry.is_about(run)]
    for standing in (Standing.KNOWN, Standing.CHANGED):
        if on := tuple(target for target, each in there if each is standing):
            return standing, on
    # One target's pass says nothing about the others that `*` stands for.
    enough = len(there) > 1 if entry.target == "*" else bool(there)
    kinds = {each for _, each in there}
    if not enough or Standing.UNSEEN in kinds:
        return Standing.UNSEEN, ()
    return Standing.FIXED if Standing.FIXED in kinds else Standing.GONE, tuple(target for target, _ in there)


def _on_target(key: Key, found: _Failures) -> Standing:
    kind, about = key[0], _about(key)
    if key in found.failing or key in found.in_short:
        return Standing.KNOWN
    if kind == "gate":
        gate, amount = _amount(key)
        if gate in found.gates:
            return Standing.KNOWN if found.gates[gate] <= amount else Standing.CHANGED
    elif about in found.about:
        return Standing.CHANGED
    if kind in ("test", "bench") and about in found.passed:
        return Standing.FIXED
    unread = kind == "test" and ("test", key[-1].partition("::")[0]) in found.there  # its file does not import, or is skipped
    # `--architectures` left out what the entry is about.
    compiled = ("kernel", "gate", "case")
    unread |= kind in compiled and not any(each[0] in compiled and each[1] == key[2] for each in found.there)
    if kind not in found.complete or unread:
        return Standing.UNSEEN
    # A kernel has many configurations: it is fixed only if a whole run has none that fails.
    return Standing.FIXED if about in found.passed else Standing.UNSEEN if about in found.there else Standing.GONE


def _mark(run: TargetRun, listed: Collection[Key]) -> TargetRun:
    tests = {test for test, keys in _test_keys(run).items() if all(is_listed(key, listed) for key in keys)}
    cases = tuple(
        replace(case, verdict=Verdict.KNOWN, message=_was(case.verdict, case.message))
        if case.verdict in LISTABLE and case.id in tests
        else case
        for case in run.cases
    )
    allowed = _allowed(listed)
    compiled = tuple(_mark_row(row, listed, allowed) for row in run.compiled)
    samples = tuple(
        replace(one, verdict=Verdict.KNOWN, reason=_was(one.verdict, one.reason))
        if one.verdict in LISTABLE and ("bench", one.verdict.value, one.case, one.provider) in listed
        else one
        for one in run.samples
    )
    rows: dict[Stage, tuple[Sequence[_Row], Sequence[_Row]]] = {
        Stage.TEST: (run.cases, cases),
        Stage.COMPILE: (run.compiled, compiled),
        Stage.BENCH: (run.samples, samples),
    }
    stages = tuple(_stage(report, *rows[report.stage]) if report.stage in rows else report for report in run.stages)
    record, before, now = run.record, _worst(run.stages), _worst(stages)
    ended = record.exit
    orderly = ended is None or (ended.code == 0 and not (ended.timed_out or ended.interrupted or ended.error or ended.exceeded))
    if record.verdict is before and now is not before and orderly and not run.problems:
        record = replace(record, verdict=now, reason="", hint="")
    return replace(run, record=record, stages=stages, cases=cases, compiled=compiled, samples=samples)


def _mark_row(row: CompiledKernel, listed: Collection[Key], allowed: Mapping[Key, float]) -> CompiledKernel:
    """Return the row, as known if all that fails it is listed, and without the advice that is listed."""
    keys = _row_keys(row)
    gates = {key: _amount(key)[0][1] for key in keys if key[0] == "gate"}
    failing = [key for key in keys if key not in gates or gates[key] in row.broken]
    if row.verdict in LISTABLE and failing and all(_is_excused(key, listed, allowed) for key in failing):
        row = replace(row, verdict=Verdict.KNOWN, reason=_was(row.verdict, row.reason))
    known = {gate for key, gate in gates.items() if _is_excused(key, listed, allowed)}
    left = {gate: text for gate, text in row.advice.items() if gate not in known}
    return row if left == row.advice else replace(row, advice=left)


def _was(verdict: Verdict, text: str) -> str:
    return f"{verdict.value}: {text}" if text else verdict.value


def _stage(report: StageReport, before: Iterable[_Row], after: Iterable[_Row]) -> StageReport:
    """Return a stage's report without its known failures, if they alone explain its verdict."""
    was, now = {row.verdict for row in before}, {row.verdict for row in after}
    if report.verdict not in LISTABLE or report.verdict not in was - now or report.exit_code or report.doubts:
        return report
    return replace(report, verdict=worst([verdict for verdict in now if verdict in LISTABLE], Verdict.PASSED), reason="", hint="")


def _worst(stages: Iterable[StageReport]) -> Verdict:
    return worst([report.verdict for report in stages if report.verdict is not Verdict.NOT_RUN])


def decide(found: Outcome, known: Union[KnownFailures, None], slower: int = 0) -> Outcome:
    """Return the outcome of a report: `--fail-on` and `--known-strict` have the last word. `slower` counts cases since the base run."""
    if known is None:
        return found
    if known.fail_on == NOTHING:
        return Outcome()
    if found.ok and known.fail_on == ANY and known.count:
        return Outcome(ExitCode.FAILED, f"{known.words}, and --fail-on any")
    if found.ok and known.fail_on in (ANY, WORSE) and slower:
        return Outcome(ExitCode.FAILED, f"{plural(slower, 'case')} slower than in the base run")
    if found.ok and known.strict and (left := len(known.unneeded)):
        return Outcome(ExitCode.FAILED, f"{plural(left, 'known failure', 'is', 'are')} listed and not needed any more (--known-strict)")
    return found


# The file after a run.


@dataclass(frozen=True)
class Update:
    """A file after a run, and what changed in it, as lines of the file. `chosen_by`: options that chose tests of a run that a budget cut
    short, too. The file does not say how far such a run came, because a run without them would stop there."""

    listed: Listed
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()
    chosen_by: tuple[str, ...] = ()


def update(listed: Listed, runs: Sequence[TargetRun], today: str, *, prune: bool = False) -> Update:
    """Return the file without what the runs do not need any more, and with what fails in them; that is left out with `prune`.

    What the runs did not have stays as it is.
    """
    failures = [(run, _failures(run)) for run in runs]
    whole = [run for run in runs if not prune and not [option for option in run.narrowed.by if option not in FOR_TIME]]
    seen = [entry for entry in listed.entries if entry.key[0] == SEEN and not any(entry.is_about(run) for run in whole)]
    seen += _seen_in(whole)
    cut = [] if prune else [run for run in runs if any(report.reached for report in run.stages)]
    chosen_by = tuple(dict.fromkeys(option for run in cut for option in run.narrowed.by if option not in FOR_TIME))
    listed = replace(listed, entries=tuple(entry for entry in listed.entries if entry.key[0] != SEEN))
    unneeded = (Standing.FIXED, Standing.GONE, Standing.CHANGED)
    fitted = {entry: _with_amount(entry, failures, prune) for entry in listed.entries}
    standings = {entry: _standing(fits, failures)[0] for entry, fits in fitted.items()}
    kept = [fitted[entry] for entry, standing in standings.items() if standing not in unneeded]
    removed = [entry.line for entry, standing in standings.items() if standing in unneeded or fitted[entry] != entry]
    new = [fits for entry, fits in fitted.items() if fits != entry and fits in kept]
    if not prune:
        fresh: dict[Entry, None] = {}
        for run, found in failures:
            covered = {entry.key for entry in kept if entry.is_about(run)}
            allowed = _allowed(covered)
            left = (key for key in found.failing if not _is_excused(key, covered, allowed))
            fresh.update(dict.fromkeys(Entry(key, plain_target(run.record.target, run.record.toolchain)) for key in left))
        new += fresh
    expired = [entry.line for entry, standing in standings.items() if standing is Standing.KNOWN and entry.until and entry.until < today]
    after = replace(listed, entries=tuple(sorted({*kept, *new, *seen}, key=lambda entry: entry.line)))
    return Update(after, tuple(sorted(entry.line for entry in new)), tuple(sorted(removed)), tuple(expired), chosen_by)


def _with_amount(entry: Entry, failures: Sequence[tuple[TargetRun, _Failures]], prune: bool) -> Entry:
    """Return a gate's entry with the amount that the runs have: a smaller one if they were whole, a larger one not with `prune`."""
    about, listed = _amount(entry.key)
    found = [each for run, each in failures if entry.is_about(run)] if entry.key[0] == "gate" else []
    amount = max((each.gates.get(about, 0) for each in found), default=0)
    fewer = 0 < amount < listed and all("gate" in each.complete for each in found)
    if listed == math.inf or amount == math.inf or not (fewer or (amount > listed and not prune)):
        return entry
    return replace(entry, key=("gate", f"{about[1]}{_AT_MOST}{amount:.0f}", *about[2:]))
