"""The walls around code under test, on a real engine: what a hostile program can reach, and what Triton still needs."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from engine_requests import change

from warpwave.config.targets import Devices
from warpwave.engines.docker.container import container_name
from warpwave.errors import InfrastructureError

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
    _, ended, lines, request = run(HOSTILE.replace("KERNELS", request_.options.kernels.name))
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
    assert (request.options.kernels / "test_nothing.py").read_text() == "def test_nothing(): pass\n"


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
    """What was given up by name is given up, and nothing else."""
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
        engine._run(request, built[0], print, ["true"])
    assert "GPU" in raised.value.meaning
    assert raised.value.remedy == "Install the toolkit."
    assert container_name(request) not in ours()


def test_a_missing_kernels_folder_is_not_created(engine, built, request_, tmp_path):
    """A source that is not there is an error; some engines would make it, as root."""
    missing = Path(tmp_path / "nowhere")
    with pytest.raises((InfrastructureError, FileNotFoundError)):
        engine._run(change(request_, kernels=missing), built[0], print, ["true"])
    assert not missing.exists()
