"""Which folder is a package's root, which folders its modules come from, and which settings of pytest are its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpwave.config.package import find_root, import_folders, load_pytest_settings
from warpwave.config.pyproject import load_gates
from warpwave.records import PytestSettings


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "kernels", "root"),
    [
        ({"ops/pyproject.toml": "", "ops/tests/x.py": "", "setup.py": ""}, "ops/tests", "ops"),
        ({"ops/pyproject.toml": "[project]\nname = 'ops'", "ops/tests/x.py": "", "setup.py": ""}, "ops/tests", "ops"),
        ({"ops/pyproject.toml": "[tool.pytest.ini_options]", "ops/tests/x.py": "", "setup.py": ""}, "ops/tests", "ops"),
        ({"ops/pyproject.toml": "[tool.warpwave]", "ops/tests/x.py": "", "setup.py": ""}, "ops/tests", "ops"),
        ({"ops/tests/pyproject.toml": "[tool.black]\nline-length = 100", "ops/setup.py": ""}, "ops/tests", "ops"),
        (
            {"ops/tests/k/setup.cfg": "[flake8]\nmax-line-length = 100", "ops/tests/pyproject.toml": "[tool.ruff]", "ops/.git": ""},
            "ops/tests/k",
            "ops",
        ),
        (
            {"ops/pyproject.toml": "[tool.black]\nline-length = 100", "ops/tests/tox/setup.cfg": "[mypy-numpy]"},
            "ops/tests/tox",
            "ops/tests/tox",
        ),
        ({"ops/setup.py": "", "ops/a/tests/x.py": ""}, "ops/a/tests", "ops"),
        ({"ops/setup.cfg": "", "ops/tests/x.py": ""}, "ops", "ops"),
        ({"ops/.git/HEAD": "", "ops/tests/x.py": ""}, "ops/tests", "ops"),
        ({"ops/.git": "gitdir: elsewhere", "ops/tests/x.py": ""}, "ops/tests", "ops"),
        ({"ops/tests/x.py": ""}, "ops/tests", "ops/tests"),
        ({".git/HEAD": "", "ops/build.toml": "", "ops/torch-ext/ops/x.py": "", "ops/tests/x.py": ""}, "ops/tests", "ops"),
        ({"pyproject.toml": "", "home/setup.py": "", "home/ops/x.py": ""}, "home/ops", "home/ops"),
        ({"home/work/setup.py": "", "home/work/tests/x.py": ""}, "home/work/tests", "home/work"),
    ],
)
def test_the_root_is_the_nearest_project(tmp_path, files, kernels, root):
    """A project file or a clone is a root, and settings of style are if there is neither; the home folder never is, nor what is above."""
    write(tmp_path, files)

    assert find_root(tmp_path / kernels, home=tmp_path / "home") == tmp_path / root


@pytest.mark.parametrize(
    ("files", "folders"),
    [
        ({"my_ops/__init__.py": ""}, (".",)),
        ({"src/my_ops/__init__.py": ""}, (".", "src")),
        ({"src/__init__.py": "", "src/ops.py": ""}, (".",)),
        ({"src/README.md": ""}, (".",)),
        ({"build.toml": "", "torch-ext/my_ops/__init__.py": ""}, (".", "torch-ext")),
        ({"torch-ext/my_ops/__init__.py": ""}, (".",)),
        ({"python/my_ops/x.py": "", "pyproject.toml": "[tool.setuptools]\npackage-dir = {'' = 'python'}"}, (".", "python")),
        ({"lib/my_ops/x.py": "", "pyproject.toml": "[tool.setuptools.packages.find]\nwhere = ['lib']"}, (".", "lib")),
        ({"py/my_ops/x.py": "", "pyproject.toml": "[tool.hatch.build.targets.wheel]\npackages = ['py/my_ops']"}, (".", "py")),
        ({"py/my_ops/x.py": "", "pyproject.toml": "[tool.poetry]\npackages = [{include = 'my_ops', from = 'py'}]"}, (".", "py")),
        ({"py/my_ops/x.py": "", "setup.py": "setup(package_dir={'': 'py'}, packages=[])"}, (".", "py")),
        ({"py/my_ops/x.py": "", "setup.cfg": "[options]\npackage_dir =\n    = py\n"}, (".", "py")),
        ({"pyproject.toml": "[tool.setuptools.packages.find]\nwhere = ['../other', '/etc', 'gone']"}, (".",)),
        ({".git/HEAD": "", "lib/setup.py": "", "lib/src/my_ops/x.py": "", "examples/setup.py": ""}, (".", "lib", "lib/src")),
        ({"lib/setup.py": "", "other/setup.py": ""}, (".",)),
        ({"setup.py": "", "lib/setup.py": ""}, (".",)),
        ({"pyproject.toml": "[tool\n"}, (".",)),
        ({"pyproject.toml": "tool = 3\n", "setup.cfg": "no section"}, (".",)),
    ],
)
def test_modules_come_from_the_root_and_its_layout(tmp_path, files, folders):
    """`src` where packages are in it, and what the build's settings name; never a folder outside of the package."""
    assert import_folders(write(tmp_path, files)) == folders


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pytest.ini": "[pytest]\npythonpath = . lib\naddopts = -m 'not slow'"}, ("pytest.ini", (".", "lib"), ("-m", "not slow"))),
        ({"pytest.ini": ""}, ("pytest.ini", (), ())),
        ({"pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['.']\naddopts = '-q'"}, ("pyproject.toml", (".",), ("-q",))),
        ({"pyproject.toml": "[tool.pytest]\naddopts = ['-q']"}, ("pyproject.toml", (), ("-q",))),
        ({"pytest.toml": "[pytest]\npythonpath = ['.']"}, ("pytest.toml", (".",), ())),
        ({"pyproject.toml": "[project]\nname = 'ops'", "tox.ini": "[pytest]\naddopts = -x"}, ("tox.ini", (), ("-x",))),
        ({"setup.cfg": "[tool:pytest]\naddopts = --cov=%(x)s"}, ("setup.cfg", (), ("--cov=%(x)s",))),
        ({"setup.cfg": "[pytest]\naddopts = -x"}, ("", (), ())),
        (
            {"tests/pytest.ini": "[pytest]\npythonpath = ../lib", "pytest.ini": "[pytest]\naddopts = -x"},
            ("tests/pytest.ini", ("tests/../lib",), ()),
        ),
    ],
)
def test_the_nearest_settings_of_pytest_count(tmp_path, files, expected):
    """Each file that pytest reads, in its order, from the kernels folder up to the root; paths are relative to the root."""
    write(tmp_path, {"tests/test_x.py": "", **files})
    found = load_pytest_settings(tmp_path / "tests", tmp_path)

    assert (found.file, found.pythonpath, found.addopts) == expected


def test_settings_above_the_root_do_not_count(tmp_path):
    """A container does not have them."""
    write(tmp_path, {"pytest.ini": "[pytest]\naddopts = -x", "ops/setup.py": "", "ops/tests/test_x.py": ""})

    assert load_pytest_settings(tmp_path / "ops" / "tests", tmp_path / "ops") == PytestSettings()


def test_files_and_folders_of_tests(tmp_path):
    """`python_files` and `testpaths` as words or as a list."""
    write(tmp_path, {"pytest.ini": "[pytest]\npython_files = check_*.py *_check.py\ntestpaths =\n    tests\n    more/tests"})

    found = load_pytest_settings(tmp_path, tmp_path)

    assert (found.python_files, found.testpaths) == (("check_*.py", "*_check.py"), ("tests", "more/tests"))


def test_waivers_of_other_packages_are_not_this_ones(tmp_path):
    """A pyproject.toml above the folder is about more than it; one in it may have stale waivers, which are reported."""
    waivers = "".join(f'[[tool.warpwave.waivers]]\ngate = "spills"\nkernel = "{name}"\nreason = "known"\n' for name in ("relu", "gelu"))
    write(tmp_path, {"pyproject.toml": waivers, "ops/relu/test_relu.py": "", "gelu/test_gelu.py": ""})

    assert [waiver.which.kernel for waiver in load_gates(tmp_path / "ops").waivers] == [("relu",)]
    assert len(load_gates(tmp_path).waivers) == 2
