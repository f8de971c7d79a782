"""Turn the way a job ended into an `Exit`, in words with Slurm's own state. Pure.

If Slurm or an operator ends a job, the kernels are not to blame: it is an error of the infrastructure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

from harness.engines.slurm.queue import Entry, Status
from harness.options import GIB, Cap
from harness.records import OVERFULL, OVERTIME, Exit

_RESUME = "Continue with --resume: what is finished does not run again."
_SAID = 500  # characters of what a job printed that are shown
_KILLED = 137
_STOPPED = 143  # a code, not None: warpwave does not repeat a job that an operator or a limit ended


def ending(job: str, status: Status, entry: Union[Entry, None], interrupted: bool, seconds: float, cap: Cap) -> Exit:
    """Return how a job ended. `entry` is Slurm's last word on it, None if Slurm has forgotten it. `cap` is the limit on results."""
    state = entry.state if entry else ""
    if interrupted:
        return Exit(_STOPPED if status.code is None else status.code, seconds, interrupted=True)
    if status.code == OVERTIME:
        return Exit(OVERTIME, seconds, timed_out=True)
    if status.code == OVERFULL:
        limits = f"{cap.bytes / GIB:g} GiB, and {cap.files} files"
        return Exit(OVERFULL, seconds, exceeded=f"it wrote more than it may to its results; the limit is {limits}")
    if state == "OUT_OF_MEMORY":
        return Exit(_KILLED, seconds, oom_killed=True)
    if known := _slurms_doing(job, status, entry, state):
        return Exit(known[0], seconds, error=known[1], hint=known[2])
    if status.missing:
        error = f"Slurm job {job}: the node {status.node} has no program {status.missing!r}"
        return Exit(127, seconds, error=error, hint="Name a program that the nodes have: `python:` or `container:` in hosts.yml.")
    if status.broken:
        error = f"Slurm job {job} could not start on {status.node or 'its node'}: {status.broken}"
        return Exit(1, seconds, error=error, hint=f"Look at `module:` in hosts.yml, or tell the site. {_RESUME}")
    if status.code is not None:
        return Exit(status.code, seconds)
    how = f"Slurm's last state of it is {state}" if state else "Slurm does not know it any more"
    if not status.started:
        error = f"Slurm job {job} ended before it began to work; {how}"
        hint = "Most often the node does not see the folder of the job's files. Set `slurm.folder` in hosts.yml to a shared one."
        return Exit(1, seconds, error=error, hint=hint)
    return Exit(_STOPPED, seconds, error=f"Slurm job {job} ended without saying how; {how}", hint=_RESUME)


def not_begun(ended: Exit, job: str, status: Status, container: str, words: Sequence[str]) -> Exit:
    """Return how a job ended that failed before the inside said anything. `words` are the last lines that it printed."""
    if ended.code in (None, 0) or ended.error or ended.exceeded or ended.timed_out or ended.interrupted or ended.oom_killed:
        return ended
    what = "The Python" if container == "none" else f"The container ({container})"
    said = "; ".join(line.strip().rstrip(".") for line in words if line.strip())
    said = "".join(character if character.isprintable() else "?" for character in said)[-_SAID:]
    error = f"{what} of Slurm job {job} did not start on {status.node or 'its node'}: {said or f'exit code {ended.code}, without a word'}"
    hint = "Look at `image:`, `python:` and `container:` in hosts.yml; `warpwave doctor --hosts` asks a node for the runtime."
    return Exit(ended.code, ended.seconds, error=error, hint=hint)


def _slurms_doing(job: str, status: Status, entry: Union[Entry, None], state: str) -> tuple[Union[int, None], str, str] | None:
    """Return exit code, error and hint if Slurm ended the job. The code is None if a second attempt may help at once."""
    where = f" on {entry.nodes}" if entry and entry.nodes and entry.nodes != "(null)" else ""
    longer = f" Ask for more with `slurm.time` in hosts.yml. {_RESUME}"
    if state == "PREEMPTED":
        return None, f"Slurm preempted job {job} (state PREEMPTED): a job of higher priority took its place{where}", _RESUME
    if state in ("NODE_FAIL", "BOOT_FAIL"):
        return None, f"the node failed under Slurm job {job}{where} (state {state})", _RESUME
    if state in ("TIMEOUT", "DEADLINE") or (status.signal == "limit" and status.code != 0):
        limit = f" of {entry.limit}" if entry and entry.limit else ""
        shown = f"state {state}" if state in ("TIMEOUT", "DEADLINE") else "the job was asked to stop shortly before"
        return _STOPPED, f"Slurm ended job {job} at its time limit{limit} ({shown})", f"The results so far are kept.{longer}"
    if state in ("CANCELLED", "REVOKED") or (status.signal and status.code != 0):
        shown = f"state {state}" if state else "it was asked to stop"
        return _STOPPED, f"Slurm job {job} was cancelled by someone else ({shown})", f"Ask who ran scancel. {_RESUME}"
    return None
