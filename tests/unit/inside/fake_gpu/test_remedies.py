"""What the environment lacks: an older Triton, whose interpreter differs, and missing modules."""

from __future__ import annotations

from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

from triton.runtime import interpreter

from warpwave.inside.fake_gpu.language import _with_index
from warpwave.inside.process.outcomes import hint_of
from warpwave.inside.sanitize.memory import _materializing


def test_a_bound_of_one_element_is_a_number():
    """NumPy 2.4 refuses `int()` of an array that has a dimension."""

    class Scope:
        def set_attr(self, tensor, name, value):
            setattr(tensor, name, value)

    class Bound:
        handle = SimpleNamespace(data=np.array([3]))

    _with_index(lambda tensor, scope: scope.set_attr(tensor, "__index__", lambda value: int(value.handle.data)))(Bound, Scope())

    assert list(range(Bound())) == [0, 1, 2]


def test_the_mask_of_a_block_pointer_is_a_handle():
    """It is a plain array there, whose `data` is no array."""
    pointers = SimpleNamespace()
    _, mask = _materializing(lambda described: (pointers, np.ones(4, bool)), lambda: None)(SimpleNamespace())

    assert isinstance(mask, interpreter.TensorHandle)
    assert mask.data.all()


def test_who_needs_an_older_triton():
    """What this Triton refuses by name is no fault that an author would find."""
    refused = "CompilationError: Block pointers have been removed in favor of the tensor descriptor API (at 3:9)"

    assert "--triton 3.6.0" in hint_of(["its own", refused])
    assert hint_of(["its own"]) == ""


@pytest.mark.parametrize("said", ["OSError: CUDA_HOME environment variable is not set.", "RuntimeError: ROCm version file not found"])
def test_a_toolkit_that_is_not_here(said):
    """The package may load its Triton kernels alone, by a variable of its own."""
    assert "--env NAME=1" in hint_of([said])
    assert hint_of(["KeyError: 'OPS_HOME'", "the timer is not set"]) == ""


def test_missing_modules_and_what_installs_them():
    """The one that most files want comes first; each is named once."""
    said = ["ModuleNotFoundError: No module named 'yaml'", *["ModuleNotFoundError: No module named 'frozendict.core'"] * 2]

    assert "Missing here: frozendict.core, yaml." in hint_of([*said, "assert 1 == 2"])
    assert "--with NAME" in hint_of(said)
    assert "--install" in hint_of(said)
    assert hint_of(["ImportError: cannot import name 'a' from 'b'"]) == ""


def test_nobody_is_told_to_install_what_is_installed(tmp_path, monkeypatch):
    """What is missing then is something that the package does not declare, or that was left out."""
    installed = tmp_path / "ops_of_nobody-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: ops-of-nobody\nVersion: 1.0\n")
    (installed / "top_level.txt").write_text("ops_of_nobody\n")
    (installed / "direct_url.json").write_text('{"url": "file:///tmp/wheel/ops_of_nobody-1.0-py3-none-any.whl", "archive_info": {}}')
    said = ["ModuleNotFoundError: No module named 'yaml_of_nobody'"]
    package, other = tmp_path / "package", tmp_path / "other"
    (package / "src" / "ops_of_nobody").mkdir(parents=True)
    other.mkdir()
    assert "The package is installed." not in hint_of(said, package)

    monkeypatch.syspath_prepend(tmp_path)

    assert "Missing here: yaml_of_nobody. The package is installed. --with NAME" in hint_of(said, package)
    assert "The package is installed." not in hint_of(said, other)


def test_a_conftest_that_is_not_there_is_nothing_to_install():
    """Source archives often leave it out, and there are packages of that name."""
    hint = hint_of(["ModuleNotFoundError: No module named 'conftest'", "ModuleNotFoundError: No module named 'einops'"])

    assert "Missing here: einops." in hint
    assert "package's repository" in hint
    assert hint_of(["ModuleNotFoundError: No module named 'conftest'"]).startswith("Tests import conftest.py")


def test_a_submodule_that_the_installed_version_lacks():
    """No name installs `triton.ops`: old Tritons had it. The package under test has no older version to take."""
    hint = hint_of(["ModuleNotFoundError: No module named 'pluggy.ops'", "ModuleNotFoundError: No module named 'einops_of_nobody.core'"])

    assert f"The installed pluggy {version('pluggy')} has no pluggy.ops." in hint
    assert "--with 'NAME==VERSION'" in hint
    assert "Missing here: einops_of_nobody.core." in hint
    assert "Missing here" not in hint_of(["ModuleNotFoundError: No module named 'pluggy.ops'"])
    assert "Missing here: warpwave.gone." in hint_of(["ModuleNotFoundError: No module named 'warpwave.gone'"])


def test_empty_submodules_are_named_if_modules_are_missing(tmp_path):
    """`git clone` leaves them empty, and links into them lead nowhere."""
    (tmp_path / ".gitmodules").write_text('[submodule "a"]\n\tpath = 3rdparty/a\n[submodule "b"]\n\tpath = b\n\turl = u\n')
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.py").write_text("")
    missing = "ModuleNotFoundError: No module named 'fla_of_nobody'"

    assert "submodules are not checked out: 3rdparty/a. Run git submodule update --init." in hint_of([missing], tmp_path)
    assert hint_of(["assert 1 == 2"], tmp_path) == ""
    assert "submodule" not in hint_of([missing])
