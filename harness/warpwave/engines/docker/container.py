"""Build the options that a container is created with: one pure function from a request to the body of the engine's create call.

The defaults are secure, so that you can run a stranger's kernels: no capabilities, no network, a read-only root, an ordinary user, three
mounts. Each way to weaken them has a name. Users must ask for it by that name, and the results record it. The keys are those of the Docker
Engine API (`POST /containers/create`), which Podman accepts too, so the tests check exactly what the engine receives.
"""

import glob
import os
import re
import resource
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, Union

from warpwave.engines.protocol import Layout, Request, import_path
from warpwave.engines.results import tidy
from warpwave.engines.snapshot import secrets_in
from warpwave.errors import ConfigError, InfrastructureError, UsageError
from warpwave.records import Environment
from warpwave.records.isolated import isolated

NOBODY = 65534
OPEN_FILES = 65536
_PROCESSES = 32768  # what Podman itself has where it may not raise limits


@dataclass(frozen=True)
class Node:
    """A device node of the host and the number of the group that may use it. Group names may differ in the image; numbers do not."""

    path: str
    group: int


@dataclass(frozen=True)
class Host:
    """What the container's options depend on besides the request. `rootless`: the engine runs as the caller, who is root inside."""

    uid: int
    gid: int
    cpus: int
    memory_bytes: int
    open_files: int
    pid: int = 0
    boot: str = "remote"
    created: str = ""
    nodes: tuple[Node, ...] = ()
    rootless: bool = False
    file_bytes: int = -1  # the largest file that this process may write; -1 means no limit
    processes: Union[int, None] = None  # set for Podman: its own limit may be one that it is not allowed to set

    @property
    def memory_limit(self) -> int:
        """Four fifths of the machine's memory in bytes: a runaway test is killed before the CI runner runs out of memory."""
        return self.memory_bytes // 5 * 4


def observe(request: Request, info: Mapping[str, Any], podman: bool = False) -> Host:
    """Read the facts of this machine. `info` is the engine's description of itself. Raises InfrastructureError if a device node that the
    target needs is missing."""
    return Host(
        uid=os.getuid(),
        gid=os.getgid(),
        cpus=int(info.get("NCPU") or os.cpu_count() or 1),
        memory_bytes=int(info.get("MemTotal") or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")),
        # An engine that may not raise limits (rootless, or in a sandbox) has the limits of its user, and refuses higher ones.
        open_files=min(OPEN_FILES, hard) if (hard := resource.getrlimit(resource.RLIMIT_NOFILE)[1]) >= 0 else OPEN_FILES,
        pid=os.getpid(),
        boot=boot(),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        nodes=tuple(_nodes(request)),
        rootless=is_rootless(info),
        file_bytes=resource.getrlimit(resource.RLIMIT_FSIZE)[1],
        processes=process_limit(resource.getrlimit(resource.RLIMIT_NPROC)[1]) if podman else None,
    )


def is_rootless(info: Mapping[str, Any]) -> bool:
    """Return whether the engine runs as an ordinary user. Docker says so in one place, and Podman in another."""
    return info.get("Rootless") is True or any("rootless" in str(option) for option in info.get("SecurityOptions") or [])


def process_limit(hard: int) -> int:
    """Return the limit of processes for a container of Podman, from the hard limit of its user; -1 if there is none."""
    return min(_PROCESSES, hard) if hard >= 0 else _PROCESSES


def boot() -> str:
    """Return an id of this boot and process namespace. A process id has a meaning only within it."""
    try:
        identity = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{identity}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return "unknown"


def owner_is_dead(labels: Mapping[str, str], prefix: str, running: bool) -> bool:
    """Return whether the run that a container belongs to has certainly ended. A running container counts as alive if it is from another
    boot, or from another machine or container that shares this engine."""
    if labels.get(f"{prefix}.boot") != boot() or boot() == "unknown":
        return not running
    try:
        os.kill(int(labels[f"{prefix}.pid"]), 0)
    except ProcessLookupError:
        return True
    except (OSError, KeyError, ValueError, OverflowError):
        return False  # another user's process, or unreadable labels: assume that the run is alive
    return False


@contextmanager
def lent(folder: Path, owner: tuple[int, int], host: Host) -> Iterator[None]:
    """Lend the results folder to a container. Afterwards the caller owns it again, and it contains only files and folders. The owner
    changes only if the caller is root and the container's user is not. Links, pipes and devices are removed, so that no later step on the
    host reads or writes through something that the code under test has planted."""
    given = host.uid == 0 and owner[0] != 0
    if given:
        tidy(folder, owner)
    try:
        yield
    finally:
        tidy(folder, (host.uid, host.gid) if given else None)


def check_readable(folder: Path, owner: tuple[int, int], host: Host) -> None:
    """Refuse a folder that the container could not read. This concerns only a caller who is root and does not run as root inside. Raises
    InfrastructureError if other users cannot read the folder."""
    if host.uid == 0 and owner[0] != 0 and folder.stat().st_mode & 0o005 != 0o005:
        meaning = "You are root, but the container runs as the user nobody, so that the code under test never runs as the host's root."
        remedy = f"`chmod -R o+rX {folder}`, run as an ordinary user, or give up that protection with `--weaken user=root`."
        raise InfrastructureError(f"{folder} cannot be read by other users.", meaning, remedy)


def _nodes(request: Request) -> Iterator[Node]:
    for pattern in request.target.devices.nodes:
        # `Path.glob` does not accept absolute patterns.
        states = [(path, os.stat(path)) for path in sorted(glob.glob(pattern))]  # noqa: PTH116, PTH207
        found = [Node(path, state.st_gid) for path, state in states if stat.S_ISCHR(state.st_mode)]
        if not found:
            meaning = "It has no such GPU, or its kernel driver is not loaded."
            remedy = request.target.probe.fix or "Load the driver of the GPU, or choose another target."
            raise InfrastructureError(f"{request.target.name}: there is no device node {pattern} on this machine.", meaning, remedy)
        yield from found


Body = dict[str, Any]
# The named ways to weaken a container's isolation, each with what it changes of the `HostConfig`. The results record them.
WEAKENINGS: dict[str, dict[str, Any]] = {
    "seccomp=unconfined": {"SecurityOpt": ["seccomp=unconfined"]},
    "label=disable": {"SecurityOpt": ["label=disable"]},
    "network=bridge": {"NetworkMode": "bridge"},
    "network=host": {"NetworkMode": "host"},
    "ipc=host": {"IpcMode": "host"},
    "writable-root": {"ReadonlyRootfs": False},
    # Without capabilities, even root could not write to a results folder that another user owns.
    "user=root": {"CapAdd": ["DAC_OVERRIDE"]},
}


def check_weakenings(names: Sequence[str]) -> None:
    """Refuse an unknown weakening, before anything is built. Raises UsageError if a name is unknown."""
    for name in names:
        if name not in WEAKENINGS:
            meaning = "Each protection of the container is given up by its own name, so that the report can show it."
            raise UsageError(f"There is no weakening named {name!r}.", meaning, f"Choose from: {', '.join(WEAKENINGS)}.")


LABEL = "io.warpwave"
_HARNESS, _RESULTS = "/warpwave", "/results"
PACKAGE = Path(__file__).resolve().parents[2]
GIB = 1 << 30
_MOST_MASKS = 500
_TMP = 2 * GIB  # the size of /tmp; the limit on the size of a file applies there too


def layout(request: Request, packages: str = "/packages", output: str = _RESULTS) -> Layout:
    """Return the mount points. The package keeps its folder's name, because a package may import itself by that name."""
    root, kernels = request.options.package.folder.resolve(), request.options.package.kernels.resolve()
    package = PurePosixPath(packages, root.name)
    return Layout(_HARNESS, str(package / kernels.relative_to(root)), output, str(package))


def container_user(request: Request, host: Host) -> tuple[int, int]:
    """Return the user and group of the container: the caller's, so that the caller owns the results. The container never runs as the host's
    root, unless the user asks for it by name."""
    if host.rootless or "user=root" in request.options.build.weaken:
        return 0, 0
    return (NOBODY, NOBODY) if host.uid == 0 else (host.uid, host.gid)


def name_in(entry: Mapping[str, Any]) -> str:
    """Return the name of a container that an engine lists, or the beginning of its id."""
    return str((entry.get("Names") or [entry["Id"][:12]])[0]).lstrip("/")


def container_name(request: Request) -> str:
    """Return a name that is unique per run and target, and readable in `docker ps`."""
    return f"warpwave-{slug(request.options.where.run_id)}-{slug(request.target.name)}"


def slug(text: str) -> str:
    """Return `text` with only the characters that engines allow in names of images and containers."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "x"


def container_options(
    request: Request, environment: Environment, host: Host, command: Sequence[str] = (), folders: Sequence[Body] | None = None
) -> Body:
    """Return the complete body of the create call. `command` replaces the inside. `folders` replace the mounts of the harness, the package
    and the results."""
    program = tuple(command) or inside(environment.python)
    uid, gid = container_user(request, host)
    devices = request.target.devices
    # The limit for one file holds between two measurements of the results. It applies in /tmp too, which may be filled.
    largest = max(request.options.limits.cap.bytes, _TMP)
    limits = {"core": 0, "nofile": host.open_files, "fsize": min(largest, host.file_bytes) if host.file_bytes >= 0 else largest}
    limits |= {} if host.processes is None else {"nproc": host.processes}
    # Leave group 0 out: it would give access to files that the image reserves for root's group.
    groups = {node.group for node in host.nodes if node.group and devices.groups_from_nodes} | set(devices.groups)
    body: Body = {
        "Image": environment.image_id or environment.image,
        # Replace the base image's entry point, if it has one: it is a script that we do not know.
        "Entrypoint": [program[0]],
        "Cmd": list(program[1:]),
        "User": f"{uid}:{gid}",
        "WorkingDir": "/tmp",  # noqa: S108 - the container's own
        "Env": [f"{key}={value}" for key, value in sorted(_variables(request).items())],
        "Labels": labels_of(request, host),
        "HostConfig": {
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": True,
            # Triton loads the shared objects that it compiles, so /tmp must be `exec`. A tmpfs is not by default.
            "Tmpfs": {"/tmp": "rw,exec,nosuid,nodev,size=2g,mode=1777"},  # noqa: S108
            "NetworkMode": "none",
            "IpcMode": "private",
            # An init process forwards signals and reaps the processes that a dead stage leaves behind; without one, the inside does.
            "Init": host.processes is None,
            # Each process with torch starts threads in proportion to the number of CPUs.
            "PidsLimit": max(2048, 16 * host.cpus),
            "Memory": host.memory_limit,
            "MemorySwap": host.memory_limit,
            "ShmSize": GIB,
            "Ulimits": [{"Name": name, "Soft": most, "Hard": most} for name, most in limits.items()],
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "50m", "max-file": "2"}},
            "Mounts": [*(_folders(request) if folders is None else folders), *_volumes(request)],
            "Devices": [{"PathOnHost": node.path, "PathInContainer": node.path, "CgroupPermissions": "rw"} for node in host.nodes],
            "DeviceRequests": _device_requests(request),
            "GroupAdd": [str(group) for group in sorted(groups)],
        },
    }
    given_up = body["HostConfig"]
    for name in request.options.build.weaken:
        for key, value in WEAKENINGS[name].items():
            given_up[key] = [*given_up.get(key, ()), *value] if isinstance(value, list) else value
    return body


def inside(python: str) -> tuple[str, ...]:
    """Return the command that a container starts."""
    return isolated(python, _HARNESS, "warpwave.inside", f"{_RESULTS}/job.json")


def labels_of(request: Request, host: Host) -> dict[str, str]:
    """Return the labels by which a later run recognizes a container whose run has ended."""
    return {
        f"{LABEL}.run": request.options.where.run_id,
        f"{LABEL}.target": request.target.name,
        f"{LABEL}.pid": str(host.pid),
        f"{LABEL}.boot": host.boot,
        f"{LABEL}.created": host.created,
        f"{LABEL}.keep": str(request.options.build.keep).lower(),
    }


def readable(body: Body, hidden: Collection[str] = ()) -> dict[str, Any]:
    """Return the options in the form that a report shows. The values of `hidden` variables are left out: reports are shared."""
    host = body["HostConfig"]
    requests = [f"{entry['Driver'] or 'gpus'}: {', '.join(entry['DeviceIDs']) or 'all'}" for entry in host["DeviceRequests"]]
    return {
        "user": body["User"],
        "cap_drop": host["CapDrop"],
        "cap_add": host.get("CapAdd", []),
        "security_opt": host["SecurityOpt"],
        "read_only": host["ReadonlyRootfs"],
        "network": host["NetworkMode"],
        "ipc": host["IpcMode"],
        "devices": requests + [device["PathOnHost"] for device in host["Devices"]],
        "groups": host["GroupAdd"],
        # Leave the sources out: reports are shared, and the caller's paths are private.
        "mounts": [f"{mount['Target']}:{'ro' if mount['ReadOnly'] else 'rw'}" for mount in host["Mounts"] if not _is_mask(mount)],
        "hidden": sum(map(_is_mask, host["Mounts"])),
        "environment": [f"{name}=…" if (name := pair.partition("=")[0]) in hidden else pair for pair in body["Env"]],
        "limits": {"memory": f"{host['Memory'] / GIB:.1f} GiB", "pids": host["PidsLimit"], "shm": "1 GiB", **host["Tmpfs"]},
    }


def _variables(request: Request) -> dict[str, str]:
    """Return the container's variables. None comes from the caller's environment, which may hold tokens."""
    variables = {
        "HOME": "/tmp",  # noqa: S108
        # torch asks for the user's name, and the host's user id has no name in the image.
        "USER": "warpwave",
        "LOGNAME": "warpwave",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TRITON_CACHE_DIR": "/tmp/triton",  # noqa: S108
        "TRITON_DEFAULT_FP_FUSION": "1",
        **request.target.environment,
        **request.options.package.variables,
        "PYTHONPATH": import_path(_HARNESS, request.target.environment, request.options.package.variables),
    }
    devices = request.target.devices
    # With a device request the container sees only its own cards, numbered from 0. The host's indices would then hide them.
    if request.options.where.gpu and request.target.visible_devices and devices.nodes and not (devices.gpus or devices.cdi):
        variables[request.target.visible_devices] = request.options.where.gpu
    return variables


def _folders(request: Request) -> list[dict[str, Any]]:
    # `Mounts` and not `Binds`: the engine then refuses a missing source, instead of creating a folder owned by root. Colons are safe too.
    root, there = request.options.package.folder.resolve(), PurePosixPath(layout(request).package)
    mounts = [
        _mount(str(PACKAGE), f"{_HARNESS}/warpwave", True),
        _mount(str(root), str(there), True),
        _mount(str(request.raw.resolve()), _RESULTS, False),
    ]
    # Cover the package's secrets: its mount would show them, and no test needs them.
    found = list(islice(secrets_in(root), _MOST_MASKS + 1))
    if len(found) > _MOST_MASKS:
        raise UsageError(
            f"{root} has more than {_MOST_MASKS} files that may hold passwords or keys, {found[0].relative_to(root)} among them.",
            "Each is hidden from the container by a mount of its own, and a container cannot have any number of mounts.",
            "Rename or move them, or give a smaller folder with --kernels. `warpwave run --dry-run` lists what is hidden.",
        )
    for path in found:
        target = str(there / path.relative_to(root))
        mounts.append({"Type": "tmpfs", "Target": target, "ReadOnly": True} if path.is_dir() else _mount(os.devnull, target, True))
    return mounts


def _is_mask(mount: dict[str, Any]) -> bool:
    return mount["Type"] == "tmpfs" or mount.get("Source") == os.devnull


def _volumes(request: Request) -> list[dict[str, Any]]:
    mounts = []
    for position, volume in enumerate(request.target.devices.volumes):
        found = re.fullmatch(r"(/[^:]*):(/[^:]*)(?::(ro|rw)?)?", volume)
        if not found:
            where = f"targets.{request.target.name}.devices.volumes[{position}]"
            allowed = "absolute paths as source:destination, source:destination:ro or source:destination:rw"
            raise ConfigError(f"{where}: found {volume!r}, allowed is {allowed}.", "A part is missing or relative.", "Fix that entry.")
        mounts.append(_mount(found[1], found[2], found[3] == "ro"))
    return mounts


def _mount(source: str, destination: str, read_only: bool) -> dict[str, Any]:
    return {"Type": "bind", "Source": source, "Target": destination, "ReadOnly": read_only}


def _device_requests(request: Request) -> list[dict[str, Any]]:
    devices, chosen = request.target.devices, request.options.where.gpu.split(",") if request.options.where.gpu else []
    requests: list[dict[str, Any]] = []
    if devices.gpus:
        requests.append({"Driver": "", "Count": 0 if chosen else -1, "DeviceIDs": chosen, "Capabilities": [["gpu"]], "Options": {}})
    if devices.cdi:
        names = [devices.cdi.replace("{gpu}", one) for one in chosen or ["all"]]
        requests.append({"Driver": "cdi", "Count": 0, "DeviceIDs": list(dict.fromkeys(names)), "Capabilities": [], "Options": {}})
    return requests
