"""What this machine gives to a container and takes back: device nodes, the results folder, and whose containers are orphans."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from engine_requests import ask, change

from warpwave.config.targets import Devices, load_targets
from warpwave.engines.docker.container import Host, boot, check_readable, is_rootless, lent, observe, owner_is_dead
from warpwave.engines.protocol import Request
from warpwave.errors import InfrastructureError

REQUEST = ask(replace(load_targets()["rocm"], devices=Devices()), Path("/srv/kernels"), Path("/srv/raw"))
HOST = Host(uid=1000, gid=1001, cpus=16, memory_bytes=1000, open_files=1024, pid=42, boot="b/1", created="")


def with_nodes(*nodes: str) -> Request:
    return change(REQUEST, target=replace(REQUEST.target, devices=Devices(nodes=nodes, groups_from_nodes=True)))


def test_nodes_are_looked_up_on_the_host(tmp_path):
    """A pattern yields its character devices with their groups, and a pattern without any is the user's next step."""
    (tmp_path / "nul1").touch()
    found = observe(with_nodes("/dev/nul?", "/dev/zer[o]"), {"NCPU": 3, "MemTotal": 1000})
    assert [node.path for node in found.nodes] == ["/dev/null", "/dev/zero"]
    assert (found.cpus, found.memory_limit, found.uid) == (3, 800, os.getuid())
    with pytest.raises(InfrastructureError, match="no device node") as raised:
        observe(with_nodes("/dev/null", str(tmp_path / "nul*")), {})
    assert raised.value.remedy == REQUEST.target.probe.fix


def test_who_is_dead():
    """Only a process that is certainly gone is taken for dead."""
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


def test_only_files_and_folders_come_back(tmp_path):
    """Links, pipes and sockets that a run has left are removed, so that nothing of the host goes through them; whoever the caller is."""
    outside, raw = tmp_path / "outside", tmp_path / "raw"
    outside.write_text("untouched")
    raw.mkdir()
    me = os.getuid(), os.getgid()
    with lent(raw, me, replace(HOST, uid=me[0], gid=me[1])):
        (raw / "folder").mkdir()
        (raw / "folder" / "file").touch()
        (raw / "folder" / "file").chmod(0o6755)
        (raw / "engine.log").symlink_to(outside)
        (raw / "elsewhere").symlink_to(tmp_path)
        os.mkfifo(raw / "folder" / "stages.json")
    assert sorted(path.relative_to(raw).as_posix() for path in raw.rglob("*")) == ["folder", "folder/file"]
    assert (raw / "folder" / "file").stat().st_mode & 0o7777 == 0o755
    assert outside.read_text() == "untouched"


def test_a_tree_without_end_is_left_behind(tmp_path):
    """A path longer than the system allows stops nothing."""
    here = os.open(tmp_path, os.O_RDONLY)
    try:
        os.chdir(tmp_path)
        for _ in range(60):
            Path("d" * 100).mkdir()
            os.chdir("d" * 100)
    finally:
        os.chdir(here)
        os.close(here)
    with lent(tmp_path, (os.getuid(), os.getgid()), replace(HOST, uid=os.getuid(), gid=os.getgid())):
        pass


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
