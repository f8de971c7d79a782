"""The life of a run on a real engine: how it ends, and that nothing of it is left."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from engine_requests import change, make_options
from wheels import make_package

from warpwave.collect import collect
from warpwave.config.targets import Devices
from warpwave.engines import waiting
from warpwave.engines.choose import clean
from warpwave.engines.docker.container import boot, container_name, container_options
from warpwave.errors import InfrastructureError
from warpwave.options import Build, Install
from warpwave.records import Cap, Exit, Stage, Verdict
from warpwave.report import write_report
from warpwave.run import attempt as attempt_module
from warpwave.run import run_target

READY = "import time; print('ready', flush=True); "
STUBBORN = "import signal; [signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGTERM)]; " + READY + "time.sleep(600)"
POLITE = (
    READY
    + """
try:
    time.sleep(600)
except KeyboardInterrupt:
    open('/results/partial', 'w').write('kept')
"""
)


def test_output_of_any_kind_comes_through(run):
    """Bytes that are no text, lines without end and both streams are handed on as lines, cut where they are too long."""
    program = (
        "import os, time; os.write(1, b'\\xff\\xfe broken\\n'); os.write(1, b'y' * 50000 + b'\\n'); time.sleep(0.3); "
        "os.write(2, b'err\\n'); time.sleep(0.3); os.write(1, b'no newline')"
    )
    _, _, lines, _ = run(program)
    assert lines == ["\ufffd\ufffd broken", "y" * 10_000 + " … 40000 bytes cut", "err", "no newline"]


@pytest.mark.parametrize(("program", "code"), [("import sys; sys.exit(7)", 7), ("import os; os.kill(os.getpid(), 11)", 139)])
def test_exit_codes_arrive(run, ours, program, code):
    _, ended, _, request = run(program)
    assert (ended.code, ended.timed_out, ended.oom_killed, ended.error) == (code, False, False, "")
    assert container_name(request) not in ours()


def test_a_run_over_its_limit_may_finish_its_files(run, ours):
    """At the limit comes SIGINT first: what the program does about it is kept, and nothing is left."""
    _, ended, _, request = run(POLITE, target_s=2.0)
    assert ended.timed_out
    assert ended.code == 0
    assert (request.raw / "partial").read_text() == "kept"
    assert container_name(request) not in ours()


def test_a_run_that_ignores_signals_is_killed(run, ours):
    _, ended, _, request = run(STUBBORN, target_s=2.0, grace_s=1.0)
    assert ended.timed_out
    assert ended.code == 137
    assert not ended.oom_killed
    assert ended.seconds < 60
    assert container_name(request) not in ours()


def test_memory_is_limited(engine, run, monkeypatch):
    """A program that takes too much memory is killed, and the engine knows why."""
    observed = engine._host
    monkeypatch.setattr(engine, "_host", lambda request: replace(observed(request), memory_bytes=320 << 20))
    environment, ended, _, request = run("held = []\nwhile True: held.append(bytearray(1 << 24))", keep=True)
    known = engine._api.inspect_container(container_name(request))["State"]["OOMKilled"]
    engine._api.remove_container(container_name(request))
    assert ended.code == 137
    if not known:
        pytest.skip("this kernel or engine kills at the limit and does not say why")
    assert ended.oom_killed
    assert environment.options["limits"]["memory"] == "0.2 GiB"


HUNGRY = """
def test_before():
    pass
def test_that_eats():
    held = []
    while True:
        held.append(bytearray(1 << 24))
def test_after():
    pass
"""


def test_a_test_that_eats_all_memory_is_named(engine, built, request_, tmp_path, monkeypatch):
    """The limit of the container kills one process of it: that test is `oom`, with the limit; the others have run."""
    (tmp_path / "package").mkdir(mode=0o755)
    (tmp_path / "package" / "test_op.py").write_text(HUNGRY)
    observed = engine._host
    monkeypatch.setattr(engine, "_host", lambda request: replace(observed(request), memory_bytes=1920 << 20))
    monkeypatch.setattr(attempt_module, "choose_engine", lambda *_: engine)
    target = replace(request_.target, interpret=False, stages=(Stage.TEST,))
    settings = make_options(
        "run-oom", tmp_path / "out", tmp_path / "package", build=request_.options.build, commit=request_.options.package.commit
    )
    record = run_target(target, settings, lambda line: None, lambda event: None)
    cases = {case.id.rpartition("::")[2]: case for case in collect(tmp_path / "out" / "raw" / "cpu").cases}
    eater = cases.pop("test_that_eats")

    assert {name: case.verdict for name, case in cases.items()} == {"test_before": Verdict.PASSED, "test_after": Verdict.PASSED}
    assert (record.verdict, eater.verdict) == (Verdict.OOM, Verdict.OOM)
    assert "its limit of 1.5 GiB" in eater.message
    assert "SIGKILL" in eater.message
    assert record.attempts == ()


def test_ctrl_c_ends_the_run_and_returns(run, ours):
    """An interrupt is passed into the container, the run returns as interrupted, and what was written is there."""
    _, ended, _, request = run(POLITE, on_line=lambda line: os.kill(os.getpid(), signal.SIGINT))
    assert ended.interrupted
    assert not ended.timed_out
    assert (request.raw / "partial").read_text() == "kept"
    assert container_name(request) not in ours()


def test_a_second_ctrl_c_skips_the_grace(run, ours):
    def twice(line: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        while not waiting.asked():  # a second signal while the first one is pending would count once
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    _, ended, _, request = run(STUBBORN, on_line=twice, grace_s=60.0)
    assert ended.interrupted
    assert ended.code == 137
    assert ended.seconds < 60
    assert container_name(request) not in ours()


def test_a_container_that_vanishes_is_infrastructure(engine, run, request_):
    """Removed from under us, or lost with the engine: no exit code is made up."""
    _, ended, _, _ = run(STUBBORN, on_line=lambda line: engine._api.remove_container(container_name(request_), force=True))
    assert ended.code is None
    assert "removed while it ran" in ended.error


def test_leftovers_of_dead_runs_only(engine, run, request_, built, ours):
    """The next run removes what a killed one left; what is alive, kept on request or of another machine and running stays."""
    host = engine._host(request_)
    machine = boot()
    cases = {
        "dead": (2**22 - 1, machine, False),
        "alive": (os.getpid(), machine, False),
        "kept": (2**22 - 1, machine, True),
        "elsewhere": (2**22 - 1, "another-machine", False),
    }
    created = {}
    for name, (pid, where, keep) in cases.items():
        request = change(request_, run_id=f"{request_.options.where.run_id}-{name}", keep=keep)
        body = container_options(request, built[0], replace(host, pid=pid, boot=where), ["sleep", "600"])
        created[name] = container_name(request)
        engine._api.create_container_from_config(body, created[name])
        engine._api.start(created[name])
    try:
        run("pass")
        assert {name for name, container in created.items() if container in ours()} == {"alive", "kept", "elsewhere"}
        assert f"container {created['kept']}" in clean(dry_run=True)
        assert created["kept"] in ours()
        clean(dry_run=False)
        assert {name for name, container in created.items() if container in ours()} == {"alive", "elsewhere"}
    finally:
        for container in set(created.values()) & set(ours()):
            engine._api.remove_container(container, force=True)


FILLS = {
    "one large file": "f = open('/results/large', 'wb')\nwhile True: f.write(b'x' * (1 << 20))",
    "a file without a name": "f = open('/results/large', 'wb'); os.unlink('/results/large')\nwhile True: f.write(b'x' * (1 << 20))",
    "small files": "for n in range(10**9): open(f'/results/{n}', 'w').close()",
    "a sparse file": "os.close(os.open('/results/hole', os.O_CREAT)); os.truncate('/results/hole', 1 << 30); time.sleep(600)",
    "hard links": "open('/results/a', 'wb').write(bytes(8 << 20))\nfor n in range(900): os.link('/results/a', f'/results/{n}')\nexit(3)",
    "deaf": "[signal.signal(s, signal.SIG_IGN) for s in (2, 15)]; f = open('/results/large', 'wb')\nwhile True: f.write(b'x' * (1 << 20))",
}


@pytest.mark.parametrize("fill", FILLS)
def test_results_have_a_cap(run, ours, fill):
    """However the room is taken: the run ends long before its time, and says why. What is linked often takes its room once."""
    program = "import os, signal, sys, time\ntime.sleep(0.5)\n" + FILLS[fill]
    _, ended, _, request = run(program, cap=Cap(32 << 20, 2000), target_s=120.0)
    if fill == "hard links":
        assert (ended.code, ended.exceeded) == (3, "")
    else:
        assert "to its results; the limit is 0.03125 GiB, and 2000 files" in ended.exceeded
        assert not ended.timed_out
    assert container_name(request) not in ours()


def test_one_file_has_a_cap_between_two_looks(run):
    """A limit of the kernel's: what grows faster than anybody looks, and what only seems to be large, are refused at once."""
    program = (
        "import os\nopen('/results/hole', 'w')\ntry: os.truncate('/results/hole', 3 << 30)\nexcept OSError as error: print(error.errno)"
    )
    _, ended, lines, _ = run(program, cap=Cap(32 << 20, 2000))
    assert (ended.code, lines) == (0, ["27"])


@pytest.mark.parametrize("kib", [8, 48, 96, 512])
def test_a_disk_that_is_full_is_infrastructure(built, request_, tmp_path, kib):
    """3, on the terminal and on record: before the container is created, and in the middle of it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.getuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(disk)], capture_output=True).returncode
    ):
        pytest.skip("only root can mount a small file system")
    try:
        package = tmp_path / "package"
        package.mkdir()
        (package / "test_op.py").write_text(
            "def test_op():\n    print('x' * (1 << 20))\n    open('/results/x', 'wb').write(b'x' * (1 << 20))\n"
        )
        for path in (tmp_path, package):
            path.chmod(0o755)
        settings = make_options(
            "full", disk / "out", package, engine="docker", stages=(Stage.TEST,), build=request_.options.build, gpu_wait_s=1.0
        )
        record = run_target(replace(request_.target, interpret=False), settings, lambda line: None, lambda event: None)
        comparison = write_report([settings.where.out], settings.where.out, ["cpu"], [record])
        kept = json.loads((disk / "out" / "raw" / "cpu" / "run.json").read_text()) if kib > 8 else {"verdict": "infra"}
        assert kib == 512 or (record.verdict, comparison.exit_code, kept["verdict"]) == (Verdict.INFRA, 3, "infra"), record
        assert kept["verdict"] != "incomplete"
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


# Images on a real engine: what is built, when it is reused, and what is said when it cannot be.


def test_the_image_says_what_it_is(engine, built, session_request):
    """Commit, base image, its identity and the hash of what was installed are labels of the image."""
    environment, said = built
    image = engine._api.inspect_image(environment.image)
    labels = {key.removeprefix("io.warpwave."): value for key, value in image["Config"]["Labels"].items() if key.startswith("io.warpwave.")}
    base = session_request.options.build.base_image
    assert environment.image_id == image["Id"]
    assert labels.pop("base-digest") == engine._api.inspect_image(base)["Id"]
    assert len(labels.pop("requirements")) == 12
    assert labels.pop("commit")
    assert labels == {"base": base, "target": "cpu"}
    assert image["Config"]["User"] == "65534:65534"
    assert not image["Config"]["Entrypoint"]
    assert said[-1].startswith("cpu: image") or any("Step 1/" in line for line in said)


def test_a_missing_device_is_reported_before_anything_is_pulled(engine, session_request):
    """The target's own fix is the remedy, and a base image that does not exist is never asked for."""
    target = session_request.target
    devices = replace(target.devices, nodes=("/dev/no-such-card*",))
    wanted = replace(target, devices=devices, probe=replace(target.probe, fix="Plug the card in."))
    said: list[str] = []
    with pytest.raises(InfrastructureError) as caught:
        engine.prepare(change(session_request, target=wanted, build=Build(base_image="nowhere.invalid/base:1")), said.append)
    assert "/dev/no-such-card*" in caught.value.happened
    assert caught.value.remedy == "Plug the card in."
    assert said == []


def test_wheels_do_not_stay_in_the_image(run):
    _, _, lines, _ = run("import os; print(os.path.exists('/build'), os.path.exists('/opt/warpwave'))")
    assert lines == ["False True"]


def test_the_second_prepare_builds_nothing(engine, built, session_request):
    said: list[str] = []
    again = engine.prepare(session_request, said.append)
    assert not again.built
    assert again.image_id == built[0].image_id
    assert said == [f"cpu: image {again.image} is there already"]


def test_a_replaced_base_image_is_noticed(engine, built, session_request, monkeypatch):
    """A tag of the base that points to another image than the one built on is not taken for the same."""
    from warpwave.engines.docker import images
    from warpwave.engines.docker.images import recipe

    parts = recipe(session_request)
    assert images.usable(engine._api, parts)
    monkeypatch.setattr(images, "digest", lambda image: "sha256:another")
    assert images.usable(engine._api, parts) is None


def test_a_failed_build_shows_its_end(engine, request_, tmp_path):
    dockerfile = tmp_path / "broken.Dockerfile"
    dockerfile.write_text("ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN echo the compiler is on strike | tr a-z A-Z; exit 3\n")
    with pytest.raises(InfrastructureError) as raised:
        engine.prepare(change(request_, target=replace(request_.target, dockerfile=dockerfile)), lambda line: None)
    assert "Step 3/" in raised.value.happened
    assert "THE COMPILER IS ON STRIKE" in raised.value.happened


@pytest.fixture
def registry():
    """Something on this machine that answers every request for an image with these statuses in turn; the last stays."""
    servers = []

    def start(*statuses: int) -> tuple[str, list[int]]:
        given: list[int] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                manifest = "/manifests/" in self.path
                status = statuses[min(len(given), len(statuses) - 1)] if manifest else 200
                if manifest:
                    given.append(status)
                code = "MANIFEST_UNKNOWN" if status == 404 else "TOOMANYREQUESTS"
                body = json.dumps({"errors": [{"code": code, "message": "as the status says"}]}).encode()
                self.send_response(status)
                self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body if self.command == "GET" else b"")

            def do_HEAD(self) -> None:
                self.do_GET()

            def log_message(self, *words: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return f"localhost:{server.server_port}/warpwave/base:1", given

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("statuses", "tries"), [((429,), 3), ((503,), 3), ((404,), 1)])
def test_a_busy_registry_is_asked_again(engine, request_, registry, monkeypatch, statuses, tries):
    """Rate limits and outages get two more tries with pauses between them, what is not there gets none; the message opens a way out."""
    monkeypatch.setattr("warpwave.engines.docker.images._PAUSES_S", (0.01, 0.02))
    base, given = registry(*statuses)
    said: list[str] = []
    with pytest.raises(InfrastructureError, match="could not be pulled") as raised:
        engine.prepare(change(request_, build=Build(base_image=base)), said.append)

    assert len([line for line in said if line == f"pulling {base}"]) == tries, (said, given)
    assert "--base-image" in raised.value.remedy


# The walls around code under test, on a real engine: what a hostile program can reach, and what Triton still needs.

HOSTILE = """
import json, os, pathlib, socket
found = {}
def attempt(name, action):
    try:
        found[name] = repr(action())
    except BaseException as error:
        found[name] = type(error).__name__
for place in ('/', '/etc', '/usr', '/opt/warpwave', '/warpwave/warpwave', '/packages/KERNELS',
              '/proc/sys/kernel', '/sys/fs/cgroup', '/dev'):
    attempt('write ' + place, lambda: pathlib.Path(place, 'x').write_text('x'))
attempt('edit kernels', lambda: pathlib.Path('/packages/KERNELS/test_nothing.py').write_text('x'))
attempt('resolve', lambda: socket.gethostbyname('example.com'))
attempt('connect', lambda: socket.create_connection(('192.0.2.1', 80), 2))
attempt('setuid', lambda: os.setuid(0))
attempt('chown', lambda: os.chown('/results', 0, 0))
attempt('mknod', lambda: os.mknod('/tmp/device', 0o20666, os.makedev(1, 1)))
attempt('chroot', lambda: os.chroot('/tmp'))
attempt('write results', lambda: pathlib.Path('/results/ok').write_text('x'))
attempt('write tmp', lambda: pathlib.Path('/tmp/ok').write_text('x'))
found['interfaces'] = [name for _, name in socket.if_nameindex()]
found['status'] = dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines() if ':\\t' in line)
found['environment'] = dict(os.environ)
found['sockets'] = [path for path in ('/var/run/docker.sock', '/run/docker.sock', '/run/podman/podman.sock') if os.path.exists(path)]
print(json.dumps(found))
"""


def test_the_flags_reach_the_engine(engine, run, request_):
    """What the engine says of the container is what was asked for: nothing is silently dropped on the way."""
    environment, ended, _, _ = run("pass", keep=True)
    name = container_name(request_)
    try:
        host = engine._api.inspect_container(name)["HostConfig"]
    finally:
        engine._api.remove_container(name, force=True)
    assert ended.code == 0
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["ReadonlyRootfs"] is True
    assert host["NetworkMode"] == "none"
    assert host["Init"] is True
    assert host["Privileged"] is False
    assert host["PidsLimit"] >= 2048
    assert host["Memory"] == host["MemorySwap"] > 0
    assert environment.options["user"] == (f"{os.getuid()}:{os.getgid()}" if os.getuid() else "65534:65534")
    assert environment.weakened == ()


def test_a_hostile_program_reaches_nothing(run, request_, monkeypatch):
    """Code under test writes to its results and to /tmp, and nowhere else; no network, no capability, none of the caller's secrets."""
    monkeypatch.setenv("GITHUB_TOKEN", "hunter2")
    _, ended, lines, request = run(HOSTILE.replace("KERNELS", request_.options.package.kernels.name))
    assert ended.code == 0, lines
    found = json.loads(lines[-1])
    reached = {key for key, value in found.items() if key.startswith("write ") and value == "1"}
    assert reached == {"write results", "write tmp"}
    refused = {"OSError", "PermissionError"}
    assert {found[key] for key in ("edit kernels", "connect", "setuid", "chown", "mknod", "chroot")} <= refused
    assert found["resolve"] == "gaierror"
    assert found["interfaces"] == ["lo"]
    assert found["sockets"] == []
    status = found["status"]
    assert {status[key] for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert "0" not in status["Uid"].split()
    assert "hunter2" not in json.dumps(found["environment"])
    assert (request.options.package.kernels / "test_nothing.py").read_text() == "def test_nothing(): pass\n"


def test_results_belong_to_the_caller(run, tmp_path):
    """Everything in the results folder is the caller's afterwards; a link out of it changes the owner of nothing."""
    outside = tmp_path / "outside"
    outside.write_text("x")
    other = 12345 if os.getuid() == 0 else os.getuid()
    if os.getuid() == 0:
        os.chown(outside, other, other)
    program = (
        f"import os; os.makedirs('/results/a/b'); open('/results/a/b/c', 'w').close(); os.symlink({str(outside)!r}, '/results/a/link')"
    )
    _, ended, lines, request = run(program)
    assert ended.code == 0, lines
    assert not (request.raw / "a" / "link").is_symlink()
    owners = {path.lstat().st_uid for path in [request.raw, *request.raw.rglob("*")]}
    assert owners == {os.getuid()}
    assert outside.stat().st_uid == other


def test_triton_compiles_under_these_flags(run):
    """The read-only root, the tmpfs and the missing capabilities leave the compiler what it needs: it builds and loads a shared object."""
    program = (
        "import torch, triton, triton.runtime.build as b; "
        "m = b.compile_module_from_src('#include <Python.h>\\nstatic struct PyModuleDef d = "
        '{PyModuleDef_HEAD_INIT, "probe", 0, -1, 0};\\nPyMODINIT_FUNC PyInit_probe(void) { return PyModule_Create(&d); }\', "probe"); '
        "print(m.__name__, torch.ones(8).sum().item())"
    )
    _, ended, lines, _ = run(program)
    assert ended.code == 0, lines
    assert lines[-1] == "probe 8.0"


def test_a_weakening_is_given_and_recorded(run):
    program = "import os; print(os.getuid()); open('/etc/x', 'w')"
    environment, ended, lines, _ = run(program, weaken=("user=root", "writable-root"))
    assert (ended.code, lines) == (0, ["0"])
    assert environment.weakened == ("user=root", "writable-root")
    assert (environment.options["read_only"], environment.options["network"]) == (False, "none")


def test_a_gpu_that_the_engine_cannot_give(engine, built, request_, ours):
    """Without the vendor's toolkit the user reads how to get it, from the target's own words."""
    target = replace(request_.target, devices=Devices(gpus=True), probe=replace(request_.target.probe, fix="Install the toolkit."))
    request = change(request_, target=target)
    if "nvidia" in engine._api.info()["Runtimes"]:
        pytest.skip("this engine can hand out GPUs")
    with pytest.raises(InfrastructureError) as raised:
        engine.execute(request, built[0], print, ["true"])
    assert "GPU" in raised.value.meaning
    assert raised.value.remedy == "Install the toolkit."
    assert container_name(request) not in ours()


def test_a_missing_kernels_folder_is_not_created(engine, built, request_, tmp_path):
    """A source that is not there is an error; some engines would make it, as root."""
    missing = Path(tmp_path / "nowhere")
    with pytest.raises((InfrastructureError, FileNotFoundError)):
        engine.execute(change(request_, kernels=missing), built[0], print, ["true"])
    assert not missing.exists()


# A package with tests beside it, on a real engine: its root is mounted, and what it needs is in a layer on top of the image.

TESTS = """
import importlib.metadata, os, pathlib, socket
import my_ops, my_ops._made
import pytest
ROOT = pathlib.Path(__file__).parents[1]
def test_the_tree_is_tested():
    assert (my_ops.where, my_ops.__file__) == ("tree", str(ROOT / "my_ops" / "__init__.py"))
    assert my_ops._made.made == "by the build"
def test_the_package_knows_its_version():
    assert importlib.metadata.version("my-ops") == "1.5"
def test_the_root_is_read_only_and_its_clone_is_hidden():
    assert os.listdir(ROOT / ".git") == []
    with pytest.raises(OSError):
        (ROOT / "new").touch()
    with pytest.raises(OSError):
        (ROOT / ".git" / "new").touch()
def test_the_variable_is_there_and_the_network_is_not():
    assert os.environ["A_SWITCH"] == "on"
    with pytest.raises(OSError):
        socket.create_connection(("192.0.2.1", 80), timeout=2)
"""


def test_a_package_beside_its_tests(engine, built, request_, tmp_path, monkeypatch):
    """Everything passes; the record names what was installed; the user's folder is as it was; the layer is found again."""
    root = make_package(tmp_path / "ops")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("a token")
    (root / "tests" / "test_ops.py").write_text(TESTS)
    for path in (tmp_path, root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    options = change(
        request_,
        kernels=root / "tests",
        root=root,
        out=tmp_path / "out",
        stages=(Stage.TEST,),
        benches=(),
        install=Install(package="alone"),
        variables={"A_SWITCH": "on"},
    ).options
    monkeypatch.setattr(attempt_module, "choose_engine", lambda *_: engine)
    said: list[str] = []
    record = run_target(request_.target, options, said.append, lambda event: None)
    found = collect(tmp_path / "out" / "raw" / "cpu")

    assert record.verdict is Verdict.PASSED, (record.reason, said, [(case.id, case.message) for case in found.cases])
    assert len(found.cases) == 4
    assert record.environment is not None
    assert record.environment.packages == {"my-ops": "1.5"}
    assert "A_SWITCH=…" in record.environment.options["environment"]
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before

    said.clear()
    own = options.package
    again = engine.prepare(change(request_, kernels=own.kernels, root=own.root, install=own.install), said.append)
    assert (again.image_id, again.built, again.packages) == (record.environment.image_id, False, {"my-ops": "1.5"})


# The whole line against a real engine, as a user types it: image, container, three kinds of results, one comparison.


@pytest.fixture
def warpwave(tmp_path, wheelhouse, engine):
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "warpwave", "run", "cpu", "--engine", "docker", "--out", str(tmp_path / "out"), *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})

    return run


def test_a_strangers_package_goes_through_the_whole_line(warpwave, offline, built, data, tmp_path):
    """A script with a hard-coded device, untouched: compiled for eight cards, merged; all of it the caller's afterwards. One of its
    providers raises on every card."""
    done = warpwave("--kernels", str(data / "scripted"), "--bench", "*.py", *offline)
    out = tmp_path / "out"
    comparison = json.loads((out / "comparison.json").read_text())
    record = json.loads((out / "raw" / "cpu" / "run.json").read_text())
    target = comparison["targets"][0]

    assert done.returncode == 1, done.stdout + done.stderr
    assert "raises ValueError on every architecture" in done.stdout
    assert (target["verdict"], target["tests"], target["compiled"]["passed"], target["host_code"]) == ("failed", {}, 32, {"failed": 6})
    assert record["environment"]["options"]["cap_drop"] == ["ALL"]
    assert record["environment"]["options"]["network"] == "none"
    assert Exit(**record["exit"]) == Exit(0, record["exit"]["seconds"])
    assert {path.stat().st_uid for path in out.rglob("*")} == {os.getuid()}
    assert int(ElementTree.parse(out / "junit.xml").getroot().get("tests")) > 32


def test_deaths_are_named_in_a_container_too(warpwave, offline, built, data, tmp_path):
    """A segmentation fault in there costs one test, and the exit code says that tests failed."""
    done = warpwave("--kernels", str(data / "deaths"), "--stage", "test", "--test-timeout", "4", *offline)
    cases = ElementTree.parse(tmp_path / "out" / "raw" / "cpu" / "test" / "junit.xml").getroot().iter("testcase")
    outcomes = {case.get("name"): [child.get("type") for child in case if child.tag in ("failure", "error")] for case in cases}

    assert done.returncode == 1, done.stdout + done.stderr
    assert outcomes["test_segfault"] == ["crashed"]
    assert outcomes["test_hang_in_c"] == ["timeout"]
    assert outcomes["test_after"] == []


def test_a_missing_base_image_is_three_beats(warpwave, offline, data, tmp_path):
    """What is missing, why it could not be had, and the two options that help; exit code 3, and a comparison that says so."""
    done = warpwave("--kernels", str(data / "scripted"), *offline, "--base-image", "nowhere.invalid/base:1")
    record = json.loads((tmp_path / "out" / "raw" / "cpu" / "run.json").read_text())

    assert done.returncode == 3
    assert "Traceback" not in done.stdout + done.stderr
    assert record["verdict"] == "infra"
    assert "nowhere.invalid/base:1" in record["reason"]
    assert "--base-image" in record["hint"]


def test_the_doctor_passes_an_engine_that_is_up(engine, tmp_path):
    """The engine is asked for its version, its limits and what killed runs have left; nothing is changed or said of the machine."""
    command = [sys.executable, "-m", "warpwave", "doctor", "--engine", "docker", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    findings = {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}

    assert findings["docker"]["state"] == "pass", findings
    assert {"limits", "live-restore", "image room", "leftovers"} <= set(findings)
