"""What somebody types first: no target, a wrong name, a target whose card is not here, and the page of the latest run."""

import pytest

from warpwave.__main__ import _run_cli
from warpwave.cli import cards
from warpwave.doctor.machine import Machine
from warpwave.run.folders import RUNS, point_to_latest


@pytest.fixture(autouse=True)
def package(tmp_path, monkeypatch):
    """A folder with an empty package, on a machine without an engine of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    (tmp_path / "kernels").mkdir()


def machine(monkeypatch, root, vendor=""):
    """A machine with a card of this vendor, or with none."""
    device = root / "sys/bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor or '0x8086'}\n")
    (device / "class").write_text("0x030200\n" if vendor else "0x020000\n")
    monkeypatch.setattr(cards, "Machine", lambda: Machine(root))


@pytest.mark.parametrize(("vendor", "command"), [("", "run cpu gfx942-emulated"), ("0x10de", "run cuda"), ("0x1002", "run rocm")])
def test_a_run_without_a_target_names_what_fits_the_machine(vendor, command, tmp_path, monkeypatch, capsys):
    machine(monkeypatch, tmp_path / "root", vendor)

    assert _run_cli(["run"]) == 2
    assert f"`warpwave {command}`" in capsys.readouterr().err


def test_a_machine_without_cards_says_so_once(tmp_path, monkeypatch, capsys):
    """Of all targets together, with a command that works here; nothing is started or written."""
    machine(monkeypatch, tmp_path / "root")

    assert _run_cli(["run", "cuda", "rocm"]) == 3
    error = capsys.readouterr().err
    assert error.count("no card for cuda (NVIDIA CUDA) or rocm (AMD ROCm)") == 1
    assert "`warpwave run cpu gfx942-emulated`" in error
    assert "docker" not in error.lower()
    assert not RUNS.exists()


@pytest.mark.parametrize("more", [["--stage", "compile"], ["--engine", "local"]])
def test_what_needs_no_card_here_is_not_refused(more, tmp_path, monkeypatch, capsys):
    """Compiling needs none, and a Python of the user's may see what a bus does not show."""
    machine(monkeypatch, tmp_path / "root")
    monkeypatch.setattr("warpwave.run.target.run_target", lambda *_: pytest.fail("not reached"))
    _run_cli(["run", "cuda", *more, "--dry-run"])

    assert "no card" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "meant"), [("rocn", "rocm"), ("cdua", "cuda"), ("H100", "cuda"), ("mi300x", "gfx942-emulated or rocm"), ("NVIDIA", "cuda")]
)
def test_a_wrong_name_is_answered_with_the_nearest(name, meant, capsys):
    assert _run_cli(["run", name]) == 2
    assert f"The nearest is {meant}." in capsys.readouterr().err


def test_the_latest_run_has_a_link_and_its_page_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    for name in ("run-1", "run-2"):
        (RUNS / name).mkdir(parents=True)
        (RUNS / name / "comparison.html").write_text(name)
        point_to_latest(RUNS / name)

    assert _run_cli(["open"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / RUNS / "run-2" / "comparison.html")


def test_a_folder_that_is_called_latest_stays(tmp_path):
    (RUNS / "latest").mkdir(parents=True)
    (RUNS / "run-1").mkdir()
    point_to_latest(RUNS / "run-1")

    assert not (RUNS / "latest").is_symlink()
