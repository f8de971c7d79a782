"""Ask another machine what an engine needs to know of it: the socket, the limits of its user, device nodes, cards.

The script goes to the standard input of `sh` there, so it is in no process list. What varies in it is quoted. Its answer is distrusted:
lines of a fixed form are read, the rest is ignored.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from harness.engines.protocol import Answer as Reply
from harness.engines.ssh.command import CONNECT_S, Place, ssh, surroundings
from harness.engines.ssh.errors import no_engine_there, no_shell, no_ssh, not_reached, too_slow
from harness.errors import UnreachableError

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

    `files` and `processes` are the hard limits of the user there; -1 if there are none. `nodes` are device nodes with their groups.
    """

    uid: int
    files: int
    processes: int
    socket: str = ""
    start: str = ""
    nodes: tuple[tuple[str, int], ...] = ()


def look(place: Place, patterns: Sequence[str] = ()) -> There:
    """Ask for the engine's socket, and for the device nodes that match `patterns`.

    Raises:
        InfrastructureError: the machine cannot be reached, or has no engine that this user may use.
    """
    known = f"engine={shlex.quote(place.engine)}\nwanted={shlex.quote(place.socket)}\n"
    said = talk(place, f"{_LOOK}{known}look {shlex.join(patterns)}\n")
    answers = [(found[1], found[2].strip()) for line in said.splitlines() if (found := _LINE.fullmatch(line))]
    facts = dict(answers)
    if "end" not in facts:
        raise no_shell(place, said)
    socket, start = _path(facts.get("socket", "")), _path(facts.get("start", ""))
    if not socket and not start:
        programs = [value for name, value in answers if name == "program" and value in _PROGRAMS]
        raise no_engine_there(place, _plain(facts.get("user", "")) or "this user", _plain(facts.get("refused", "")), programs)
    nodes = [value.partition(" ") for name, value in answers if name == "node"]
    return There(
        _number(facts.get("uid", "")),
        _number(facts.get("files", "")),
        _number(facts.get("processes", "")),
        socket,
        start,
        tuple((path, int(group)) for group, _, path in nodes if group.isdigit() and _path(path)),
    )


def answer_of(place: Place, command: Sequence[str], limit_s: float) -> Reply:
    """Run a command there, such as a vendor's question of the targets file, and return what it prints. Its exit code is no error.

    Raises:
        UnreachableError: the machine does not answer.
    """
    started = time.monotonic()
    # The connection itself may take time. A command that hangs in a driver cannot be killed, so nobody waits for it.
    asked = f'{shlex.join(command)} </dev/null 2>&1; code=$?; echo; echo "ww:code $code"'
    script = f"LC_ALL=C; export LC_ALL\nask() {{ {asked}; }}\nask\n"
    try:
        said = talk(place, script, limit_s + ANSWER_S)
    except UnreachableError:
        talk(place, "echo ww:end\n")  # if this fails too, it is the machine and not the command
        return Reply(trouble="silent", seconds=round(time.monotonic() - started, 3))
    text, _, code = said.rpartition("\nww:code ")
    trouble = {"0": "", "127": "absent"}.get(code.strip(), "refused")
    return Reply(text, trouble, round(time.monotonic() - started, 3))


def talk(place: Place, script: str, limit_s: float | None = None) -> str:
    """Run a script in a POSIX shell there, and return the beginning of what it prints.

    Raises:
        InfrastructureError: the machine cannot be reached, or did not answer in time.
    """
    limit_s = ANSWER_S if limit_s is None else limit_s
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


def _number(text: str) -> int:
    return int(text) if text.isdigit() and len(text) < 12 else -1


def _plain(text: str) -> str:
    return text if text.isprintable() and len(text) < 200 else ""


def _path(text: str) -> str:
    """Return an absolute path in one word, as ssh's -L takes it: a colon would be read as the end of it. Otherwise return nothing."""
    return text if re.fullmatch(r"/[\w./@+-]{1,100}", text, re.ASCII) else ""
