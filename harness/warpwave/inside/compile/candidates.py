"""Follow autotuners: which compiled kernels are candidates for the same launch, and which of them an autotuner would discard.

An autotuner times every candidate and runs the best. A candidate that does not fit the card is a finding only if no candidate of its launch
does: same kernel, same arguments, same architecture. One that breaks a gate is a finding only if none passes, and one with advice is worth
a word only if none is without.
A launch that no autotuner made has one candidate. But if it does not fit, and the package catches that and launches the same kernel with
something that fits, in the same test, the first one is passed over, too.

The worker notes launches with unclean candidates in its journal. Only the supervisor knows all of them, so it decides.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from warpwave.inside.codegen.recorder import Recorder
from warpwave.inside.process.journal import Event, Journal
from warpwave.records import CompiledKernel, NotRun, Verdict, to_json


def key(row: CompiledKernel) -> str:
    """Return a name for a row that is the same in every worker, whatever launched the kernel first."""
    return hashlib.sha256(to_json(dataclasses.replace(row, origin="", seconds=0.0, peak_bytes=None)).encode()).hexdigest()[:32]


def same(row: CompiledKernel) -> str:
    """Return a name for what was compiled: a launch may show of a binary what its first row did not say, and then it has another one."""
    judged = {
        "verdict": Verdict.PASSED,
        "reason": "",
        "broken": {},
        "advice": {},
        "waived": {},
        "unjudged": {},
        "undefined_lanes": (),
        "against_base": {},
    }
    return key(dataclasses.replace(row, **judged)) if row.binary_hash else key(row)  # type: ignore[arg-type]


@dataclass
class _Launch:
    """A launch of an autotuner: the rows of its candidates, each with what its compilation raised."""

    tuner: Any
    function: str
    rows: dict[str, CompiledKernel] = field(default_factory=dict)
    raised: dict[str, BaseException | None] = field(default_factory=dict)

    def add(self, row: CompiledKernel, error: BaseException | None) -> None:
        self.rows[same(row)], self.raised[same(row)] = row, error

    @property
    def fits(self) -> int:
        """How many can be launched. One that breaks a gate can."""
        return sum(row.verdict is Verdict.PASSED or bool(row.broken) for row in self.rows.values())

    @property
    def passed(self) -> int:
        return sum(row.verdict is Verdict.PASSED for row in self.rows.values())

    @property
    def clean(self) -> int:
        return sum(row.verdict is Verdict.PASSED and not row.advice for row in self.rows.values())

    @property
    def unclean(self) -> list[CompiledKernel]:
        return list(filter(_is_unclean, self.rows.values()))


def _is_unclean(row: CompiledKernel) -> bool:
    return row.verdict is Verdict.FAILED or (row.verdict is Verdict.PASSED and bool(row.advice))


class Candidates:
    """Notes in the journal what each launch of an unclean kernel could have run instead."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._binaries: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._rows: dict[str, CompiledKernel] = {}  # the last one of each binary
        self._open: list[_Launch] = []
        self._noted: set[tuple[str, bool]] = set()
        self._recorder: Recorder | None = None
        self._unfit: list[CompiledKernel] = []  # in the case `_case`, without an autotuner, and nothing of theirs was launched since
        self._case = ""

    @contextlib.contextmanager
    def followed(self, recorder: Recorder) -> Iterator[None]:
        """Follow every launch of Triton's JIT and autotuners, and of autotuners derived from Triton's."""
        from triton.compiler import CompiledKernel as Binary
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.jit import JITFunction

        loading: Any = vars(Binary).get("run")
        launching = JITFunction.run

        def load(binary: Any) -> Any:
            self._launched(binary)  # loading it may raise that it does not fit, each time
            return loading.fget(binary)

        def launch(function: Any, *args: Any, **kwargs: Any) -> Any:
            binary = launching(function, *args, **kwargs)
            self._launched(binary)  # a kernel that is only warmed up is not loaded
            return binary

        def derive(kind: Any, /, **options: Any) -> None:
            super(Autotuner, kind).__init_subclass__(**options)  # type: ignore[misc,unused-ignore]
            self._follow(kind, undo)

        self._recorder = recorder
        with contextlib.ExitStack() as undo:
            undo.callback(self._end_case)
            recorder.on_row = self._compiled
            undo.callback(setattr, recorder, "on_row", None)
            changes: list[tuple[Any, str, Any]] = [(JITFunction, "run", launch)]
            if isinstance(loading, property):
                changes.append((Binary, "run", property(load)))
            for owner, name, value in changes:
                undo.callback(setattr, owner, name, vars(owner)[name])
                setattr(owner, name, value)
            Autotuner.__init_subclass__ = classmethod(derive)
            undo.callback(delattr, Autotuner, "__init_subclass__")
            for kind in _family(Autotuner):
                self._follow(kind, undo)
            yield

    def _follow(self, kind: type, undo: contextlib.ExitStack) -> None:
        for name in {"run", "warmup"} & vars(kind).keys():
            undo.callback(setattr, kind, name, vars(kind)[name])
            setattr(kind, name, self._tuned(vars(kind)[name]))

    def _tuned(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a method with which an autotuner launches. An autotuner that calls its parent's method makes one launch."""

        def launch(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            if any(each.tuner is tuner for each in self._open):
                return run(tuner, *args, **kwargs)
            this = _Launch(tuner, tuner.base_fn.__name__)
            self._open.append(this)
            ended: BaseException | None = None
            try:
                return _with_all_candidates(run, this, args, kwargs)
            except BaseException as error:
                ended = error
                raise
            finally:
                self._open.remove(this)
                self._close(this, ended)

        return launch

    def _compiled(self, row: CompiledKernel, binary: Any, error: BaseException | None) -> None:
        """Take a new row from the recorder: of a binary, or of what the compiler raised."""
        if binary is not None:
            self._binaries[binary] = same(row)
        self._rows[same(row)] = row
        self._add(row, error)

    def _launched(self, binary: Any) -> None:
        try:
            row = self._rows.get(self._binaries.get(binary, ""))
        except TypeError:  # nothing that a weak reference can point to, so none of ours
            return
        if row is not None:
            self._add(row, None)

    def _add(self, row: CompiledKernel, error: BaseException | None) -> None:
        for launch in reversed(self._open):
            if launch.function == row.function:
                launch.add(row, error)
                return
        if self._recorder and self._case != self._recorder.origin:
            self._end_case()
            self._case = self._recorder.origin
        if row.verdict is Verdict.FAILED and row.binary_hash and not row.broken:
            self._unfit.append(row)
            return
        if row.verdict is Verdict.PASSED and (passed_over := [each for each in self._unfit if each.function == row.function]):
            self._note(passed_over, 1, len(passed_over) + 1)
            self._unfit = [each for each in self._unfit if each.function != row.function]
        if _is_unclean(row):
            self._note([row], 0, 1)

    def _end_case(self) -> None:
        self._note(self._unfit, 0, 1)
        self._unfit = []

    def _close(self, launch: _Launch, ended: BaseException | None) -> None:
        """Note the unclean candidates. One whose error ended the launch is not passed over: it reaches the user."""
        fatal = [row for row in launch.unclean if ended is not None and launch.raised[same(row)] is ended]
        passed_over = [row for row in launch.unclean if not any(row is each for each in fatal)]
        self._note(fatal, 0, 1)
        failed = [row for row in passed_over if row.verdict is Verdict.FAILED]
        self._note([row for row in failed if not row.broken], launch.fits, len(launch.rows))
        self._note([row for row in failed if row.broken], launch.passed, len(launch.rows))
        self._note([row for row in passed_over if row.verdict is Verdict.PASSED], launch.clean, len(launch.rows))

    def _note(self, rows: Iterable[CompiledKernel], clean: int, of: int) -> None:
        names = [name for name in map(key, rows) if (name, clean > 0) not in self._noted]
        if names:
            self._noted.update((name, clean > 0) for name in names)
            self._journal.write("candidates", rows=names, clean=clean, of=of)


def _with_all_candidates(run: Callable[..., Any], launch: _Launch, args: Any, kwargs: Any) -> Any:
    """Launch. If the tuner remembers a candidate that is not clean for these arguments, let it try the others as well.

    It remembers by its key, and a key may leave out what the compiler specializes on. Which candidate it would remember on a card is
    unknown here: nothing is timed.
    """
    tuner = launch.tuner
    known: Any = getattr(tuner, "cache", None)
    before = len(known) if type(known) is dict else 0

    def remembered() -> bool:
        return bool(before) and tuner.cache is known and len(known) == before and bool(launch.unclean) and not launch.clean

    def again() -> Any:
        tuner.cache = {}
        try:
            return run(tuner, *args, **kwargs)
        finally:
            known.update(tuner.cache)
            tuner.cache = known

    try:
        done = run(tuner, *args, **kwargs)
    except Exception:
        if not remembered():
            raise
        return again()
    return again() if remembered() else done


def _family(kind: Any) -> Iterator[type]:
    yield kind
    for each in kind.__subclasses__():
        yield from _family(each)


class Discarded:
    """The supervisor's side: the launches that workers noted, and the rows that no launch needs."""

    def __init__(self) -> None:
        self._passed_over: dict[str, tuple[int, int]] = {}
        self._needed: set[str] = set()

    def note(self, event: Event) -> None:
        """Take a journal event of launches with unclean candidates."""
        for name in event["rows"]:
            if event["clean"] > 0:
                self._passed_over[name] = (event["clean"], event["of"])
            else:
                self._needed.add(name)

    def mark(self, row: CompiledKernel) -> CompiledKernel:
        """Return the row; as one that an autotuner discards, if every launch of it has a better candidate.

        One that passes loses its advice.
        """
        if not _is_unclean(row) or not self._passed_over:
            return row
        name = key(row)
        if name in self._needed or name not in self._passed_over:
            return row
        if row.verdict is Verdict.PASSED:
            return dataclasses.replace(row, advice={})
        clean, of = self._passed_over[name]
        reason = f"{row.reason}; {clean} of {of} candidates for this launch {'is' if clean == 1 else 'are'} clean"
        return dataclasses.replace(row, verdict=Verdict.NOT_RUN, not_run=NotRun.DISCARDED, reason=reason)
