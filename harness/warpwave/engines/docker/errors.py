"""Turn a container engine's errors into messages for the user: what happened, what it means, what to do. Makes no calls."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from warpwave.config.hosts import Host
from warpwave.engines.protocol import Request
from warpwave.errors import InfrastructureError

_FIND_SOCKET = "`docker context inspect --format '{{.Endpoints.docker.Host}}'`"
_INSTALL = "https://docs.docker.com/engine/install/"
WITHOUT = "Or run without Docker: `--engine local`."
_DEVICE_WORDS = ("device driver", "cdi device", "-container-cli", "no such device", "error gathering device information", "prestart hook")
_BUILD_CAUSES = (
    (("no space left on device",), "The disk of the engine is full.", "Make room: `docker system df`, then `docker image prune`."),
    (
        ("name resolution", "could not resolve", "no matching distribution", "connectionerror", "connection refused", "timed out"),
        "A build step could not reach a package index, or the index does not have the pinned version.",
        "In a targets file, name a folder of wheels (build.wheelhouse) or a mirror (build.pip_config, ca_bundle, network).",
    ),
    (
        ("certificate verify failed", "certificate_verify_failed"),
        "A proxy on the way signs with a certificate that the image does not know.",
        "Give its CA bundle with build.ca_bundle in a targets file.",
    ),
)
_OF_SYSTEM = re.compile(r"\[Errno -?\d+\] ([^'\")]+)")
_UNKNOWN = ("The lines above are the end of the build's output.", "Fix what they name. --rebuild starts without the cached steps.")


def no_engine(error: BaseException, where: str = "") -> InfrastructureError:
    """Report that no engine answers, or that its answer is wrong."""
    text = _reason(error).removeprefix("Error while fetching server API version: ")
    low = text.lower()
    if causes := _OF_SYSTEM.findall(text):  # behind what the libraries for HTTP say around it
        text = causes[-1].strip()
    if isinstance(error, TimeoutError) or "read timed out" in low:
        meaning = "The engine is there, but does not answer in time: it hangs, or the machine is overloaded."
        remedy = f"Check its log (`journalctl -u docker`), and restart it: `sudo systemctl restart docker`. {WITHOUT}"
    elif "permission denied" in low or "permissionerror" in low:
        meaning = "The engine runs, but this user may not use its socket."
        remedy = f"`sudo usermod -aG docker $USER`, then log in again; or use a rootless engine. {WITHOUT}"
    elif any(word in low for word in ("no such file", "refused", "timed out", "timeout", "name resolution", "unreachable")):
        meaning = "The daemon is not installed, is not running, or does not listen at DOCKER_HOST (or /var/run/docker.sock)."
        start = f"`sudo systemctl start docker`, once it is installed ({_INSTALL})"
        remedy = f"{start}; or export DOCKER_HOST as {_FIND_SOCKET} prints it. {WITHOUT}"
    elif any(word in low for word in ("connection aborted", "connection reset", "broken pipe", "remote end closed")):
        meaning = "The engine stopped or restarted during the request, or the program that listens there is not an engine."
        remedy = f"Check that it runs (`docker version`, `journalctl -u docker`), then run again. {WITHOUT}"
    elif "api version" in low or "client version" in low:
        meaning = "The engine is older than Docker 19.03, or the SDK is older than the engine."
        remedy = f"Update Docker Engine, and `python3 -m pip install --upgrade docker`. {WITHOUT}"
    else:
        meaning = "A program answers there, but not as Docker Engine does; or DOCKER_HOST and DOCKER_TLS_VERIFY contradict each other."
        remedy = f"Compare `docker version` with the value of DOCKER_HOST. {WITHOUT}"
    return InfrastructureError(f"Docker cannot be used{f' at {where}' if where else ''}: {text}.", meaning, remedy)


def build_failed(target: str, step: str, reason: str, tail: Sequence[str]) -> InfrastructureError:
    """Report that a step of the Dockerfile failed, with the last lines of its output."""
    shown = "".join(f"\n    {line}" for line in tail)
    output = " ".join([reason, *tail]).lower()
    meaning, remedy = next((cause[1:] for cause in _BUILD_CAUSES if any(word in output for word in cause[0])), _UNKNOWN)
    happened = f"{target}: the image could not be built, {step or 'before its first step'}: {short(reason)}.{shown}"
    return InfrastructureError(happened, meaning, remedy)


def not_created(error: BaseException, request: Request) -> InfrastructureError:
    """Report that the engine refused to create or start the container."""
    text, target = _reason(error), request.target
    low = text.lower()
    if any(word in low for word in _DEVICE_WORDS):
        meaning = "The engine cannot hand this GPU to a container: its part of the GPU vendor's toolkit is missing, broken or too old."
        remedy = target.probe.fix or "Install the container toolkit of the GPU's vendor and restart the engine."
    elif "executable file not found" in low or "no such file or directory: unknown" in low:
        meaning = f"The image has no {target.python}, which `python` of the target names."
        remedy = "Use a base image with Python 3.10 or later, or fix `python` in the targets file."
    elif "bind source path does not exist" in low:
        meaning = "The engine runs on another machine, or in a virtual machine that does not share this folder."
        remedy = "Use the engine of this machine: DOCKER_HOST names the one in use."
    else:
        meaning = "The engine refused the container's options, or has a fault itself."
        remedy = "See `docker info` and the engine's log (`journalctl -u docker`)."
    return InfrastructureError(f"{target.name}: the container could not be started: {text}.", meaning, remedy)


def _reason(error: BaseException) -> str:
    return short(str(getattr(error, "explanation", None) or error or type(error).__name__))


def short(text: str) -> str:
    """Return a text of an engine on one line, and not too long."""
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= 400 else f"{line[:400]} …"


def socket_of(host: Host | None) -> str:
    """Return the address of the engine that hosts.yml names for this machine; empty for Docker's usual one. Raises InfrastructureError if
    Podman is asked for, and no socket of it is there."""
    if host is None or not (host.socket or host.engine == "podman"):
        return ""
    if host.socket:
        return f"unix://{host.socket}"
    if os.environ.get("DOCKER_HOST", "").endswith("/podman.sock"):
        return os.environ["DOCKER_HOST"]
    own = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}") / "podman" / "podman.sock"
    path = Path("/run/podman/podman.sock") if os.getuid() == 0 else own
    if not path.is_socket():
        start = "sudo systemctl start podman.socket" if os.getuid() == 0 else "systemctl --user start podman.socket"
        happened = f"There is no socket of Podman at {path}."
        meaning = "Podman has no daemon: its service listens only after it was started."
        raise InfrastructureError(happened, meaning, f"`{start}`, or without systemd: `podman system service --time 0 unix://{path} &`.")
    return f"unix://{path}"
