"""`--requirements`, `--install` and `--env`, on the command line and in the package's own file."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpwave.cli.parse import chosen_packages, chosen_variables
from warpwave.config.pyproject import PackageEnvironment, load_environment
from warpwave.config.targets import load_targets
from warpwave.engines.protocol import Layout, Request
from warpwave.errors import ConfigError, UsageError
from warpwave.options import Install, RunOptions
from warpwave.run import check_target
from warpwave.run.attempt import job_of

NOTHING = {"requirements": (), "with_packages": (), "install": False, "install_no_deps": False}


@pytest.fixture
def kernels(tmp_path) -> Path:
    """A folder of kernels in a package that asks for nothing."""
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "pyproject.toml").write_text("[project]\nname = 'ops'\n")
    (tmp_path / "ops" / "needs.txt").write_text("einops\n")
    return tmp_path / "ops"


def write(kernels: Path, text: str) -> None:
    (kernels / "pyproject.toml").write_text(f"[tool.warpwave]\n{text}\n")


def test_what_is_asked_for(kernels):
    """The command line comes before the file; a file alone installs nothing."""
    needs = kernels / "needs.txt"

    assert chosen_packages(NOTHING, kernels) == Install()
    assert chosen_packages({**NOTHING, "install": True, "requirements": (needs,)}, kernels) == Install((needs,), "all")
    assert chosen_packages({**NOTHING, "install_no_deps": True}, kernels) == Install((), "alone")
    write(kernels, "requirements = ['needs.txt']\nenv = {TRITON_DEBUG = '1'}")
    assert load_environment(kernels) == PackageEnvironment((needs,), {"TRITON_DEBUG": "1"})
    assert chosen_packages({**NOTHING, "install": True}, kernels) == Install((needs,), "all")
    assert chosen_packages({**NOTHING, "install_no_deps": True}, kernels) == Install((), "alone")
    assert chosen_packages(NOTHING, kernels) == Install(), "a stranger's file alone starts no build"
    assert chosen_variables(("TRITON_DEBUG=2",)) == {"TRITON_DEBUG": "2"}


@pytest.mark.parametrize("text", ["install = true", "requirements = 'needs.txt'", "env = ['HOME']", "env = {A = 1}"])
def test_a_wrong_setting_is_refused(kernels, text):
    """A file can name values, but never take one of the caller's: it may be a stranger's, and the value a token."""
    write(kernels, text)

    with pytest.raises(ConfigError, match=r"pyproject\.toml"):
        load_environment(kernels)


def test_contradictions_and_missing_files_are_refused(kernels):
    """Before anything is installed."""
    with pytest.raises(UsageError, match="both given"):
        chosen_packages({**NOTHING, "install": True, "install_no_deps": True}, kernels)
    with pytest.raises(UsageError, match=r"gone\.txt"):
        chosen_packages({**NOTHING, "requirements": (kernels / "gone.txt",)}, kernels)


def test_variables_are_set_or_passed_on(kernels, monkeypatch):
    """A name alone takes the caller's value; an empty value is a value."""
    monkeypatch.setenv("A_TOKEN", "secret=1")

    assert chosen_variables(("A_TOKEN", "B=", "C=x=y", "PYTHONPATH=/lib")) == {
        "A_TOKEN": "secret=1",
        "B": "",
        "C": "x=y",
        "PYTHONPATH": "/lib",
    }


@pytest.mark.parametrize("pair", ["NOT_SET_ANYWHERE", "HOME=/x", "TRITON_INTERPRET=1", "WARPWAVE_JOURNAL=x", "PATH=", "=x", "A B=1"])
def test_variables_of_the_harness_are_refused(kernels, monkeypatch, pair):
    """And names that are none, in one sentence that names them."""
    monkeypatch.delenv("NOT_SET_ANYWHERE", raising=False)

    with pytest.raises(UsageError, match="--env"):
        chosen_variables((pair,))


def test_what_the_user_gives_comes_before_the_package(tmp_path):
    """Both are for the kernels; the package's go into the job, since they are no secret."""
    options = RunOptions("r", tmp_path, tmp_path, variables={"A": "mine"}, package_variables={"A": "theirs", "B": "theirs"})
    request = Request(load_targets()["cpu"], options, tmp_path)

    assert job_of(Layout("", "", ""), request, ()).package_variables == {"B": "theirs"}


def test_the_variable_that_selects_gpus_is_refused(kernels, tmp_path):
    """--gpu does that, and the record says so."""
    options = RunOptions("r", tmp_path / "out", kernels, variables={"CUDA_VISIBLE_DEVICES": "1"})

    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES"):
        check_target(load_targets()["cuda"], options)
    check_target(load_targets()["rocm"], options)
