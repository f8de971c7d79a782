"""Run one job on a runner: examine the machine, and record an unfit machine as a run that failed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from warpwave.ci.plan import latest
from warpwave.compare import compare
from warpwave.compare.known import Known
from warpwave.compare.model import FAILING, Comparison, Standing
from warpwave.config.targets import Target
from warpwave.doctor import Finding
from warpwave.errors import InfrastructureError, InvalidInputError, UsageError
from warpwave.records import CompiledKernel, RunRecord, Verdict, dump, grouped, write_text
from warpwave.render.exports import FORMATS, sound
from warpwave.render.markdown import render_markdown
from warpwave.render.text import first_line
from warpwave.report import write_files, write_report
from warpwave.run import commit_of
from warpwave.run.folders import check_writable, new_run_id
from warpwave.safe_text import Annotation, visible


def end_leftovers() -> str:
    """Remove containers whose warpwave process has ended: they could still write. Return a sentence on the outcome."""
    from warpwave.engines.choose import clean

    try:
        removed = clean(dry_run=False)
    except InfrastructureError as error:
        return f"could not look for containers: {error.happened}"
    return f"removed: {', '.join(removed)}" if removed else "no container was left behind"


def put_on_record(
    target: Target, faults: Sequence[Finding], kernels: Path, out: Path, shard: str = "", command: tuple[str, ...] = ()
) -> RunRecord:
    """Write `raw/<target>/run.json`, so that the report says why this job has no results and how to fix it."""
    record = RunRecord(
        run_id=new_run_id(),
        target=target.name,
        label=target.label,
        verdict=Verdict.INFRA,
        reason="; ".join(f"{fault.check}: {fault.evidence}" for fault in faults),
        hint=" ".join(dict.fromkeys(fault.fix for fault in faults if fault.fix)),
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        seconds=0.0,
        shard=shard,
        commit=commit_of(kernels),
        kernels=kernels.name,
        command=command,
    )
    folder = out / "raw" / target.name
    folder.mkdir(parents=True)
    dump(record, folder / "run.json")
    return record


def check_options(name: str, out: Path, asked: dict[str, Any]) -> None:
    """Refuse options that would put the results where no later step of the workflow looks for them."""
    if asked["names"] != (name,):
        others = ", ".join(asked["names"][1:])
        raise UsageError(f"--options has words that are not options: {others!r}.", "A job runs one target.", "Remove them, or quote them.")
    if asked["dry_run"]:
        raise UsageError("--options has --dry-run.", "The job would be green, and nothing would have run.", "Remove it.")
    if asked["watch"]:
        raise UsageError("--options has --watch.", "The job would wait for edits that nobody makes there.", "Remove it.")
    if asked["toolchains"] or asked["tritons"]:
        raise UsageError(
            "--options puts the target on a toolchain.",
            "The report of this workflow expects the target itself, and would list it as absent.",
            "Set the versions in a targets file, or compare toolchains with `warpwave upgrade`.",
        )
    for option in ("out", "resume"):
        if asked[option] not in (None, out):
            raise UsageError(
                f"--options sets --{option} to {asked[option]}, but this job's results go to {out}.",
                "The workflow uploads only the folder that it passes with its own --out.",
                f"Leave --{option} out of --options.",
            )


# Format what a job sends to its runner: annotations and outputs, escaped so that foreign text cannot add commands. Pure.
#
# Source: GitHub's documentation, "Workflow commands for GitHub Actions".

MOST_ANNOTATIONS = 10  # of each kind in a step; GitHub does not show more
COMMENT_BYTES = 65_535
SUMMARY_BYTES = 1 << 20
_LINE = re.compile(r"([\w./-]+\.py):(\d{1,7})\b")
_FEW = 3  # architectures named
MARKER = "<!-- warpwave: one comment, edited in place -->"


def annotate(comparison: Comparison, since: Sequence[str] = (), files: Sequence[str] = ()) -> Iterator[str]:
    """Yield one line per annotation: the verdict, then failures, then regressions (`since`), then a count of those left out.

    `files` are the paths of the repository's Python files: what fails in one of them is shown at its line.
    """
    if comparison.exit_code:
        yield command("error", comparison.sentence, title="warpwave")
    tested = [*_targets(comparison), *_tests(comparison, files), *_kernels(comparison, files)]
    found = [*tested, *since, *_added(comparison), *_problems(comparison)]
    room = MOST_ANNOTATIONS - 1
    shown = found if len(found) <= room else found[: room - 1]
    yield from shown
    if len(shown) < len(found):
        yield command("error", f"and {len(found) - len(shown)} more, in the summary", title="warpwave")


def command(name: str, message: str, **properties: str) -> Annotation:
    """Return a workflow command. Text from outside can neither end it nor start another one."""
    listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items() if value)
    return Annotation(f"::{name} {listed}::{_data(visible(message))}" if listed else f"::{name}::{_data(visible(message))}")


def outputs(values: Mapping[str, str], delimiter: str) -> str:
    """Return the lines for the GITHUB_OUTPUT file. Pass a random `delimiter`, so that no value can end early and set another one."""
    return "".join(f"{name}<<{delimiter}\n{value}\n{delimiter}\n" for name, value in values.items())


def cut(text: str, limit: int, rest: str) -> str:
    """Return `text` in at most `limit` bytes of UTF-8. If it must be cut, keep whole lines and append `rest`."""
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    note = f"\n\n_Cut here. {rest}_\n"
    kept = encoded[: limit - len(note.encode())]
    return kept[: kept.rfind(b"\n") + 1].decode(errors="ignore") + note


def _targets(comparison: Comparison) -> Iterator[str]:
    for target in comparison.targets:
        if not target.complete:
            message = f"{target.reason} {target.hint}".strip() or target.verdict.value
            yield command("error", message, title=f"{target.target}: {target.verdict.value}")


def _tests(comparison: Comparison, files: Sequence[str]) -> Iterator[str]:
    for row in comparison.tests:
        for cell in row.cells:
            if cell.result.verdict in FAILING:
                message, own = first_line(cell.result.message), row.id.partition("::")[0]
                # The line of the kernel that the message names, or else the last one of the test's file in the traceback.
                traced = [place for place in _LINE.findall(cell.result.detail) if place[0].endswith(own)]
                named = [*_LINE.findall(message), *reversed(traced)]
                where = next((place for file, line in named if (place := _place(file, line, files))), None) or _place(own, "1", files)
                yield command("error", message or cell.result.verdict.value, title=f"{row.id} on {cell.target}", **where or {})


def _kernels(comparison: Comparison, files: Sequence[str]) -> Iterator[str]:
    """Yield one line for each kernel function and reason why it does not compile or breaks a gate, where its source is known."""
    failed = [(cell.target, cell.compiled) for cell in comparison.compiled_cells if cell.compiled.verdict in FAILING]
    found = grouped(((made.function, target, made.source, _reason(made)), made) for target, made in failed if made.source)
    for (function, target, source, why), rows in found.items():
        if where := _place(*source.rpartition(":")[::2], files):
            named = list(dict.fromkeys(row.hardware for row in rows))
            on = ", ".join(named) if len(named) <= _FEW else f"{len(named)} architectures"
            yield command("error", f"{on}: {why}", title=f"{function} on {target}", **where)


def _reason(made: CompiledKernel) -> str:
    return first_line(made.reason) or "; ".join(f"{gate}: {what}" for gate, what in made.broken.items())


def _place(file: str, line: str, files: Sequence[str]) -> dict[str, str] | None:
    """Return an annotation's place: the one file of the repository that ends like this path; None if there is none, or several."""
    found = [path for path in files if path == file or path.endswith(f"/{file}") or (file.startswith("/") and file.endswith(f"/{path}"))]
    return {"file": found[0], "line": line} if len(found) == 1 and line.isdecimal() else None


def _added(comparison: Comparison) -> Iterator[str]:
    for use in comparison.known.of(Standing.ADDED) if comparison.known else ():
        message = f"This change adds it to the known failures, where it counts once it is merged: {use.entry}"
        yield command("warning", message, title="known failure added")


def _problems(comparison: Comparison) -> Iterator[str]:
    for problem in comparison.problems:
        yield command("warning", problem, title=Verdict.INVALID.value)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(visible(text)).replace(":", "%3A").replace(",", "%2C")


# Write the report over the results of a workflow's jobs: the files for the runner and the exports for other tools.

_IN_ARTIFACT = "The artifact of this run contains the whole text."


def merge(folders: Sequence[Path], out: Path, expected: Sequence[str], known: Known | None = None) -> Comparison:
    """Write the report over the results in `folders`. If there are none, the report lists every expected target as absent."""
    check_writable(out)
    try:
        return write_report(latest(folders), out, expected, known=known)
    except InvalidInputError:
        return write_files(compare([], expected, known=known), out).comparison


def export(comparison: Comparison, out: Path) -> list[Path]:
    """Write one file of numbers for each tool that tracks them over time, or none if no number is sound. (CSV is in the report.)"""
    if not any(sound(comparison)):
        return []
    left_out = {"csv", *([] if comparison.profiles else ["speedscope"])}
    paths = [out / f"{name}{'.txt' if name == 'openmetrics' else '.json'}" for name in FORMATS if name not in left_out]
    for path in paths:
        write_text(path, FORMATS[path.stem](comparison))
    return paths


def summary(comparison: Comparison, changes: str, limit: int) -> str:
    """Return the job's summary: the comparison and the changes since the base branch, within the runner's limit in bytes."""
    changes = cut(changes, limit // 2, _IN_ARTIFACT)
    return cut(render_markdown(comparison, limit - len(changes.encode())) + changes, limit, _IN_ARTIFACT)


def comment(comparison: Comparison, changes: str = "") -> str:
    """Return the comment on a pull request, within GitHub's limit of 65,535 bytes."""
    return MARKER + "\n" + summary(comparison, changes, COMMENT_BYTES - len(MARKER) - 1)
