"""Wheels and packages made for tests, so that pip needs no network."""

import importlib.metadata
import zipfile
from collections.abc import Sequence
from pathlib import Path

# A build backend in the package's own folder: it needs no tool, and fails if it is asked to.
BACKEND = """
import os, zipfile
def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    import importlib.metadata
    assert importlib.metadata.version("torch") != "1.0", "the build got another torch than the one that is here"
    if os.path.exists("fail"):
        raise RuntimeError("nvcc was not found")
    open("written_by_the_build", "w").close()
    name = "my_ops-1.5-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as archive:
        archive.writestr("my_ops/__init__.py", "where = 'copy'")
        archive.writestr("my_ops/_made.py", "made = 'by the build'")
        metadata = "Metadata-Version: 2.1\\nName: my-ops\\nVersion: 1.5\\nRequires-Dist: helper>=1\\nRequires-Dist: torch==1.0\\n"
        metadata += "".join(f'Requires-Dist: {name}; extra == "dev"\\n' for name in ("ruff", "extra-helper"))
        archive.writestr("my_ops-1.5.dist-info/METADATA", metadata)
        archive.writestr("my_ops-1.5.dist-info/WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr("my_ops-1.5.dist-info/RECORD", "")
    return name
"""
PROJECT = """
[build-system]
requires = ["torch"]
build-backend = "backend"
backend-path = ["."]
[project]
name = "my-ops"
version = "1.5"
dependencies = ["helper>=1", "torch==1.0"]
"""


def _write_wheel(folder: Path, name: str, version: str, files: dict[str, str], requires: Sequence[str] = ()) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
    described = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, **{f"{stem}.dist-info/{file}": text for file, text in described.items()}}.items():
            archive.writestr(file, text)
    return path


def make_wheel(folder: Path, name: str, version: str, *requires: str, code: str = "") -> Path:
    """A wheel with one module, which holds its version, and runs `code` when it is imported."""
    return _write_wheel(folder, name, version, {f"{name.replace('-', '_')}.py": f"version = {version!r}\n{code}\n"}, requires)


def make_package(root: Path) -> Path:
    """A package with tests beside it, whose build needs no tool."""
    for name, text in {
        "pyproject.toml": PROJECT,
        "backend.py": BACKEND,
        "my_ops/__init__.py": "where = 'tree'\n",
        "tests/test_ops.py": "import my_ops\n\n\ndef test_where():\n    assert my_ops.where == 'tree'\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


# A release of Triton that is the one below it, but for one line of code.
_WRAPPER = """
import os, sys
_here = os.path.realpath(os.path.dirname(__file__))
_below = [os.path.join(entry, "triton") for entry in sys.path if os.path.isfile(os.path.join(entry, "triton", "__init__.py"))]
_real = next(folder for folder in _below if os.path.realpath(folder) != _here)
__path__, __file__ = [_real], os.path.join(_real, "__init__.py")  # its tools are found beside it
exec(compile(open(__file__).read(), __file__, "exec"))
__version__ = {version!r}
{code}
"""


def wrap_triton(folder: Path, version: str, code: str = "") -> Path:
    """A wheel of Triton in that version: what this Python has, and then `code`. It is as small as its code."""
    points = importlib.metadata.distribution("triton").read_text("entry_points.txt") or ""
    files = {"triton/__init__.py": _WRAPPER.format(version=version, code=code), f"triton-{version}.dist-info/entry_points.txt": points}
    return _write_wheel(folder, "triton", version, files)
