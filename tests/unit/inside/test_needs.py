"""Which options install what is missing. That all of it is named at once is in test_extensions.py."""

import sys
from pathlib import Path

import pytest

from warpwave.inside.process.needs import sources
from warpwave.inside.process.outcomes import hint_of

PROJECT = """
[project]
name = "ops"
dependencies = ["needed-of-nobody>=1"]
[project.optional-dependencies]
verify = ["first-of-nobody"]
test = ["tested_of_nobody"]
tables = ["second.of.nobody==1"]
[dependency-groups]
bench = ["third-of-nobody", {include-group = "other"}]
"""


@pytest.fixture
def package(tmp_path) -> Path:
    """A package that declares what it needs in each of the places."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "requirements-eval.txt").write_text("fourth-of-nobody  # a comment\n")
    return tmp_path


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no reader of TOML")
def test_each_place_has_its_options(package):
    modules = [f"{name}_of_nobody" for name in ("needed", "tested", "first", "third", "fourth", "wild")]

    assert sources(modules, package) == {
        "needed_of_nobody": ("", "--install"),
        "tested_of_nobody": ("extra test", "--install"),
        "first_of_nobody": ("extra verify", "--install --extra verify"),
        "third_of_nobody": ("group bench", "--install --extra bench"),
        "fourth_of_nobody": ("requirements-eval.txt", "--requirements requirements-eval.txt"),
    }


def test_a_package_that_is_called_otherwise(tmp_path):
    (tmp_path / "requirements.txt").write_text("PyYAML\nopencv_python\n")

    assert set(sources(["yaml", "cv2"], tmp_path)) == {"yaml", "cv2"}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no reader of TOML")
def test_the_hint_is_one_command(package):
    missing = [f"{name}_of_nobody" for name in ("first", "second", "third", "fourth", "wild")]
    hint = hint_of([f"ModuleNotFoundError: No module named '{name}'" for name in missing], package)

    assert "first_of_nobody (extra verify), " in hint
    assert ": --install --extra verify --extra tables --extra bench --requirements requirements-eval.txt." in hint
    assert "Missing here: wild_of_nobody. --install installs" in hint
