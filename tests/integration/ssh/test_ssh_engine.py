"""Runs in the engine of another machine: a real ssh server and a real engine, both on this machine, with no folder in common."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from engine_requests import change, having
from own_sshd import OwnSshd, missing

from warpwave.config.hosts import Host
from warpwave.engines import snapshot
from warpwave.engines.remote import engine as module
from warpwave.engines.remote.container import KEPT_UNTIL, MADE, RUN, UNTIL, code_volume
from warpwave.engines.remote.engine import connect
from warpwave.engines.ssh import command as ask_module
from warpwave.errors import InfrastructureError, UnreachableError
from warpwave.records import Verdict
from warpwave.run import run_target

pytestmark = [
    pytest.mark.slow,
    # Docker's SDK leaves a socket to the garbage collector if connecting it fails, as it does here on purpose.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"),
]

SECRET = "hunter2-of-the-tests"
KERNEL = """
import pytest, torch, triton, triton.language as tl
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)
def test_add():
    x, y = torch.rand(100, device="cuda"), torch.rand(100, device="cuda")
    out = torch.empty_like(x)
    add[(2,)](x, y, out, 100, BLOCK=64)
    torch.testing.assert_close(out, x + y)
"""


@pytest.fixture(scope="module")
def sshd():
    if lacking := missing():
        pytest.skip(lacking)
    server = OwnSshd()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def host(sshd, engine) -> Host:
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    return Host(name="cpu", target="cpu", ssh="card", ssh_config=sshd.config, socket=address.removeprefix("unix://"))


@pytest.fixture
def asked(request_, host):
    (request_.raw / "job.json").write_text("{}")
    return change(request_, host=host)


@pytest.fixture
def remote(host):
    connected = connect(host)
    yield connected
    connected.close()


@pytest.fixture
def left(engine):
    """What a run has left in the engine: containers and volumes, not the archive, which other runs share."""

    def left(run_id: str) -> list[str]:
        containers = engine._api.containers(all=True, filters={"label": f"{RUN}={run_id}"})
        volumes = engine._api.volumes(filters={"label": f"{RUN}={run_id}"})["Volumes"] or []
        return [entry["Names"][0] for entry in containers] + [volume["Name"] for volume in volumes]

    return left


def execute(remote, request, built, program: str, said=None, on_line=lambda line: None):
    lines: list[str] = []
    remote._say = remote._reconnecting.say = (said if said is not None else []).append
    return *remote.execute(request, built[0], lambda line: (lines.append(line), on_line(line)), ["python3", "-c", program]), lines


def test_a_program_runs_there_with_the_same_protections(remote, asked, built, left):
    """An ordinary user, a read-only root, no network; what it wrote comes back as files, and nothing is left there."""
    program = (
        "import os, socket; print(os.getuid(), os.listdir('/sys/class/net'));"
        "[print(p, os.access(p, os.W_OK)) for p in ('/', '/warpwave', '/warpwave/warpwave', '/results', '/results/run')];"
        "open('/results/run/found', 'w').write('x'); os.symlink('/etc/passwd', '/results/run/link'); os.mkfifo('/results/run/pipe');"
        "print(open('/proc/self/status').read().split('CapEff:')[1].split()[0])"
    )
    environment, ended, lines = execute(remote, asked, built, program)

    assert lines[0] == "65534 ['lo']"
    assert lines[1:6] == ["/ False", "/warpwave False", "/warpwave/warpwave False", "/results False", "/results/run True"]
    assert int(lines[6], 16) == 0
    assert (ended.code, ended.error) == (0, "")
    assert sorted(path.name for path in asked.raw.iterdir()) == ["found", "job.json"]
    assert environment.options["archive"] == snapshot.take_once(asked.options).digest
    assert left(asked.options.where.run_id) == []


def test_a_connection_that_breaks_loses_nothing(remote, asked, built, left):
    """ssh is killed in the middle of a run; each line comes once, and the results too."""
    said: list[str] = []
    program = "import time\nfor n in range(8): print(n, flush=True); time.sleep(0.5)\nopen('/results/run/end', 'w')"
    _, ended, lines = execute(remote, asked, built, program, said, lambda line: remote._tunnel._process.kill() if line == "2" else None)

    assert (ended.code, lines) == (0, [str(number) for number in range(8)])
    assert [line for line in said if "connected to card again" in line]
    assert (asked.raw / "end").exists()
    assert left(asked.options.where.run_id) == []


def test_a_second_client_waits_for_the_card_or_is_refused(remote, host, asked, built, tmp_path):
    """The lease is in the engine: another process, user or machine finds it. The first run is not disturbed."""
    target = replace(asked.target, visible_devices="SOME_VISIBLE_DEVICES")
    first, second = change(asked, target), change(asked, target, raw=tmp_path / "second", run_id="second", gpu_wait_s=0.0)
    second.raw.mkdir()
    started, ended = threading.Event(), []

    def run_first():
        lines: list[str] = []
        remote.execute(
            first,
            built[0],
            lambda line: (lines.append(line), started.set()),
            ["python3", "-c", "import time; print(1, flush=True); time.sleep(4)"],
        )
        ended.append(lines)

    thread = threading.Thread(target=run_first)
    thread.start()
    other, said = connect(host), []
    try:
        assert started.wait(30)
        with pytest.raises(InfrastructureError, match=f"the GPUs of cpu on card is in use by run {first.options.where.run_id} of "):
            execute(other, second, built, "print(2)")
        _, after, lines = execute(other, change(second, gpu_wait_s=60.0), built, "print(2)", said)
    finally:
        thread.join()
        other.close()

    assert ended == [["1"]]
    assert [line for line in said if "waiting up to 60 s" in line]
    assert (after.code, lines) == (0, ["2"])


@pytest.mark.parametrize("first_is", ["here", "over ssh"])
def test_a_run_of_the_machine_itself_and_a_client_over_ssh_never_share_a_card(first_is, remote, engine, asked, built):
    """Both keep their lease in the engine; which of them comes first decides. A card is free while a run here does not measure."""
    target = replace(asked.target, visible_devices="SOME_VISIBLE_DEVICES")
    environment = built[0]
    there = change(asked, target, gpu_wait_s=0.0)
    local = change(asked, target, run_id="local", gpu_wait_s=0.0, host=None)
    remote._say = lambda line: None
    if first_is == "here":
        with engine.leased(local, environment), pytest.raises(InfrastructureError, match="in use by run local of "):
            execute(remote, there, built, "print(1)")
        assert execute(remote, there, built, "print(1)")[1].code == 0
    else:
        refused = pytest.raises(InfrastructureError, match=f"on this machine is in use by run {there.options.where.run_id} of ")
        with remote._cards(there, environment.image_id), refused, engine.leased(local, environment):
            pytest.fail("two runs have one card")
        with engine.leased(local, environment):
            pass
    assert not [name for name in containers_of(engine) if "lease" in name]


def containers_of(engine):
    return [entry["Names"][0] for entry in engine._api.containers(all=True)]


def test_a_full_disk_there_is_said(remote, engine, asked, built, left):
    """It is the engine's machine that has no room; the archive's volume is one of 64 KiB here."""
    archive = snapshot.take_once(asked.options)
    with_room = {"type": "tmpfs", "device": "tmpfs", "o": "size=64k"}
    engine._api.create_volume(code_volume(archive), driver="local", driver_opts=with_room)
    try:
        with pytest.raises(InfrastructureError, match="The disk of the engine on card is full"):
            execute(remote, asked, built, "print(1)")
    finally:
        with suppress(OSError):  # the run has done it
            engine._api.remove_volume(code_volume(archive))

    assert left(asked.options.where.run_id) == []


def test_what_dead_clients_left_goes_at_its_time(remote, engine, asked, built):
    """A container past its limit is killed, one past its time is removed with its volume; others stay."""
    base = {"Image": built[0].image_id, "Entrypoint": ["sleep", "100"], "HostConfig": {"NetworkMode": "none"}}
    past, soon = str(int(time.time()) - 10), str(int(time.time()) + 1000)
    for name, labels in {
        "old": {KEPT_UNTIL: past},
        "stuck": {UNTIL: past, KEPT_UNTIL: soon},
        "fine": {UNTIL: soon, KEPT_UNTIL: soon},
    }.items():
        engine._api.create_container_from_config({**base, "Labels": {MADE: "true", **labels}}, f"warpwave-test-{name}")
        engine._api.start(f"warpwave-test-{name}")
    engine._api.create_volume("warpwave-test-volume", labels={MADE: "true", KEPT_UNTIL: past})
    try:
        found = [name for name in remote.clean(dry_run=True) if "warpwave-test-" in name]
        remote.prepare(asked, lambda line: None)
        states = {entry["Names"][0]: entry["State"] for entry in engine._api.containers(all=True, filters={"name": "warpwave-test-"})}

        assert found == ["container warpwave-test-old", "volume warpwave-test-volume"]
        assert states == {"/warpwave-test-stuck": "exited", "/warpwave-test-fine": "running"}
        assert "warpwave-test-volume" not in [one["Name"] for one in engine._api.volumes()["Volumes"]]
    finally:
        for name in ("old", "stuck", "fine"):
            engine._remove(f"warpwave-test-{name}")


def test_a_machine_that_cannot_be_reached_is_said_soon(sshd, host, monkeypatch):
    """A wrong host key, a key that it does not take, a closed port, a name that nobody knows, and one that hangs."""
    monkeypatch.setattr(ask_module, "ANSWER_S", 3.0)
    cases = {
        "host key": replace(host, ssh_config=sshd.another_host_key()),
        "refused this user's keys": replace(host, ssh_config=sshd.configuration("config-key", key="stranger")),
        "is off or hangs": replace(host, ssh_config=sshd.configuration("config-port", port=9)),
        "No machine has this name": replace(host, ssh="no-such-host.invalid"),
    }
    for meaning, wrong in cases.items():
        with pytest.raises(UnreachableError) as refused:
            connect(wrong)
        assert meaning in refused.value.meaning
    sshd.hang()
    try:
        with pytest.raises(UnreachableError, match="card did not answer within 3 s"):
            connect(host)
    finally:
        sshd.wake()


def test_a_server_that_forwards_no_sockets_is_named(sshd, host):
    """ssh connects there, and the engine stays out of reach: it is the server's setting that has to change."""
    sshd.end()
    sshd.start("AllowStreamLocalForwarding no")
    try:
        with pytest.raises(InfrastructureError, match="cannot be reached through ssh") as refused:
            connect(host)
        assert "AllowStreamLocalForwarding" in refused.value.remedy
    finally:
        sshd.end()
        sshd.start()


@pytest.fixture(scope="module")
def killed(sshd, host, built, offline, tmp_path_factory):
    """A run of Triton's interpreter whose client was killed while the tests ran; its package, its folder and its command."""
    folder = tmp_path_factory.mktemp("killed")
    package = folder / "my_ops"
    package.mkdir()
    (package / "test_add.py").write_text(KERNEL)
    (package / "test_slow.py").write_text("import time\ndef test_slow(): time.sleep(6)\n")
    leg = {"ssh": "card", "ssh_config": host.ssh_config, "socket": host.socket, "environment": {"TOKEN": SECRET}}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"cpu": leg}))
    where = ["--hosts", str(folder / "hosts.yml"), "--kernels", str(package), "--stage", "test", "--no-report"]
    command = [sys.executable, "-m", "warpwave", "run", "cpu", *where, *offline]
    with open(folder / "log", "wb") as log:
        client = subprocess.Popen([*command, "--out", str(folder / "out")], stdout=log, stderr=log, start_new_session=True)
    processes, until = "", time.monotonic() + 120
    while not (folder / "log").read_text().count("facts ") and time.monotonic() < until and client.poll() is None:
        processes += subprocess.run(["ps", "axeww", "-o", "args"], capture_output=True, text=True).stdout if not processes else ""
        time.sleep(0.2)
    assert client.poll() is None, (folder / "log").read_text()
    arguments = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True).stdout
    os.killpg(client.pid, signal.SIGKILL)
    client.wait()
    return folder, command, arguments


def test_a_killed_client_is_taken_up_again(killed, engine, left):
    """The container has gone on. `--resume` finds it, follows it to its end and brings the results; nothing runs twice."""
    folder, command, _ = killed
    run_id = json.loads((folder / "out" / "raw" / "cpu" / "run.json").read_text())["run_id"]
    before = left(run_id)
    done = subprocess.run([*command, "--resume", str(folder / "out")], capture_output=True, text=True)
    record = json.loads((folder / "out" / "raw" / "cpu" / "run.json").read_text())
    report = json.loads((folder / "out" / "raw" / "cpu" / "test" / "report.json").read_text())

    assert done.returncode == 0, done.stdout + done.stderr
    assert len([name for name in before if name.endswith("-results")]) == 1
    assert "found the container on card" in done.stderr + done.stdout
    assert (record["verdict"], len(record["attempts"])) == (Verdict.PASSED.value, 1)
    assert report["counts"] == {"passed": 2}
    assert left(run_id) == []


def test_secrets_stay_where_they_are_used(killed):
    """Not in a process list, not in what was packed, not in a record or a report."""
    folder, _, arguments = killed
    written = [path for path in (folder / "out").rglob("*") if path.is_file()]

    assert "ssh" in arguments
    assert SECRET not in arguments
    assert written
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []


def test_the_container_ends_itself(host, asked, built, tmp_path, monkeypatch, left):
    """At its limit, although its client does not: the guard is the first process in it."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "test_slow.py").write_text("import time\ndef test_slow(): time.sleep(300)\n")
    monkeypatch.setattr("warpwave.engines.remote.container._SPARE_S", 0.0)
    patient = module.watch
    monkeypatch.setattr(
        module, "watch", lambda api, name, output, say, limit, *more, **also: patient(api, name, output, say, 300.0, *more, **also)
    )
    options = change(asked, target_s=12.0, grace_s=20.0, out=tmp_path / "out", kernels=package).options
    record = run_target(asked.target, having(options, engine="ssh"), lambda line: None, lambda event: None)

    assert record.verdict is Verdict.TIMEOUT, record.reason
    assert record.exit is not None
    assert (record.exit.code, record.exit.timed_out) == (124, True)
    assert (tmp_path / "out" / "raw" / "cpu" / "stages.json").exists()
    assert left(asked.options.where.run_id) == []


# The part of docs/guides/hosts.md on ssh, run as it is written: its machine is this one, behind a real ssh server with a


GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "hosts.md"
FENCE = re.compile(r"^```(\w+) title=\"([^\"]*)\"\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def machine_of_the_guide(engine, tmp_path):
    """A folder to work in, where `ssh h100-01` reaches this machine and its engine, which has the image of the tests."""
    if lacking := missing():
        pytest.skip(lacking)
    server = OwnSshd()
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    server.start(f"SetEnv DOCKER_HOST={address}")
    config = Path(server.configuration("config-guide"))
    config.write_text(config.read_text().replace("Host card", "Host h100-01"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "work").mkdir()
    _program(tmp_path / "bin" / "ssh", f'exec {shutil.which("ssh")} -F {config} "$@"')
    yield tmp_path
    server.stop()


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_the_guide_does_what_it_says(machine_of_the_guide, built, offline):
    """The machine answers, the doctor finds it fit to run, and a kernel passes its test there."""
    more = shlex.join(offline)
    _program(
        machine_of_the_guide / "bin" / "warpwave",
        f'case $1 in run) exec {sys.executable} -m warpwave "$@" {more} ;; esac\nexec {sys.executable} -m warpwave "$@"',
    )
    environment = {
        **os.environ,
        "PATH": f"{machine_of_the_guide / 'bin'}:{os.environ['PATH']}",
        "DOCKER_HOST": f"unix://{machine_of_the_guide}/no.sock",
    }
    work, ran = machine_of_the_guide / "work", []
    for language, title, text in FENCE.findall(GUIDE.read_text()):
        if language != "console":
            path = work / title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            continue
        for line in (line[2:] for line in text.splitlines() if line.startswith("$ ") and title == "with a machine h100-01"):
            done = subprocess.run(["bash", "-euc", line], cwd=work, env=environment, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            ran.append(line.split()[0:2])

    record = json.loads((work / "run" / "raw" / "cpu" / "run.json").read_text())
    assert ran == [["ssh", "h100-01"], ["warpwave", "doctor"], ["warpwave", "run"]]
    assert (record["verdict"], record["host"], record["environment"]["engine"]) == ("passed", "h100-01", "ssh")
