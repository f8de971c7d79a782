"""The first process of a container: it ends what nobody else watches."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from warpwave.inside import watchdog
from warpwave.inside.watchdog import watch
from warpwave.records import OVERFULL, OVERTIME


@pytest.fixture(autouse=True)
def handlers():
    """Signals are passed on in a test only."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


STUBBORN = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"


def test_a_run_that_ends_has_its_own_code(tmp_path):
    """A code, or a signal as 128 + n, as engines report them."""
    assert watch(python("import sys; sys.exit(7)"), tmp_path, 60, 1, 1 << 20, 100) == 7
    assert watch(python("import os; os.kill(os.getpid(), 11)"), tmp_path, 60, 1, 1 << 20, 100) == 139


def test_a_run_past_its_time_may_write_its_results(tmp_path):
    """It is interrupted first."""
    polite = f"import time\ntry: time.sleep(60)\nexcept KeyboardInterrupt: open({str(tmp_path / 'kept')!r}, 'w')"

    assert watch(python(polite), tmp_path, 1.5, 30, 1 << 20, 100) == OVERTIME
    assert (tmp_path / "kept").exists()


def test_a_run_that_does_not_listen_is_killed(tmp_path):
    """After its grace."""
    assert watch(python(STUBBORN), tmp_path, 1.0, 0.2, 1 << 20, 100) == OVERTIME


@pytest.mark.parametrize(
    "fill", ["open(f'{n}/{i}', 'w').write('x')", "open(f'{n}/big', 'ab').write(b'x' * 100_000)"], ids=["files", "bytes"]
)
def test_a_run_that_fills_the_disk_is_ended(tmp_path, monkeypatch, fill):
    """By the number of files, or by their size."""
    monkeypatch.setattr(watchdog, "_LOOK_S", 0.05)
    code = f"import time\nn = {str(tmp_path)!r}\nfor i in range(100_000):\n    {fill}\n    time.sleep(0.001)"

    assert watch(python(code), tmp_path, 60, 5, 1 << 20, 50) == OVERFULL


def test_a_folder_that_cannot_be_measured_is_over_its_limit(tmp_path):
    """Whatever was done to it."""
    assert watchdog.Meter(tmp_path / ("x" * 300), 1 << 20, 100).look()


def test_signals_are_passed_on(tmp_path):
    """The client's SIGINT reaches the run, and its code is the run's."""
    code = "import time\ntry: print('ready', flush=True); time.sleep(60)\nexcept KeyboardInterrupt: raise SystemExit(130)"
    program = (
        f"import sys; from pathlib import Path; from warpwave.inside.watchdog import watch; "
        f"sys.exit(watch([sys.executable, '-S', '-c', {code!r}], Path({str(tmp_path)!r}), 60, 1, 1 << 20, 100))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    threading.Timer(0.1, lambda: os.kill(process.pid, signal.SIGINT)).start()

    assert process.wait(30) == 130
    process.stdout.close()


def test_a_request_to_stop_may_come_as_a_file(tmp_path):
    """Where a runtime passes no signal on; it is made while the run works, and passed on once."""
    threading.Timer(1.0, (tmp_path / ".stop").mkdir).start()
    code = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(130))\ntime.sleep(60)"

    assert watch(python(code), tmp_path, 60, 5, 1 << 20, 100) == 130
