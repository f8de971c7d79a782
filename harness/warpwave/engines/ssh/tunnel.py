"""Keep a socket of another machine within reach: a socket of this machine that ssh forwards to it. ssh runs in a session of its own, so
that Ctrl-C does not end it before the kernels. It ends with this process, however that ends: the shell at its other end waits for the end
of its input, which this process holds open."""

import os
import secrets
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Union
from weakref import finalize

from warpwave.engines.ssh.command import ANSWER_S, Place, There, no_ssh, not_forwarded, not_reached, ssh, surroundings, too_slow
from warpwave.errors import InfrastructureError

_IDLE_S = 120  # Podman's service ends by itself after this time without a connection
_END_S = 3.0
_MOST_SAID = 1 << 16
_HOLD = """
hold() {
  trap 'end' HUP TERM INT
  end() { [ -z "$service" ] || { kill "$service" 2>/dev/null; rm -f -- "$socket"; }; exit 0; }
  service=
  if [ -n "$start" ]; then
    podman system service --time "$idle" "unix://$socket" >/dev/null 2>&1 </dev/null &
    service=$!
    tries=0
    until [ -S "$socket" ] || [ $tries -ge 50 ]; do tries=$((tries + 1)); sleep 0.2; done
    [ -S "$socket" ] || echo "ww: podman system service did not start" >&2
  fi
  echo ww:ready
  cat >/dev/null
  end
}
"""


class Tunnel:
    """The engine's socket of another machine at a path of this machine. The path stays the same when the connection is made anew."""

    def __init__(self, place: Place, there: There) -> None:
        """Connect nothing yet."""
        self.place, self._there = place, there
        self._folder = Path(tempfile.mkdtemp(prefix="ww-"))  # of mode 700, and short: a socket's path has at most 108 characters
        finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self.path = self._folder / "engine"
        self._said: Union[IO[bytes], None] = None
        self._process: Union[subprocess.Popen[bytes], None] = None
        self._forward = ""

    def open(self) -> None:
        """Connect, for the first time or again. Raises InfrastructureError if the machine cannot be reached, or forwards nothing."""
        self._end()
        self.path.unlink(missing_ok=True)
        socket = self._there.socket or f"{self._there.start}/warpwave-{secrets.token_hex(6)}.sock"
        # A new name each time: a connection that the user keeps open may still hold the last one.
        local = self._folder / secrets.token_hex(4)
        forward = self._forward = f"{local}:{socket}"
        facts = {"socket": socket, "start": "" if self._there.socket else "podman", "idle": str(_IDLE_S)}
        script = f"{_HOLD}{''.join(f'{name}={shlex.quote(value)}{chr(10)}' for name, value in facts.items())}hold\n"
        said = self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the tunnel
        try:
            process = subprocess.Popen(
                ssh(self.place, "-L", forward),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env=surroundings(),
                start_new_session=True,
            )
        except FileNotFoundError:
            raise no_ssh() from None
        self._process = process
        assert process.stdin is not None  # asked for above
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(script.encode())
            process.stdin.flush()
        if not self._ready(process):
            slow, words = process.poll() is None, self.said()
            self._end(0.0)
            raise too_slow(self.place, ANSWER_S) if slow else not_reached(self.place, words)
        if not local.exists():
            words = self.said()
            self._end()
            raise not_forwarded(self.place, words)
        self.path.symlink_to(local.name)

    def said(self) -> str:
        """Return what ssh has printed, such as that the other side refused to open the socket."""
        if self._said is None:
            return ""
        with suppress(OSError, ValueError):
            return os.pread(self._said.fileno(), _MOST_SAID, 0).decode(errors="replace")
        return ""

    def is_broken(self) -> bool:
        """Return whether the connection has ended."""
        return self._process is None or self._process.poll() is not None

    def close(self) -> None:
        """End the connection and remove the socket."""
        self._end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ready(self, process: subprocess.Popen[bytes]) -> bool:
        assert process.stdout is not None
        until, text = time.monotonic() + ANSWER_S, b""
        while (left := until - time.monotonic()) > 0:
            readable, _, _ = select.select([process.stdout], [], [], left)
            piece = os.read(process.stdout.fileno(), 1 << 12) if readable else b""
            if readable and not piece:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(1.0)  # what it prints last says why
                return False
            text = (text + piece)[-_MOST_SAID:]
            if b"ww:ready" in text:
                return True
        return False

    def _end(self, patience_s: float = _END_S) -> None:
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            try:
                process.wait(patience_s)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_END_S)
                if process.poll() is None:
                    process.kill()
        if self._said is not None:
            self._said.close()
            self._said = None
        # End the forwarding in a connection that the user keeps open. ssh itself has removed the socket if the connection was its own.
        forward, self._forward = self._forward, ""
        if forward and Path(forward.partition(":")[0]).exists():
            command = ssh(self.place, "-O", "cancel", "-L", forward, command=())
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, env=surroundings(), timeout=_END_S)


def opened(place: Place, there: There) -> Tunnel:
    """Return a tunnel that is connected. Raises InfrastructureError if the machine cannot be reached, or forwards nothing."""
    tunnel = Tunnel(place, there)
    try:
        tunnel.open()
    except InfrastructureError:
        tunnel.close()
        raise
    return tunnel
