"""What could not be checked, and is no failure: how many tests, for which causes, and what to do about each. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from warpwave.compare.model import FAILING, Cause, TargetSummary
from warpwave.records import HOST_CODE, MOSTLY_UNSEEN, UNCHECKED, NotRun, Stage, TargetRun, Verdict

_MOST = 50  # causes kept of a target
_MODULE = re.compile(r"No module named '([\w.]+)'|No package metadata was found for ([\w.-]+)")
_EXCEPTION = re.compile(r"^(?:\w*Error|NotBuilt|NotPretended|NeedsCard): ")
_HINTS = {
    NotRun.REQUIREMENT: "Bring it to this machine, or into the image of a container.",
    NotRun.NEEDS_BUILD: "Run them where the package is built and installed, or leave them out.",
    NotRun.NEEDS_CARD: "Run them on a target with a card.",
    NotRun.NOT_PRETENDED: "This is a gap of warpwave, and no fault of the package: report it with that text. On a card, these run.",
    NotRun.NOT_FOLLOWED: "Give the masked loads of this kernel `other=`, or check by hand that what they leave undefined is not used.",
}
# Sanitizers that are not warpwave's begin so what they could not do.
_OTHERS = ("GSan ", "Triton ", "rocJITsu")
_OTHERS_HINT = "Run the target `cpu`, or an emulated one: warpwave's own checks run there."
_UNCOMPILED = " could not be compiled here"
_FIX = "Fix what the compiler says. The stage compile shows it for each architecture."
_LEADS = {
    NotRun.REQUIREMENT: "a requirement is missing",
    NotRun.NEEDS_BUILD: "needs a build",
    NotRun.NEEDS_CARD: "needs a card",
    NotRun.NOT_PRETENDED: "not pretended",
    NotRun.NOT_FOLLOWED: "undefined lanes not followed",
}


def causes(run: TargetRun) -> tuple[Cause, ...]:
    """Return why tests, and points of the compile stage, were not checked: the cause of most first.

    A test that has the same reason in both stages counts once. Missing modules are one cause, whichever a test needs first.
    """
    found: defaultdict[tuple[NotRun, str], dict[str, None]] = defaultdict(dict)
    modules: dict[str, None] = {}
    for why, subject, text in _rows(run):
        if why is NotRun.REQUIREMENT:
            modules.update(dict.fromkeys(name for match in _MODULE.finditer(text) for name in match.groups() if name))
        found[why, "" if why is NotRun.REQUIREMENT and _MODULE.search(text) else _EXCEPTION.sub("", text)][subject] = None
    # The stage has read what the package declares, and knows the options that install it.
    advice = next((note for report in run.stages for note in report.notes if note.startswith("Missing here: ")), "")
    installed = run.record.environment.notes if run.record.environment else ()
    names = {name.partition(".")[0].replace("_", "-") for name in modules}
    # What was asked for and is not there: to ask for it again would not bring it.
    advice = ". ".join([*(note for note in installed if note.partition(" was removed: ")[0] in names), advice]).removesuffix(". ")
    made = [_cause(why, text, list(subjects), list(modules), advice) for (why, text), subjects in found.items()]
    return tuple(sorted(made, key=lambda cause: -cause.count)[:_MOST])


def _rows(run: TargetRun) -> Iterator[tuple[NotRun, str, str]]:
    """Yield why, which test or point, and the first line of what it said."""
    tests = {case.id for case in run.cases}
    red = {row.function for row in run.compiled if row.verdict in FAILING}
    seen = set()
    for case in run.cases:
        if case.verdict is Verdict.NOT_RUN and case.not_run in UNCHECKED:
            seen.add(case.id)
            yield case.not_run, case.id, next(iter(case.message.splitlines()), "")
        text = case.properties.get(NotRun.NOT_FOLLOWED.value)
        if text and text.partition(_UNCOMPILED)[0] not in red:
            yield NotRun.NOT_FOLLOWED, case.id, text
    for row in run.compiled:
        is_known = row.origin in seen or row.origin in tests  # the test stage says how the test itself ended
        if row.verdict is Verdict.NOT_RUN and row.not_run in UNCHECKED and row.function == HOST_CODE and not is_known:
            yield row.not_run, row.origin, row.reason
        if text := row.unjudged.get("undefined_lanes"):
            yield NotRun.NOT_FOLLOWED, row.origin, text


def _cause(why: NotRun, text: str, subjects: Sequence[str], modules: Sequence[str], advice: str) -> Cause:
    if text:
        hint = _HINTS[why]
        if why is NotRun.NOT_FOLLOWED:
            hint = _FIX if _UNCOMPILED in text else _OTHERS_HINT if text.startswith(_OTHERS) else hint
        return Cause(why, len(subjects), text, hint, subjects[0])
    names = " ".join(f"--with {name.partition('.')[0].replace('_', '-')}" for name in modules)
    hint = f"Add {names} (pip's names may differ), or --install for the package with what it declares." if names else "Add --install."
    return Cause(why, len(subjects), f"not installed: {', '.join(modules)}" if modules else "not installed", advice or hint, subjects[0])


def cause_lines(cause: Cause) -> tuple[str, str]:
    """Return a cause and its hint: `12 tests or points, needs a card: …`."""
    more = f" and {cause.count - 1} more" if cause.count > 1 else ""
    lead = "not checked by a sanitizer" if cause.hint == _OTHERS_HINT else _LEADS[cause.why]
    return f"{cause.example}{more}: {lead}: {cause.text}", cause.hint


def checked(target: TargetSummary) -> tuple[int, int]:
    """Return how many tests were checked, of how many that the author does not skip and the user did not deselect."""
    not_run = target.tests_not_run
    ran = sum(target.tests.values()) - sum(not_run.get(why.value, 0) for why in (NotRun.SKIPPED, NotRun.EMPTY))
    return ran - sum(not_run.get(why.value, 0) for why in UNCHECKED), ran + target.left_out


def checked_of(targets: Iterable[TargetSummary]) -> str:
    """Return `212 of 240 tests checked`, by target if there are several; empty if every test was. If time was short, it says of how many
    functions: `34 of 9240 tests checked (16 of 17 test functions)`; and whether it was too short to compile anything."""
    several, some = list(targets), []
    for target in several:
        done, total = checked(target)
        functions, untried = (sum(getattr(report, name) for report in target.stages) for name in ("functions", "untried"))
        of = f" ({functions - untried} of {functions} test functions)" if functions else ""
        on = f" on {target.target}" if len(several) > 1 else ""
        some += [f"{done} of {total} tests checked{of}{on}"] if done < total else []
        if not target.compiled and any(report.stage is Stage.COMPILE and report.out_of_time for report in target.stages):
            some.append(f"the budget was up before anything was compiled{on}")
    return ", ".join(some)


def not_checked(target: TargetSummary) -> str:
    """Return why a target is not checked as a whole, for `--strict`; empty if it is."""
    done, total = checked(target)
    unseen = [note for report in target.stages if report.stage is Stage.COMPILE for note in report.notes if note.startswith(MOSTLY_UNSEEN)]
    if done < total:
        return f"{target.target}: {done} of {total} tests checked"
    if cut := [report.stage.value for report in target.stages if report.out_of_time]:
        return f"{target.target}: the budget was up in the stages {', '.join(cut)}"
    if target.unchecked:
        return f"{target.target}: {target.unchecked[0].example}: {target.unchecked[0].text}"
    return f"{target.target}: {unseen[0]}" if unseen else ""
