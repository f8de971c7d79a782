"""Build the options that a container is created with: one pure function from a request to the body of the engine's create call.

The defaults are secure, so that you can run a stranger's kernels: no capabilities, no network, a read-only root, an ordinary user, three
mounts. Each way to weaken them has a name. Users must ask for it by that name, and the results record it. The keys are those of the Docker
Engine API (`POST /containers/create`), which Podman accepts too, so the tests check exactly what the engine receives.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from harness.engines.docker.host import NOBODY, Host
from harness.engines.docker.relaxations import WEAKENINGS, Body
from harness.engines.protocol import Layout, Request, import_path
from harness.errors import ConfigError
from harness.records import Environment
from harness.records.isolated import isolated

LABEL = "io.warpwave"
_HARNESS, _RESULTS = "/warpwave", "/results"

PACKAGE = Path(__file__).resolve().parents[2]
GIB = 1 << 30
_TMP = 2 * GIB  # the size of /tmp; the limit on the size of a file applies there too


def layout(request: Request) -> Layout:
    """Return the mount points. The package keeps its folder's name, because a package may import itself by that name."""
    root, kernels = request.options.package.resolve(), request.options.kernels.resolve()
    package = PurePosixPath("/packages", root.name)
    return Layout(_HARNESS, str(package / kernels.relative_to(root)), _RESULTS, str(package))


def container_user(request: Request, host: Host) -> tuple[int, int]:
    """Return the user and group of the container: the caller's, so that the caller owns the results.

    The container never runs as the host's root, unless the user asks for it by name.
    """
    if host.rootless or "user=root" in request.options.weaken:
        return 0, 0
    return (NOBODY, NOBODY) if host.uid == 0 else (host.uid, host.gid)


def container_name(request: Request) -> str:
    """Return a name that is unique per run and target, and readable in `docker ps`."""
    return f"warpwave-{slug(request.options.run_id)}-{slug(request.target.name)}"


def slug(text: str) -> str:
    """Return `text` with only the characters that engines allow in names of images and containers."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "x"


def container_options(
    request: Request, environment: Environment, host: Host, command: Sequence[str] = (), folders: Sequence[Body] | None = None
) -> Body:
    """Return the complete body of the create call.

    `command` replaces the inside. `folders` replace the mounts of the harness, the package and the results.
    """
    program = tuple(command) or isolated(environment.python, _HARNESS, "harness.inside", f"{_RESULTS}/job.json")
    uid, gid = container_user(request, host)
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
            "Ulimits": [_limit(name, most) for name, most in _limits(request, host).items()],
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "50m", "max-file": "2"}},
            "Mounts": [*(_folders(request) if folders is None else folders), *_volumes(request)],
            "Devices": [{"PathOnHost": node.path, "PathInContainer": node.path, "CgroupPermissions": "rw"} for node in host.nodes],
            "DeviceRequests": _device_requests(request),
            "GroupAdd": [str(group) for group in _groups(request, host)],
        },
    }
    for name in request.options.weaken:
        WEAKENINGS[name](body)
    return body


def labels_of(request: Request, host: Host) -> dict[str, str]:
    """Return the labels by which a later run recognizes a container whose run has ended."""
    return {
        f"{LABEL}.run": request.options.run_id,
        f"{LABEL}.target": request.target.name,
        f"{LABEL}.pid": str(host.pid),
        f"{LABEL}.boot": host.boot,
        f"{LABEL}.created": host.created,
        f"{LABEL}.keep": str(request.options.keep).lower(),
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
        "mounts": [f"{mount['Target']}:{'ro' if mount['ReadOnly'] else 'rw'}" for mount in host["Mounts"]],
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
        **request.options.variables,
        "PYTHONPATH": import_path(_HARNESS, request.target.environment, request.options.variables),
    }
    devices = request.target.devices
    # With a device request the container sees only its own cards, numbered from 0. The host's indices would then hide them.
    if request.options.gpu and request.target.visible_devices and devices.nodes and not (devices.gpus or devices.cdi):
        variables[request.target.visible_devices] = request.options.gpu
    return variables


def _folders(request: Request) -> list[dict[str, Any]]:
    # `Mounts` and not `Binds`: the engine then refuses a missing source, instead of creating a folder owned by root. Colons are safe too.
    mounts = [
        _mount(str(PACKAGE), f"{_HARNESS}/harness", True),
        _mount(str(request.options.package.resolve()), layout(request).package, True),
        _mount(str(request.raw.resolve()), _RESULTS, False),
    ]
    if (request.options.package / ".git").is_dir():
        # A clone's settings may hold a token, and no test needs the history.
        mounts.append({"Type": "tmpfs", "Target": f"{layout(request).package}/.git", "ReadOnly": True})
    return mounts


def _volumes(request: Request) -> list[dict[str, Any]]:
    """Return the mounts that the target names."""
    mounts = []
    for position, volume in enumerate(request.target.devices.volumes):
        source, _, rest = volume.partition(":")
        destination, _, mode = rest.partition(":")
        if not source.startswith("/") or not destination.startswith("/") or mode not in ("", "ro", "rw"):
            where = f"targets.{request.target.name}.devices.volumes[{position}]"
            allowed = "absolute paths as source:destination, source:destination:ro or source:destination:rw"
            raise ConfigError(f"{where}: found {volume!r}, allowed is {allowed}.", "A part is missing or relative.", "Fix that entry.")
        mounts.append(_mount(source, destination, mode == "ro"))
    return mounts


def _mount(source: str, destination: str, read_only: bool) -> dict[str, Any]:
    return {"Type": "bind", "Source": source, "Target": destination, "ReadOnly": read_only}


def _limit(name: str, most: int) -> dict[str, Any]:
    return {"Name": name, "Soft": most, "Hard": most}


def _limits(request: Request, host: Host) -> dict[str, int]:
    limits = {"core": 0, "nofile": host.open_files, "fsize": _largest_file(request, host)}
    return limits if host.processes is None else {**limits, "nproc": host.processes}


def _largest_file(request: Request, host: Host) -> int:
    """Return the limit for one file, which holds between two measurements of the results. It applies in /tmp too, which may be filled."""
    wanted = max(request.options.cap.bytes, _TMP)
    return min(wanted, host.file_bytes) if host.file_bytes >= 0 else wanted


def _device_requests(request: Request) -> list[dict[str, Any]]:
    devices, chosen = request.target.devices, request.options.gpu.split(",") if request.options.gpu else []
    requests: list[dict[str, Any]] = []
    if devices.gpus:
        requests.append({"Driver": "", "Count": 0 if chosen else -1, "DeviceIDs": chosen, "Capabilities": [["gpu"]], "Options": {}})
    if devices.cdi:
        names = [devices.cdi.replace("{gpu}", one) for one in chosen or ["all"]]
        requests.append({"Driver": "cdi", "Count": 0, "DeviceIDs": list(dict.fromkeys(names)), "Capabilities": [], "Options": {}})
    return requests


def _groups(request: Request, host: Host) -> list[int]:
    devices = request.target.devices
    # Leave group 0 out: it would give access to files that the image reserves for root's group.
    found = {node.group for node in host.nodes if node.group} if devices.groups_from_nodes else set()
    return sorted(found | set(devices.groups))
