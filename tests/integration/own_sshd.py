"""An ssh server of the tests' own on a port of this machine, with its own keys; nobody's configuration is read or changed."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path


def missing() -> str:
    lacking = [name for name in ("sshd", "ssh", "ssh-keygen") if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]
    return f"{', '.join(lacking)} not installed (openssh-server, openssh-client)" if lacking else ""


class OwnSshd:
    """Its clients reach it as `card` with `config` for ssh's -F."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="wws"))
        for name in ("host", "user", "stranger"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)], check=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._write("authorized", (self.folder / "user.pub").read_text())
        self._write("known", self._known("host"))
        self.config = self.configuration("config")
        self._process: subprocess.Popen[bytes] | None = None

    def configuration(self, name: str, key: str = "user", known: str = "known", port: int = 0) -> str:
        text = (
            f"Host card\n  HostName 127.0.0.1\n  Port {port or self.port}\n  User {getpass.getuser()}\n  IdentitiesOnly yes\n"
            f"  IdentityFile {self.folder / key}\n  UserKnownHostsFile {self.folder / known}\n  GlobalKnownHostsFile none\n"
        )
        return str(self._write(name, text))

    def another_host_key(self) -> str:
        self._write("known-other", self._known("stranger"))
        return self.configuration("config-other", known="known-other")

    def start(self, *options: str) -> None:
        settings = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.folder / 'host'}",
            f"AuthorizedKeysFile {self.folder / 'authorized'}",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "PidFile none",
            *options,
        ]
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
        config = self._write("sshd_config", "\n".join(settings) + "\n")
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen([str(sshd), "-D", "-e", "-f", str(config)], stderr=log, start_new_session=True)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as made:
                if made.recv(4) == b"SSH-":
                    return
            time.sleep(0.05)
        raise RuntimeError((self.folder / "log").read_text()[-2000:])

    def hang(self) -> None:
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def end(self) -> None:
        if self._process is not None:
            self.wake()
            self._signal(signal.SIGTERM)
            self._process.wait(20)
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def _known(self, key: str) -> str:
        words = (self.folder / f"{key}.pub").read_text().split()
        return f"[127.0.0.1]:{self.port} {words[0]} {words[1]}\n"

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)
        return path
