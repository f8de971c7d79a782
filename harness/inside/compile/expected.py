"""Errors of the compiler that a test expects: `with pytest.raises(CompilationError):` around a launch. On a card, such a test passes.

The worker notes in its journal which rows a test caught so. Errors that other code catches stay failures: it may only hide them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import unittest.case
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.inside.codegen.jit_recorder import Recorder
from harness.inside.compile.candidates import key
from harness.inside.process.audit import Event
from harness.inside.process.journal import Journal
from harness.records import CompiledKernel, NotRun, Verdict


@contextlib.contextmanager
def noticed(recorder: Recorder, journal: Journal) -> Iterator[None]:
    """Note each refused kernel whose error pytest or unittest catches."""

    def leaving(leave: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(context: Any, kind: Any, error: Any, trace: Any) -> Any:
            caught = leave(context, kind, error, trace)
            if caught and recorder.refused is not None and recorder.refused[0] in (error, *_behind(error)):
                journal.write("expected", row=_name(recorder.refused[1]))
            return caught

        return wrapped

    with contextlib.ExitStack() as undo:
        owners: tuple[Any, ...] = (type(pytest.raises(KeyError)), unittest.case._AssertRaisesContext)  # type: ignore[attr-defined]
        for owner in owners:
            undo.callback(setattr, owner, "__exit__", owner.__exit__)
            owner.__exit__ = leaving(owner.__exit__)
        yield


class Expected:
    """The supervisor's side: the rows that tests expect."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def note(self, event: Event) -> None:
        """Take a journal event of an error that a test caught."""
        self._names.add(event["row"])

    def mark(self, row: CompiledKernel) -> CompiledKernel:
        """Return the row; as one that its author skips, if the test expects that it does not compile."""
        if row.verdict is not Verdict.FAILED or _name(row) not in self._names:
            return row
        return dataclasses.replace(row, verdict=Verdict.NOT_RUN, not_run=NotRun.SKIPPED, reason=f"the test expects this: {row.reason}")


def _behind(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None and (error := error.__cause__ or error.__context__) is not None:
        yield error


def _name(row: CompiledKernel) -> str:
    return f"{key(row)} {row.origin}"
