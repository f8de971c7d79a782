"""Start the inside on a node: in a container of Apptainer or of enroot (through pyxis), or without one. Pure.

A site's runtime gives what it can. Protections that Docker's containers have and a runtime lacks are named, and the results record them as
if the user had given them up with --weaken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from harness.config.hosts import Host
from harness.config.target import Target
from harness.engines.protocol import Layout, import_path
from harness.engines.slurm.script import Scratch, Words
from harness.errors import ConfigError, UsageError
from harness.options import RunOptions
from harness.records.isolated import isolated

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
    """A way to start the inside.

    `weakened` are the protections that it cannot give, `can_weaken` those that the user may give up. It takes variables into the container
    whose names have the `prefix`. It `relays` SIGTERM to the inside; srun would cancel the whole step, so its inside is asked by a file.
    """

    words: Callable[[Host, Target, Places, RunOptions], Words]
    contains: bool
    weakened: tuple[str, ...]
    can_weaken: tuple[str, ...] = ()
    prefix: str = ""
    relays: bool = True
    variables: Mapping[str, str] = field(default_factory=dict)


def start_command(host: Host, target: Target, places: Places, python: str, options: RunOptions) -> Words:
    """Return the words that start the inside on a node, under a guard that keeps the run's limits also if no client watches."""
    limits = (f"{options.limit_s:g}", f"{options.grace_s:g}", str(options.cap.bytes), str(options.cap.files))
    layout = layout_of(host, places, "", ".")
    inside = isolated(python, layout.harness, "harness.inside.watchdog", *limits, f"{layout.output}/job.json")
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


def protections(host: Host, asked: Sequence[str]) -> tuple[str, ...]:
    """Return the protections that a leg lacks: those that its runtime cannot give, and those that the user gives up.

    Raises:
        UsageError: the user gives up a protection that this runtime does not have.
    """
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


def _none(host: Host, target: Target, places: Places, options: RunOptions) -> Words:
    return []


def _apptainer(host: Host, target: Target, places: Places, options: RunOptions) -> Words:
    words: list[str | Scratch] = ["apptainer", "exec", "--containall", "--cleanenv", "--no-eval", "--no-privs", "--pwd", "/tmp"]  # noqa: S108
    words += [] if _NETWORK in options.weaken else ["--net", "--network", "none"]
    words += ["--writable-tmpfs"] if "writable-root" in options.weaken else []
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
    words += ["--container-writable" if "writable-root" in options.weaken else "--container-readonly", "--container-workdir=/tmp"]
    # Of a variable that the image sets too, pyxis keeps the image's value, unless it is named here.
    names = ",".join(variables_of(host, target, places, options.variables))
    place = (f"--container-image={host.image}", f"--container-env={names}", Scratch(f"--container-mounts={mounts},", ":/tmp"))
    return [*words, *place, "/bin/sh", "-c", _IMAGES_PATH, "sh"]


# srun looks for a program on the node, so a bare `python3` would be the node's. enroot keeps the image's PATH in /etc/environment, and then
# starts a login shell, in which /etc/profile of Debian sets another one.
_IMAGES_PATH = """found=$(sed -n 's/^PATH=//p' /etc/environment 2>/dev/null | tr -d '"' | tail -n 1)
[ -z "$found" ] || export PATH="$found"
exec "$@\""""


def _mounts(places: Places) -> list[tuple[str, str, str]]:
    for path in (places.harness, places.packages, places.results):
        if unsafe := _UNSAFE & set(path):
            raise ConfigError(
                f"{path} cannot be mounted into a container.",
                f"{' '.join(sorted(unsafe))} separates the parts of a mount in this runtime's options.",
                "Set `slurm.folder` in hosts.yml to a folder without such a character in its path.",
            )
    return [
        (f"{places.harness}/harness", "/warpwave/harness", "ro"),
        (places.packages, "/packages", "ro"),
        (places.results, "/results", "rw"),
    ]


_PLAIN = {"USER": "warpwave", "LOGNAME": "warpwave", "TRITON_CACHE_DIR": "/tmp/triton"}  # noqa: S108 - the container's own
_PYXIS = Runtime(
    _enroot,
    contains=True,
    weakened=("seccomp=unconfined", _NETWORK, "ipc=host"),
    can_weaken=("writable-root",),
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
    "none": Runtime(_none, contains=False, weakened=(NO_CONTAINER,)),
}
