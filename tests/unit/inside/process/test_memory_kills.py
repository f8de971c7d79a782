"""Linux counts the processes that it killed because memory ran out. Reading that counter tells such a kill from any other."""

import pytest

from warpwave.inside import environment


@pytest.fixture
def counters(tmp_path, monkeypatch):
    """The files of a container with cgroup version 2 and of the machine; none of version 1."""
    paths = (tmp_path / "memory.events", tmp_path / "memory.oom_control", tmp_path / "vmstat")
    monkeypatch.setattr(environment, "_COUNTERS", paths)
    paths[2].write_text("nr_free_pages 70\noom_kill 21\n")
    return paths


def test_a_kill_counts_in_a_container_or_on_the_whole_machine(counters):
    """Outside of a container, the root group's counter stays at 0, or there is none."""
    group, _, machine = counters
    assert environment.memory_kills() == 21
    machine.write_text("nr_free_pages 70\noom_kill 22\n")
    assert environment.memory_kills() == 22
    group.write_text("low 0\noom 1\noom_kill 2\n")
    assert environment.memory_kills() == 24


@pytest.mark.parametrize("text", ["", "oom_kill\n", "oom_kill many\n", "nr_free_pages 70\n"])
def test_a_kernel_without_the_counter_says_nothing(counters, text):
    """Then the report says that the process was killed, and gives no reason."""
    counters[2].write_text(text)
    assert environment.memory_kills() == 0
