"""What stays of a results folder after the code under test had it: files and folders of its own, and nothing that leads elsewhere."""

import json
import os
import socket
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import command
import pytest
from engine_requests import ask
from slow_cases import slow_but

from warpwave.collect import collect
from warpwave.compare import compare
from warpwave.config.targets import load_targets
from warpwave.engines import results
from warpwave.engines.docker.container import Host, container_options, readable
from warpwave.engines.packages.plan import _walk
from warpwave.engines.results import Watch, clear, make_portable, over, tidy
from warpwave.engines.snapshot import contents, secret, secrets_in
from warpwave.errors import UsageError
from warpwave.records import Cap, Environment, Verdict
from warpwave.run.inputs import _files


@pytest.fixture
def outside(tmp_path):
    """A folder of the host's, with a file in it, which nothing may touch."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_text("untouched")
    (folder / "file").chmod(0o4640)
    (folder / "link").symlink_to("file")
    yield folder
    assert sorted(path.name for path in folder.iterdir()) == ["file", "link"]
    assert ((folder / "file").read_text(), stat.S_IMODE((folder / "file").stat().st_mode)) == ("untouched", 0o4640)


@pytest.fixture
def raw(tmp_path):
    (tmp_path / "raw").mkdir()
    return tmp_path / "raw"


def test_nothing_but_files_and_folders_stays(raw, outside):
    """Links to files, folders and nothing, in closed folders too; pipes, sockets."""
    closed = raw / "closed"
    closed.mkdir()
    for number, target in enumerate((outside / "file", outside, "/nowhere", ".")):
        (closed / f"link{number}").symlink_to(target)
    os.mkfifo(raw / "pipe")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(raw / "s"))
    (closed / "kept").write_text("x")
    closed.chmod(0)

    assert clear(raw) == []
    assert sorted(path.relative_to(raw).as_posix() for path in raw.rglob("*")) == ["closed", "closed/kept"]
    listening.close()


def test_a_hard_link_to_the_host_is_no_result(raw, outside):
    """Nor is the file that it names changed; of two names in the folder one stays."""
    os.link(outside / "file", raw / "linked")
    (raw / "a").write_text("one")
    os.link(raw / "a", raw / "b")
    tidy(raw)

    assert len([path.name for path in raw.iterdir()]) == 1
    assert next(raw.iterdir()).read_text() == "one"


def test_a_folder_that_is_exchanged_for_a_link_is_not_entered(raw, outside, monkeypatch):
    """Code that still runs swaps them after they were listed: what is behind the link stays as it is."""
    (raw / "folder").mkdir()
    listed = os.scandir

    def swap(folder):
        found = listed(folder)
        if (raw / "folder").is_dir() and not (raw / "folder").is_symlink():
            found = list(found)
            [entry.is_dir(follow_symlinks=False) for entry in found]
            (raw / "folder").rename(raw / "other")
            (raw / "folder").symlink_to(outside)
            return _Listing(found)
        return found

    monkeypatch.setattr(results.os, "scandir", swap)
    tidy(raw)
    monkeypatch.undo()
    clear(raw)
    assert [path.name for path in raw.iterdir()] == ["other"]


class _Listing(list):
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def test_names_that_no_artifact_can_hold_are_changed(raw):
    """The upload would refuse all of the folder for one of them. What cannot be read is opened."""
    for name in ("a:b", "new\nline", "c?*", 'q"', os.fsdecode(b"\xff"), "plain.json"):
        (raw / name).write_text(name, errors="surrogateescape")
    (raw / "plain.json").chmod(0)
    (raw / "d|e").mkdir()
    (raw / "d|e" / "f<g>").touch()
    make_portable(raw)
    names = [part for path in raw.rglob("*") for part in path.relative_to(raw).parts]

    assert "plain.json" in names
    assert (raw / "plain.json").stat().st_mode & 0o400
    assert len(list(raw.rglob("*"))) == 8
    assert not [name for name in names if not name.isprintable() or set(name) & set('":<>|*?\\')]


def test_a_name_that_is_a_link_itself_is_refused(raw, tmp_path, outside):
    """The folder that is asked for is never one that somebody has put in its place."""
    link = tmp_path / "link"
    link.symlink_to(outside)
    tidy(link)
    clear(link)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_all_of_it_changes_owner_and_nothing_else_does(raw, outside):
    folder = os.open(raw, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 50, dir_fd=folder)
        folder, above = os.open("d" * 50, os.O_RDONLY, dir_fd=folder), folder
        os.close(above)
    os.close(folder)
    (raw / "link").symlink_to(outside)
    tidy(raw, (7, 8))

    assert {(path.stat().st_uid, path.stat().st_gid) for path in (raw, *raw.rglob("*"))} == {(7, 8)}
    assert Path(outside, "file").stat().st_uid != 7


# What a run may write to its results: counted as it would have to be paid for, and held to its cap while the run goes on.

MIB = 1 << 20


def sparse(folder: Path) -> None:
    """A hole: nothing here, all of it in a copy."""
    (folder / "hole").touch()
    os.truncate(folder / "hole", 3 * MIB)


def preallocated(folder: Path) -> None:
    with open(folder / "room", "wb") as file:
        subprocess.run(["fallocate", "--keep-size", "--length", str(3 * MIB), file.name], check=True)


def in_the_deep(folder: Path) -> None:
    """Below a path that is longer than the system takes one."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 250, dir_fd=at)
        at, above = os.open("d" * 250, os.O_RDONLY, dir_fd=at), at
        os.close(above)
    with open(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=at), "wb") as file:
        file.write(b"x" * 3 * MIB)
    os.close(at)


def many(folder: Path) -> None:
    for number in range(60):
        (folder / str(number)).touch()


def folders(folder: Path) -> None:
    for number in range(60):
        (folder / "d" / str(number)).mkdir(parents=True)


def links(folder: Path) -> None:
    for number in range(60):
        (folder / str(number)).symlink_to("/")


@pytest.mark.parametrize("fill", [sparse, preallocated, in_the_deep, many, folders, links])
def test_what_counts(tmp_path, fill):
    cap = Cap(2 * MIB, 50)
    assert over(tmp_path, cap) == ""
    fill(tmp_path)
    assert "the limit is" in over(tmp_path, cap)


def test_what_does_not_count(tmp_path):
    """One file under many names is one; what a link leads to is not in the folder."""
    results = tmp_path / "results"
    results.mkdir()
    (tmp_path / "large").write_bytes(b"x" * 3 * MIB)
    (results / "link").symlink_to(tmp_path / "large")
    (results / "loop").symlink_to(results)
    (results / "file").write_bytes(b"x" * MIB)
    for number in range(60):
        os.link(results / "file", results / str(number))
    assert over(results, Cap(2 * MIB, 50)) == ""


def test_it_is_seen_while_it_grows(tmp_path):
    with Watch(tmp_path, Cap(MIB, 100)) as watch:
        (tmp_path / "a").write_bytes(b"x" * 3 * MIB)
        for _ in range(100):
            if watch.hopeless:
                break
            watch._enough.wait(0.05)
    assert "GiB" in watch.exceeded
    assert watch.hopeless


TESTS = """
import os, time

def test_before():
    pass

def test_that_fills_the_disk():
    folder = os.path.dirname(os.environ["WARPWAVE_JOURNAL"])
    {fill}
    time.sleep(60)

def test_after():
    pass
"""
FILLS = {
    "a large file": "open(folder + '/large', 'wb').write(b'x' * (30 << 20))",
    "many files": "[open(f'{folder}/{n}', 'w').close() for n in range(3000)]",
    "a log": "os.write(1, b'x' * (30 << 20))",
}


@pytest.mark.parametrize("fill", slow_but(FILLS, ["many files"]))
def test_a_run_that_writes_too_much_is_ended(tmp_path, fill):
    """Without a container: its reason, 4, and what was finished before is kept, reported and not run again."""
    pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
    from warpwave.inside.process.workers import JOURNAL_VARIABLE

    package = tmp_path / "package"
    package.mkdir()
    (package / "test_op.py").write_text(TESTS.replace("{fill}", FILLS[fill]).replace("WARPWAVE_JOURNAL", JOURNAL_VARIABLE))
    limits = "limits: {results_gib: 0.01, results_files: 2000}"
    (tmp_path / "targets.yml").write_text(f"targets:\n  cpu: {{interpret: false, stages: [test]}}\n{limits}\n")
    words = ["--kernels", package, "--targets", tmp_path / "targets.yml", "--out", tmp_path / "out", "--engine", "local"]
    done = command.warpwave("run", "cpu", *words, env={**os.environ, "COLUMNS": "200"}, light=True)
    run = collect(tmp_path / "out" / "raw" / "cpu")
    told = json.loads((tmp_path / "out" / "raw" / "cpu" / "run.json").read_text())

    assert done.returncode == 4, done.stdout + done.stderr
    assert (told["verdict"], "to its results" in told["reason"]) == ("crashed", True)
    assert "to its results" in done.stdout
    assert [case.id.rpartition("::")[2] for case in run.cases if case.verdict is Verdict.PASSED] == ["test_before"]
    assert compare([run]).exit_code == 4


# What of a package never leaves for another machine, and what a container on this machine does not see of it.

SECRETS = [
    *[".env", ".env.local", ".env-prod", "prod.env", ".npmrc", ".netrc", ".pypirc", ".git-credentials", ".gitconfig", ".bash_history"],
    *["id_rsa", "id_ed25519", "id_rsa.bak", "server.pem", "service.key", "credentials", "credentials.json", "secrets.toml", "pip.conf"],
]
ORDINARY = [".env.example", "id_rsa.pub", "test_one.py", "secrets.py", "credentials.py", "environment.yml", "keys.py"]
FOLDERS = [".ssh", ".aws", ".kube", ".docker", ".config", ".git", "sub/.git", "bare.git"]


@pytest.fixture
def package(tmp_path):
    """A package with every kind of secret in its root and in a folder, and two repositories."""
    root = tmp_path / "ops"
    for name in (*SECRETS, *ORDINARY, *(f"node_modules/{name}" for name in SECRETS), *(f"{folder}/config" for folder in FOLDERS)):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
    for name in ("HEAD", "objects", "refs"):
        (root / "bare.git" / name).mkdir()
    (root / "within").symlink_to(".env")
    return root


@pytest.mark.parametrize("name", SECRETS)
def test_files_of_passwords_stay_here(package, name):
    """Neither the archive, nor the tree for a build, nor the digests of inputs have them."""
    assert secret(package / name)
    assert name not in {path.name for path, why in contents(package, package / "out") if not why}
    assert name not in {path.name for path in _walk(package, package / "out")}
    assert name not in dict(_files(package, package / "out", package))


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_files_go_along(package, name):
    assert name in {path.name for path, why in contents(package, package / "out") if not why}
    assert name in dict(_files(package, package / "out", package))


def test_a_link_out_is_not_followed(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "private.txt").write_text("pin")
    package = tmp_path / "package"
    package.mkdir()
    (package / "data").symlink_to(tmp_path / "outside")

    found = dict(_files(package, tmp_path / "out", package))

    assert list(found) == ["data"]
    assert found["data"].startswith("a link out of the package")
    assert list(contents(package, tmp_path / "out")) == [(package / "data", "is a link out of the package")]


def mounts(package, tmp_path) -> tuple[dict[str, dict], dict]:
    target = load_targets()["cpu"]
    request = ask(replace(target, engine="docker"), package, tmp_path / "raw")
    environment = Environment(engine="docker", python="python3", image="i")
    host = Host(uid=1000, gid=1000, cpus=4, memory_bytes=1 << 30, open_files=9, pid=1, boot="b", created="now")
    body = container_options(request, environment, host)
    return {mount["Target"]: mount for mount in body["HostConfig"]["Mounts"]}, readable(body)


def test_a_container_here_sees_no_secret(package, tmp_path):
    """Each is covered where it lies, also where an archive would leave out the whole folder. The report shows how many, not their names."""
    found, shown = mounts(package, tmp_path)

    for name in (*SECRETS, *(f"node_modules/{name}" for name in SECRETS)):
        mount = found[f"/packages/ops/{name}"]
        assert (mount["Type"], mount["Source"], mount["ReadOnly"]) == ("bind", os.devnull, True)
    for name in FOLDERS:
        assert found[f"/packages/ops/{name}"]["Type"] == "tmpfs"
    assert not {f"/packages/ops/{name}" for name in (*ORDINARY, "within")} & set(found)
    assert shown["hidden"] == 2 * len(SECRETS) + len(FOLDERS)
    assert len(shown["mounts"]) == 3


def test_too_many_secrets_are_refused(tmp_path):
    (tmp_path / "ops").mkdir()
    for number in range(501):
        (tmp_path / "ops" / f"{number}.key").write_text("")

    assert len(list(secrets_in(tmp_path / "ops"))) == 501
    with pytest.raises(UsageError, match="more than 500 files"):
        mounts(tmp_path / "ops", tmp_path)
