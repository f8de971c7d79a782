"""The answer that a reader came for: what is wrong, how far each kernel is from its ceiling, and what differs there. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Union

from warpwave.compare.code_hints import Figure, Hint, Side, figures, hints
from warpwave.compare.grid import not_portable, portable
from warpwave.compare.model import (
    FAILING,
    Cell,
    Comparison,
    Geomean,
    KernelOnCards,
    OnCard,
    Row,
    Since,
    Speed,
    TargetSummary,
    failures,
    is_dead,
)
from warpwave.compare.speeds import lower_is_better
from warpwave.compare.tests import mistyped
from warpwave.compare.unchecked import checked_of
from warpwave.compare.verdict import sentence, together
from warpwave.records import BY_TORCH, HOST_CODE, RAISES, RUNS_ON, UNCHECKED, CompiledKernel, NotRun, Verdict, grouped, plural
from warpwave.records.selection import is_load
from warpwave.records.words import is_memory, is_rate
from warpwave.stats import median

# A kernel this close to what the card can do is near; one below the other is far.
NEAR, FAR = 0.9, 0.7


class Distance(str, Enum):
    """How far a share is from 1."""

    NEAR = "near"
    SHORT = "short"
    FAR = "far"


def distance(share: float) -> Distance:
    """Return how far a share is from 1, which is what the hardware, or the fastest provider, reaches."""
    return Distance.NEAR if share >= NEAR else Distance.SHORT if share >= FAR else Distance.FAR


@dataclass(frozen=True)
class Reached:
    """What a kernel's own provider reaches in one unit on a target: medians over its `n` cases, without the `launch_bound` ones.

    `of_ceiling` is the share of the `ceiling` (`the copy`, or `the bf16 product`), None without one. `of_best` is the speed over that of
    the fastest provider of the same case, None if it is the only provider.
    """

    unit: str
    provider: str
    n: int
    best: Union[float, None]
    of_ceiling: Union[float, None]
    of_best: Union[float, None]
    verified: bool
    ceiling: str = ""
    launch_bound: int = 0
    busy: Union[float, None] = None

    @property
    def typical(self) -> Union[float, None]:
        """The value that belongs to the share; its best one if all cases are launch-bound."""
        return self.best if self.busy is None else self.busy

    @property
    def is_small(self) -> bool:
        """Whether all of its cases are launch-bound: then no share says anything about the kernel."""
        return bool(self.n) and self.launch_bound == self.n

    @property
    def ground(self) -> str:
        """What the share is of, in a word: `copy`, `product` or `peer`."""
        return "peer" if self.of_ceiling is None else "product" if is_rate(self.unit) else "copy"

    @property
    def share(self) -> Union[float, None]:
        """The share that says how far it is: of the ceiling, or else of the fastest provider. None if neither is known."""
        if is_memory(self.unit):
            return None
        return self.of_best if self.of_ceiling is None else self.of_ceiling


@dataclass(frozen=True)
class Compiled:
    """How many configurations of a kernel were compiled for a target's architectures, how many failed, and how many break a gate only."""

    n: int = 0
    failed: int = 0
    gated: int = 0


@dataclass(frozen=True)
class Square:
    """A kernel on a target. `counts` and `not_run` count its tests by verdict and by reason; both are empty without tests.

    `since` says how the speed of its own provider changed since the base run, if there is one.
    """

    target: str
    counts: dict[str, int]
    not_run: dict[str, int]
    reached: tuple[Reached, ...]
    since: Union[Since, None] = None
    compiled: Compiled = Compiled()

    @property
    def failed(self) -> int:
        """How many of its tests failed."""
        return failures(self.counts)

    @property
    def share(self) -> Union[float, None]:
        """Its lowest share."""
        return None if self.furthest is None else self.furthest.share

    @property
    def furthest(self) -> Union[Reached, None]:
        """What it reaches in the unit in which it falls short the most; without a share, in its first unit."""
        shared = [one for one in self.reached if one.share is not None]
        return min(shared, key=lambda one: one.share or 0.0) if shared else next(iter(self.reached), None)


@dataclass(frozen=True)
class KernelLine:
    """A kernel on all targets. `portability` is Pennycook's, from 0 to 1. The ratios are geometric means over the sound cases."""

    kernel: str
    squares: tuple[Square, ...]
    portability: Union[float, None]
    ratios: tuple[Geomean, ...]

    @property
    def failed(self) -> int:
        """How many tests failed on all targets together."""
        return sum(square.failed for square in self.squares)

    @property
    def uncompiled(self) -> int:
        """How many of its configurations do not compile, on all targets together."""
        return sum(square.compiled.failed for square in self.squares)

    @property
    def gap(self) -> Union[float, None]:
        """What is missing to 1 on the target where most is missing. None if no share is known."""
        shares = [square.share for square in self.squares if square.share is not None]
        return max(0.0, 1 - min(shares)) if shares else None


def overview(comparison: Comparison) -> tuple[KernelLine, ...]:
    """Return every kernel: those with failed tests first, then those that do not compile, then those with the largest gap."""
    own = own_providers(comparison)
    index = _Index(comparison)
    kernels = dict.fromkeys([*(entry.kernel for entry in comparison.kernels), *own, *(kernel for kernel, _ in index.compiled)])
    lines = [_line(comparison, kernel, own.get(kernel, ""), index) for kernel in kernels]
    return tuple(sorted(lines, key=lambda line: (not line.failed, not line.uncompiled, 0.0 if line.gap is None else -line.gap - 1)))


def own_providers(comparison: Comparison) -> dict[str, str]:
    """Return the kernel's own provider by kernel: the first of its benchmark."""
    own: dict[str, str] = {}
    for row in comparison.rows:
        own.setdefault(row.kernel, row.provider)
    return own


class _Index:
    """A comparison, indexed by kernel."""

    def __init__(self, comparison: Comparison) -> None:
        self.rows = grouped((row.kernel, row) for row in comparison.rows)
        self.tests = {(entry.kernel, entry.target): entry for entry in comparison.kernels}
        self.speeds = grouped(((speed.kernel, speed.provider, speed.target), speed) for speed in comparison.speeds)
        self.ratios = grouped(((mean.kernel, mean.provider), mean) for mean in comparison.geomeans)
        self.portability = {(entry.kernel, entry.provider): entry.value for entry in comparison.portabilities}
        self.since = {(entry.kernel, entry.provider, entry.target): entry for entry in comparison.since}
        made = [cell for cell in comparison.compiled_cells if cell.compiled.was_compiled and cell.compiled.function != HOST_CODE]
        self.compiled = {
            key: Compiled(len(rows), sum(map(is_dead, rows)), sum(row.only_gates for row in rows))
            for key, rows in grouped(((cell.compiled.kernel, cell.target), cell.compiled) for cell in made).items()
        }


def _line(comparison: Comparison, kernel: str, own: str, index: _Index) -> KernelLine:
    best = _of_best(index.rows.get(kernel, []), own)

    def reached(speed: Speed) -> Reached:
        of_best = best.get((speed.unit, speed.target, speed.gpu))
        measured = (speed.n, speed.best, speed.busy_share, of_best, speed.verified, speed.share_of, speed.launch_bound, speed.busy)
        return Reached(speed.unit, speed.provider, *measured)

    squares = []
    for name in (target.target for target in comparison.targets):
        tested = index.tests.get((kernel, name))
        counts, not_run = (tested.counts, tested.not_run) if tested else ({}, {})
        speeds = tuple(map(reached, index.speeds.get((kernel, own, name), ())))
        since, compiled = index.since.get((kernel, own, name)), index.compiled.get((kernel, name), Compiled())
        squares.append(Square(name, counts, not_run, speeds, since, compiled))
    return KernelLine(kernel, tuple(squares), index.portability.get((kernel, own)), tuple(index.ratios.get((kernel, own), ())))


def _of_best(rows: Iterable[Row], own: str) -> dict[tuple[str, str, str], float]:
    """Return the share of the best speed by unit, target and GPU, if other providers were measured. The best possible share is 1."""
    sound = ((row, cell, cell.value) for row in rows for cell in row.cells if cell.value and not cell.suspect and not cell.launch_bound)
    cases = grouped(((row.unit, cell.target, cell.gpu, row.case), (row.provider, value)) for row, cell, value in sound)
    shares = []
    for (unit, target, gpu, _), measured in cases.items():
        values = dict(measured)
        if own in values and len(values) > 1:
            best = min(values.values()) / values[own] if lower_is_better(unit) else values[own] / max(values.values())
            shares.append(((unit, target, gpu), best))
    return {key: median(found) for key, found in grouped(shares).items()}


_MOST = 8  # targets in a clause
_FEW_CARDS = 3  # named in a clause
_LIMIT = f"{FAR:.0%}"


_WORDS = 12  # of a headline above two cards


@dataclass(frozen=True)
class Headline:
    """The first sentence of a report, and what had no room in it. `faulty`: something is wrong, even if the exit code is 0."""

    text: str
    more: str = ""
    faulty: bool = False


def headline(comparison: Comparison, lines: Sequence[KernelLine]) -> Headline:
    """Return `6 tests fail on b; 3 kernels reach less than 70% of the copy there.`, or else what is known to be good.

    If the command was stopped or a file could not be written, that stands before the comparison's own sentence, and comes first here too.
    Above the cards of several targets it has at most twelve words: as many of its clauses as fit. What a card's limit is comes behind the
    sentence, if that names another fault.
    """
    own = sentence(comparison.targets)
    lead = comparison.sentence.removesuffix(own).strip() if comparison.sentence.endswith(own) else ""
    words = mistyped(comparison.targets, comparison.tests)
    lead = lead.removeprefix(f"{words}.").strip() if words else lead  # the command's reason may be the same words
    limit, why = ("", "") if comparison.has_card or words else not_portable(comparison.grid)
    said = [words[0].upper() + words[1:]] if words else _wrong(comparison, lines, limit)
    faulty = bool(said)
    if len(said) == 1 and limit:
        said, why = [f"{limit}: {why}"], ""
    said += [counted] if said and not words and (counted := checked_of(comparison.targets)) else []
    said = said or ([] if comparison.exit_code and not lead else _right(comparison, lines))
    said += _known(comparison) if said and not words else []
    if comparison.beside and said:
        return Headline(*_in_short([*([lead.removesuffix(".")] if lead else []), *said]), faulty)
    text = " ".join(filter(None, (lead, f"{'; '.join(said)}."))) if said else comparison.sentence
    return Headline(text, f"{_capital(why)}." if why else "", faulty)


def _capital(text: str) -> str:
    """Return a sentence with a capital letter, unless it begins with the name of a file."""
    return text if re.match(r"[\w/.-]+\.py\b", text) else text[0].upper() + text[1:]


def _in_short(said: Sequence[str]) -> tuple[str, str]:
    """Return the first clauses, in at most twelve words, and the others. Of a first clause that is too long, return its beginning."""
    for count in range(len(said), 0, -1):
        text = "; ".join(said[:count])
        if len(text.split()) <= _WORDS:
            left = "; ".join(said[count:])
            return f"{text}.", f"{left[0].upper()}{left[1:]}." if left else ""
    short = re.sub(r" \([^()]*\)|: .*", "", said[0])
    while len(short.split()) > _WORDS and ", " in short:
        short = short.rpartition(", ")[0]
    kept = short.split()[:_WORDS]
    return f"{' '.join(kept)}{'.' if len(kept) == len(short.split()) else ' …'}", f"{'; '.join(said)}."


def _wrong(comparison: Comparison, lines: Sequence[KernelLine], limit: str) -> list[str]:
    """Return a clause for each kind of fault, the gravest first. A clause about the one target of the clause before says `there`. `limit`
    is the first clause, if a kernel cannot run on a card."""
    targets = comparison.targets
    cells = [cell.compiled for cell in comparison.compiled_cells]
    unloaded = _unloaded(comparison)

    def cards(is_wrong: Callable[[CompiledKernel], bool]) -> str:
        named = list(dict.fromkeys(made.hardware for made in cells if is_wrong(made)))
        return ", ".join(named) if len(named) <= _FEW_CARDS else f"{len(named)} architectures"

    # By function: one that two tests launch has a row for each.
    gated = {(cell.target, cell.compiled.function): cell.compiled.broken for cell in comparison.compiled_cells if cell.compiled.only_gates}
    which = [f"`{function}`: {', '.join(gates)}" for (_, function), gates in gated.items()]
    on = "" if comparison.has_card else f" for {cards(lambda made: made.only_gates)}"
    gate = f" a gate ({which[0]}{', …' if len(which) > 1 else ''}){on}" if which else ""
    failed = {target.target: count for target in targets if (count := failures(target.tests) - unloaded.get(target.target, 0))}
    unmeasured = {target.target: count for target in targets if (count := _unmeasured(target))}
    # Failures of host code whose reason names no architecture.
    hosted = ((cell.target, cell.compiled) for cell in comparison.compiled_cells if cell.compiled.function == HOST_CODE)
    origins = {
        (target, made.origin) for target, made in hosted if made.verdict in FAILING and not made.reason.startswith((RUNS_ON, RAISES))
    }
    slower = Counter(square.target for line in lines for square in line.squares if square.since and square.since.changes.get("slower"))
    faults = (  # how many on each target, of what, and the verb for one and for many
        (failed, "test", "fails", "fail", ""),
        (unloaded, "benchmark file", "does", "do", " not load"),
        (_by_target(comparison, (target for target, _ in origins)), "case", "fails", "fail", " in host code"),
        ({} if limit else _kernels(comparison, is_uncompiled), "kernel", "does", "do", f" not compile for {cards(is_uncompiled)}"),
        ({} if limit else _kernels(comparison, _is_refused), "kernel", "cannot", "cannot", f" be launched on {cards(_is_refused)}"),
        (_by_target(comparison, (target for target, _ in gated)), "kernel", "breaks", "break", gate),
        (unmeasured, "point", "could", "could", " not be measured"),
        (slower, "kernel", "is", "are", " slower than in the base run"),
        (_far(lines, "copy"), "kernel", "reaches", "reach", f" less than {_LIMIT} of the copy"),
        (_far(lines, "product"), "kernel", "reaches", "reach", f" less than {_LIMIT} of a product"),
        (_far(lines, "peer"), "kernel", f"is below {_LIMIT} of its fastest peer", f"are below {_LIMIT} of their fastest peers", ""),
    )
    clauses = [limit] if limit else []
    clauses += together(target for target in targets if not target.complete)[:_MOST]
    clauses += [] if limit else _raising(cells)
    clauses += _memory(comparison)
    remarks = {target.target: remark for target in targets if (remark := _remark(target))}
    before: list[str] = []
    for counted, noun, one, many, rest in faults:
        if counted:
            there = before == list(counted) and len(counted) == 1
            clauses.append(_clause(counted, noun, one + rest, many + rest, there=there, remarks=remarks if noun == "test" else {}))
            before = list(counted)
    return clauses


def _memory(comparison: Comparison) -> list[str]:
    """Return `3 memory findings (race in `sum_kernel`, …)`: the lines with a defect in tests that fail."""
    failing = {(cell.target, row.id) for row in comparison.tests for cell in row.cells if cell.result.verdict in FAILING}
    found = [entry.finding for entry in comparison.findings if (entry.target, entry.finding.case) in failing]
    lines = {(one.function, one.place, one.defect): f"{one.defect.value} in `{one.function}`" for one in found}
    if not lines:
        return []
    return [f"{plural(len(lines), 'memory finding')} ({next(iter(lines.values()))}{', …' if len(lines) > 1 else ''})"]


def _clause(counted: Mapping[str, int], noun: str, one: str, many: str, *, there: bool, remarks: Mapping[str, str]) -> str:
    """`6 tests fail on a (1 timeout), 1 on b (suspected)`: the words in brackets are the target's in `remarks`."""

    def where(target: str) -> str:
        return f"on {target} ({remarks[target]})" if target in remarks else f"on {target}"

    (first, count), *others = counted.items()
    text = plural(count, noun, one, many)
    more = [f"{number} {where(target)}" for target, number in others[: _MOST - 1]]
    more += [f"some on {len(others) - len(more)} more targets"] if len(others) > len(more) else []
    return ", ".join([f"{text} {'there' if there else where(first)}", *more])


def _remark(target: TargetSummary) -> str:
    """Say how tests of a target failed: `2 suspected, 1 timeout`; nothing if all of them failed in the usual way."""
    how = {verdict.value: target.tests.get(verdict.value, 0) for verdict in FAILING if verdict not in (Verdict.FAILED, Verdict.ERROR)}
    failed = failures(target.tests)
    if target.suspected == failed:
        return "suspected" if failed else ""
    return ", ".join(f"{number} {word}" for word, number in {"suspected": target.suspected, **how}.items() if number)


def _right(comparison: Comparison, lines: Sequence[KernelLine]) -> list[str]:
    """Return what is good: cards that kernels can run on, tests that pass, and the least share of the copy that a kernel reaches. What
    raised comes before the tests."""
    tested = [target.target for target in comparison.targets if target.tests.get(Verdict.PASSED.value)]
    more = f" and {len(tested) - _MOST} more targets" if len(tested) > _MOST else ""
    others = "other tests" if any(Verdict.KNOWN.value in target.tests for target in comparison.targets) else "tests that ran"
    clauses = [] if comparison.has_card else list(filter(None, [portable(comparison.grid)]))
    clauses += [*filter(None, [checked_of(comparison.targets)]), *_raised(comparison), *_on_some_cards(comparison)]
    clauses += [f"all {others} pass on {', '.join(tested[:_MOST])}{more}"] if tested else []
    rows = (cell.compiled for cell in comparison.compiled_cells)
    advised = {(row.kernel, row.function) for row in rows if row.advice.keys() - row.waived}
    clauses += [plural(len(advised), "kernel", "has advice", "have advice")] if advised else []
    untested = [target.target for target in comparison.targets if target.is_untested]
    clauses += [f"no test was found on {', '.join(untested[:_MOST])}"] if untested else []
    late = [target.target for target in comparison.targets if target.is_late]
    clauses += [f"the budget was up before the first test on {', '.join(late[:_MOST])}"] if late else []
    made = sum(target.compiled.get(Verdict.PASSED.value, 0) for target in comparison.targets)
    clauses += [plural(made, "binary", "was compiled", "were compiled")] if made and not tested else []
    shares = [(one.of_ceiling, target, line.kernel) for line, target, one in _each(lines) if one.of_ceiling and one.ground == "copy"]
    if shares:
        share, target, kernel = min(shares)
        where = f"{kernel} on {target} is the furthest away"
        clauses.append(f"every kernel reaches at least {share:.0%} of the copy ({where})")
    return [clauses[0][0].upper() + clauses[0][1:], *clauses[1:]] if clauses else []


def _known(comparison: Comparison) -> list[str]:
    """Return `3 known failures`, and how many of the list are not needed any more."""
    known = comparison.known
    if known is None:
        return []
    gone = plural(len(known.unneeded), "listed failure", "is gone", "are gone")
    return ([known.words] if known.count else []) + ([gone] if known.unneeded else [])


def _by_target(comparison: Comparison, named: Iterable[str]) -> dict[str, int]:
    """Count how often each target is named, in the order of the targets."""
    counted = Counter(named)
    return {target.target: counted[target.target] for target in comparison.targets if counted[target.target]}


def _kernels(comparison: Comparison, is_wrong: Callable[[CompiledKernel], bool]) -> dict[str, int]:
    """Count the kernels by target of which at least one binary is wrong."""
    found = {(cell.target, cell.compiled.kernel) for cell in comparison.compiled_cells if is_wrong(cell.compiled)}
    return _by_target(comparison, (target for target, _ in found))


def is_uncompiled(made: CompiledKernel) -> bool:
    """Return whether the compiler gave no binary."""
    return is_dead(made) and made.function != HOST_CODE and not made.binary_hash


def _is_refused(made: CompiledKernel) -> bool:  # it compiles, and no driver launches it
    return is_dead(made) and bool(made.binary_hash)


def _raising(cells: Sequence[CompiledKernel]) -> list[str]:
    """Return `test_scale runs on gfx942 and raises KeyError on sm_90`, or `raises … on every architecture`, and how many more there are."""
    found = {made.origin: made.reason for made in reversed(cells) if made.verdict in FAILING and made.reason.startswith((RUNS_ON, RAISES))}
    if not found:
        return []
    origin, reason = list(found.items())[-1]
    more = f", and {plural(len(found) - 1, 'more case')} like it" if len(found) > 1 else ""
    return [f"{_short(origin)} {reason.removeprefix('it ').partition(': ')[0]}{more}"]


def _short(origin: str) -> str:
    """Return a test without its file, and a script without its kernel: `add [running bench_add.py]`."""
    return re.sub(r"^[^\[]*::|^[^\[]* \[running (.*)\]$", r"\1", origin)


def _raised(comparison: Comparison) -> list[str]:
    """Say how many cases raised, and whose fault it is as far as known: where torch refused, maybe that of what is pretended."""
    cells = [cell.compiled for cell in comparison.compiled_cells]
    found = {made.origin: made.reason for made in cells if made.not_run is NotRun.RAISED}
    by_torch = sum(reason.endswith(BY_TORCH) for reason in found.values())
    counts = ((len(found) - by_torch, "code of the package"), (by_torch, "torch, maybe for what is pretended"))
    said = ", ".join(f"{count} raised by {who}" for count, who in counts if count)
    return [f"{plural(len(found), 'case')} did not run to the end without a card ({said})"] if found else []


def _on_some_cards(comparison: Comparison) -> list[str]:
    """Say how many cases compiled for some cards, and could not be checked for others: a module that only one vendor's machine has."""
    compiled, unchecked = defaultdict[str, set[str]](set), defaultdict[str, dict[str, NotRun]](dict)
    for made in (cell.compiled for cell in comparison.compiled_cells):
        if made.function != HOST_CODE:
            for name in (made.origin, made.origin.partition("::")[0]):  # a file that does not import is a case of its own
                compiled[name].add(made.architecture)
        elif made.not_run in UNCHECKED:
            unchecked[made.origin][made.architecture] = made.not_run
    reasons = Counter(next(iter(by_card.values())) for name, by_card in unchecked.items() if compiled.get(name, set()) - by_card.keys())
    said = ", ".join(f"{count} {reason.words}" for reason, count in reasons.items())
    return [f"{plural(reasons.total(), 'case')} could not be compiled for all cards ({said})"] if reasons else []


def _unloaded(comparison: Comparison) -> dict[str, int]:
    """Count by target the files of benchmarks that do not load."""
    cells = (cell for row in comparison.tests if is_load(row.id) for cell in row.cells)
    return _by_target(comparison, (cell.target for cell in cells if cell.result.verdict in FAILING))


def _unmeasured(target: TargetSummary) -> int:
    """Count the points of a target that measured none: otherwise, the report lists what is missing beside what is there."""
    wrong = {word: number for word, number in target.points.items() if word not in (Verdict.PASSED.value, Verdict.NOT_RUN.value)}
    return 0 if target.points.get(Verdict.PASSED.value) else sum(wrong.values())


def _far(lines: Sequence[KernelLine], ground: str) -> Counter[str]:
    """Count kernels by target that are far from the ceiling, or without one from the fastest provider."""
    named = ((target, line.kernel, one) for line, target, one in _each(lines) if one.ground == ground)
    found = {(target, kernel) for target, kernel, one in named if one.share is not None and one.share < FAR}
    return Counter(target for target, _ in sorted(found))


def _each(lines: Sequence[KernelLine]) -> Iterator[tuple[KernelLine, str, Reached]]:
    return ((line, square.target, one) for line in lines for square in line.squares for one in square.reached)


_AHEAD = 0.05  # how much larger the share on another target must be, to be worth a comparison of the code
_FASTER = 1.1  # times as fast, for a peer to show that more is possible
_COPY = "copy"  # a line that benchmarks draw for orientation: it does not do the same work
_SMALL = 3  # cases at either end of a sweep


@dataclass(frozen=True)
class Shortfall:
    """A kernel that stays behind on a target: it reaches `share` of what `of` names, as the median over `n` cases.

    `case` loses the most time, compared with that ceiling; `case_share` is its share and `case_ms` its median time. `figures` lay the code
    of this case on `architecture` beside that on `other` of the target `against`, where the kernel comes closer to the ceiling. Without
    such a target, or such code, they are those of one side, or empty; `unknown` says which code is missing.
    """

    kernel: str
    target: str
    provider: str
    unit: str
    share: float
    of: str
    n: int
    case: str
    case_share: float
    case_ms: Union[float, None]
    architecture: str = ""
    against: str = ""
    other: str = ""
    other_share: Union[float, None] = None
    figures: tuple[Figure, ...] = ()
    hints: tuple[Hint, ...] = ()
    unknown: str = ""
    cause: str = ""


def shortfalls(comparison: Comparison, lines: Sequence[KernelLine], most: int = 50) -> tuple[Shortfall, ...]:
    """Return the kernels below 90% of their ceiling by target, the largest gap first."""
    short = [(one.share, line, target, one) for line, target, one in _each(lines) if one.share is not None and one.share < NEAR]
    short.sort(key=lambda entry: entry[0])
    cases = _CaseIndex(comparison)
    made = (cases.shortfall(line, target, one) for _, line, target, one in short[:most])
    return tuple(entry for entry in made if entry)


def causes(found: Iterable[Shortfall]) -> dict[str, Shortfall]:
    """Return the largest gap of each kernel."""
    return {short.kernel: short for short in reversed(list(found))}


def side_by_side(comparison: Comparison) -> tuple[KernelOnCards, ...]:
    """Return a row for each kernel, if two targets or more ran on a card."""
    cards = {target.target for target in comparison.beside}
    lines = overview(comparison) if cards else ()
    largest = causes(shortfalls(comparison, lines)) if cards else {}
    rows = []
    for line in lines:
        gap = largest.get(line.kernel)
        on = tuple(_on_card(square) for square in line.squares if square.target in cards)
        ratios = {one.target: one.ratio for one in reversed(line.ratios) if one.ratio is not None}
        rows.append(KernelOnCards(line.kernel, on, ratios, gap.target if gap else "", gap.cause if gap else ""))
    return tuple(rows)


def _on_card(square: Square) -> OnCard:
    passed, one = square.counts.get(Verdict.PASSED.value, 0), square.furthest
    tests = (passed, square.failed, sum(square.counts.values()) - passed - square.failed)
    if one is None:
        return OnCard(square.target, *tests)
    ground = one.ground if one.share is not None else ""
    return OnCard(square.target, *tests, one.share, ground, one.typical, one.unit, one.verified, one.is_small)


class _CaseIndex:
    """The rows and the code of a comparison, indexed by what a shortfall needs."""

    def __init__(self, comparison: Comparison) -> None:
        self.cards = {target.target: target.devices[0].architecture for target in comparison.targets if target.devices}
        self.rows = grouped(((row.kernel, row.unit), row) for row in comparison.rows)
        made = ((cell.target, cell.compiled) for cell in comparison.compiled_cells if not cell.compiled.is_discarded)
        ran = ((target, row) for target, row in made if row.verdict is not Verdict.NOT_RUN)
        self.code = grouped(((row.origin, row.architecture), (target, row)) for target, row in ran)

    def shortfall(self, line: KernelLine, target: str, one: Reached) -> Union[Shortfall, None]:
        """Return what is known of a shortfall; None if no single case falls short."""
        assert one.share is not None
        rows = self.rows.get((line.kernel, one.unit), [])
        ceiling = one.of_ceiling is not None
        cases = _cases(rows, target, one.provider, ceiling=ceiling)
        behind = [entry for entry in cases if entry.share < NEAR]
        if not behind:
            return None
        best = _ahead(line, target, one)
        worst = max(behind, key=lambda entry: (len(self._code(entry.row.case, one.provider, target, best)), entry.lost))
        code = self._code(worst.row.case, one.provider, target, best)
        failing = next((_failing(square) for square in line.squares if square.target == target), None)
        weak, others = _weak(cases), (_only_small(cases), _peer(rows, worst, one.provider))
        of_code = hints(*code) if code else ()
        found = (failing, weak, *others, *of_code)
        # What the code shows says more than that a peer is faster.
        named = (failing, weak if worst.cell.weak else None, *of_code, *others)
        against, other_share = best or ("", None)
        missing = target if not code else against if len(code) == 1 else ""
        return Shortfall(
            *(line.kernel, target, one.provider, one.unit, one.share, one.ceiling if ceiling else "the fastest peer", one.n),
            *(worst.row.case, worst.share, worst.cell.median_ms),
            architecture=code[0].architecture if code else self.cards.get(target, ""),
            against=against,
            other=code[1].architecture if len(code) > 1 else self.cards.get(against, ""),
            other_share=other_share,
            figures=figures(*code) if code else (),
            hints=tuple(hint for hint in found if hint),
            unknown=f"This report has no code of these cases for the card of {missing}: run the compile stage." if missing else "",
            cause=next((hint.cause for hint in named if hint), "no code to look at" if missing else "nothing here says why"),
        )

    def _code(self, case: str, provider: str, target: str, best: Union[tuple[str, float], None]) -> tuple[Side, ...]:
        """Return the code of the case on the card of `target`, and on that of the best target if there is one. Empty without the first."""
        sides: list[Side] = []
        for name in (target, best[0] if best else ""):
            if name == "" or (name != target and not sides):
                break
            architecture = self.cards.get(name, "")
            made = self.code.get((f"{case} [{provider}]", architecture), []) if architecture else []
            own = [row for whose, row in made if whose == name] or [row for _, row in made]
            sides += [Side(own[0].hardware, tuple(own))] if own else []
        return tuple(sides)


@dataclass(frozen=True)
class _Case:
    """A case on a target: its share of the ceiling, and the time lost to it in ms."""

    row: Row
    cell: Cell
    share: float
    size: float

    @property
    def lost(self) -> float:
        return (self.cell.median_ms or 0.0) * (1 - self.share)


def _cases(rows: Sequence[Row], target: str, provider: str, *, ceiling: bool) -> list[_Case]:
    """Return the provider's cases on the target that have a share: of the ceiling, or else of the fastest provider."""
    best: dict[str, float] = {}
    for row, _, value in _values(rows, target):
        pick = min if lower_is_better(row.unit) else max
        best[row.case] = pick(best.get(row.case, value), value)
    found = []
    for row, cell, value in _values(rows, target):
        of_best = best[row.case] / value if lower_is_better(cell.unit) else value / best[row.case]
        share = cell.share if ceiling else of_best
        if row.provider == provider and share is not None and not cell.launch_bound:
            found.append(_Case(row, cell, share, cell.bytes_moved or cell.median_ms or 0.0))
    return found


def _values(rows: Sequence[Row], target: str) -> Iterator[tuple[Row, Cell, float]]:
    """Yield the cells of a target that have a value which may be true."""
    return ((row, cell, cell.value) for row in rows for cell in row.cells if cell.target == target and cell.value and not cell.suspect)


def _ahead(line: KernelLine, target: str, one: Reached) -> Union[tuple[str, float], None]:
    """Return the target on which the kernel comes closest to its ceiling, if that is clearly closer than here."""
    others = [(other.share, name) for _, name, other in _each([line]) if name != target and other.unit == one.unit]
    share, name = max(((share, name) for share, name in others if share is not None), default=(0.0, ""))
    return (name, share) if one.share is not None and share > one.share + _AHEAD else None


def _only_small(cases: Sequence[_Case]) -> Union[Hint, None]:
    """The largest cases reach the ceiling and the smallest do not."""
    if len(cases) < 2 * _SMALL:
        return None
    order = sorted(cases, key=lambda entry: entry.size)
    first, last = order[:_SMALL], order[-_SMALL:]
    if max(entry.share for entry in first) >= NEAR or min(entry.share for entry in last) < NEAR:
        return None
    low = min(first, key=lambda entry: entry.share)
    high = last[-1]
    times = [f" in {entry.cell.median_ms * 1000:.3g} µs" if entry.cell.median_ms else "" for entry in (low, high)]
    return Hint(
        "Only small cases fall short, so a fixed cost, such as the launch, may weigh there; the large ones are near the ceiling.",
        f"{low.share:.0%}{times[0]} at {low.row.case}, {high.share:.0%}{times[1]} at {high.row.case}",
        "only small cases fall short",
    )


def _peer(rows: Sequence[Row], case: _Case, own: str) -> Union[Hint, None]:
    """Another provider of the same case is faster on the same card: more is possible there."""
    same = ((value, row) for row, _, value in _values(rows, case.cell.target) if row.case == case.row.case)
    better = [(value, row.provider) for value, row in same if row.provider not in (own, _COPY)]
    lower = lower_is_better(case.row.unit)
    value, provider = (min if lower else max)(better, default=(0.0, ""))
    if not value or not case.cell.value:
        return None
    times = case.cell.value / value if lower else value / case.cell.value
    evidence = f"{provider} is {times:.2f} times as fast at {case.row.case}"
    return Hint("More is possible on this card.", evidence, "a peer is faster") if times >= _FASTER else None


def _failing(square: Square) -> Union[Hint, None]:
    if not square.failed:
        return None
    tests = f"{square.failed} of its tests {'fails' if square.failed == 1 else 'fail'} on {square.target}"
    cause = plural(square.failed, "test", "fails", "fail")
    return Hint("Fix its tests first: the speed of a wrong result says little.", tests, cause)


def _weak(cases: Sequence[_Case]) -> Union[Hint, None]:
    weak = [entry for entry in cases if entry.cell.weak]
    if not weak:
        return None
    evidence = f"{len(weak)} of {len(cases)} points: {weak[0].cell.weak}"
    return Hint("Measure again first: some of its points are weak.", evidence, "weak points: measure again")
