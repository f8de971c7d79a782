"""The compile stage: every launch of every bench point, compiled for every architecture of the target, without a GPU.

`python -m harness.inside.compile job.json` supervises one worker an architecture, as many at a time as there are cores; a worker runs
the benches under `pretend.pretended_device`. A compiler that aborts takes one case with it and names it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness.inside.assembly import read
from harness.inside.benches import find_benches, kernel_name, points
from harness.inside.events import emit
from harness.inside.measure import describe, load_case
from harness.inside.occupancy import LIMITS, occupancy
from harness.inside.supervise import Event, Journal, supervise
from harness.records import Architecture, CompiledKernel, Job, Scalar, Stage, StageReport, Verdict, dump, to_json, worst

_MOST_THREADS = 1024  # a block's limit on every architecture that Triton's wheel compiles for


def compile_all(job: Job) -> StageReport:
    """Supervise the workers and write `compile/kernels.jsonl`."""
    folder = Path(job.output) / Stage.COMPILE.value
    if not find_benches(Path(job.kernels), job.benches):
        return StageReport(Stage.COMPILE, Verdict.NOT_RUN, reason="no bench was found", hint=f"Looked for {', '.join(job.benches)}.")
    rows: list[CompiledKernel] = []
    problems: list[str] = []
    lock = threading.Lock()

    def run(card: Architecture) -> None:
        def on_event(event: Event) -> None:
            with lock:
                for row in _rows(event, card):
                    rows.append(row)
                    if row.verdict is not Verdict.PASSED:
                        problems.append(f"{row.function} for {row.architecture}: {row.reason}")
                    with open(folder / "kernels.jsonl", "a", encoding="utf-8") as file:
                        file.write(to_json(row) + "\n")
                    emit("case", stage="compile", id=f"{row.function} for {card.name}", done=len(rows), total=None)

        command = [sys.executable, "-m", "harness.inside.compile", sys.argv[1], "--worker", card.name]
        journal = Journal(folder / f"journal-{card.name}.jsonl")
        for death in supervise(command, journal, job.test_limit_s, folder / f"log-{card.name}.txt", on_event):
            if death.case is None:
                on_event({"event": "death", "id": "(worker)", "verdict": death.verdict.value, "reason": death.reason})

    with ThreadPoolExecutor(job.workers or os.cpu_count() or 1) as pool:
        list(pool.map(run, job.architectures))
    counts = {verdict.value: sum(row.verdict is verdict for row in rows) for verdict in Verdict}
    counts = {verdict: count for verdict, count in counts.items() if count}
    # A point whose host code cannot run without data takes nothing away from the kernels that were compiled.
    verdict = worst([row.verdict for row in rows if row.verdict is not Verdict.NOT_RUN])
    reason = problems[0][:500] if problems else "" if rows else "the benches launch no Triton kernel"
    return StageReport(Stage.COMPILE, verdict, reason=reason, counts=counts)


def _rows(event: Event, card: Architecture) -> list[CompiledKernel]:
    """A compiled kernel is a row; so is a point whose host code could not run, and a case that killed its worker."""
    if event["event"] == "kernel":
        return [CompiledKernel(**{**event["row"], "verdict": Verdict(event["row"]["verdict"])})]
    if event["event"] == "death" or (event["event"] == "finish" and event.get("reason")):
        kernel = event["id"].split("/")[0].split()[0]
        verdict = Verdict(event["verdict"])
        return [CompiledKernel(kernel, "(host code)", card.name, verdict, origin=event["id"], reason=event["reason"])]
    return []


class Recorder:
    """Wraps `triton.compile`: each specialization that the JIT asks for becomes a row in the journal, once."""

    def __init__(self, card: Architecture, journal: Journal) -> None:
        import triton.compiler

        self.card, self.journal = card, journal
        self.kernel = self.origin = ""
        self.failure: Exception | None = None
        self._compile = triton.compiler.compile
        self._loaded: dict[bytes, tuple[int, int, int]] = {}
        triton.compiler.compile = self.compile

    def compile(self, src: Any, target: Any = None, options: Any = None, **rest: Any) -> Any:
        """Compile, read the binary, journal the row; a compiler error is a row too, and goes on to the caller."""
        base = self._describe(src, options or {})
        started = time.monotonic()
        try:
            compiled = self._compile(src, target=target, options=options, **rest)
        except Exception as error:
            self.failure = error
            self._write(dataclasses.replace(base, verdict=Verdict.FAILED, reason=describe(error)))
            raise
        self._write(dataclasses.replace(self._read(base, compiled), seconds=round(time.monotonic() - started, 3)))
        return compiled

    def load(self, binary: bytes) -> tuple[int, int, int]:
        """Registers, spills and the thread limit of a binary compiled here: what occupancy code asks a loaded kernel for."""
        return self._loaded.get(_digest(binary), (0, 0, _MOST_THREADS))

    def _describe(self, src: Any, options: dict[str, Any]) -> CompiledKernel:
        names = src.fn.arg_names
        return CompiledKernel(
            kernel=self.kernel,
            function=src.name,
            architecture=self.card.name,
            verdict=Verdict.PASSED,
            origin=self.origin,
            signature={str(name): str(kind) for name, kind in src.signature.items() if kind != "constexpr"},
            constants={names[path[0]]: _plain(value) for path, value in src.constants.items() if len(path) == 1},
            num_warps=options.get("num_warps"),
            num_stages=options.get("num_stages"),
        )

    def _read(self, base: CompiledKernel, compiled: Any) -> CompiledKernel:
        metadata, reading = compiled.metadata, read(compiled.asm)
        self._loaded[_digest(compiled.kernel)] = (reading.registers or 0, reading.spills or 0, _MOST_THREADS)
        row = dataclasses.replace(
            base,
            num_warps=metadata.num_warps,
            num_stages=getattr(metadata, "num_stages", None),
            binary_hash=_digest(compiled.kernel).hex(),
            binary_bytes=len(compiled.kernel),
            shared_bytes=metadata.shared,
            **dataclasses.asdict(reading),
        )
        # The compiler checks neither of these; the launch does, on the card.
        limit, threads = self.card.properties["max_shared_mem"], metadata.num_warps * self.card.warp_size
        if metadata.shared > limit:
            reason = f"needs {metadata.shared} bytes of shared memory, {self.card.name} has {limit}"
            return dataclasses.replace(row, verdict=Verdict.FAILED, reason=reason)
        if threads > _MOST_THREADS:
            reason = f"{metadata.num_warps} warps of {self.card.warp_size} are {threads} threads, {_MOST_THREADS} can be launched"
            return dataclasses.replace(row, verdict=Verdict.FAILED, reason=reason)
        limits = LIMITS.get(self.card.arch)
        if limits is None or row.registers is None:
            return row
        fits = occupancy(limits, metadata.num_warps, row.registers, metadata.shared, row.sgprs)
        return dataclasses.replace(row, programs=fits.programs, resident_warps=fits.warps, occupancy=fits.share, limited_by=fits.limited_by)

    def _write(self, row: CompiledKernel) -> None:
        self.journal.write("kernel", row=dataclasses.asdict(row))


def work(job: Job, card: Architecture) -> None:
    """Run every bench point once on a pretended `card`."""
    from harness.inside.pretend import pretended_device

    journal = Journal.from_environment()
    done = journal.done()
    root = Path(job.kernels)
    recorder = Recorder(card, journal)
    with pretended_device(card, recorder.load):
        for path in find_benches(root, job.benches):
            recorder.kernel, recorder.origin = kernel_name(path, root), path.name
            module = load_case(journal, path, root, done)
            for point in points(module, path, root, job.quick) if module is not None else ():
                if point.id in done:
                    continue
                recorder.kernel, recorder.origin, recorder.failure = point.kernel, point.id, None
                journal.write("start", id=point.id)
                reason = ""
                try:
                    point.function(**point.arguments)
                except Exception as error:
                    # A kernel that does not compile, or that no launch could take, has its row already.
                    if error is not recorder.failure and type(error).__name__ != "OutOfResources":
                        traceback.print_exc()
                        reason = describe(error)
                journal.write("finish", id=point.id, verdict=Verdict.NOT_RUN.value, reason=reason)
    journal.write("end")


def _plain(value: Any) -> Scalar:
    value = getattr(value, "value", value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _digest(binary: bytes) -> bytes:
    return hashlib.sha256(binary).digest()


def main() -> None:
    """Entry of the stage's process, and of its workers."""
    job = Job.load(Path(sys.argv[1]))
    if "--worker" in sys.argv:
        name = sys.argv[sys.argv.index("--worker") + 1]
        work(job, next(card for card in job.architectures if card.name == name))
        return
    dump(compile_all(job), Path(job.output) / Stage.COMPILE.value / "report.json")


if __name__ == "__main__":
    main()
