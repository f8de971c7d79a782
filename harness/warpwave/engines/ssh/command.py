"""Build the command line of ssh(1). Every word is an argument of its own; no shell of this machine reads any of it."""

import functools
import os
import re
import shlex
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from warpwave.config.hosts import Host
from warpwave.engines.protocol import Answer
from warpwave.errors import ConfigError, InfrastructureError, UnreachableError, printable

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
    """Return where a leg of hosts.yml runs. Raises ConfigError if the destination is not one."""
    return Place(host.ssh, checked(host.ssh), host.engine, host.socket, host.ssh_config)


def place_in(address: str) -> Place:
    """Return what `DOCKER_HOST=ssh://[USER@]HOST[:PORT][/SOCKET]` names. Raises ConfigError if it names no machine, or holds a password."""
    try:
        parts = urlsplit(address)
        good = address.startswith("ssh://") and parts.hostname and parts.password is None and not parts.query and not parts.fragment
        port = parts.port
    except ValueError:
        good, port = False, None
    if not good:
        shown = re.sub(r"(//[^:/@]*):[^@/]*@", r"\1:…@", address)  # without a password in it
        happened = f"DOCKER_HOST is {shown!r}, which names no machine."
        meaning = "ssh:// is followed by a host, with a user, a port and the path of a socket where needed; never by a password."
        raise ConfigError(happened, meaning, "Write it as ssh://USER@HOST, or use a name of ~/.ssh/config: ssh://NAME.")
    destination = checked(f"{parts.username}@{parts.hostname}" if parts.username else str(parts.hostname))
    destination = f"ssh://{destination}:{port}" if port else destination
    return Place(str(parts.hostname), destination, "docker", unquote(parts.path.rstrip("/")))


def checked(destination: str) -> str:
    """Return the destination if ssh reads it as one, and as nothing else. Raises ConfigError if it could be read as an option, or it holds
    characters that no host name has."""
    host = destination.removeprefix("ssh://").rpartition("@")[2]
    if not _DESTINATION.fullmatch(destination) or destination.startswith("-") or host.startswith("-") or not host:
        happened = f"{destination[:80]!r} is no destination for ssh."
        meaning = "It begins with a dash, or has characters that no user and no host name has."
        raise ConfigError(happened, meaning, "Write HOST or USER@HOST, or give the machine a name in ~/.ssh/config and use that.")
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


_TRY = "`ssh {} true` must work without a question"
# What ssh prints, what it means, and what to do. The first that fits counts.
_CAUSES = (
    (
        ("remote host identification has changed", "host key verification failed", "host key is known", "host key has changed"),
        "The machine's host key is unknown to this user, or is not the one that it had: it was installed anew, or it is another machine.",
        "Compare the key with what the machine's administrator says, then connect once by hand: `ssh {}`. warpwave never skips this check.",
    ),
    (
        ("permission denied", "too many authentication failures", "no supported authentication", "sign_and_send_pubkey"),
        "The machine refused this user's keys. warpwave never asks for a password.",
        f"Add a key there (`ssh-copy-id {{}}`), or load yours (`ssh-add`); {_TRY}.",
    ),
    (
        ("could not resolve", "name or service not known", "temporary failure in name resolution"),
        "No machine has this name, and ~/.ssh/config gives none to it.",
        "Fix the name in hosts.yml, or add it to ~/.ssh/config.",
    ),
    (
        ("bad configuration option", "can't open user config", "unsupported option", "bad owner or permissions"),
        "ssh cannot read its configuration.",
        "Fix what the message names in ~/.ssh/config, or in the file of `ssh_config`.",
    ),
    (
        ("connection refused", "timed out", "no route", "unreachable", "connection closed", "connection reset", "kex_exchange"),
        "The machine is off or hangs, a firewall is between, or no ssh server listens there.",
        f"Check that it is up; {_TRY}.",
    ),
)


def not_reached(place: Place, said: str) -> UnreachableError:
    """Report that ssh could not connect. `said` is what it printed."""
    low = said.lower()
    words = f": {_last(said)}" if said.strip() else ""
    found = next((cause[1:] for cause in _CAUSES if any(word in low for word in cause[0])), None)
    meaning, remedy = found or ("ssh ended before the machine answered.", f"Look at what `ssh -v {{}} true` prints; {_TRY}.")
    return UnreachableError(f"{place.name} cannot be reached with ssh{words}.", meaning, remedy.replace("{}", place.destination))


def too_slow(place: Place, seconds: float) -> UnreachableError:
    """Report that the machine took the connection and then said nothing."""
    happened = f"{place.name} did not answer within {seconds:g} s."
    meaning = "It takes connections, but hangs: it is out of memory, its disk is gone, or its ssh server has stopped."
    return UnreachableError(happened, meaning, f"`ssh {place.destination} true` shows whether it answers later; then run again.")


def no_ssh() -> InfrastructureError:
    """Report that this machine has no ssh."""
    meaning = "warpwave reaches other machines with the system's own OpenSSH."
    return InfrastructureError("There is no program `ssh` on this machine.", meaning, "Install it: `sudo apt-get install openssh-client`.")


def no_engine_there(place: Place, user: str, refused: str, programs: Sequence[str]) -> InfrastructureError:
    """Report that there is no socket to use. `refused` is one that exists; `programs` are the engines that are installed."""
    if refused:
        meaning = "An engine runs there, but this user is not in the group that its socket belongs to."
        remedy = f"On {place.name}: `sudo usermod -aG docker {user}`, then log in again; or use a rootless engine (`engine: podman`)."
        return InfrastructureError(f"{user} may not use the engine at {refused} on {place.name}.", meaning, remedy)
    installed = f" ({' and '.join(programs)} {'are' if len(programs) > 1 else 'is'} installed)" if programs else ""
    engine = f"{place.engine or 'container'} engine that runs{installed}"
    looked = f"no socket of an engine at {place.socket}" if place.socket else f"no {engine}"
    meaning = "It is not installed or not started, or its socket is in an unusual place."
    remedy = f"On {place.name}: `sudo systemctl start docker`, or install Podman; or name the socket in hosts.yml (`socket: /path`)."
    return InfrastructureError(f"{place.name} has {looked}.", meaning, remedy)


def not_forwarded(place: Place, said: str) -> InfrastructureError:
    """Report that ssh connects, but does not pass the engine's socket on."""
    happened = f"The engine's socket on {place.name} cannot be reached through ssh: {_last(said) or 'the connection was closed'}."
    remedy = f"On {place.name}: `AllowStreamLocalForwarding yes` in sshd_config (it is the default), and check that the engine runs."
    return InfrastructureError(happened, "The ssh server there forbids forwarding to sockets, or the engine stopped a moment ago.", remedy)


def _last(said: str) -> str:
    """Return the last lines that say something, in one line. Text from another machine reaches a terminal: printable characters only."""
    trimmed = (line.strip().rstrip(".") for line in said.splitlines())
    lines = [line for line in trimmed if line and not line.startswith(("Warning: Permanently", "@@@"))]
    text = "; ".join(lines[-2:])
    return printable(text)[-300:].rstrip(". ")


# The script goes to the standard input of `sh` there, so it is in no process list. What varies in it is quoted. Its answer is distrusted:
# lines of a fixed form are read, the rest is ignored.

ANSWER_S = CONNECT_S + 3.0  # a machine that cannot be reached is reported within 15 s
_MOST = 1 << 18
_PROGRAMS = frozenset({"docker", "podman"})  # what the script looks for
_LINE = re.compile(r"ww:(\w+) ?(.*)")
_SSH_FAILED = 255

# Tells the first socket that this user may use, or one that the user may not, or that Podman's service has to be started, and where.
_LOOK = """
look() {
  uid=$(id -u)
  runtime=${XDG_RUNTIME_DIR:-/run/user/$uid}
  case ${DOCKER_HOST:-} in unix://*) named=${DOCKER_HOST#unix://} ;; *) named= ;; esac
  docker="$named /var/run/docker.sock $runtime/docker.sock"
  if [ "$uid" = 0 ]; then podman=/run/podman/podman.sock; else podman=$runtime/podman/podman.sock; fi
  case $engine in docker) all=$docker ;; podman) all=$podman ;; *) all="$docker $podman" ;; esac
  [ -z "$wanted" ] || all=
  found= refused=
  set -f; IFS=' '
  for one in $all; do
    [ -S "$one" ] || continue
    if [ -r "$one" ] && [ -w "$one" ]; then found=$one; break; else refused=$one; fi
  done
  if [ -n "$wanted" ]; then
    if [ ! -e "$wanted" ]; then :
    elif [ -r "$wanted" ] && [ -w "$wanted" ]; then found=$wanted; else refused=$wanted; fi
  fi
  echo "ww:uid $uid"
  echo "ww:user $(id -un 2>/dev/null)"
  echo "ww:files $(ulimit -Hn)"
  echo "ww:processes $( (ulimit -Hu || ulimit -Hp) 2>/dev/null)"
  for one in docker podman; do command -v $one >/dev/null 2>&1 && echo "ww:program $one"; done
  if [ -n "$found" ]; then echo "ww:socket $found"
  elif [ -z "$wanted" ] && [ "$engine" != docker ] && command -v podman >/dev/null 2>&1; then
    folder=$runtime
    if [ ! -d "$folder" ] || [ ! -O "$folder" ]; then
      folder=${TMPDIR:-/tmp}/warpwave-$uid
      mkdir -m 700 "$folder" 2>/dev/null
      [ -d "$folder" ] && [ -O "$folder" ] && [ ! -L "$folder" ] || folder=
    fi
    [ -z "$folder" ] || echo "ww:start $folder"
  fi
  [ -z "$refused" ] || echo "ww:refused $refused"
  set +f; IFS=
  for pattern in "$@"; do
    for node in $pattern; do [ -c "$node" ] && stat -c 'ww:node %g %n' "$node"; done
  done
  echo ww:end
}
"""


@dataclass(frozen=True)
class There:
    """What a machine says of itself. `socket` is the engine's; if it is empty, Podman's service is to be started in the folder `start`.
    `files` and `processes` are the hard limits of the user there; -1 if there are none. `nodes` are device nodes with their groups."""

    uid: int
    files: int
    processes: int
    socket: str = ""
    start: str = ""
    nodes: tuple[tuple[str, int], ...] = ()


def look(place: Place, patterns: Sequence[str] = ()) -> There:
    """Ask for the engine's socket, and for the device nodes that match `patterns`. Raises InfrastructureError if the machine cannot be
    reached, or has no engine that this user may use."""
    known = f"engine={shlex.quote(place.engine)}\nwanted={shlex.quote(place.socket)}\n"
    said = talk(place, f"{_LOOK}{known}look {shlex.join(patterns)}\n")
    answers = [(found[1], found[2].strip()) for line in said.splitlines() if (found := _LINE.fullmatch(line))]
    facts = dict(answers)
    if "end" not in facts:
        happened = f"{place.name} does not run commands: {_last(said) or 'it printed nothing'}."
        meaning = "The account there has no POSIX shell, is limited to one command, or its start-up files end the session."
        raise InfrastructureError(happened, meaning, f"`echo 'echo ok' | ssh {place.destination} sh -s` must print ok.")
    socket, start = _path(facts.get("socket", "")), _path(facts.get("start", ""))
    if not socket and not start:
        programs = [value for name, value in answers if name == "program" and value in _PROGRAMS]
        raise no_engine_there(place, _plain(facts.get("user", "")) or "this user", _plain(facts.get("refused", "")), programs)
    words = [facts.get(name, "") for name in ("uid", "files", "processes")]
    uid, files, processes = (int(word) if word.isdigit() and len(word) < 12 else -1 for word in words)
    listed = [value.partition(" ") for name, value in answers if name == "node"]
    nodes = tuple((path, int(group)) for group, _, path in listed if group.isdigit() and _path(path))
    return There(uid, files, processes, socket, start, nodes)


def answer_of(place: Place, command: Sequence[str], limit_s: float) -> Answer:
    """Run a command there, such as a vendor's question of the targets file, and return what it prints. Its exit code is no error. Raises
    UnreachableError if the machine does not answer."""
    started = time.monotonic()
    # The connection itself may take time. A command that hangs in a driver cannot be killed, so warpwave does not wait for it.
    asked = f'{shlex.join(command)} </dev/null 2>&1; code=$?; echo; echo "ww:code $code"'
    script = f"LC_ALL=C; export LC_ALL\nask() {{ {asked}; }}\nask\n"
    try:
        said = talk(place, script, limit_s + ANSWER_S)
    except UnreachableError:
        talk(place, "echo ww:end\n")  # if this fails too, it is the machine and not the command
        return Answer(trouble="silent", seconds=round(time.monotonic() - started, 3))
    text, _, code = said.rpartition("\nww:code ")
    trouble = {"0": "", "127": "absent"}.get(code.strip(), "refused")
    return Answer(text, trouble, round(time.monotonic() - started, 3))


def talk(place: Place, script: str, limit_s: float | None = None) -> str:
    """Run a script in a POSIX shell there, and return the beginning of what it prints. Raises InfrastructureError if the machine cannot be
    reached, or did not answer in time."""
    limit_s = limit_s or ANSWER_S
    try:
        done = subprocess.run(
            ssh(place), input=script, capture_output=True, text=True, errors="replace", timeout=limit_s, env=surroundings()
        )
    except FileNotFoundError:
        raise no_ssh() from None
    except subprocess.TimeoutExpired:
        raise too_slow(place, limit_s) from None
    if done.returncode == _SSH_FAILED:
        raise not_reached(place, done.stderr)
    return done.stdout[:_MOST]


def _plain(text: str) -> str:
    return text if text.isprintable() and len(text) < 200 else ""


def _path(text: str) -> str:
    """Return an absolute path in one word, as ssh's -L takes it: a colon would be read as the end of it. Otherwise return nothing."""
    return text if re.fullmatch(r"/[\w./@+-]{1,100}", text, re.ASCII) else ""
