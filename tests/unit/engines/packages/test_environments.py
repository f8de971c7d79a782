"""The environments in the cache folder: which are listed as unused, and which are removed."""

import fcntl
import os
import time

import pytest
from command import warpwave

from warpwave.engines.packages.environments import environments, unused, use

DAY_S = 86400


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def made(name, days):
        venv = environments() / name
        (venv / "lib").mkdir(parents=True)
        (venv / "lib" / "big").write_bytes(b"x" * 5000)
        (venv / "warpwave.json").write_text("{}")
        then = time.time() - days * DAY_S
        os.utime(venv / "warpwave.json", (then, then))
        return venv

    return made


def test_only_old_ones_are_removed(make):
    old, new = make("old", 31), make("new", 29)

    assert [one.folder for one in unused(30)] == [old]
    assert old.is_dir()  # listing removes nothing
    (listed,) = unused(30, remove=True)
    assert listed.bytes == 5002
    assert not old.exists()
    assert new.is_dir()


def test_one_in_use_stays(make):
    venv = make("busy", 40)
    with venv.with_name("busy.used").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert unused(0, remove=True) == []
    assert [one.folder for one in unused(0)] == [venv]


def test_a_use_makes_it_new_again(make):
    use(make("again", 40))

    assert unused(1) == []


def test_what_is_being_made_is_no_environment(make):
    (make("half", 40) / "warpwave.json").unlink()

    assert unused(0) == []


def test_the_command_lists_and_removes(make):
    venv = make("old", 31)
    env = {**os.environ, "DOCKER_HOST": "unix:///nothing/there"}

    listed = warpwave("clean", env=env)
    assert f"found: environment {venv} (unused for 31 days, 0 MiB)" in listed.stdout.replace("\n", "")
    assert "containers: not looked for" in listed.stdout
    assert venv.is_dir()
    removed = warpwave("clean", "--yes", env=env)
    assert removed.returncode == 0
    assert "removed: environment" in removed.stdout
    assert not venv.exists()
    assert "nothing to remove" in warpwave("clean", env=env).stdout
