"""What tests import and this Python lacks: all of it at once, with the options that install it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from warpwave.inside.process.needs import lacking, sources
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
    """A package whose test needs six modules that are not here."""
    for name, text in {
        "pyproject.toml": PROJECT,
        "requirements-eval.txt": "fourth-of-nobody  # a comment\n",
        "src/ops/__init__.py": "import third_of_nobody\n",
        "tests/helper.py": "import fourth_of_nobody.part\n",
        "tests/test_ops.py": "import json\nimport first_of_nobody\nfrom second_of_nobody import x\n"
        "import ops, helper\n"
        "import wild_of_nobody\n"
        "try:\n    import optional_of_nobody\nexcept ImportError:\n    pass\ndef test():\n    import late_of_nobody\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_everything_is_named_at_once(package):
    """Also what modules of the package import; not what is tried, and not what a test imports while it runs."""
    found = lacking([package / "tests" / "test_ops.py"], package)

    assert sorted(found) == [f"{name}_of_nobody" for name in ("first", "fourth", "second", "third", "wild")]
    assert lacking([package / "gone.py"], package) == []


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
    said = ["ModuleNotFoundError: No module named 'first_of_nobody'"]
    hint = hint_of(said, package, [package / "tests" / "test_ops.py"])

    assert "first_of_nobody (extra verify), " in hint
    assert ": --install --extra verify --extra tables --extra bench --requirements requirements-eval.txt." in hint
    assert "Missing here: wild_of_nobody. --install installs" in hint
