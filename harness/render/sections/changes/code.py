"""Changes in generated code → sections: the worst first, a block per launch, a line per architecture."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence

from harness.compare.codegen.bundles import Bundle, notes
from harness.compare.codegen.changed_code import Change, Diff, Kind
from harness.compare.codegen.deltas import Concern, Delta, Trend
from harness.compare.codegen.vendors import Split, one_vendor
from harness.records import Verdict
from harness.render.sections.model import MOST_LINES, Bit, Line, Section, name, names, say, shorten
from harness.render.text import first_line, plural

ONE_VENDOR = "Compiles on one vendor only"
FEW = 10  # blocks per section before "and n more"
_FEW_CASES = 3  # of an added or removed function; above that, only their number is shown

_LEGEND = (
    "A block is a launch of a kernel function, named by the first case that makes it.",
    "75% (6x8w, registers): 6 programs of 8 warps fit into a multiprocessor (SM, CU, WGP), 75% of its warps; registers leave no room for "
    "more.",
)


def sentence(diff: Diff, failing: Sequence[Concern]) -> str:
    """Return the verdict in words: how many configurations regressed, in what, and what happened to the others."""
    regressed = [change for change in diff.changes if change.worse_in(failing)]
    found = [change.worse_in(failing)[0] for change in regressed]
    why = ", ".join(f"{found.count(concern)} {concern.value}" for concern in Concern if concern in found)
    kinds = [change.kind for change in diff.changes if not change.worse_in(failing)]
    rest = [f"{kinds.count(kind)} {word}" for kind, word in _COUNTED.items() if kind in kinds]
    lead = f"{plural(len(regressed), 'regression')} ({why})" if regressed else "No regression"
    same = f"{diff.unchanged + diff.same_figures} unchanged"
    if diff.same_figures:
        same += f" ({diff.same_figures} with the same figures in another binary)"
    return f"{lead} in {plural(diff.compared, 'compared configuration')}: {', '.join([*rest, same])}."


_COUNTED = {
    Kind.WORSE: "worse but allowed",
    Kind.BETTER: "better",
    Kind.CHANGED: "otherwise changed",
    Kind.ADDED: "added",
    Kind.REMOVED: "removed",
}


def diff_sections(base: Bundle, head: Bundle, diff: Diff, failing: Sequence[Concern], full: bool) -> list[Section]:
    """Return the page, top to bottom. `full` shows every block, and every added or removed configuration."""
    few = None if full else FEW
    regressed = [change for change in diff.changes if change.worse_in(failing)]
    others = {kind: [change for change in diff.changes if change.kind is kind and not change.worse_in(failing)] for kind in Kind}
    sections = _changed("Regressions", regressed, failing, few, folded=False)
    sections += _changed("Worse, but allowed (see --fail-on)", others[Kind.WORSE], failing, few, folded=False)
    sections += _one_sided("Removed: only BASE has them", others[Kind.REMOVED], few)
    sections += _one_sided("Added: only HEAD has them", others[Kind.ADDED], few)
    sections += _changed("Changed, neither better nor worse", others[Kind.CHANGED], failing, few, folded=True)
    sections += _changed("Better", others[Kind.BETTER], failing, few, folded=True)
    known = {(split.kernel, split.function, split.variant, split.dies) for split in one_vendor(base.kernels)}
    fresh = [split for split in one_vendor(head.kernels) if (split.kernel, split.function, split.variant, split.dies) not in known]
    sections += vendor_section(f"{ONE_VENDOR}, new in HEAD", fresh, few)
    if diff.changes:
        sections[0] = dataclasses.replace(sections[0], legend=_LEGEND)
    return [_sides(base, head), *sections]


def vendor_section(title: str, splits: Iterable[Split], few: int | None = FEW) -> list[Section]:
    """Return a block per launch that compiles for one vendor only, with where it compiles and why it fails elsewhere."""
    blocks = []
    for split in splits:
        head = _head(split.kernel, split.function, split.origin)
        variant = say(" [", name(split.variant), "]") if split.variant else ()
        lives = say("  compiles on ", name(", ".join(split.lives)))
        dies = say("  fails on ", name(", ".join(split.dies)), ": ", Bit(split.verdict.value, split.verdict))
        blocks.append([head + variant, lives, dies + _because(split.reason)])
    return [Section(title, lines=_shorten(blocks, few))] if blocks else []


def _sides(base: Bundle, head: Bundle) -> Section:
    facts: dict[str, Callable[[Bundle], str]] = {
        "folder": lambda side: side.folder,
        "commit": lambda side: ", ".join(commit[:12] for commit in side.commits),
        "Triton": lambda side: ", ".join(side.triton),
        "targets": lambda side: ", ".join(side.targets),
        "architectures": lambda side: ", ".join(sorted(side.architectures)),
        "configurations": lambda side: str(len(side.kernels)),
    }
    rows = tuple((say(fact), *names((tell(base), tell(head)))) for fact, tell in facts.items())
    lines = shorten((say(Bit("! ", Verdict.ABSENT), name(note)) for note in notes(base, head)), None)
    return Section("What was compared", (say("fact"), say("BASE"), say("HEAD")), rows, lines)


def _changed(title: str, changes: Sequence[Change], failing: Collection[Concern], few: int | None, folded: bool) -> list[Section]:
    """Return blocks, in the order of their gravest change. Architectures with the same change share a line."""
    blocks: dict[tuple[str, str, str], dict[Line, list[str]]] = {}
    for change in changes:
        block = blocks.setdefault((change.kernel, change.function, change.origin), {})
        block.setdefault(_story(change, failing), []).append(change.architecture)
    drawn = []
    for head, stories in blocks.items():
        lines = [say("  ", name(", ".join(dict.fromkeys(where)))) + story for story, where in stories.items()]
        drawn.append([_head(*head), *lines])
    return [Section(title, lines=_shorten(drawn, few), folded=folded)] if drawn else []


def _head(kernel: str, function: str, origin: str) -> Line:
    title = function if function.lstrip("_").startswith(kernel) or origin.startswith(f"{kernel}/") else f"{kernel} {function}"
    return say(name(title), *(() if not origin else (" in ", name(origin))))


def _story(change: Change, failing: Collection[Concern]) -> Line:
    """` [BLOCK=512]: retuned 4 → 8 warps; registers 25 → 40`."""
    story = say(" [", name(change.variant), "]") if change.variant else ()
    story += say(": ")
    if change.moved:
        story += say("retuned ", name(", ".join(change.moved)), "; " if change.deltas else "")
    for position, delta in enumerate(change.deltas):
        story += say(", ") if position else ()
        story += _moved(delta, failing)
        if delta.concern is Concern.VERDICT and change.after is not None:
            story += _because(change.after.reason)
            if change.survivors is not None:
                verb = "compiles" if change.survivors == 1 else "compile"
                story += say(f" ({plural(change.survivors, 'other configuration')} of this launch still {verb})")
    return story


def _moved(delta: Delta, failing: Collection[Concern]) -> Line:
    grave = Verdict.FAILED if delta.concern in failing else Verdict.ABSENT
    verdict = {Trend.WORSE: grave, Trend.BETTER: Verdict.PASSED, Trend.NEITHER: None}[delta.trend]
    text = f" {delta.before} → {delta.after}"
    if delta.what.replace(" ", "").isalpha():
        return say(Bit(delta.what + text, verdict))
    return say(name(delta.what), Bit(text, verdict))  # an instruction: its name comes from outside


def _because(reason: str) -> Line:
    return say(": ", name(first_line(reason))) if reason else ()


def _one_sided(title: str, changes: Sequence[Change], few: int | None) -> list[Section]:
    """Return a line per kernel function, and with `few` None each configuration below it with its architectures."""
    functions: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        functions.setdefault((change.kernel, change.function), []).append(change)
    blocks = []
    for (kernel, function), found in functions.items():
        where = dict.fromkeys(change.architecture for change in found)
        lines = [_head(kernel, function, "") + say(f": {plural(len(found), 'configuration')} for ", name(", ".join(where)))]
        if few is None or len(found) <= _FEW_CASES:
            cases: dict[tuple[str, str], list[str]] = {}
            for change in found:
                cases.setdefault((change.origin, change.variant), []).append(change.architecture)
            for (origin, text), on in cases.items():
                lines.append(
                    say("  ", name(origin), *((" [", name(text), "]") if text else ()), " for ", name(", ".join(dict.fromkeys(on))))
                )
        blocks.append(lines)
    return [Section(title, lines=_shorten(blocks, few), folded=True)] if blocks else []


def _shorten(blocks: Sequence[Sequence[Line]], few: int | None) -> tuple[Line, ...]:
    shown = blocks[: MOST_LINES if few is None else few]
    lines = tuple(line for block in shown for line in block[:MOST_LINES])
    if len(shown) == len(blocks):
        return lines
    where = "the file of --json holds all" if few is None else "--full shows them"
    return (*lines, say(f"… and {len(blocks) - len(shown)} more; {where}"))
