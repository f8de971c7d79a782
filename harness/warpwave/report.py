"""Raw folders → the files of a report. Other modules compute; this one reads and writes."""

import contextlib
import dataclasses
import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from warpwave.collect import collect_all, find_raw, with_logs
from warpwave.compare import compare
from warpwave.compare.known import Known
from warpwave.compare.model import Comparison
from warpwave.compare.runs import join
from warpwave.errors import ExitCode, InvalidInputError
from warpwave.records import RunRecord, TargetRun, write_text
from warpwave.render.files import json_pieces, render_csv
from warpwave.render.html import render_html
from warpwave.render.junit import junit_pieces
from warpwave.render.markdown import render_markdown


class Report(NamedTuple):
    """A comparison, and the names of the files that hold it."""

    comparison: Comparison
    files: tuple[str, ...]


def write_report(
    paths: Iterable[Path], out: Path, expected: Sequence[str] = (), records: Sequence[RunRecord] = (), known: Known | None = None
) -> Comparison:
    """Return only the comparison of `make_report`."""
    return make_report(paths, out, expected, records, known=known).comparison


def make_report(
    paths: Iterable[Path],
    out: Path,
    expected: Sequence[str] = (),
    records: Sequence[RunRecord] = (),
    base: Sequence[Path] = (),
    known: Known | None = None,
) -> Report:
    """Collect the raw folders at or below `paths`, compare them, and write the report's files to `out`.

    The files are junit.xml, bandwidth.csv and comparison.html, .md and .json. If a file cannot be written, the others still are: `problems`
    names it, and exit code 0 becomes that of infrastructure. `records` are the runs below `out` that this process made. They count even if
    they could not be written to the disk. `base` are folders of an earlier run, since which speeds may have changed. What `known` lists
    does not fail. Raises InvalidInputError if there is no raw folder.
    """
    with without_collector():
        earlier = join(collect_all(find_raw(base))) if base else []
        made = {_folder(out, record).resolve(): record for record in records}
        try:
            folders = find_raw(paths)
        except InvalidInputError:
            if not made:
                raise
            folders = []
        # The folders of these could not be created.
        missing = [TargetRun(with_logs(record, folder)) for folder, record in made.items() if folder not in folders]
        return write_files(compare(join([*collect_all(folders, made), *missing]), expected, earlier, known), out)


def _folder(out: Path, record: RunRecord) -> Path:
    own = out / "shards" / record.shard.replace("/", "of")
    return (own if record.shard and own.is_dir() else out) / "raw" / record.target


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Pause garbage collection: it would walk a million small records again and again, and find no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def write_files(comparison: Comparison, out: Path) -> Report:
    """Write every file of a report, even if some fail; `files` names those that were written now."""
    files = []
    # The summary and the data come last, so that both can name problems with the earlier files.
    for name, write in WRITERS.items():
        path = out / name
        try:
            write(comparison, path)
        except Exception as error:  # whatever fails in one writer, run the others
            comparison = _with_problem(comparison, f"{name} was not written: {type(error).__name__}: {error}")
            with contextlib.suppress(OSError):  # one of an earlier report would look like part of this one
                path.unlink(missing_ok=True)
        else:
            files.append(name)
    return Report(comparison, tuple(files))


WRITERS: dict[str, Callable[[Comparison, Path], None]] = {
    "junit.xml": lambda comparison, path: write_text(path, junit_pieces(comparison)),
    "bandwidth.csv": lambda comparison, path: write_text(path, render_csv(comparison)),
    "comparison.html": lambda comparison, path: write_text(path, render_html(comparison)),
    "comparison.md": lambda comparison, path: write_text(path, render_markdown(comparison)),
    "comparison.json": lambda comparison, path: write_text(path, json_pieces(comparison)),
}


def _with_problem(comparison: Comparison, problem: str) -> Comparison:
    problems = (*comparison.problems, problem)
    if comparison.exit_code:
        return dataclasses.replace(comparison, problems=problems)
    sentence = f"{problem.rstrip('.')}. {comparison.sentence}"
    return dataclasses.replace(comparison, problems=problems, sentence=sentence, exit_code=int(ExitCode.INFRASTRUCTURE))
