"""The engine without a container: what its child prints, and that nothing of the child is left, whenever Ctrl-C comes."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest
from engine_requests import ask

from warpwave.config.targets import load_targets
from warpwave.engines import local
from warpwave.engines.waiting import MAX_LINE, Reader
from warpwave.records import Environment

LONG = f"printf 'one\\ntwo\\377 '; head -c {MAX_LINE + 5} /dev/zero | tr '\\0' x; echo; echo three >&2"


@pytest.fixture
def execute(tmp_path):
    """Run a shell script where the inside's Python would be run; returns how it ended and its lines."""

    def execute(script: str):
        lines: list[str] = []
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        (tmp_path / "raw").mkdir()
        request = ask(load_targets()["cpu"], tmp_path, tmp_path / "raw", grace_s=5.0)
        _, ended = local.LocalEngine().execute(request, Environment(engine="local", python=str(python)), lines.append)
        return ended, lines

    return execute


def test_output_of_any_kind_comes_through(execute):
    """Both streams in order, bytes that are no text, and a line that is cut where it is too long."""
    ended, lines = execute(LONG)
    assert ended.code == 0
    assert [line[:8] for line in lines] == ["one", "two\ufffd xxx", "three"]
    assert lines[1].endswith("x … 10 bytes cut")


def test_ctrl_c_while_the_run_begins(execute, monkeypatch, tmp_path):
    """It comes before the child is watched: the run is interrupted, and the child, in a session of its own, is gone too."""

    class Pressed(Reader):
        def start(self) -> None:
            super().start()
            until = time.monotonic() + 10
            while not (tmp_path / "pid").exists() and time.monotonic() < until:
                time.sleep(0.01)
            raise KeyboardInterrupt

    monkeypatch.setattr(local, "Reader", Pressed)
    ended, _ = execute(f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 60")
    assert ended.interrupted
    assert ended.code == -2
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert list((tmp_path / "raw").iterdir()) == []


def test_import_paths_come_behind_the_harness(execute, monkeypatch, tmp_path):
    """The caller's PYTHONPATH and the target's are both kept; neither displaces the harness."""
    monkeypatch.setenv("PYTHONPATH", "/callers")
    target = load_targets()["cpu"]
    monkeypatch.setattr("test_local_engine.load_targets", lambda: {"cpu": replace(target, environment={"PYTHONPATH": "/targets"})})
    _, lines = execute('echo "$PYTHONPATH"')

    assert lines == [f"{tmp_path}/raw/.harness:/callers:/targets"]
