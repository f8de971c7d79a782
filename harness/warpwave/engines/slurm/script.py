"""Write the text that sbatch gets: a fixed batch script, with the folder of this job's leg as a quoted word. What a leg runs is in the file
`job` in its folder, which only its owner may read: variables may be secrets, and Slurm keeps batch scripts."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Union

from warpwave.config.hosts import Host
from warpwave.config.targets import Target
from warpwave.engines.protocol import Layout, import_path
from warpwave.errors import ConfigError, UsageError
from warpwave.options import RunOptions
from warpwave.records.isolated import isolated

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
    """Return the script of a job that runs in the folder `leg`. `sent` says that this folder is on the node itself: the job makes it, waits
    for its files, and keeps its results until they are collected."""
    body = _BODY.lstrip()
    if sent:
        body = body.replace("cd -- ", f"{_ARRIVE}cd -- ", 1).replace('exit "$code"\n', f'{_WAIT}exit "$code"\n')
    return f"#!/bin/bash\n# Written by warpwave. What it runs is in `job` in its folder.\nleg={shlex.quote(leg)}\n{body}"


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


def leg_file(
    command: Words, variables: Mapping[str, str], *, forward: str = "", modules: Sequence[str], cards: str, relays: bool = True
) -> str:
    """Return the file `job` of a leg, which the script sources: modules, variables, and the command. A runtime that passes on no variable
    of the node gets Slurm's choice of cards under names that begin with `forward`. `cards` is the variable that selects the cards that a
    process sees, which Slurm sets; empty if the target has none. A command that `relays` passes SIGTERM on to the inside."""
    lines = [] if relays else ["relays="]
    if modules:
        # Where sites define `module`. Their files may use unset variables, and the script sets no -u.
        lines += [
            "type module >/dev/null 2>&1 || . /etc/profile",
            f"module load {shlex.join(modules)} || note {shlex.quote('broken module load failed')}",
        ]
    if cards:
        lines += [_CARDS.replace("NAME", cards)]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(variables.items())]
    lines += [_FORWARD.replace("PREFIX", forward)] if forward else []
    words = " ".join(word.quoted() if isinstance(word, Scratch) else shlex.quote(word) for word in command)
    return "\n".join([*lines, f"command=({words})"]) + "\n"


# Slurm has chosen the cards and says so in the variables of all vendors. If a site's Slurm sets none of them, nothing else would keep a
# process away from its neighbour's cards.
_CARDS = """[ -n "$(compgen -e | grep -E '_VISIBLE_DEVICES$')" ] || [ -z "${SLURM_JOB_GPUS:-}" ] || export NAME="$SLURM_JOB_GPUS\""""
_FORWARD = """for name in $(compgen -e | grep -E '_VISIBLE_DEVICES$|^ZE_AFFINITY_MASK$|^GPU_DEVICE_ORDINAL$'); do
  export "PREFIX$name=${!name}"
done"""


# Start the inside on a node: in a container of Apptainer or of enroot (through pyxis), or without one. Pure.
#
# A site's runtime gives what it can. Protections that Docker's containers have and a runtime lacks are named, and the results record them
# as if the user had given them up with --weaken.

NO_CONTAINER = "container=none"
_NETWORK = "network=host"
_UNSAFE = frozenset(',:"\\')  # separators of the options that name mounts


@dataclass(frozen=True)
class Places:
    """Absolute paths on the node: the folder that holds `harness`, the one that holds the package, the results."""

    harness: str
    packages: str
    results: str


@dataclass(frozen=True)
class Runtime:
    """A way to start the inside. `weakened` are the protections that it cannot give, `can_weaken` those that the user may give up. It takes
    variables into the container whose names have the `prefix`, or what it starts there `renames` them. It `relays` SIGTERM to the inside;
    srun would cancel the whole step, so its inside is asked by a file."""

    words: Callable[[Host, Target, Places, RunOptions], Words]
    contains: bool
    weakened: tuple[str, ...]
    can_weaken: tuple[str, ...] = ()
    prefix: str = ""
    renames: bool = False
    relays: bool = True
    variables: Mapping[str, str] = field(default_factory=dict)


def start_command(host: Host, target: Target, places: Places, python: str, options: RunOptions) -> Words:
    """Return the words that start the inside on a node, under a guard that keeps the run's limits also if no client watches."""
    limits = (f"{options.limits.target_s:g}", f"{options.limits.grace_s:g}", str(options.limits.cap.bytes), str(options.limits.cap.files))
    layout = layout_of(host, places, "", ".")
    inside = isolated(python, layout.harness, "warpwave.inside.watchdog", *limits, f"{layout.output}/job.json")
    return [*runtime_of(host).words(host, target, places, options), *inside]


def layout_of(host: Host, places: Places, name: str, kernels: str) -> Layout:
    """Return the paths that the inside sees. `name` is the package's folder, and `kernels` the path in it."""
    if not runtime_of(host).contains:
        package = PurePosixPath(places.packages, name)
        return Layout(places.harness, str(package / kernels), places.results, str(package))
    package = PurePosixPath("/packages", name)
    return Layout("/warpwave", str(package / kernels), "/results", str(package))


def variables_of(host: Host, target: Target, places: Places, chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the inside, without those of Slurm."""
    own = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "TRITON_DEFAULT_FP_FUSION": "1"}
    given = {**runtime_of(host).variables, **own, **target.environment, **chosen}
    harness = layout_of(host, places, "", ".").harness
    return {**given, "PYTHONPATH": import_path(harness, target.environment, chosen)}


def exported(host: Host, target: Target, places: Places, chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the inside under the names that they have on the node. On the node they would steer the shell, srun and every
    other program: LD_PRELOAD there is code. So each has a prefix. Only those of the targets file keep their names where enroot's own hooks
    read them."""
    runtime, variables = runtime_of(host), variables_of(host, target, places, chosen)
    own = set(variables) - _renamed(target, variables, chosen) if runtime.renames else set()
    return {name if name in own else f"{runtime.prefix}{name}": value for name, value in variables.items()}


def _renamed(target: Target, variables: Mapping[str, str], chosen: Mapping[str, str]) -> set[str]:
    return set(variables) - (set(target.environment) - {*chosen, "PYTHONPATH"})


def protections(host: Host, asked: Sequence[str]) -> tuple[str, ...]:
    """Return the protections that a leg lacks: those that its runtime cannot give, and those that the user gives up. Raises UsageError if
    the user gives up a protection that this runtime does not have."""
    runtime = runtime_of(host)
    for name in asked:
        if name not in (*runtime.can_weaken, *runtime.weakened):
            allowed = ", ".join(runtime.can_weaken) or "nothing: it has no protection to give up"
            meaning = f"{host.name} runs with `container: {host.container}`, which does not give this protection."
            raise UsageError(f"There is no weakening named {name!r} for {host.name}.", meaning, f"Choose from: {allowed}.")
    return tuple(dict.fromkeys([*runtime.weakened, *asked]))


def runtime_of(host: Host) -> Runtime:
    """Return the runtime that a leg names. The reader of hosts.yml has checked that there is one, with its image."""
    return _RUNTIMES[host.container]


def _apptainer(host: Host, target: Target, places: Places, options: RunOptions) -> Words:
    words: list[str | Scratch] = ["apptainer", "exec", "--containall", "--cleanenv", "--no-eval", "--no-privs", "--pwd", "/tmp"]  # noqa: S108
    words += [] if _NETWORK in options.build.weaken else ["--net", "--network", "none"]
    words += ["--writable-tmpfs"] if "writable-root" in options.build.weaken else []
    # /tmp in the container: the tmpfs that Apptainer uses without it holds 64 MiB on most sites.
    words += ["--workdir", Scratch()]
    for source, destination, mode in _mounts(places):
        words += ["--mount", f"type=bind,source={source},destination={destination}" + (",ro" if mode == "ro" else "")]
    return [*words, *target.devices.apptainer, host.image]


def _enroot(host: Host, target: Target, places: Places, options: RunOptions) -> Words:
    mounts = ",".join(f"{source}:{destination}{':ro' if mode == 'ro' else ''}" for source, destination, mode in _mounts(places))
    words: list[str | Scratch] = [
        "srun",
        "--export=ALL",
        "--ntasks=1",
        "--no-container-mount-home",
        "--no-container-remap-root",
        "--no-container-entrypoint",
    ]
    words += ["--container-writable" if "writable-root" in options.build.weaken else "--container-readonly", "--container-workdir=/tmp"]
    variables = variables_of(host, target, places, options.package.variables)
    renamed = _renamed(target, variables, options.package.variables)
    # Of a variable that the image sets too, pyxis keeps the image's value, unless it is named here.
    words += [f"--container-env={names}"] if (names := ",".join(sorted(set(variables) - renamed))) else []
    place = (f"--container-image={host.image}", Scratch(f"--container-mounts={mounts},", ":/tmp"))
    return [*words, *place, "/bin/sh", "-c", _INSIDE, "sh", " ".join(sorted(renamed))]


_PREFIX = "WARPWAVE_INSIDE_"
# srun looks for a program on the node, so a bare `python3` would be the node's. enroot keeps the image's PATH in /etc/environment, and then
# starts a login shell, in which /etc/profile of Debian sets another one. The first word has the names of the variables to rename.
_INSIDE = """found=$(sed -n 's/^PATH=//p' /etc/environment 2>/dev/null | tr -d '"' | tail -n 1)
[ -z "$found" ] || export PATH="$found"
for name in $1; do eval "export $name=\\"\\$PREFIX$name\\"; unset PREFIX$name"; done
shift
exec "$@\"""".replace("PREFIX", _PREFIX)


def _mounts(places: Places) -> list[tuple[str, str, str]]:
    for path in (places.harness, places.packages, places.results):
        if unsafe := _UNSAFE & set(path):
            happened = f"{path} cannot be mounted into a container."
            meaning = f"{' '.join(sorted(unsafe))} separates the parts of a mount in this runtime's options."
            raise ConfigError(happened, meaning, "Set `slurm.folder` in hosts.yml to a folder without such a character in its path.")
    return [
        (f"{places.harness}/warpwave", "/warpwave/warpwave", "ro"),
        (places.packages, "/packages", "ro"),
        (places.results, "/results", "rw"),
    ]


_PLAIN = {"USER": "warpwave", "LOGNAME": "warpwave", "TRITON_CACHE_DIR": "/tmp/triton"}  # noqa: S108 - the container's own
_PYXIS = Runtime(
    _enroot,
    contains=True,
    weakened=("seccomp=unconfined", _NETWORK, "ipc=host"),
    can_weaken=("writable-root",),
    prefix=_PREFIX,
    renames=True,
    relays=False,
    variables=_PLAIN,
)
_RUNTIMES = {
    "apptainer": Runtime(
        _apptainer,
        contains=True,
        weakened=("seccomp=unconfined",),
        can_weaken=(_NETWORK, "writable-root"),
        prefix="APPTAINERENV_",
        variables=_PLAIN,
    ),
    "enroot": _PYXIS,
    "pyxis": _PYXIS,
    "none": Runtime(lambda *_: [], contains=False, weakened=(NO_CONTAINER,)),
}
