"""Submit a job: the words that sbatch gets, and the script that it gets on its standard input."""

import fcntl
import io
import math
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Union

from warpwave.config.hosts import Host, Slurm
from warpwave.engines.incoming import unpack
from warpwave.engines.slurm.queue import Entry
from warpwave.engines.slurm.script import Places, batch_script
from warpwave.engines.slurm.site import Site
from warpwave.engines.snapshot import PACKAGE, Snapshot, packing
from warpwave.errors import InfrastructureError, UsageError, WarpwaveError
from warpwave.options import RunOptions
from warpwave.records import Cap

# What sbatch says, the part of hosts.yml that it is about, what it means, and what lists the right values. The first that fits counts.
_MISTAKES = (
    (r"invalid partition|partition name", "slurm.partition", "The cluster has no partition of that name.", "`sinfo -s` lists them"),
    (
        r"invalid account|account/partition",
        "slurm.account",
        "Your user may not charge jobs there to that account.",
        "`sacctmgr show assoc user=$USER` lists yours",
    ),
    (
        r"invalid qos|QOS specification",
        "slurm.qos",
        "The cluster has no such quality of service, or your account may not use it.",
        "`sacctmgr show qos` lists them",
    ),
    (
        r"time limit|--time",
        "slurm.time",
        "The time is not written as Slurm wants it, or is longer than the partition allows.",
        "`sinfo -o '%P %l'` lists the limits",
    ),
    (
        r"invalid generic resource|gres|node configuration is not available|feature specification|more processors",
        "slurm.gpus, slurm.gres or slurm.options",
        "No node of the partition has what the job asks for.",
        "`sinfo -o '%P %G %f'` lists what nodes have",
    ),
    (
        r"unrecognized option|invalid option|requires an argument|invalid argument",
        "slurm.options",
        "sbatch there does not know that option, or not that value.",
        "`sbatch --help` lists them",
    ),
)
_SILENT = re.compile(r"unable to contact|connection (refused|timed out)|socket timed out|zero bytes|slurm_persist", re.IGNORECASE)
_LIMIT = re.compile(r"accounting/QOS policy|submit limit|job violates|too many|limit (reached|exceeded)", re.IGNORECASE)


def is_silent(said: str) -> bool:
    """Return whether a command of Slurm says that the controller did not answer."""
    return bool(_SILENT.search(said))


def not_submitted(host: Host, said: str, code: int) -> WarpwaveError:
    """Return the error for an sbatch that did not accept a job. It repeats sbatch's own words."""
    words = re.sub(r"^((sbatch|srun): )?error: ", "", said) or f"exit code {code} without a word"
    happened = f"{host.name}: Slurm refused the job: {words}."
    if code == 127:
        meaning = "The machine is no login node of a Slurm cluster, or Slurm is not in the PATH of a command over ssh."
        return InfrastructureError(happened, meaning, "Name a login node with `ssh:`, and try `ssh LOGIN-NODE sbatch --version`.")
    if is_silent(said):
        meaning = "Slurm's controller (slurmctld) is down, restarts, or cannot be reached from here."
        return InfrastructureError(happened, meaning, "`scontrol ping` tells; when it answers, continue with --resume.")
    if "Immediate execution impossible" in said:
        meaning = "All cards of the partition are in use, or other jobs wait for them."
        return InfrastructureError(happened, meaning, "A run waits for its turn; `squeue -p PARTITION` shows who is before it.")
    if _LIMIT.search(said):
        meaning = "The account or its QOS has reached a limit: of jobs, of cards, or of time."
        remedy = "`squeue --me` lists your jobs. Wait for them or ask for less; then continue with --resume."
        return InfrastructureError(happened, meaning, remedy)
    for pattern, key, meaning, listed in _MISTAKES:
        if re.search(pattern, said, re.IGNORECASE):
            return UsageError(happened, meaning, f"Correct {host.name}.{key} in hosts.yml; {listed}.")
    meaning = "The site's Slurm, or a plugin of the site, does not accept it."
    return InfrastructureError(happened, meaning, "Ask the site, with these words.")


def hopeless(host: Host, job: str, entry: Entry) -> UsageError:
    """Return the error for a job that would wait for ever."""
    meaning = "The job asks for more than its partition, account or QOS may ever give: most often a longer time."
    remedy = f"Set {host.name}.slurm.time in hosts.yml to less; `scontrol show partition` and `sacctmgr show qos` list the limits."
    return UsageError(f"{host.name}: Slurm job {job} could never start ({entry.reason}); it was cancelled.", meaning, remedy)


_WRITING_S = 30.0  # on top of the grace: Slurm sends its signal up to this much late
_COLLECT_S = 60.0  # for the client to collect results from the node
_SUBMIT_S = 120.0  # a busy controller keeps sbatch waiting
# Writes the job's id to the leg in the same step, so that no client can die between the two. A site's sbatch may print more than the id.
_SUBMIT = r"""
leg=$1; shift
said=$(sbatch "$@") || exit
id=$(printf '%s\n' "$said" | grep -Ex '[0-9]+(;.*)?' | tail -n 1); id=${id%%;*}
[ -n "$id" ] || { printf '%s\n' "$said" >&2; exit 1; }
printf '%s\n' "$id" >"$leg/id.new" && mv -- "$leg/id.new" "$leg/id"
printf '%s\n' "$id"
"""


def submit(site: Site, host: Host, options: RunOptions, leg: str, place: str, name: str) -> str:
    """Submit the job of a leg, and return its id. `leg` is its folder where sbatch runs, `place` the one on the node. Raises
    InfrastructureError if Slurm does not answer, or has no room for it, and UsageError if the leg names a partition, an account or
    something else that Slurm does not have."""
    assert host.slurm is not None
    words = sbatch_words(host.slurm, options, name, host.slurm.time or _time(site, host.slurm, options))
    script = batch_script(place, host.slurm.stage == "sbcast").encode(errors="surrogateescape")
    done = site.script(_SUBMIT, leg, *words, given=script, limit_s=_SUBMIT_S)
    number = done.text.strip().rpartition("\n")[2]
    if done.code != 0 or not re.fullmatch(r"\d+", number):
        raise not_submitted(host, done.said, done.code)
    return number


def sbatch_words(slurm: Slurm, options: RunOptions, name: str, time: str) -> list[str]:
    """Return the options of sbatch, each one word. `time` is the job's limit."""
    words = ["--parsable", f"--job-name={name}", f"--comment={name}", "--output=/dev/null", "--ntasks=1", "--no-requeue"]
    # No variable of the caller's reaches the job. LANG alone, and not NONE: with NONE, Slurm would run the user's login files first.
    lead_s = options.limits.grace_s + _WRITING_S + (_COLLECT_S if slurm.stage == "sbcast" else 0.0)
    words += ["--export=LANG", f"--signal=B:USR1@{math.ceil(lead_s)}", f"--time={time}"]
    return [*words, *resources(slurm), *slurm.options]


def resources(slurm: Slurm) -> list[str]:
    """Return the options, of sbatch and srun, that say where a job runs and with how many cards."""
    chosen = {"partition": slurm.partition, "account": slurm.account, "qos": slurm.qos, "gres": slurm.gres}
    words = [f"--{key}={value}" for key, value in chosen.items() if value]
    return words + ([f"--gpus={slurm.gpus}"] if slurm.gpus and not slurm.gres else [])


def _time(site: Site, slurm: Slurm, options: RunOptions) -> str:
    """Return the time limit of a job whose host names none, in minutes: what the run may take, but no more than its partition allows."""
    wanted = math.ceil((options.limits.target_s + 2 * (options.limits.grace_s + _WRITING_S)) / 60)
    listed = [line.partition("|") for line in site.run(["sinfo", "-h", "-o", "%P|%l"]).text.splitlines()]
    chosen = slurm.partition.split(",")
    limits = [minutes(limit) for name, _, limit in listed if name.rstrip("*") in chosen or (name.endswith("*") and not slurm.partition)]
    return str(min([wanted, *(limit for limit in limits if limit)]))


def minutes(text: str) -> int:
    """Return a time limit as Slurm prints it, `days-hours:minutes:seconds`, in whole minutes; 0 if there is none, as for `infinite`."""
    days, _, rest = text.strip().rpartition("-")
    parts = rest.split(":")
    if not all(part.isdigit() for part in [days or "0", *parts]) or not 2 <= len(parts) <= 3:
        return 0
    hours, mins = (int(parts[0]), int(parts[1])) if len(parts) == 3 else (0, int(parts[0]))
    return int(days or 0) * 1440 + hours * 60 + mins


def job_name(options: RunOptions, leg: str) -> str:
    """Return the name of a job, by which a later client finds it."""
    return re.sub(r"[^\w.+-]", "-", f"warpwave-{options.where.run_id}-{leg}", flags=re.ASCII)


# A run has one folder on the shared file system. In it, `tree-HASH` is read by all legs, and each leg has a folder: with `job` (what to
# run), `status`, `output`, and `results`, the only one that a container can write to. What comes back is unpacked as if a stranger had sent
# it.

_SEND_S = 900.0
_PIECE = 1 << 20
_TREE_TAR, _LEG_TAR = "tree.tar", "leg.tar"
_ARRIVED = rf"""
set -e; umask 077; cd -- "$1"
mkdir tree results; : >output
tar -xf {_TREE_TAR} -C tree --no-same-owner; chmod -R a-w tree
tar -xf {_LEG_TAR} --no-same-owner
rm -- {_TREE_TAR} {_LEG_TAR}; touch ready
"""
_HOSTS_OWN = frozenset({"run.json", "inputs.json", "engine.log"})  # in a results folder; a job neither needs nor changes them
_TREE = r"""
set -e; umask 077
[ ! -d "$1" ] || exit 0
mkdir -p -- "$(dirname -- "$1")"
mkdir -- "$1.$$"; tar -xf - -C "$1.$$" --no-same-owner
chmod -R a-w -- "$1.$$"
mv -T -- "$1.$$" "$1"
"""
_LEG = r"""
set -e; umask 077
rm -rf -- "$1"; mkdir -p -- "$1/results"; : >"$1/output"
tar -xf - -C "$1" --no-same-owner
"""
# The last leg removes the tree, which is read-only, and any part of a tree that a full disk left behind.
_CLEAN = r"""
rm -rf -- "$1/$2"
if ! ls -d -- "$1"/*/ 2>/dev/null | grep -qv '/tree-[0-9a-f.]*/$'; then
  chmod -R u+w -- "$1"/tree-* 2>/dev/null
  rm -rf -- "$1"/tree-*
  rmdir -- "$1" 2>/dev/null
fi
exit 0
"""


@dataclass(frozen=True)
class Folders:
    """A leg's folders, where sbatch runs and on the node. `node` is the one on the node if both share no file system; otherwise empty."""

    base: str
    leg: str
    tree: str
    node: str = ""

    @property
    def path(self) -> str:
        """The leg's own folder where sbatch runs."""
        return f"{self.base}/{self.leg}"

    @property
    def work(self) -> str:
        """The leg's own folder as the node sees it."""
        return self.node or self.path

    @property
    def places(self) -> Places:
        """What the inside gets of them."""
        return Places(self.tree, f"{self.tree}/{PACKAGE}", f"{self.work}/results")


def folders_of(options: RunOptions, leg: str, root: str, snapshot: str) -> Folders:
    """Return where a leg's files go. `root` is the folder for all runs; empty: the run's own results folder. `snapshot` names the tree."""
    shard = options.where.shard if options.where.whole else None
    run = options.where.run_id.removesuffix(f"-{shard.number}of{shard.of}") if shard else options.where.run_id
    base = f"{root}/warpwave-{run}" if root else str(options.where.folder.resolve() / "slurm")
    name = f"{leg}.{shard.number}of{shard.of}" if shard else leg
    if options.where.host and options.where.host.slurm and options.where.host.slurm.stage == "sbcast":
        node = f"/tmp/{job_name(options, name)}"  # noqa: S108 - the job makes it, or fails if it exists
        return Folders(base, name, f"{node}/tree", node)
    return Folders(base, name, f"{base}/tree-{snapshot}")


def send_tree(site: Site, folders: Folders, snapshot: Snapshot) -> None:
    """Unpack the harness and the package where the nodes see them, unless another leg of this run has done that."""
    if site.script('[ -d "$1" ]', folders.tree).code != 0:
        with snapshot.open() as file:
            _must(site, _TREE, folders.tree, file)


def send_leg(site: Site, folders: Folders, raw: Path, job: str) -> None:
    """Make the leg's folder, with what it is to run and the results of an earlier attempt."""
    content = job.encode(errors="surrogateescape")
    with packing("The files of the job") as pack:
        pack.file("job", io.BytesIO(content), len(content), 0o600)
        for path in sorted(raw.iterdir()):
            if path.name not in _HOSTS_OWN and not path.name.startswith("."):
                pack.tar.add(path, f"results/{path.name}")
    with pack.stream as file:
        _must(site, f'mkdir -p -- "$1"; cat >"$1/{_LEG_TAR}"' if folders.node else _LEG, folders.path, file)


def send_archive(site: Site, folders: Folders, snapshot: Snapshot) -> None:
    """Put the archive with the harness and the package beside the leg's, to be broadcast to the node when the job has begun."""
    with snapshot.open() as file:
        _must(site, f'cat >"$1/{_TREE_TAR}"', folders.path, file)


def broadcast(site: Site, folders: Folders, job: str) -> None:
    """Copy the two archives to the node of a running job, and unpack them there."""
    for name in (_TREE_TAR, _LEG_TAR):
        _must(site, 'sbcast --force --jobid="$2" -- "$1" "$3"', f"{folders.path}/{name}", b"", job, f"{folders.node}/{name}")
    _must(site.node_of(job), _ARRIVED, folders.node, b"")


def release(site: Site, folders: Folders, job: str) -> None:
    """Tell a job that its results have been collected."""
    site.node_of(job).script('touch -- "$1/collected"', folders.node)


def fetch(site: Site, folders: Folders, raw: Path, cap: Cap) -> None:
    """Bring the results back into `raw`, as far as they fit within the bounds of a results folder."""
    words = ["tar", "-C", f"{folders.work}/results", "-cf", "-", "."]
    with site.start(words, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None  # a pipe, by default
        unpack(iter(partial(process.stdout.read, _PIECE), b""), raw, cap, site.name)


def clean(site: Site, folders: Folders) -> None:
    """Remove the leg's folder, and after the last leg everything. What cannot be removed does no harm to a run that has its results."""
    with suppress(InfrastructureError):
        site.script(_CLEAN, folders.base, folders.leg)


def _must(site: Site, script: str, folder: str, given: Union[bytes, IO[bytes]], *more: str) -> None:
    done = site.script(script, folder, *more, given=given, limit_s=_SEND_S)
    if done.code != 0:
        happened = f"The files of the job could not be written to {folder} on {site.name}: {done.said or f'exit code {done.code}'}."
        remedy = "Make room there, or name another folder that the nodes see with `slurm.folder` in hosts.yml; then continue with --resume."
        raise InfrastructureError(happened, "The disk or a quota is full, or this user may not write there.", remedy)


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Keep the other legs of this run away from the folders that they share."""
    out.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(out / ".slurm.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
