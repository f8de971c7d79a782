"""What a container is created with, key by key: the whole body for each shipped target, and what must never be in it."""

from __future__ import annotations

import copy
import itertools
import json
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
    check_weakenings,
    container_name,
    container_options,
    container_user,
    layout,
    readable,
)
from warpwave.engines.protocol import Layout, Request
from warpwave.errors import ConfigError, UsageError
from warpwave.records import Environment
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
    """Each weakening changes its own key; together they change nothing else."""
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
    """A CDI device name gets the card asked for, or all, and no count."""
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


def test_names_fit_every_engine():
    """Whatever a target is called in a YAML file, its container can be created."""
    assert container_name(change(REQUEST, run_id="A b", target=replace(TARGETS["cpu"], name="Größe/1"))) == "warpwave-a-b-gr-e-1"


def test_the_report_shows_the_walls():
    """The readable options say what was given, for people who never saw the API."""
    shown = readable(options("rocm", replace(HOST, nodes=NODES, memory_bytes=16 << 30), gpu="1"))
    assert shown["limits"]["memory"] == "12.8 GiB"
    assert shown["devices"] == [node.path for node in NODES]
    assert shown["mounts"][2] == "/results:rw"
    assert "/srv/" not in str(shown)
    assert (shown["user"], shown["network"], shown["cap_drop"], shown["read_only"]) == ("1000:1001", "none", ["ALL"], True)
    assert readable(options("cuda"))["devices"] == ["gpus: all"]
    json.dumps(shown, allow_nan=False)


def test_an_unknown_weakening_names_the_known():
    """A typo is answered with the list."""
    with pytest.raises(UsageError, match="no weakening named 'privileged'") as raised:
        check_weakenings(("writable-root", "privileged"))
    assert all(name in raised.value.remedy for name in WEAKENINGS)


def test_root_group_is_not_given_away():
    """A node of root's group does not open what else belongs to that group."""
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
    request = change(REQUEST, variables={"A_TOKEN": "secret", "PYTHONPATH": "/mine"}, package_variables={"THEIRS_X": "1"})
    body = container_options(request, ENVIRONMENT, HOST)
    shown = readable(body, request.options.variables)["environment"]

    assert {"A_TOKEN=secret", "PYTHONPATH=/warpwave:/mine"} <= set(body["Env"])
    assert "A_TOKEN=…" in shown
    assert "secret" not in str(shown)
    assert "THEIRS_X" not in str(body), "what a package sets is for its stages alone"
