"""Look at a job: its state in the queue, its status file, and its new output."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Union

from warpwave.engines.slurm.site import Site
from warpwave.errors import printable
from warpwave.records import OVERFULL, OVERTIME, Cap, Exit

PIECE = 1 << 18  # bytes of output that one look brings at most
# The status comes first: if it says that the job has ended, the output that follows is complete.
_LOOK = r"""
cd -- "$1" 2>/dev/null && head -c 4000 status 2>/dev/null | sed 's/^/= /'
if [ -n "$3" ]; then
  said=$(squeue -h -t all -j "$2" -o "$3" 2>&1); code=$?
  printf '%s\n' "$said" | head -n 2 | head -c 1000 | sed "s/^/? $code /"
fi
echo; echo --
tail -c "+$4" output 2>/dev/null | head -c "$5"
exit 0
"""
_ACCOUNTING = ["sacct", "-n", "-X", "-P", "-o", "State,Timelimit,NodeList", "-j"]
FORMAT = "%T|%r|%S|%l|%N"
"""What squeue is asked to print of a job: state, reason, start, time limit, nodes."""

# A job in these states has not begun; in the others, but for LIVE ones, it has ended.
WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
_LIVE = WAITING | {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT"}
# With these reasons a job waits for ever: no card becomes free by waiting.
HOPELESS = frozenset(
    """AccountNotAllowed BadConstraints InvalidAccount InvalidQOS PartitionConfig PartitionNodeLimit PartitionTimeLimit QOSNotAllowed
    QOSMaxWallDurationPerJobLimit QOSMaxGRESPerJob AssocMaxWallDurationPerJobLimit AssocMaxGRESPerJob""".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Entry:
    """A job in Slurm's queue. `start` is when it began or, if it waits, when Slurm expects it to begin; None if Slurm does not say."""

    state: str
    reason: str = ""
    start: Union[datetime, None] = None
    limit: str = ""
    nodes: str = ""

    @property
    def waits(self) -> bool:
        """Whether it has not begun."""
        return self.state in WAITING

    @property
    def lives(self) -> bool:
        """Whether it has not ended."""
        return self.state in _LIVE

    def words(self, now: datetime) -> str:
        """Return a phrase such as `pending: Priority, estimated 14:05`."""
        text = self.state.lower().replace("_", " ")
        text += f": {self.reason}" if self.reason and self.reason != "None" else ""
        if not self.waits or self.start is None:
            return text
        return f"{text}, estimated {self.start:%H:%M}" + (f" on {self.start:%Y-%m-%d}" if self.start.date() != now.date() else "")


@dataclass(frozen=True)
class Status:
    """What the job has written of itself. `code` is the exit code of the inside, None until it has ended. `signal` is `limit` or `term` if
    Slurm asked the job to stop. `waiting`: it waits for its files. `broken` and `missing` say what the node lacks."""

    started: bool = False
    node: str = ""
    cards: str = ""
    signal: str = ""
    code: Union[int, None] = None
    broken: str = ""
    missing: str = ""
    waiting: bool = False


@dataclass(frozen=True)
class Seen:
    """One look at a job. `entry` is None if Slurm was not asked, `gone` if Slurm does not know the job any more. `trouble` is what squeue
    said instead of an answer. `output` is what the job printed since the last look."""

    status: Status = field(default_factory=Status)
    entry: Union[Entry, None] = None
    gone: bool = False
    trouble: str = ""
    output: bytes = b""

    @property
    def is_over(self) -> bool:
        """Whether the job has ended, as far as Slurm was asked."""
        return self.gone or (self.entry is not None and not self.entry.lives)


def look_at_node(site: Site, folder: str, job: str, ask: bool, offset: int | None) -> Seen:
    """Return the same as `look` if the job's files are on its node: they can be read while it runs."""
    queued = look(site, "", job, True, None)
    if queued.entry is None or queued.entry.state != "RUNNING":
        return queued
    seen = look(site.node_of(job), folder, job, False, offset)
    return replace(seen, entry=queued.entry, trouble=queued.trouble)


def look(site: Site, folder: str, job: str, ask: bool, offset: int | None) -> Seen:
    """Return what a job shows of itself. `ask` for its state in the queue; read its output from `offset`, in bytes, or none. Raises
    SiteLostError if the site does not answer."""
    done = site.script(_LOOK, folder, job, FORMAT if ask else "", str((offset or 0) + 1), "0" if offset is None else str(PIECE))
    head, _, output = done.out.partition(b"\n--\n")
    status, entry, gone, trouble = [], None, False, ""
    for line in head.decode("utf-8", "replace").splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "=":
            status.append(rest)
        elif kind == "?":
            code, _, said = rest.partition(" ")
            entry = entry or (read_entry(said) if code == "0" else None)
            gone = gone or (code == "0" and not said) or "invalid job id" in said.lower()
            trouble = trouble or (said if code != "0" else "")
    return Seen(read_status("\n".join(status)), entry, gone and entry is None, trouble, output)


def ask_accounting(site: Site, job: str) -> Entry | None:
    """Return what Slurm's accounting knows of a job that the queue has forgotten; None where a site has none."""
    done = site.run([*_ACCOUNTING, job])
    state, _, rest = done.text.strip().partition("\n")[0].partition("|")
    limit, _, nodes = rest.partition("|")
    word = state.partition(" ")[0]  # CANCELLED by 1000
    return Entry(word, limit=limit[:40], nodes=nodes[:200]) if done.code == 0 and re.fullmatch(r"[A-Z_]+", word) else None


def read_entry(line: str) -> Entry | None:
    """Return an entry from a line in `FORMAT`, or None if the line has another form."""
    parts = [part.strip() for part in line.split("|")]
    if len(parts) != FORMAT.count("|") + 1 or not re.fullmatch(r"[A-Z_]+", parts[0]):
        return None
    try:
        start = datetime.fromisoformat(parts[2])
    except ValueError:  # N/A, Unknown
        start = None
    return Entry(parts[0], parts[1][:100], start, parts[3][:40], parts[4][:200])


def read_status(text: str) -> Status:
    """Return what a status file says. Its lines are `KEY WORDS…`; unknown ones are ignored."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, *words = line.split()[:8] or [""]
        if key not in found or key == "ended":
            found[key] = words
    started, ended = found.get("started", []), found.get("ended", [])
    return Status(
        waiting="started" not in found and "waiting" in found,
        started="started" in found,
        node=started[2] if len(started) > 2 else "",
        cards=started[3] if len(started) > 3 else "",
        signal=found.get("signal", [""])[0],
        code=int(ended[0]) if ended and re.fullmatch(r"\d{1,3}", ended[0]) else None,
        broken=" ".join(found.get("broken", [])),
        missing=" ".join(found.get("missing", [])),
    )


# If Slurm or an operator ends a job, the kernels are not to blame: it is an error of the infrastructure.

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
        return Exit(OVERFULL, seconds, exceeded=f"it wrote more than it may to its results; the limit is {cap}")
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
    said = printable(said)[-_SAID:]
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
