"""Build the command line of ssh(1). Every word is an argument of its own; no shell of this machine reads any of it."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from harness.config.hosts import Host
from harness.errors import ConfigError

CONNECT_S = 10  # for connecting and for the first words of the protocol
_ALIVE_S, _ALIVE_MISSED = 5, 3  # a machine that is silent for 15 s counts as gone
# What is set here overrides the user's configuration. Host keys are checked as that configuration says: warpwave never changes it.
_OPTIONS = (
    "BatchMode=yes",  # ask for nothing: a key or an agent must do
    "ForwardAgent=no",
    "ForwardX11=no",
    "ControlMaster=no",  # use a connection that the user keeps open, but leave none behind
    "PermitLocalCommand=no",
    "RequestTTY=no",
    "ConnectionAttempts=1",
    f"ConnectTimeout={CONNECT_S}",
    f"ServerAliveInterval={_ALIVE_S}",
    f"ServerAliveCountMax={_ALIVE_MISSED}",
    "StreamLocalBindUnlink=yes",
)
_DESTINATION = re.compile(r"(?:ssh://)?[\w.+%@\[\]:/-]+", re.ASCII)


@dataclass(frozen=True)
class Place:
    """A machine to reach, and the engine there. `name` is what messages call it; `socket` is empty where warpwave looks for it."""

    name: str
    destination: str
    engine: str = ""
    socket: str = ""
    configuration: str = ""  # for ssh's -F


def place_of(host: Host) -> Place:
    """Return where a leg of hosts.yml runs.

    Raises:
        ConfigError: the destination is not one.
    """
    return Place(host.ssh, checked(host.ssh), host.engine, host.socket, host.ssh_config)


def place_in(address: str) -> Place:
    """Return what `DOCKER_HOST=ssh://[USER@]HOST[:PORT][/SOCKET]` names.

    Raises:
        ConfigError: it names no machine, or holds a password.
    """
    try:
        parts = urlsplit(address)
        good = address.startswith("ssh://") and parts.hostname and parts.password is None and not parts.query and not parts.fragment
        port = parts.port
    except ValueError:
        good, port = False, None
    if not good:
        raise ConfigError(
            f"DOCKER_HOST is {hidden(address)!r}, which names no machine.",
            "ssh:// is followed by a host, with a user, a port and the path of a socket where needed; never by a password.",
            "Write it as ssh://USER@HOST, or use a name of ~/.ssh/config: ssh://NAME.",
        )
    destination = checked(f"{parts.username}@{parts.hostname}" if parts.username else str(parts.hostname))
    destination = f"ssh://{destination}:{port}" if port else destination
    return Place(str(parts.hostname), destination, "docker", unquote(parts.path.rstrip("/")))


def hidden(address: str) -> str:
    """Return an address without the password that somebody may have written into it."""
    return re.sub(r"(//[^:/@]*):[^@/]*@", r"\1:…@", address)


def checked(destination: str) -> str:
    """Return the destination if ssh reads it as one, and as nothing else.

    Raises:
        ConfigError: it could be read as an option, or it holds characters that no host name has.
    """
    host = destination.removeprefix("ssh://").rpartition("@")[2]
    if not _DESTINATION.fullmatch(destination) or destination.startswith("-") or host.startswith("-") or not host:
        raise ConfigError(
            f"{destination[:80]!r} is no destination for ssh.",
            "It begins with a dash, or has characters that no user and no host name has.",
            "Write HOST or USER@HOST, or give the machine a name in ~/.ssh/config and use that.",
        )
    return destination


def ssh(place: Place, *options: str, command: Sequence[str] = ("sh", "-s")) -> list[str]:
    """Return the command that runs `command` there. What depends on anybody's input goes to its standard input, never into `command`."""
    configured = ["-F", os.path.expanduser(place.configuration)] if place.configuration else []  # noqa: PTH111 - as a word for ssh
    settings = [word for option in (*_OPTIONS, *_newer()) for word in ("-o", option)]
    return ["ssh", "-T", *configured, *settings, *options, "--", place.destination, *command]


@functools.cache
def _newer() -> tuple[str, ...]:
    """Return the options that an old ssh does not know: it would end at their names."""
    with suppress(OSError, subprocess.TimeoutExpired):
        said = subprocess.run(["ssh", "-V"], capture_output=True, text=True, errors="replace", timeout=CONNECT_S).stderr
        found = re.search(r"OpenSSH_(\d+)\.(\d+)", said)
        return ("RemoteCommand=none",) if found and (int(found[1]), int(found[2])) >= (7, 6) else ()
    return ()


def surroundings() -> dict[str, str]:
    """Return the variables for ssh: nothing may open a window to ask for a password, and its messages must be in English."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SSH_ASKPASS", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C"}
