"""Let `torch.compile` generate and compile its code before the card is taken: each point runs once on tensors without data.

torch's compiler sees a pretended card with the facts of the real one. Its output goes to a cache of this run, under torch's own keys and
Triton's. Nothing has run by then, so no choice of an autotuner is among it: the worker that measures loads every candidate, and tunes on
the card as without this. If a part of torch that this needs is missing, nothing is generated, and first calls compile on the card.

One thing would change what is measured: torch's key of a backward graph leaves out which saved tensors it may overwrite, and the graph of
`retain_graph=True` may overwrite none. `tell_apart` adds that to the key.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.inside.benchmarks import Point
from harness.inside.compile.points import points_of
from harness.inside.environment.package_path import names_any, package_folders, python_path
from harness.inside.environment.temporary_home import temporary_home
from harness.inside.imports.extensions import enter_package
from harness.inside.precompile_torch.without_card import Reached, without_card
from harness.inside.process.workers import Worker, forked
from harness.records import AHEAD_FILE, Architecture, Job, Stage

_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_NAME = "torch.compile"
_PREFIX = "warpwave-torch-compile-"
FOLDER = "generated"  # the key in `bench/ahead.json`
_READY_S = 120  # for torch's compile workers to start
# torch's autograd makes a context on the card in a process that traces a gradient. A few take less memory than marks another run's points.
_MOST = 3


def folder_of(job: Job) -> Path | None:
    """Return the folder of what was generated for this run; None if nothing was."""
    try:
        return Path(json.loads((Path(job.output) / AHEAD_FILE).read_text(encoding="utf-8"))[FOLDER])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def started(job: Job, card: Architecture, log: Path) -> tuple[list[Worker], dict[str, str]]:
    """Start to generate, if that is wanted and the sweep has something for torch's compiler.

    Return the processes, and what the bench stage must know.

    The user's own cache is used if there is one. Otherwise it is a folder that nobody else can write: torch executes what is in it.
    """
    wanted = card.torch_compile_ahead if job.torch_compile_ahead is None else job.torch_compile_ahead
    if not wanted or Stage.BENCH not in job.stages or not names_any(job, _NAME):
        return [], {}
    os.environ[_VARIABLE] = os.environ.get(_VARIABLE) or tempfile.mkdtemp(prefix=_PREFIX)
    workers = [forked(generate, job, card, share, _MOST)(log, log.with_name("log-torch-compile.txt")) for share in range(_MOST)]
    return workers, {FOLDER: os.environ[_VARIABLE]}


def name_folder(job: Job) -> None:
    """Name the folder to the processes that this one starts. torch reads it when it is imported."""
    if folder := folder_of(job):
        os.environ[_VARIABLE] = str(folder)


def remove(job: Job) -> None:
    """Delete what was generated for this run alone."""
    folder = folder_of(job)
    if folder is not None and folder.name.startswith(_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)


def use(job: Job) -> None:
    """In the worker that measures: take what was generated, if anything was, and be ready to compile the rest."""
    if folder_of(job) is None:
        return
    with contextlib.suppress(Exception):
        tell_apart()
        importlib.import_module("torch._inductor.compile_fx")
        workers = importlib.import_module("torch._inductor.async_compile").AsyncCompile
        workers.wait_pool_ready(_READY_S)


def tell_apart() -> None:
    """Add to torch's keys of graphs which of the saved tensors a backward graph may overwrite."""
    details = importlib.import_module("torch._inductor.codecache").FxGraphHashDetails
    donated = importlib.import_module("torch._inductor.utils").get_donated_idxs
    begin = details.__init__

    def begin_with(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        self.donated = donated()

    details.__init__ = begin_with


def generate(job: Job, card: Architecture, share: int, shares: int) -> None:
    """Run a share of all points once, up to what they time. This process launches nothing, and ends afterwards."""
    own = os.environ.get("TRITON_CACHE_DIR")
    with contextlib.ExitStack() as undo:
        undo.enter_context(temporary_home(Path(job.output) / Stage.BENCH.value))
        if own is None:  # then torch's compiler has Triton's cache in its own
            del os.environ["TRITON_CACHE_DIR"]
        without_card(job, card, undo)
        tell_apart()
        enter_package(package_folders(job), first=python_path(job))
        for point in share_of(points_of(job), share, shares):
            run(point)


def run(point: Point) -> None:
    """Run one point on tensors without data, up to what it times. The sweep reports the point's own errors."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True), contextlib.suppress(Reached, Exception):
        point.run()


def share_of(found: Iterable[Point], share: int, shares: int) -> list[Point]:
    """Return a share of the points, in their order. Those of a kernel with equal parameters stay together: they may share a graph."""
    groups: dict[tuple[str, str], list[Point]] = {}
    for point in found:
        groups.setdefault((point.kernel, str(sorted(map(str, point.params.values())))), []).append(point)
    return list(itertools.chain.from_iterable(list(groups.values())[share::shares]))
