"""Runs over time in one SQLite file: raw folders become rows, and rows become series. The only file that imports sqlite3.

A row's key identifies it (run, target, kernel, case, provider, device), so adding a run twice changes nothing. Writers take SQLite's write
lock before they read (`BEGIN IMMEDIATE`) and wait for each other, so that several CI jobs can write to one file.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Union

from warpwave.compare.speeds import cells, dtype_in
from warpwave.compare.trends import Measured, Series
from warpwave.errors import InfrastructureError, InvalidInputError
from warpwave.records import TargetRun, Verdict
from warpwave.stats import LARGEST, SMALLEST

# Stored in the file as `user_version`. A change to the tables needs a new version, and a step in `_open`.
VERSION = 1
_PATIENCE_S = 60.0
_CONTENT = [("table", "points"), ("table", "runs")]  # a view may compute without end, and a trigger delete
_COLUMNS = (str, str, str, str, str, str, int, str, str, str, float, float, str)  # of what `series` reads
# What SQLite says of a file in order: busy, read-only, without room, on a broken disk.
_OF_THE_MACHINE = (
    "database is locked",
    "database table is locked",
    "attempt to write a readonly",
    "unable to open",
    "disk I/O",
    "database or disk is full",
)
_TABLES = """
CREATE TABLE runs (
    run_id TEXT NOT NULL, target TEXT NOT NULL, started TEXT NOT NULL, commit_id TEXT NOT NULL, verdict TEXT NOT NULL,
    seconds REAL NOT NULL, tests INTEGER NOT NULL, tests_passed INTEGER NOT NULL,
    torch TEXT, triton TEXT, runtime TEXT, driver TEXT, fp_fusion TEXT, kernels_hash TEXT,
    PRIMARY KEY (run_id, target)
) WITHOUT ROWID;
CREATE TABLE points (
    run_id TEXT NOT NULL, target TEXT NOT NULL, kernel TEXT NOT NULL, case_id TEXT NOT NULL, provider TEXT NOT NULL,
    device INTEGER NOT NULL, gpu TEXT NOT NULL, verdict TEXT NOT NULL, unit TEXT NOT NULL, value REAL, median_ms REAL,
    half_width REAL, share REAL, sound INTEGER NOT NULL, weak TEXT NOT NULL, timer TEXT NOT NULL, flush_bytes INTEGER NOT NULL,
    PRIMARY KEY (run_id, target, kernel, case_id, provider, device),
    FOREIGN KEY (run_id, target) REFERENCES runs
) WITHOUT ROWID;
"""


def add(path: Path, runs: Iterable[TargetRun]) -> dict[str, bool]:
    """Store target runs, all or none. Return for each `run_id/target` whether it is new.

    Raises:
        InvalidInputError: a run has no id, or its files are of two runs, so that it cannot be identified.
        InfrastructureError: the file cannot be written.
    """
    found = list(runs)
    for run in found:
        if not run.record.run_id or run.record.verdict is Verdict.STALE:
            why = "its files are of two runs" if run.record.run_id else "it has no run id"
            raise InvalidInputError(
                f"The run of {run.record.target} cannot be kept: {why}.",
                "The id in run.json identifies a run; here it is missing or does not match the other files.",
                "Run the target again, or leave that folder out.",
            )
    with _open(path) as store:
        store.execute("BEGIN IMMEDIATE")
        new = {f"{run.record.run_id}/{run.record.target}": _insert(store, run) for run in found}
        store.execute("COMMIT")
    return new


def series(path: Path, kernel: Union[str, None] = None) -> list[Series]:
    """Return every series in the file, or those of one kernel.

    Raises:
        InvalidInputError: the file does not exist.
    """
    if not path.is_file():
        raise InvalidInputError(
            f"There is no history at {path}.", "The first `warpwave history add` creates it.", "Add a run, or name the file with --file."
        )
    rows = """
        SELECT kernel, case_id, provider, p.target, gpu, timer, flush_bytes, p.run_id, started, commit_id, median_ms, half_width,
            'triton ' || coalesce(triton, 'unknown') || ', torch ' || coalesce(torch, 'unknown')
        FROM points AS p JOIN runs AS r ON r.run_id = p.run_id AND r.target = p.target
        WHERE sound AND weak = '' AND median_ms BETWEEN :smallest AND :largest AND (:kernel IS NULL OR kernel = :kernel)
        ORDER BY kernel, provider, p.target, gpu, timer, flush_bytes, case_id, started, p.run_id
    """
    grouped: dict[tuple[str, str, str, str, str, str, int], list[Measured]] = {}
    with _open(path) as store:
        for row in store.execute(rows, {"kernel": kernel, "smallest": SMALLEST, "largest": LARGEST}):
            if not all(map(_fits, row, _COLUMNS)):
                raise _broken(path, "a row of it has values of other types")
            grouped.setdefault(row[:7], []).append(Measured(*row[7:]))
    return [Series(*key, points=tuple(points)) for key, points in grouped.items()]


def _fits(value: object, kind: type) -> bool:
    """Return whether a value has the type of its column, which SQLite does not demand. A figure may be missing, but is finite."""
    return (value is None or (isinstance(value, float) and math.isfinite(value))) if kind is float else isinstance(value, kind)


def dtypes(path: Path) -> dict[str, str]:
    """Return the dtype in the name of each case in the file, empty if its name has none.

    Raises:
        InvalidInputError: the file does not exist.
    """
    return {one.case: dtype_in(one.case) for one in series(path)}


def _insert(store: sqlite3.Connection, run: TargetRun) -> bool:
    record, facts = run.record, run.facts
    passed = sum(case.verdict is Verdict.PASSED for case in run.cases)
    versions = (facts.torch, facts.triton, facts.runtime, facts.driver, facts.fp_fusion, facts.kernels_hash) if facts else (None,) * 6
    row = (record.run_id, record.target, record.started, record.commit, record.verdict.value, record.seconds, len(run.cases), passed)
    new = store.execute(f"INSERT OR IGNORE INTO runs VALUES ({_marks(14)})", (*row, *versions)).rowcount == 1  # noqa: S608 - marks only
    if new:
        points = [
            (
                *(record.run_id, record.target, sample.kernel, sample.case, sample.provider, sample.device, cell.gpu),
                *(cell.verdict.value, cell.unit, cell.value, cell.median_ms, cell.half_width, cell.share),
                *(cell.sound, cell.weak, cell.timer, cell.flush_bytes),
            )
            for sample, cell in cells(record.target, run)
        ]
        # If a run holds a point twice, the first is kept.
        store.executemany(f"INSERT OR IGNORE INTO points VALUES ({_marks(17)})", points)  # noqa: S608 - marks only
    return new


def _marks(count: int) -> str:
    return ", ".join("?" * count)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file, or create it. Changes that are not committed at the end are undone."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        store = sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None)
        with contextlib.closing(store):
            if store.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                _make(store, path)
            if [*store.execute("SELECT type, name FROM sqlite_master WHERE name NOT GLOB 'sqlite_*' ORDER BY name")] != _CONTENT:
                raise _broken(path, "it holds other things than the two tables of runs and points")
            yield store
    except sqlite3.Error as error:
        if not str(error).startswith(_OF_THE_MACHINE):
            raise _broken(path, str(error)) from None
        raise _unusable(path, error) from None
    except OSError as error:
        raise _unusable(path, error) from None


def _unusable(path: Path, error: Exception) -> InfrastructureError:
    return InfrastructureError(
        f"The history {path} cannot be used: {error}.",
        "Its folder is not writable, its disk is full, or another process has locked it for a minute.",
        "Name another with --file, or try again.",
    )


def _broken(path: Path, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"The history {path} cannot be read: {why}.",
        "It is not a SQLite file, or something else than warpwave wrote to it.",
        "Name another with --file, or create it again: `warpwave history add` with the runs' folders.",
    )


def _make(store: sqlite3.Connection, path: Path) -> None:
    store.execute("BEGIN IMMEDIATE")
    version = store.execute("PRAGMA user_version").fetchone()[0]  # check again: another writer may have been first
    if version == 0:
        for statement in _TABLES.strip().split(";")[:-1]:
            store.execute(statement)
        store.execute(f"PRAGMA user_version = {VERSION}")
    elif version != VERSION:
        raise InvalidInputError(
            f"The history {path} has version {version}, this warpwave reads version {VERSION}.",
            "Another version of warpwave wrote it.",
            "Use that version.",
        )
    store.execute("COMMIT")
