"""An engine that is there and does not answer as it should, over a real socket: every call to it has an end, whatever the bytes do.

It trickles, hangs, stops after the headers, closes, talks nonsense or never comes to the end of its headers, at each endpoint in turn.
"""

import contextlib
import json
import re
import signal
import socketserver
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from engine_requests import make_options

from warpwave.config.targets import load_targets
from warpwave.engines import choose
from warpwave.engines.docker import client as client_module
from warpwave.engines.docker import deadlines, engine, images
from warpwave.errors import InfrastructureError
from warpwave.options import Build
from warpwave.records import Verdict
from warpwave.run import attempt, run_target

pytestmark = pytest.mark.slow

pytest.importorskip("docker.errors", reason="these tests need the docker SDK")

ANSWERS = {
    "GET /version": {"ApiVersion": "1.41", "Version": "20.10"},
    "GET /_ping": "OK",
    "GET /info": {"NCPU": 1, "MemTotal": 1 << 30},
    "GET /containers/json": [],
    "GET /images/IMAGE/json": {"Id": "sha256:1", "Config": {"Labels": {}}},
    "GET /images/json": [],
    "POST /images/create": {"status": "there"},
    "POST /build": {"stream": "Step 1/1 : FROM x\n"},
    "POST /containers/create": {"Id": "c1"},
    "POST /containers/c1/attach": None,
    "POST /containers/c1/start": {},
    "GET /containers/c1/json": {"State": {"Running": False, "ExitCode": 0}},
    "POST /containers/c1/kill": {},
    "POST /containers/c1/stop": {},
    "DELETE /containers/c1": {},
}
ON_THE_WAY = ["GET /info", "GET /containers/json", "GET /images/IMAGE/json", "POST /containers/create", "POST /containers/c1/start"]
GOOD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def trickle(stream, stop):
    """A byte now and then, of an answer that never ends; far more often than any timeout of a socket."""
    for byte in GOOD + b"Content-Length: 1000000\r\n\r\n" + b" " * 1000000:
        stream.write(bytes([byte]))
        if stop.wait(0.02):
            return


def trickle_body(stream, stop):
    """All headers at once, and then a byte now and then."""
    stream.write(GOOD + b"Transfer-Encoding: chunked\r\n\r\n")
    while not stop.wait(0.02):
        stream.write(b"1\r\n \r\n")


def hang(stream, stop):
    stop.wait()


def hang_after_headers(stream, stop):
    stream.write(GOOD + b"Content-Length: 100\r\n\r\n")
    stop.wait()


def close(stream, stop):
    """Gone at once."""


def garbage(stream, stop):
    stream.write(b"\x00\xff\r\n" * 1000)


def wrong(stream, stop):
    stream.write(GOOD + b"Content-Length: 6\r\n\r\n\xff\xfe<p>\n")


def endless_headers(stream, stop):
    stream.write(b"HTTP/1.1 200 OK\r\n")
    while not stop.wait(0.001):
        stream.write(b"X-More: yes\r\n" * 10)


def endless_continue(stream, stop):
    while not stop.wait(0.001):
        stream.write(b"HTTP/1.1 100 Continue\r\n\r\n")


def endless_body(stream, stop):
    stream.write(GOOD + b"Transfer-Encoding: chunked\r\n\r\n")
    while not stop.wait(0.0001):
        stream.write(b"100000\r\n" + b" " * 0x100000 + b"\r\n")


FAULTS = [trickle, trickle_body, hang, hang_after_headers, close, garbage, wrong, endless_headers, endless_continue, endless_body]
SLOW = [trickle, trickle_body, hang, hang_after_headers]


class Server(socketserver.ThreadingUnixStreamServer):
    """An engine on a socket that answers well, but for one endpoint. It has the images that a test says."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.broken, self.fault = "", close
        self.has: set[str] | None = None  # the images; None: all of them
        self.asked: list[str] = []
        self.stop = threading.Event()
        super().__init__(str(path), Handler)


class Handler(socketserver.StreamRequestHandler):
    """One connection, on which requests follow each other."""

    def handle(self):
        while line := self.rfile.readline().decode():
            method, path, _ = line.split()
            headers = {}
            while (header := self.rfile.readline().decode().strip()) != "":
                key, _, value = header.partition(":")
                headers[key.lower()] = value.strip()
            self.read_body(headers)
            path = re.sub(r"^/v[\d.]+", "", path.partition("?")[0])
            image = re.sub(r"^/images/(.+)/json$", r"\1", path)
            path = re.sub(r"^/images/.+/json$", "/images/IMAGE/json", path)
            name = re.sub(r"^DELETE /containers/.*", "DELETE /containers/c1", f"{method} {path}")
            self.server.asked.append(name)
            try:
                if name == self.server.broken:
                    return self.server.fault(self.wfile, self.server.stop)
                self.answer(name, image)
            except OSError:
                return None
        return None

    def read_body(self, headers):
        if headers.get("transfer-encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                self.rfile.read(size + 2)
            self.rfile.readline()
        else:
            self.rfile.read(int(headers.get("content-length", 0)))

    def answer(self, name, image):
        if name.endswith("/attach"):
            self.wfile.write(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
            return
        status, found = b"200 OK", ANSWERS[name]
        if "IMAGE" in name and self.server.has is not None and image not in self.server.has:
            status, found = b"404 Not Found", {"message": "no such image"}
        body = found.encode() if isinstance(found, str) else json.dumps(found).encode()
        head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nApi-Version: 1.41\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
        self.wfile.write(head + body)


@pytest.fixture
def server(monkeypatch, tmp_path):
    """The engine that the environment names; whoever waits for it has little patience."""
    monkeypatch.setattr(client_module, "_CONNECT_S", 1.0)
    monkeypatch.setattr(client_module, "_CALL_S", 1.0)
    monkeypatch.setattr(deadlines, "IMPATIENT_S", 0.2)
    monkeypatch.setattr(deadlines, "BEAT_S", 0.2)
    monkeypatch.setattr(attempt, "_ENGINE_WAIT_S", 0.1)
    monkeypatch.setattr(images, "_PAUSES_S", (0.01, 0.01))
    for name in ("_RECONNECT_S", "_KILL_S", "_DRAIN_S", "_POLL_S"):
        monkeypatch.setattr(engine, name, 0.1)
    made = Server(tmp_path / "d.sock")
    threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/d.sock")
    yield made
    made.stop.set()
    made.shutdown()
    made.server_close()


@pytest.fixture
def run(tmp_path):
    """Run the cpu target on that engine, as `warpwave run` does."""

    def run(**changes):
        (tmp_path / "kernels").mkdir(exist_ok=True)
        options = {"engine": "docker", "build": Build(base_image="base:1"), "target_s": 5.0, **changes}
        settings = make_options("run-1", tmp_path / "out", tmp_path / "kernels", **options)
        return run_target(load_targets()["cpu"], settings, lambda line: None, lambda event: None)

    return run


def test_the_engine_of_these_tests_is_one(server, run):
    """Without a fault the run gets to its end, in a container that left nothing."""
    record = run()
    assert (record.verdict, record.exit.code) == (Verdict.INCOMPLETE, 0), record.reason
    assert "POST /containers/c1/start" in server.asked


# All calls go through one client: what it makes of bytes is seen at its first call and at one in the middle, an end at each.
ENDLESS = [(endpoint, fault) for endpoint in ("GET /version", "POST /containers/create") for fault in FAULTS]
ENDLESS += [
    (endpoint, fault) for endpoint in ON_THE_WAY if endpoint != "POST /containers/create" for fault in (trickle, hang, close, wrong)
]


@pytest.mark.parametrize(("endpoint", "fault"), ENDLESS)
def test_every_call_has_an_end(server, run, endpoint, fault):
    """Whatever an endpoint does instead of answering: infrastructure, with a reason and what to do."""
    server.broken, server.fault = endpoint, fault
    record = run()
    if (endpoint, fault) == ("POST /containers/c1/start", wrong):  # its answer has no content that anybody would read
        return
    assert record.verdict is Verdict.INFRA, record
    assert record.reason
    assert record.hint
    assert "warpwave itself failed" not in record.reason


# A stream that is silent after its headers is that of a container that prints nothing.
UNWATCHED = [("POST /containers/c1/attach", fault) for fault in (trickle, hang, close, garbage)]
UNWATCHED += [("GET /containers/c1/json", fault) for fault in FAULTS]


@pytest.mark.parametrize(("endpoint", "fault"), UNWATCHED)
def test_a_container_that_cannot_be_watched_is_infrastructure(server, run, endpoint, fault):
    server.broken, server.fault = endpoint, fault
    record = run()
    assert record.verdict is Verdict.INFRA, record
    assert record.hint


@pytest.mark.parametrize("fault", SLOW)
def test_an_engine_that_hangs_during_a_build_is_left(server, run, fault, monkeypatch):
    """Long before the limit of the target: it is asked now and then whether it is there."""
    silent = threading.Event()
    monkeypatch.setattr(client_module, "_CALL_S", 3.0)  # a machine that is busy answers every other call in time

    def quiet(stream, stop):
        server.broken, server.fault = "GET /_ping", fault
        silent.set()
        stop.wait()

    server.broken, server.fault, server.has = "POST /build", quiet, {"base:1"}
    record = run(target_s=10_000.0)
    assert silent.is_set()
    assert (record.verdict, "_ping" in record.reason) == (Verdict.INFRA, True), record


PROGRAM = """
import sys, warpwave.__main__ as cli
from warpwave.engines.docker import client
from warpwave.engines.docker import engine as lifecycle
from warpwave.engines import choose
from warpwave.engines.docker import deadlines
client._CONNECT_S = client._CALL_S = 600
deadlines.IMPATIENT_S = lifecycle._KILL_S = lifecycle._RECONNECT_S = 1.0
sys.argv = ["warpwave", "run", "cpu", "--engine", "docker", "--base-image", "base:1", "--no-report", *sys.argv[1:]]
cli.main()
"""


@pytest.mark.parametrize(
    ("endpoint", "number"),
    [
        ("GET /version", signal.SIGINT),
        ("GET /info", signal.SIGTERM),
        ("POST /build", signal.SIGINT),
        ("POST /build", signal.SIGTERM),
        ("POST /containers/create", signal.SIGTERM),
        ("GET /containers/c1/json", signal.SIGINT),
        ("GET /containers/c1/json", signal.SIGTERM),
    ],
)
def test_ctrl_c_is_heard_meanwhile(server, tmp_path, endpoint, number):
    """However long the engine may take: a first signal ends what is asked, two more whatever is still asked for the container."""
    server.broken, server.fault = endpoint, trickle_body
    server.has = {"base:1"} if endpoint == "POST /build" else None
    (tmp_path / "kernels").mkdir()
    words = ["--kernels", str(tmp_path / "kernels"), "--out", str(tmp_path / "out")]
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    until = time.monotonic() + 60
    while endpoint not in server.asked and time.monotonic() < until:
        time.sleep(0.02)
    for _ in range(4):
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
            break
    output, _ = process.communicate(timeout=60)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number], output
    assert "Traceback" not in output


def test_leftovers_are_looked_for_with_an_end(server):
    from warpwave.doctor.checks import ask_engine

    server.broken, server.fault = "GET /containers/json", trickle
    with pytest.raises(InfrastructureError, match="within"):
        choose.clean(dry_run=True)
    assert "within" in ask_engine().error.happened
    server.broken = "GET /info"
    assert "within" in ask_engine().error.happened
