"""Bring a leg's files to where the nodes see them, and its results back.

A run has one folder on the shared file system. In it, `tree-HASH` is read by all legs, and each leg has a folder: with `job` (what to run),
`status`, `output`, and `results`, the only one that a container can write to. What comes back is unpacked as if a stranger had sent it.
"""

from __future__ import annotations

import fcntl
import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Union

from harness.engines.incoming import unpack
from harness.engines.slurm.runtimes import Places
from harness.engines.slurm.site import Done, Site
from harness.engines.slurm.submit import job_name
from harness.engines.snapshot import PACKAGE, Snapshot
from harness.errors import InfrastructureError
from harness.options import Cap, RunOptions

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
    shard = options.shard if options.whole else None
    run = options.run_id.removesuffix(f"-{shard.number}of{shard.of}") if shard else options.run_id
    base = f"{root}/warpwave-{run}" if root else str(options.folder.resolve() / "slurm")
    name = f"{leg}.{shard.number}of{shard.of}" if shard else leg
    if options.host and options.host.slurm and options.host.slurm.stage == "sbcast":
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
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            entry = tarfile.TarInfo("job")
            content = job.encode(errors="surrogateescape")
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
            for path in sorted(raw.iterdir()):
                if path.name not in _HOSTS_OWN and not path.name.startswith("."):
                    archive.add(path, f"results/{path.name}")
        file.seek(0)
        if not folders.node:
            _must(site, _LEG, folders.path, file)
            return
        _must(site, f'mkdir -p -- "$1"; cat >"$1/{_LEG_TAR}"', folders.path, file)


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


def _must(site: Site, script: str, folder: str, given: Union[bytes, IO[bytes]], *more: str) -> Done:
    done = site.script(script, folder, *more, given=given, limit_s=_SEND_S)
    if done.code != 0:
        raise InfrastructureError(
            f"The files of the job could not be written to {folder} on {site.name}: {done.said or f'exit code {done.code}'}.",
            "The disk or a quota is full, or this user may not write there.",
            "Make room there, or name another folder that the nodes see with `slurm.folder` in hosts.yml; then continue with --resume.",
        )
    return done


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
