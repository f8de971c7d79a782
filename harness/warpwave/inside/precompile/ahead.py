"""Compile everything that a sweep launches, in parallel and before the first timing, into the cache where the JIT looks for it.

Each process runs its share of the points once on a pretended card like the one that is here. Nothing is launched, so the card stays idle.
The JIT finds a binary by source, specialization, options and architecture, which are all the same there and here. A kernel that depends on
something else, such as a value that only the card knows, is compiled when it is launched, as usual; so is the share of a process that
crashes. Triton's launcher and what is read from the binary are made here, too, because a first launch would wait for them.
docs/no-gpu.md says how a card is pretended.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from warpwave.inside.benchmarks import Point, load_module, one_of_each_first, points
from warpwave.inside.environment import compiled_kernels, devices_here, enter_links, package_folders, python_path, temporary_home
from warpwave.inside.imports import enter_package
from warpwave.inside.process.workers import Worker, forked, hash_triton, seconds_left
from warpwave.inside.scripts.script import benches_of
from warpwave.records import AHEAD_FILE, Architecture, Job, Stage, write_text

# All points of a job's benchmarks, loaded for what is compiled ahead. What does not load is reported by the sweep.


def points_of(job: Job) -> list[Point]:
    """Return all points, in the order of the sweep."""
    root = Path(job.kernels)
    found: list[Point] = []
    for path in benches_of(job):
        try:
            found += points(load_module(path, root), path, job)
        except Exception:
            traceback.print_exc()
    return found


MARKER_VARIABLE = "WARPWAVE_AHEAD"
# With more processes, imports slow each other down. What is not compiled after this time is compiled when it is launched.
_MOST_WORKERS = 16
_LIMIT_S = 300.0
_POLL_S, _TO_END_S = 0.02, 5.0
Each = Callable[[Job, Architecture, int, int], None]
_NOTHING: Mapping[str, object] = {}


def marker_of(job: Job) -> Path:
    """Return the file that says that everything is compiled."""
    return Path(job.output) / AHEAD_FILE


def start(job: Job) -> None:
    """Begin to compile, while a bench worker imports torch and then calls `wait`. Do nothing if that was done before this stage."""
    marker = marker_of(job)
    os.environ[MARKER_VARIABLE] = str(marker)
    if marker.exists():
        return
    card = card_of(job)
    if card is None:
        write_text(marker, json.dumps({"workers": 0, "reason": "targets.yml does not know this card"}) + "\n")
        return
    threading.Thread(target=run, args=(job, card, marker), daemon=True).start()


def wait() -> None:
    """Wait until everything is compiled; return at once if `start` was not called."""
    hash_triton()  # meanwhile, or the first launch would
    marker = os.environ.get(MARKER_VARIABLE)
    ends = time.monotonic() + _LIMIT_S + 30
    while marker and not Path(marker).exists() and time.monotonic() < ends:
        time.sleep(_POLL_S)


def card_of(job: Job) -> Architecture | None:
    """Return the card that is here, from the facts stage and from targets.yml; None if one of them does not know it."""
    device = next(iter(devices_here(job)), {})
    known = next((card for card in job.architectures if card.name == device.get("architecture")), None)
    if known is None:
        return None
    # Cards of one architecture come in several sizes, and grids and constants depend on the size.
    counted = device.get("multiprocessors") or known.properties["multiprocessor_count"]
    return dataclasses.replace(known, properties={**known.properties, "multiprocessor_count": counted})


def work(job: Job, card: Architecture, share: int, shares: int) -> None:
    """Run a share of all points once on a pretended `card`; files that the package writes to its home are deleted."""
    with on_pretended(job, card):
        launch_points(job, share, shares)


@contextlib.contextmanager
def on_pretended(job: Job, card: Architecture) -> Iterator[set[str]]:
    """Pretend a `card`, and put into Triton's cache what is compiled. Yield a set: while it is not empty, binaries are read, too."""
    from warpwave.inside.fake_gpu.card import pretended_device

    reading = {"binaries"}
    pretended = pretended_device(card, lambda binary: (32, 0, card.program_threads), job.torch_devices)
    with temporary_home(Path(job.output) / Stage.BENCH.value), pretended:
        _make_ready_to_launch(card, reading)
        enter_links(job)
        enter_package(package_folders(job), first=python_path(job))
        yield reading


def launch_points(job: Job, share: int, shares: int) -> None:
    """Run a share of all points once."""
    own = share_of([point for point in points_of(job) if point.provider not in job.what.peers], share, shares)
    for point in one_of_each_first(own) if job.limits.budget else own:
        with contextlib.suppress(Exception):  # the bench stage reports the error
            point.run()


def _make_ready_to_launch(card: Architecture, reading: set[str]) -> None:
    """From here on, put into Triton's cache, beside each compiled kernel, what its first launch would wait for."""
    import triton.compiler

    from warpwave.inside.codegen.recorder import read_once

    compile_alone = triton.compiler.compile

    def compile_and_more(*args: Any, **options: Any) -> Any:
        compiled = compile_alone(*args, **options)
        if reading:
            with contextlib.suppress(Exception):
                read_once(compiled)
        with contextlib.suppress(Exception):  # Triton 3.6 compiles one of C for each signature, in a quarter of a second
            _launcher(card)(compiled.src, compiled.metadata)
        return compiled

    triton.compiler.compile = compile_and_more


def _launcher(card: Architecture) -> Callable[[Any, Any], Any]:
    """Return what the card's own driver calls for each kernel. No driver object is made: it would use the card."""
    from triton.backends import backends
    from triton.backends.compiler import GPUTarget

    target = GPUTarget(card.backend, card.arch, card.warp_size)
    driver = next(backend.driver for backend in backends.values() if backend.compiler.supports_target(target))
    found = vars(sys.modules[driver.__module__])
    return next(value for name, value in found.items() if isinstance(value, type) and name.endswith("Launcher"))


def share_of(found: list[Point], share: int, shares: int) -> list[Point]:
    """Return a share of the points. Those of one kernel and provider stay together: they mostly launch the same code, compiled once."""
    ordered = sorted(found, key=lambda point: (point.kernel, point.provider))
    return ordered[len(ordered) * share // shares : len(ordered) * (share + 1) // shares]


def run(
    job: Job, card: Architecture, marker: Path, each: Each = work, facts: Mapping[str, object] = _NOTHING, beside: Sequence[Worker] = ()
) -> None:
    """Run the shares, `each` in a process, wait for them and for those `beside` them, then write the marker with these `facts`."""
    started, before = time.monotonic(), compiled_kernels()
    # Of a budget, half is for measuring.
    limit = min(_LIMIT_S, max(0.0, seconds_left() / 2)) if job.limits.budget else _LIMIT_S
    shares = min(_MOST_WORKERS, job.workers or os.cpu_count() or 1)
    ended: list[int | None] = []
    try:
        log = marker.with_name("log-ahead.txt")
        workers = [forked(each, job, card, share, shares)(marker, log) for share in range(shares)]
        ended = [_finish(worker, started + limit) for worker in (*workers, *beside)]
    finally:
        seconds, compiled = round(time.monotonic() - started, 3), compiled_kernels() - before
        done = {"workers": shares, "seconds": seconds, "compiled": compiled, "exit_codes": ended, **facts}
        write_text(marker, json.dumps(done) + "\n")


def _finish(worker: Worker, ends: float) -> int | None:
    """Return the exit code of a share; None if it had to be killed."""
    with contextlib.suppress(Exception):
        return worker.wait(max(0.0, ends - time.monotonic()))
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(_TO_END_S)
    return None
