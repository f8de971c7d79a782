"""Write the text that sbatch gets: a fixed batch script, with the folder of this job's leg as a quoted word.

What a leg runs is in the file `job` in its folder, which only its owner may read: variables may be secrets, and Slurm keeps batch scripts.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Union

_BODY = r"""
scratch=
leave() { [ -z "$scratch" ] || rm -rf -- "$scratch"; }
trap leave EXIT
note() { printf '%s\n' "$*" >>status; }
cd -- "$leg" 2>/dev/null || { echo "warpwave: this node does not see $leg" >&2; exit 90; }
exec >>output 2>&1
umask 022
export HOME=${HOME:-/tmp} PATH=${PATH:-/usr/local/bin:/usr/bin:/bin} LANG=${LANG:-C.UTF-8}
scratch=$(mktemp -d "${SLURM_TMPDIR:-${TMPDIR:-/tmp}}/warpwave.XXXXXXXX") || {
  note "broken it has no folder for temporary files"
  exit 91
}
export TRITON_CACHE_DIR=$scratch/triton
# The client waits for the job to begin, and then for its end. It sees both here, also where Slurm forgets jobs at once.
note "started $(date +%s) ${SLURM_JOB_ID:-} $(uname -n) ${SLURM_JOB_GPUS:-}"
child= stop= relays=1
# The package may write to `results` too: a folder is made through no link of it.
halt() { if [ -n "$relays" ]; then kill -TERM "$child"; else mkdir results/.stop 2>/dev/null; fi; }
forward() { stop=$1; note "signal $1"; [ -z "$child" ] || halt; }
trap 'forward limit' USR1
trap 'forward term' TERM INT
. ./job
rm -rf -- job results/.stop
if [ -z "$stop" ]; then
  "${command[@]}" </dev/null &
  child=$!
  [ -z "$stop" ] || halt
  # A trap ends `wait` early.
  while wait "$child"; code=$?; kill -0 "$child" 2>/dev/null; do :; done
  wait "$child"; code=$?
  rm -rf -- results/.stop
  [ "$code" != 127 ] || note "missing ${command[0]}"
else
  code=143
fi
note "ended $code $(date +%s)"
exit "$code"
"""


def batch_script(leg: str, sent: bool = False) -> str:
    """Return the script of a job that runs in the folder `leg`.

    `sent` says that this folder is on the node itself: the job makes it, waits for its files, and keeps its results until they are
    collected.
    """
    return f"#!/bin/bash\n# Written by warpwave. What it runs is in `job` in its folder.\nleg={shlex.quote(leg)}\n{_body(sent)}"


def _body(sent: bool) -> str:
    body = _BODY.lstrip()
    return body.replace("cd -- ", f"{_ARRIVE}cd -- ", 1).replace('exit "$code"\n', f'{_WAIT}exit "$code"\n') if sent else body


# Only a folder that a killed job of this user left behind is replaced.
_ARRIVE = r"""umask 077
[ ! -O "$leg" ] || [ -L "$leg" ] || { chmod -R u+w -- "$leg"; rm -rf -- "$leg"; }
mkdir -- "$leg" || exit 92
echo waiting >"$leg/status"
leave() { [ -z "$scratch" ] || rm -rf -- "$scratch"; chmod -R u+w -- "$leg"; rm -rf -- "$leg"; }
for ((i = 0; i < 3000; i++)); do [ -e "$leg/ready" ] && break; sleep 0.1; done
"""
_WAIT = r"""for ((i = 0; i < 3000; i++)); do [ -e "$leg/collected" ] && break; sleep 0.3; done
"""


@dataclass(frozen=True)
class Scratch:
    """One word of a command, with the path of a folder on the node that exists only while the job runs."""

    before: str = ""
    after: str = ""

    def quoted(self) -> str:
        """Return the word for the shell."""
        return f'{shlex.quote(self.before)}"$scratch"{shlex.quote(self.after)}'


Words = Sequence[Union[str, Scratch]]


def leg_file(command: Words, variables: Mapping[str, str], *, prefix: str, modules: Sequence[str], cards: str, relays: bool = True) -> str:
    """Return the file `job` of a leg, which the script sources: modules, variables, and the command.

    A runtime may take variables into its container by names with a `prefix`. `cards` is the variable that selects the cards that a process
    sees, which Slurm sets; empty if the target has none. A command that `relays` passes SIGTERM on to the inside.
    """
    lines = [] if relays else ["relays="]
    if modules:
        # Where sites define `module`. Their files may use unset variables, and the script sets no -u.
        lines += [
            "type module >/dev/null 2>&1 || . /etc/profile",
            f"module load {shlex.join(modules)} || note {shlex.quote('broken module load failed')}",
        ]
    if cards:
        lines += [_CARDS.replace("NAME", cards)]
    lines += [f"export {prefix}{name}={shlex.quote(value)}" for name, value in sorted(variables.items())]
    lines += [_FORWARD.replace("PREFIX", prefix)] if prefix else []
    words = " ".join(word.quoted() if isinstance(word, Scratch) else shlex.quote(word) for word in command)
    return "\n".join([*lines, f"command=({words})"]) + "\n"


# Slurm has chosen the cards and says so in the variables of all vendors. If a site's Slurm sets none of them, nothing else would keep a
# process away from its neighbour's cards.
_CARDS = """[ -n "$(compgen -e | grep -E '_VISIBLE_DEVICES$')" ] || [ -z "${SLURM_JOB_GPUS:-}" ] || export NAME="$SLURM_JOB_GPUS\""""
_FORWARD = """for name in $(compgen -e | grep -E '_VISIBLE_DEVICES$|^ZE_AFFINITY_MASK$|^GPU_DEVICE_ORDINAL$'); do
  export "PREFIX$name=${!name}"
done"""
