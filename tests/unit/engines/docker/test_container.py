"""What a container is created with, key by key: the whole body for each shipped target, and what must never be in it."""

import copy
import itertools
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from engine_requests import ask, change

from warpwave.config.targets import Devices, load_targets
from warpwave.engines.docker.container import (
    PACKAGE,
    WEAKENINGS,
    Host,
    Node,
    boot,
    check_readable,
    container_options,
    container_user,
    is_rootless,
    layout,
    lent,
    observe,
    owner_is_dead,
    readable,
)
from warpwave.engines.protocol import Layout, Request
from warpwave.errors import ConfigError, InfrastructureError
from warpwave.records import Declared, Environment
from warpwave.records.isolated import isolated

TARGETS = load_targets()
ENVIRONMENT = Environment("docker", "python3", image="warpwave/x:0", image_id="sha256:1234")
HOST = Host(uid=1000, gid=1001, cpus=16, memory_bytes=100 * 5**3, open_files=65536, pid=42, boot="b/1", created="2026-01-02T03:04:05+00:00")
NODES = (Node("/dev/kfd", 109), Node("/dev/dri/renderD128", 109), Node("/dev/dri/renderD129", 44))
REQUEST = ask(TARGETS["cpu"], Path("/srv/kernels"), Path("/srv/raw"), commit="c0ffee")

GOLDEN = {
    "Image": "sha256:1234",
    "Entrypoint": ["python3"],
    "Cmd": [*isolated("", "/warpwave", "warpwave.inside", "/results/job.json")[1:]],
    "User": "1000:1001",
    "WorkingDir": "/tmp",
    "Env": [
        "HOME=/tmp",
        "LOGNAME=warpwave",
        "PYTHONDONTWRITEBYTECODE=1",
        "PYTHONPATH=/warpwave",
        "PYTHONUNBUFFERED=1",
        "TRITON_CACHE_DIR=/tmp/triton",
        "TRITON_DEFAULT_FP_FUSION=1",
        "USER=warpwave",
    ],
    "Labels": {
        "io.warpwave.run": "r1",
        "io.warpwave.target": "cpu",
        "io.warpwave.pid": "42",
        "io.warpwave.boot": "b/1",
        "io.warpwave.created": "2026-01-02T03:04:05+00:00",
        "io.warpwave.keep": "false",
    },
    "HostConfig": {
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "ReadonlyRootfs": True,
        "Tmpfs": {"/tmp": "rw,exec,nosuid,nodev,size=2g,mode=1777"},
        "NetworkMode": "none",
        "IpcMode": "private",
        "Init": True,
        "PidsLimit": 2048,
        "Memory": 10000,
        "MemorySwap": 10000,
        "ShmSize": 1 << 30,
        "Ulimits": [
            {"Name": "core", "Soft": 0, "Hard": 0},
            {"Name": "nofile", "Soft": 65536, "Hard": 65536},
            {"Name": "fsize", "Soft": 4 << 30, "Hard": 4 << 30},
        ],
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "50m", "max-file": "2"}},
        "Mounts": [
            {"Type": "bind", "Source": str(PACKAGE), "Target": "/warpwave/warpwave", "ReadOnly": True},
            {"Type": "bind", "Source": "/srv/kernels", "Target": "/packages/kernels", "ReadOnly": True},
            {"Type": "bind", "Source": "/srv/raw", "Target": "/results", "ReadOnly": False},
        ],
        "Devices": [],
        "DeviceRequests": [],
        "GroupAdd": [],
    },
}


def expected(*variables: str, target: str = "cpu", **host: object) -> dict:
    """The golden body with these differences."""
    body = copy.deepcopy(GOLDEN)
    body["Env"] = sorted([*body["Env"], *variables])
    body["Labels"]["io.warpwave.target"] = target
    body["HostConfig"].update(host)
    return body


def options(target: str = "cpu", host: Host = HOST, **changes) -> dict:
    return container_options(change(REQUEST, target=TARGETS[target], **changes), ENVIRONMENT, host)


def with_devices(target: str, **devices) -> Request:
    return change(REQUEST, target=replace(TARGETS[target], devices=Devices(**devices)))


def test_a_target_without_gpu():
    """The cpu target gets the bare walls."""
    assert options() == GOLDEN


def test_a_target_with_a_device_request():
    """All cards by default; one card, and no variable that would count it by the host's numbers, on request."""
    request = {"Driver": "", "Count": -1, "DeviceIDs": [], "Capabilities": [["gpu"]], "Options": {}}
    capabilities = "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    assert options("cuda") == expected(capabilities, target="cuda", DeviceRequests=[request])
    chosen = {**request, "Count": 0, "DeviceIDs": ["1", "GPU-ab"]}
    assert options("cuda", gpu="1,GPU-ab") == expected(capabilities, target="cuda", DeviceRequests=[chosen])


def test_a_target_with_device_nodes():
    """The nodes, the numeric groups they belong to, and the variable that picks a card among them."""
    devices = [{"PathOnHost": node.path, "PathInContainer": node.path, "CgroupPermissions": "rw"} for node in NODES]
    host = replace(HOST, nodes=NODES)
    assert options("rocm", host) == expected(target="rocm", Devices=devices, GroupAdd=["44", "109"])
    assert options("rocm", host, gpu="1") == expected("HIP_VISIBLE_DEVICES=1", target="rocm", Devices=devices, GroupAdd=["44", "109"])
    both = change(with_devices("rocm", gpus=True, nodes=("/dev/kfd",)), gpu="1")
    assert container_options(both, ENVIRONMENT, host)["Env"] == GOLDEN["Env"]


def test_a_weakened_container():
    body = options(weaken=("user=root", "seccomp=unconfined", "network=bridge", "ipc=host", "writable-root", "label=disable"))
    security = ["no-new-privileges", "seccomp=unconfined", "label=disable"]
    weak = {"SecurityOpt": security, "NetworkMode": "bridge", "IpcMode": "host", "ReadonlyRootfs": False, "CapAdd": ["DAC_OVERRIDE"]}
    assert body == {**expected(**weak), "User": "0:0"}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("weaken", [(), *itertools.combinations(WEAKENINGS, 1), tuple(WEAKENINGS)])
def test_some_doors_do_not_exist(target, weaken, monkeypatch):
    """No target and no weakening is privileged, brings an engine's socket, the host's processes or the caller's secrets along."""
    monkeypatch.setenv("GITHUB_TOKEN", "hunter2")
    body = options(target, replace(HOST, nodes=NODES), weaken=weaken)
    host, text = body["HostConfig"], json.dumps(body).lower()
    assert not {"Privileged", "PidMode", "UsernsMode", "Binds", "VolumesFrom"} & set(host)
    assert host["CapDrop"] == ["ALL"]
    assert "no-new-privileges" in host["SecurityOpt"]
    assert set(host.get("CapAdd", [])) <= {"DAC_OVERRIDE"}
    assert "docker.sock" not in text
    assert "hunter2" not in text
    assert [mount["Target"] for mount in host["Mounts"] if not mount["ReadOnly"]] == ["/results"]


def test_cdi_names():
    for gpu, names in ((None, ["vendor.com/gpu=all"]), ("0,2", ["vendor.com/gpu=0", "vendor.com/gpu=2"])):
        request = change(with_devices("rocm", cdi="vendor.com/gpu={gpu}"), gpu=gpu)
        body = container_options(request, ENVIRONMENT, HOST)
        wanted = [{"Driver": "cdi", "Count": 0, "DeviceIDs": names, "Capabilities": [], "Options": {}}]
        assert body["HostConfig"]["DeviceRequests"] == wanted
        assert not [variable for variable in body["Env"] if "VISIBLE" in variable]


def test_volumes_of_a_target():
    """Driver folders come in as they are spelled; a volume that is no pair of absolute paths is refused with its key path."""
    body = container_options(with_devices("cuda", volumes=("/opt/driver:/opt/driver:ro", "/scratch:/scratch")), ENVIRONMENT, HOST)
    assert [(m["Source"], m["Target"], m["ReadOnly"]) for m in body["HostConfig"]["Mounts"][3:]] == [
        ("/opt/driver", "/opt/driver", True),
        ("/scratch", "/scratch", False),
    ]
    for wrong in ("/a", "a:/b", "/a:b", "/a:/b:rx"):
        with pytest.raises(ConfigError, match=r"targets.cuda.devices.volumes\[1\]"):
            container_options(with_devices("cuda", volumes=("/a:/b", wrong)), ENVIRONMENT, HOST)


def test_who_runs_inside():
    """The caller; nobody where the caller is root; root inside only of a rootless engine, or by name."""
    assert container_user(REQUEST, HOST) == (1000, 1001)
    assert container_user(REQUEST, replace(HOST, uid=0, gid=0)) == (65534, 65534)
    assert container_user(REQUEST, replace(HOST, rootless=True)) == (0, 0)
    assert container_user(change(REQUEST, weaken=("user=root",)), HOST) == (0, 0)


def test_more_threads_on_larger_machines():
    """torch starts threads by the number of CPUs: the limit on processes grows with it."""
    assert options(host=replace(HOST, cpus=384))["HostConfig"]["PidsLimit"] == 6144


def test_root_group_is_not_given_away():
    request = with_devices("rocm", nodes=("/dev/x",), groups_from_nodes=True, groups=(7,))
    assert container_options(request, ENVIRONMENT, replace(HOST, nodes=(Node("/dev/x", 0),)))["HostConfig"]["GroupAdd"] == ["7"]


def test_a_part_of_a_package_is_mounted_with_all_of_it(tmp_path):
    """The tests may import their neighbours; what git keeps of the clone, which may hold a token, is hidden behind an empty folder."""
    (tmp_path / "ops" / "tests").mkdir(parents=True)
    (tmp_path / "ops" / ".git").mkdir()
    request = change(ask(TARGETS["cpu"], tmp_path / "ops" / "tests", tmp_path / "raw"), root=tmp_path / "ops")
    mounts = container_options(request, ENVIRONMENT, HOST)["HostConfig"]["Mounts"]

    assert layout(request) == Layout("/warpwave", "/packages/ops/tests", "/results", "/packages/ops")
    assert mounts[1] == {"Type": "bind", "Source": str(tmp_path / "ops"), "Target": "/packages/ops", "ReadOnly": True}
    assert mounts[-1] == {"Type": "tmpfs", "Target": "/packages/ops/.git", "ReadOnly": True}


def test_a_targets_import_path_comes_behind_the_harness():
    """A targets file's PYTHONPATH adds folders; it never replaces the harness's own."""
    target = replace(TARGETS["cpu"], environment={"PYTHONPATH": "/opt/libraries"})

    assert "PYTHONPATH=/warpwave:/opt/libraries" in container_options(change(REQUEST, target), ENVIRONMENT, HOST)["Env"]


def test_variables_of_the_user_reach_the_container_and_not_the_report():
    """`--env` may pass a token on: a report shows the name alone. Folders for imports come last."""
    request = change(REQUEST, variables={"A_TOKEN": "secret", "PYTHONPATH": "/mine"}, declared=Declared(variables={"THEIRS_X": "1"}))
    body = container_options(request, ENVIRONMENT, HOST)
    shown = readable(body, request.options.package.variables)["environment"]

    assert {"A_TOKEN=secret", "PYTHONPATH=/warpwave:/mine"} <= set(body["Env"])
    assert "A_TOKEN=…" in shown
    assert "secret" not in str(shown)
    assert "THEIRS_X" not in str(body), "what a package sets is for its stages alone"


# What this machine gives to a container and takes back: device nodes, the results folder, and whose containers are orphans.


def test_nodes_are_looked_up_on_the_host(tmp_path):
    """A pattern yields its character devices with their groups, and a pattern without any is the user's next step."""
    (tmp_path / "nul1").touch()
    found = observe(with_devices("rocm", nodes=("/dev/nul?", "/dev/zer[o]"), groups_from_nodes=True), {"NCPU": 3, "MemTotal": 1000})
    assert [node.path for node in found.nodes] == ["/dev/null", "/dev/zero"]
    assert (found.cpus, found.memory_limit, found.uid) == (3, 800, os.getuid())
    with pytest.raises(InfrastructureError, match="no device node") as raised:
        observe(with_devices("rocm", nodes=("/dev/null", str(tmp_path / "nul*"))), {})
    assert raised.value.remedy == TARGETS["rocm"].probe.fix


def test_who_is_dead():
    here = {"p.boot": boot(), "p.pid": str(os.getpid())}
    gone = {**here, "p.pid": str(2**22 - 1)}
    rows = [(here, True, False), (here, False, False), (gone, True, True), ({**gone, "p.boot": "other"}, True, False)]
    rows += [({**gone, "p.boot": "other"}, False, True), ({**gone, "p.pid": "x"}, True, False), ({"p.boot": boot()}, True, False)]
    assert [owner_is_dead(labels, "p", running) for labels, running, _ in rows] == [dead for *_, dead in rows]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_lent_folder_comes_back(tmp_path):
    """For the time of a run the folder is nobody's; afterwards all of it is root's again, and links are not followed."""
    outside, raw = tmp_path / "outside", tmp_path / "raw"
    outside.touch()
    os.chown(outside, 7, 7)
    (raw / "deep").mkdir(parents=True)
    with lent(raw, (65534, 65534), observe(REQUEST, {})):
        assert (raw / "deep").stat().st_uid == 65534
        (raw / "deep" / "link").symlink_to(outside)
        os.chown(raw / "deep" / "link", 65534, 65534, follow_symlinks=False)
    assert {path.lstat().st_uid for path in (raw, *raw.rglob("*"))} == {0}
    assert outside.stat().st_uid == 7


def test_what_a_run_buries_can_be_removed(tmp_path):
    """Deeper than any path, closed, and a program with its owner's rights: the caller can look at all of it, and clear it away."""
    raw = tmp_path / "raw"
    raw.mkdir()
    me = os.getuid(), os.getgid()
    with lent(raw, me, replace(HOST, uid=me[0], gid=me[1])):
        folder = os.open(raw, os.O_RDONLY)
        for _ in range(200):
            os.mkdir("d" * 50, dir_fd=folder)
            below = os.open("d" * 50, os.O_RDONLY, dir_fd=folder)
            os.close(folder)
            folder = below
        os.symlink("/etc/passwd", "link", dir_fd=folder)
        os.close(os.open("program", os.O_CREAT, 0o6755, dir_fd=folder))
        os.fchmod(folder, 0o6000)
        os.close(folder)
    found = [Path(folder) / name for folder, _, names in os.walk(raw) for name in names]

    assert [path.name for path in found] == ["program"]
    assert found[0].stat().st_mode & 0o6000 == 0
    assert sum(1 for _ in os.walk(raw)) == 201
    shutil.rmtree(raw)


def test_a_closed_folder_is_noticed(tmp_path):
    """Root's private kernels would be unreadable inside: said before the run, with the command."""
    tmp_path.chmod(0o700)
    root = replace(HOST, uid=0, gid=0)
    with pytest.raises(InfrastructureError, match="cannot be read by other users"):
        check_readable(tmp_path, (65534, 65534), root)
    check_readable(tmp_path, (0, 0), root)
    check_readable(tmp_path, (1000, 1001), HOST)


@pytest.mark.parametrize(
    ("info", "rootless"),
    [
        ({"SecurityOptions": ["name=seccomp", "name=rootless"]}, True),
        ({"Rootless": True}, True),
        ({"SecurityOptions": None}, False),
        ({}, False),
    ],
)
def test_an_engine_without_root_is_known(info, rootless):
    """Docker says it among its security options, Podman in a field of its own: the user inside is then the caller outside."""
    assert is_rootless(info) is rootless
