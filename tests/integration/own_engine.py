"""An engine of the tests' own, to be killed and started again without harm to anybody else's containers."""

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import docker


class OwnEngine:
    """A `dockerd` with its own socket, images and state, in a folder of its own; needs root."""

    def __init__(self) -> None:
        # Short: the path of a socket has at most 108 characters. A folder that is given stays, with its images, for the next time.
        self.given = os.environ.get("WARPWAVE_OWN_ENGINE")
        self.folder = Path(self.given or tempfile.mkdtemp(prefix="ww"))
        self.host = f"unix://{self.folder}/d.sock"
        self.folder.mkdir(exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "-H", self.host]
        places = [f"--data-root={self.folder}/data", f"--exec-root={self.folder}/exec", f"--pidfile={self.folder}/pid"]
        until = time.monotonic() + 120
        while time.monotonic() < until:
            if self._process is None or self._process.poll() is not None:  # what it started itself may still be on its way out
                (self.folder / "pid").unlink(missing_ok=True)  # its number may be somebody else's by now
                with open(self.folder / "log", "ab") as log:
                    self._process = subprocess.Popen(["dockerd", *options, *places], stdout=log, stderr=log, start_new_session=True)
            with socket.socket(socket.AF_UNIX) as local, suppress(OSError):
                local.settimeout(5)
                local.connect(f"{self.folder}/d.sock")
                local.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                if b"200 OK" in local.recv(100):
                    return
            time.sleep(0.2)
        raise RuntimeError((self.folder / "log").read_text()[-2000:])

    def client(self) -> docker.DockerClient:
        return docker.DockerClient(self.host, timeout=120)

    def take(self, image: str, source: docker.APIClient) -> None:
        client = self.client()
        try:
            if not client.images.list(image):
                client.api.load_image(source.get_image(image))
        finally:
            client.close()

    def kill(self) -> None:
        """SIGKILL: as by the out-of-memory killer, no goodbye to any container."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            where = line.split()[1]
            if where.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "-l", where], capture_output=True)
        if not self.given:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)
            self._process.wait(60)
            self._process = None


class Tap:
    """A socket in front of an engine: what goes over it is passed on, and at the first call that fits, something happens."""

    def __init__(self, engine: OwnEngine, call: str, heard: bool, action: Callable[[], None]) -> None:
        """`call` is a pattern of method and path; `heard`: once the engine has answered it, and not before it hears it."""
        self.engine, self.heard, self.action = engine, heard, action
        self.pattern = re.compile(call.replace(" /", r" (?:/v[\d.]+)?/", 1).encode())
        self.hit = False
        self._happened = threading.Event()
        self._once = threading.Lock()
        self.host = f"unix://{engine.folder}/tap.sock"
        Path(engine.folder, "tap.sock").unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{engine.folder}/tap.sock")
        self._listener.listen(50)
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        """Take no more calls; what was made to happen has happened then."""
        if self.hit:
            self._happened.wait(180)
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        upstream = socket.socket(socket.AF_UNIX)
        answered = threading.Event()
        try:
            upstream.connect(f"{self.engine.folder}/d.sock")
            threading.Thread(target=self._answer, args=(upstream, client, answered), daemon=True).start()
            while data := client.recv(1 << 16):
                act = False
                if self.pattern.match(data):
                    with self._once:
                        act, self.hit = not self.hit, True
                if act and not self.heard:
                    self._act()
                answered.clear()
                upstream.sendall(data)
                if act and self.heard:
                    answered.wait(60)
                    self._act()
        except OSError:
            return
        finally:
            client.close()
            upstream.close()

    def _act(self) -> None:
        try:
            self.action()
        finally:
            self._happened.set()

    def _answer(self, upstream: socket.socket, client: socket.socket, answered: threading.Event) -> None:
        with suppress(OSError):
            while data := upstream.recv(1 << 16):
                client.sendall(data)
                answered.set()
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
