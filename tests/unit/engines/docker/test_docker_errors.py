"""Without a usable engine the user gets three sentences, at once and without a traceback: one remedy per cause."""

import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from engine_requests import ask

from warpwave.config.targets import load_targets
from warpwave.engines.docker.engine import connect
from warpwave.engines.docker.errors import build_failed, not_created
from warpwave.errors import InfrastructureError

REPOSITORY = Path(__file__).parents[4]
CONNECT = "from warpwave.engines.docker.engine import connect; connect()"


def speak(answer: bytes):
    """A handler that gives this answer to everything."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            while (line := self.rfile.readline()) and line.strip():
                pass
            self.wfile.write(answer)

    return Handler


def http(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(body), body)


@pytest.fixture
def engine_that_says(monkeypatch, tmp_path):
    """Start something on a socket that gives one fixed answer, and point DOCKER_HOST at it."""
    servers = []

    def start(answer: bytes) -> None:
        server = socketserver.UnixStreamServer(str(tmp_path / "d.sock"), speak(answer))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/d.sock")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def request_for(tmp_path):
    return lambda name: ask(load_targets()[name], tmp_path, tmp_path)


def refused() -> InfrastructureError:
    """The error of a connection that must fail, within seconds."""
    started = time.monotonic()
    with pytest.raises(InfrastructureError) as raised:
        connect()
    assert time.monotonic() - started < 30
    error = raised.value
    assert len(str(error).splitlines()) == 3
    assert "--engine local" in error.remedy
    return error


def test_the_sdk_is_missing():
    """In a checkout `import docker` finds the folder of Dockerfiles: the message says so, and how to install the package."""
    shown = "import docker; assert not hasattr(docker, 'from_env'), docker"
    stubs = "import sys, types\nfor n in ('yaml', 'pydantic', 'pydantic_core'):\n"
    stubs += " sys.modules[n] = types.ModuleType(n); sys.modules[n].__getattr__ = lambda name: Exception\n"
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = ['', 'harness']\n{stubs}{shown}\n{CONNECT}"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert "InfrastructureError: The Docker SDK for Python is not installed." in done.stderr, done.stderr
    assert "pip install 'docker>=7.1'" in done.stderr


def test_no_socket(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nowhere.sock")
    error = refused()
    assert "not running" in error.meaning
    assert "systemctl start docker" in error.remedy
    assert "docs.docker.com/engine/install" in error.remedy  # there may be none to start
    assert "nowhere.sock" in error.happened


def test_nobody_listens_at_an_address(monkeypatch):
    """The system's own words stand at the end of what the libraries for HTTP say: they alone fit into a line."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")

    assert refused().happened == f"Docker cannot be used at tcp://127.0.0.1:{port}: Connection refused."


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0-OpenSSH_9.2\r\n", http(b"<html>"), http(b"{}"), http(b"[]"), http(b"\xff\xfe"), http(b"{}", b"500 Oops"), b""],
    ids=["another protocol", "html", "empty object", "list", "bytes", "error", "silence"],
)
def test_something_else_answers(engine_that_says, answer):
    engine_that_says(answer)
    assert refused().meaning


def test_an_engine_that_is_too_old(engine_that_says):
    engine_that_says(http(json.dumps({"ApiVersion": "1.38"}).encode()))
    error = refused()
    assert "older than Docker 19.03" in error.meaning
    assert "1.38" in error.happened


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody without access")
def test_permission_denied(engine_that_says, tmp_path):
    """A socket that is closed to this user: join its group, or use a rootless engine."""
    engine_that_says(http(b"{}"))
    text = f"import os, warpwave.engines.docker.engine, http.client; os.setgid(65534); os.setuid(65534)\n{CONNECT}"
    sys_path = {**os.environ, "PYTHONPATH": str(REPOSITORY / "harness")}
    for folder in tmp_path.parents:
        if folder.owner() == "root" and folder != Path("/") and "pytest" in str(folder):
            folder.chmod(0o755)
    (tmp_path / "d.sock").chmod(0o600)
    tmp_path.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=sys_path, cwd="/")
    assert "usermod -aG docker" in done.stderr, done.stderr


class RefusalError(OSError):
    """An error of the SDK: the engine's own words are its explanation."""

    def __init__(self, explanation: str) -> None:
        super().__init__("500 Server Error")
        self.explanation = explanation


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ('could not select device driver "" with capabilities: [[gpu]]', "GPU"),
        ("CDI device injection failed: unresolvable CDI devices vendor.com/gpu=all", "GPU"),
        ('error gathering device information while adding custom device "/dev/kfd": no such file or directory', "GPU"),
        ('exec: "python9": executable file not found in $PATH: unknown', "has no python3"),
        ("invalid mount config for type bind: bind source path does not exist: /srv/raw", "another machine"),
        ("something new", "refused the container's options"),
    ],
)
def test_why_a_container_was_not_created(said, meaning, request_for):
    error = not_created(RefusalError(said), request_for("cuda"))
    assert said in error.happened
    assert meaning in error.meaning
    assert error.remedy == request_for("cuda").target.probe.fix or meaning != "GPU"


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("ERROR: No matching distribution found for triton==9", "build.wheelhouse"),
        ("Temporary failure in name resolution", "build.wheelhouse"),
        ("write /x: no space left on device", "docker system df"),
        ("SSL: CERTIFICATE_VERIFY_FAILED", "build.ca_bundle"),
        ("gcc: fatal error", "--rebuild"),
    ],
)
def test_why_a_build_failed(line, remedy):
    """The end of the output is in the message, and the usual causes have their own remedy."""
    error = build_failed("cpu", "Step 3/9 : RUN x", "returned a non-zero code: 1", ["before", line])
    assert f"    before\n    {line}" in error.happened
    assert "Step 3/9" in error.happened
    assert remedy in error.remedy
