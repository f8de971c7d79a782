"""A package's compiled extension that is not built here: what imports it, what guards that import, and what calls it."""

import importlib
import json
import re
import runpy
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

from pathlib import Path

import torch

from warpwave.config.package import import_folders, load_pytest_settings
from warpwave.inside.fake_gpu import torch_ops
from warpwave.inside.fake_gpu.no_data import written
from warpwave.inside.imports import enter_package, extension_names
from warpwave.inside.multi_gpu import pytest_plugin
from warpwave.inside.process import lacking
from warpwave.inside.process.lacking import Package
from warpwave.inside.process.needs import sources
from warpwave.inside.process.outcomes import NotBuilt, Pretended, describe, hint_of, is_packages, reason_of, why_not_run
from warpwave.records import NotRun, Stage

SETUP = """
from torch.utils.cpp_extension import CUDAExtension, CppExtension
name = "unbuilt_ops"
here = CUDAExtension(name="unbuilt_cuda", sources=["a.cu"])
more = [CppExtension("unbuilt_cpu", []), CUDAExtension(f"{name}._C", []), CUDAExtension(name=name_of(here), sources=[])]
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    monkeypatch.setenv("PYTHONPATH", "")

    def make(**modules: str):
        (tmp_path / "setup.py").write_text(SETUP)
        for name, text in {"__init__": "", **modules}.items():
            path = tmp_path / "unbuilt_ops" / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("warpwave.")]
        enter_package([str(tmp_path)])
        return tmp_path

    return make


def test_the_names_are_read_from_the_build_script(package):
    """Constants, their names and f-strings of them; what is computed is left out. CMake adds modules by name, too."""
    root = package()
    (root / "CMakeLists.txt").write_text(
        "find_package(pybind11)\npybind11_add_module(bound SHARED a.cpp)\nnanobind_add_module (nano NB_STATIC b.cpp)\n"
    )
    (root / "csrc" / "norm").mkdir(parents=True)
    (root / "csrc" / "norm" / "setup.py").write_text("setup(ext_modules=[CUDAExtension('unbuilt_norm', [])])")
    (root / "broken").mkdir()
    (root / "broken" / "setup.py").write_text("this is no Python")

    assert set(extension_names(root)) == {"unbuilt_cuda", "unbuilt_cpu", "unbuilt_ops._C", "unbuilt_norm", "bound", "nano"}


def test_below_a_package_whose_import_failed_its_failure_is_raised_again(package):
    """Where Python raises KeyError: its parts were imported before it failed, and have no `__init__.py`."""
    package(**{"__init__": "import unbuilt_ops.parts.first\nimport not_installed", "parts/first": "", "parts/second": ""})

    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="not_installed"):
            importlib.import_module("unbuilt_ops.parts.second")


def test_an_unguarded_import_gets_a_stand_in(package):
    """Its parts can be named, derived from and passed on, and calling one says what is missing."""
    package(
        both="import unbuilt_cuda as cuda\nfrom . import _C\nforward = cuda.forward\nclass Mode(_C.Mode): pass\n"
        "try:\n    import unbuilt_cpu\nexcept ImportError as e:\n    raise ImportError('build it') from e\n"
    )
    both = importlib.import_module("unbuilt_ops.both")

    assert issubclass(both.Mode, both._C.Mode)
    assert both.forward is both.cuda.forward
    for call in (both.forward, both.cuda.Type.fp16.of, both.Mode, both.unbuilt_cpu.run):
        with pytest.raises(NotBuilt, match=r"unbuilt_\w+\.\S+ is compiled code of the package, which is not built here"):
            call(1, size=2)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("unbuilt_of_another")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("json._C")


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    import unbuilt_cuda\nexcept ImportError:\n    unbuilt_cuda = None",
        "try:\n    import unbuilt_cuda\nexcept (OSError, builtins.ModuleNotFoundError):\n    unbuilt_cuda = None",
        "try:\n    import unbuilt_cuda\nexcept:\n    unbuilt_cuda = None",
        "with contextlib.suppress(ImportError):\n    import unbuilt_cuda",
        "def load():\n    import unbuilt_cuda\ntry:\n    load()\nexcept Exception:\n    pass",
        "try:\n    from unbuilt_ops import inner\nexcept ImportError:\n    pass",
        "try:\n    importlib.import_module('unbuilt_cuda')\nexcept ImportError:\n    pass",
        "unbuilt_cuda = importlib.util.find_spec('unbuilt_cuda')",
        "import pytest\ntry:\n    pytest.importorskip('unbuilt_cuda')\nexcept pytest.skip.Exception:\n    pass",
    ],
)
def test_a_guarded_import_fails_as_ever(package, text):
    package(asking=f"import builtins, contextlib, importlib.util\n{text}\n", inner="import unbuilt_cuda")
    module = importlib.import_module("unbuilt_ops.asking")

    assert getattr(module, "unbuilt_cuda", None) is None
    assert "unbuilt_cuda" not in sys.modules


def test_tests_of_a_package_with_an_extension(run_inside, tmp_path):
    """What does not need it passes; what does needs a build, and the report says of what."""
    pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
    (tmp_path / "setup.py").write_text(SETUP)
    (tmp_path / "test_a.py").write_text("import unbuilt_cuda\ndef test_a(): pass\ndef test_b(): unbuilt_cuda.forward()\n")
    found = {"pytest": load_pytest_settings(tmp_path, tmp_path), "import_folders": import_folders(tmp_path)}
    output = run_inside(tmp_path, Stage.TEST, benches=(), **found)
    report = json.loads((output / "stages.json").read_text())["reports"][1]

    assert (report["verdict"], report["counts"]) == ("passed", {"passed": 1, "not-run": 1})
    assert report["not_run"] == {"needs-build": 1}
    assert "unbuilt_cuda.forward is compiled code of the package, which is not built here" in (output / "test" / "junit.xml").read_text()
    assert report["notes"] == ["unbuilt_cuda is compiled code of the package, which is not built here: what calls it does not run"]


# What a test misses of compiled code that its package has, but has not built here; and what looks alike and is the author's mistake.

CPP = """
TORCH_LIBRARY_FRAGMENT(unbuilt_rows, m) { m.def("scale(Tensor x) -> Tensor"); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("fused", &fused); }
"""
MISSED = {
    "None in place of the module": ("from unbuilt_ops import _C\n_C.fused()", NotRun.NEEDS_BUILD),
    "None in place of the function": ("fused = None\nfused(1)", NotRun.NEEDS_BUILD),
    "a library below the root": ("import ctypes\nctypes.CDLL(ROOT + '/libother.so')", NotRun.NEEDS_BUILD),
    "a library by the name of its source": ("import ctypes\nctypes.cdll.LoadLibrary('librows.so')", NotRun.NEEDS_BUILD),
    "an operator": ("import torch\ntorch.ops.unbuilt_rows.scale.default", NotRun.NEEDS_BUILD),
    "a misspelt namespace": ("import torch\ntorch.ops.unbuilt_row.scale", NotRun.RAISED),
    "a misspelt operator": ("import torch\ntorch.ops.unbuilt_rows.scle", NotRun.RAISED),
    "None of its own": ("mine = None\nmine.scale_rows()", NotRun.RAISED),
    "a library of another": ("import ctypes\nctypes.CDLL('/nowhere/libother.so')", NotRun.RAISED),
}


@pytest.mark.parametrize("text", MISSED)
def test_what_is_missed_of_compiled_code(package, monkeypatch, text):
    code, why = MISSED[text]
    root = package(_C="", __init__="_C = None")
    monkeypatch.setattr(Package, "root", root)
    (root / "csrc").mkdir()
    (root / "csrc" / "rows.cpp").write_text(CPP)
    (root / "unbuilt_ops" / "asking.py").write_text(f"ROOT = {str(root)!r}\n{code}\n")
    (root / "unbuilt_ops" / "_C.py").unlink()
    lacking._sources_of.cache_clear()
    with pytest.raises((AttributeError, TypeError, OSError)) as caught:
        importlib.import_module("unbuilt_ops.asking")

    assert why_not_run(caught.value) is why


@pytest.mark.parametrize(("name", "is_fine"), [("scale", True), ("scle", False)])
def test_a_package_describes_an_operator_that_is_not_built(package, monkeypatch, name, is_fine):
    """At its import, with no guard: the rest of the package is tested. A misspelt one fails as on a card."""
    root = package()
    monkeypatch.setattr(Package, "root", root)
    (root / "csrc").mkdir()
    (root / "csrc" / "rows.cpp").write_text(CPP)
    lacking._sources_of.cache_clear()

    def shape(x):
        return x

    if is_fine:
        assert torch_ops.if_built(torch.library.register_fake, f"unbuilt_rows::{name}")(shape) is shape
        assert torch_ops.if_built(torch.library.register_fake, f"unbuilt_rows::{name}", shape) is not None
    else:
        with pytest.raises(RuntimeError, match="does not exist"):
            torch_ops.if_built(torch.library.register_fake, f"unbuilt_rows::{name}")(shape)


# A test whose process was killed while other workers ran: it runs again when they are done, on a card or without one.


def test_what_was_postponed_runs_without_a_card_too(monkeypatch):
    """Nobody watches neighbours where tests use no card. The worker that stays runs it all the same."""
    monkeypatch.setattr(pytest_plugin, "done_by_all", lambda path: set())
    monkeypatch.setattr(pytest_plugin, "given_up", lambda ledger, journal, case: False)
    left, finished = ["test_a.py::test_killed"], []
    ledger = SimpleNamespace(
        card=0,
        neighbours=lambda: [],
        next=lambda units, *rest: left.pop() if units and left else None,
        wait_until_alone=lambda beat: None,
        postponed=lambda: ["test_a.py::test_killed"],
        kept_here=lambda: [],
        finish=finished.append,
    )
    item = SimpleNamespace(nodeid="test_a.py::test_killed")
    claims = object.__new__(pytest_plugin.Claims)
    vars(claims).update(
        _ledger=ledger, _journal=SimpleNamespace(path=None), _neighbours=None, _items=[item], _files={}, _order=[], _done=set()
    )

    assert list(claims.pairs()) == [(item, None)]
    assert finished == ["test_a.py::test_killed"]


# Which arguments a kernel may write to, by Triton's own IR.

LOOP = """
module {
  tt.func public @kernel(%table: !tt.ptr<i32> loc("table"(#loc)), %x: !tt.ptr<f32> loc(#l), %out: !tt.ptr<f32> loc(#l), %count: !tt.ptr<i32>
 loc(#l), %n: i32 loc(#l)) attributes {noinline = false} {
    %first = tt.load %table : !tt.ptr<i32> loc(#loc2)
    %place = tt.addptr %out, %first : !tt.ptr<f32>, i32 loc(#loc3)
    %last:2 = scf.for %i = %c0 to %n step %c1 iter_args(%sum = %zero, %at = %place) -> (f32, !tt.ptr<f32>)  : i32 {
      %here = tt.addptr %x, %i : !tt.ptr<f32>, i32 loc(#loc4)
      %value = tt.load %here : !tt.ptr<f32> loc(#loc5)
      tt.store %at, %value : !tt.ptr<f32> loc(#loc6)
      %next = tt.addptr %at, %c1 : !tt.ptr<f32>, i32 loc(#loc7)
      scf.yield %value, %next : f32, !tt.ptr<f32> loc(#loc8)
    } loc(#loc9)
    %old = tt.atomic_rmw add, acq_rel, gpu, %count, %c1, %true : (!tt.ptr<i32>, i32, i1) -> i32 loc(#loc10)
    tt.return loc(#loc11)
  }
}
""".replace("\n loc(#l), %n", " loc(#l), %n")


def test_a_store_leads_back_to_its_argument():
    """Through a loop and arithmetic; not through the number that was loaded from a table."""
    assert written(LOOP) == {"out", "count"}
    assert written(LOOP.replace("tt.store %at", "tt.store %last#1")) >= {"out", "count"}
    assert written("module {}") == frozenset()


# The layout of a hub for kernels: the build writes `_ops.py`.

GATE = """
import torch
from ._ops import add_op_namespace_prefix, ops
torch.library.define(add_op_namespace_prefix("gate"), "(Tensor x) -> Tensor")
torch.library.impl(add_op_namespace_prefix("gate"), "CPU")(lambda x: x + 1)
def again(x): return ops.gate(x)
def native(x): return ops.gate_native(x)
def misspelt(x): return ops.gaet(x)
"""


@pytest.fixture
def hub(tmp_path, package):
    """A package in that layout, with an operator in C++."""
    package()
    folder = tmp_path / "torch-ext" / "hub_gate"
    folder.mkdir(parents=True)
    (tmp_path / "build.toml").write_text('[general]\nname = "hub_gate"\n')
    (folder / "__init__.py").write_text("from . import inner\n")
    (folder / "inner").mkdir()
    (folder / "inner" / "__init__.py").write_text(GATE.replace("._ops", ".._ops"))
    binding = 'TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def("gate_native(Tensor x) -> Tensor"); }'
    (folder / "binding.cpp").write_text(binding)
    sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("warpwave.")]
    enter_package([str(tmp_path / "torch-ext")], root=tmp_path)
    return folder


def test_what_a_build_writes_has_a_stand_in(hub):
    """Python's operators work in its namespace. One of C++ needs a build, and a misspelt one is the author's mistake."""
    inner = importlib.import_module("hub_gate").inner
    one = torch.ones(1)

    assert inner.again(one) == 2
    with pytest.raises(AttributeError) as native:
        inner.native(one)
    with pytest.raises(AttributeError) as misspelt:
        inner.misspelt(one)
    assert why_not_run(native.value) is NotRun.NEEDS_BUILD
    assert "torch-ext/hub_gate/binding.cpp" in reason_of(native.value)[1]
    assert why_not_run(misspelt.value) is NotRun.RAISED


def test_elsewhere_a_missing_ops_module_is_a_mistake(tmp_path, package):
    """Only the layout says that a build writes it."""
    package(asking="from ._ops import ops")
    with pytest.raises(ModuleNotFoundError) as missing:
        importlib.import_module("unbuilt_ops.asking")
    assert why_not_run(missing.value) is NotRun.IMPORT


class OddError(RuntimeError):
    """As `pynvml` compares its errors; and methods that raise."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other):
        return self.value == other.value

    def __bool__(self):
        raise ValueError


class WordlessError(RuntimeError):
    def __str__(self):
        raise ValueError


@pytest.mark.parametrize("kind", [OddError, WordlessError])
def test_what_a_packages_exception_does_when_it_is_asked_is_no_matter(kind, tmp_path, monkeypatch):
    """pytest would end with an internal error, and the run would be red."""
    monkeypatch.setattr(Pretended, "asked", set())
    monkeypatch.setattr(Pretended, "refused", False)
    (tmp_path / "own.py").write_text(
        "def fail(kind):\n    try:\n        raise KeyError(1)\n    except KeyError:\n        raise kind('odd')\n"
    )
    with pytest.raises(kind) as caught:
        runpy.run_path(str(tmp_path / "own.py"))["fail"](kind)
    above = RuntimeError("above")
    above.__cause__ = caught.value

    assert (why_not_run(caught.value), why_not_run(above)) == (NotRun.RAISED, NotRun.RAISED)
    assert describe(caught.value).startswith(kind.__name__)
    assert is_packages(caught.value, tmp_path, asked_data=False)


@pytest.mark.parametrize(("without", "why"), [(False, NotRun.NEEDS_CARD), (True, NotRun.RAISED)])
def test_a_machine_of_another_vendor_has_no_nvml(monkeypatch, without, why):
    """What asks for it there raises on such a card, too."""
    monkeypatch.setattr(Pretended, "without_nvml", without)

    assert why_not_run(RuntimeError("NVML Shared Library Not Found")) is why


def test_compiled_sources_tell_an_operator_that_is_not_built_from_a_misspelt_one(tmp_path, monkeypatch):
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "bind.cu").write_text('TORCH_LIBRARY(rows_of_ours, m) { m.def("gather(Tensor x) -> Tensor"); }')
    monkeypatch.setattr(Package, "root", tmp_path)
    found = {}
    for name in ("gather", "gahter"):
        with pytest.raises(AttributeError) as caught:
            getattr(torch.ops.rows_of_ours, name)
        found[name] = reason_of(caught.value)

    assert found["gahter"] == (NotRun.RAISED, "")
    assert found["gather"][0] is NotRun.NEEDS_BUILD
    assert found["gather"][1].endswith("which is not built here (csrc/bind.cu)")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("Attempted to use our native library functionality but it's not available.", NotRun.NEEDS_BUILD),
        ("the CUDA extension was not compiled", NotRun.NEEDS_BUILD),
        ("C++ ops are unavailable: failed to load", NotRun.NEEDS_BUILD),
        ("attention requires the CUDA attention extensions (_fa2_C or _fa3_C).", NotRun.NEEDS_BUILD),
        ("requires a CUDA stream of the current device", NotRun.RAISED),
        ("CUDA kernels need a size that is a power of two, not 3", NotRun.RAISED),
        ("the library of shapes has no entry", NotRun.RAISED),
    ],
)
def test_a_package_says_itself_that_it_is_not_built(tmp_path, package, monkeypatch, said, why):
    """Only where it has sources to compile, and raised it itself."""
    package(says=f"def run():\n    raise RuntimeError({said!r})\n")
    monkeypatch.setattr(Package, "root", tmp_path)

    def found():
        with pytest.raises(RuntimeError) as caught:
            importlib.import_module("unbuilt_ops.says").run()
        return reason_of(caught.value)[0]

    assert found() is NotRun.RAISED
    (tmp_path / "bind.cu").write_text("// code")
    lacking._sources_of.cache_clear()
    assert found() is why


def test_all_missing_modules_are_named_at_once(tmp_path, package):
    """Also those behind the first one, and of modules that the file imports; not what an `if` or a `try` guards, nor what is there."""
    package(
        first="import nobodys_first\nfrom . import second\nimport nobodys_third.part\nif not second:\n    import nobodys_inner\n",
        second="from nobodys_second import x\nfrom unbuilt_ops.inner import leaf\nfrom . import guarded\n",
        guarded="try:\n    import nobodys_guarded\nexcept ImportError:\n    pass\n",
    )
    (tmp_path / "unbuilt_ops" / "inner").mkdir()
    (tmp_path / "unbuilt_ops" / "inner" / "__init__.py").write_text("import nobodys_fourth\n")
    (tmp_path / "unbuilt_ops" / "inner" / "leaf.py").write_text("import nobodys_fifth\n")
    enter_package([str(tmp_path)], root=tmp_path)
    with pytest.raises(ModuleNotFoundError) as missing:
        importlib.import_module("unbuilt_ops.first")
    why, words = reason_of(missing.value)

    assert why is NotRun.REQUIREMENT
    assert re.findall(r"No module named 'nobodys_(\w+)'", words) == ["first", "third", "second", "fourth", "fifth"]


@pytest.mark.parametrize(("name", "requirement"), [("nobodys_layers", "{}"), ("nobodys_layers", "{}-python"), ("typez", "py-{}")])
def test_a_declared_module_is_a_requirement_whatever_its_name(tmp_path, package, name, requirement):
    """`unbuilt_ops/nobodys_layers.py` is no module that `import nobodys_layers` finds. Undeclared, the author forgot a dot; of `typez`, the
    author hit the wrong key.
    """
    package(first=f"import {name}\n", nobodys_layers="")
    enter_package([str(tmp_path)], root=tmp_path)
    found = []
    for text in (f"{name} = 1\n", f"[project]\ndependencies = ['{requirement.format(name.replace('_', '-'))}>=4']\n"):
        (tmp_path / "pyproject.toml").write_text(text)
        lacking._own_modules.cache_clear()
        lacking._declared.cache_clear()
        with pytest.raises(ModuleNotFoundError) as missing:
            importlib.import_module("unbuilt_ops.first")
        found.append(why_not_run(missing.value))

    assert found == [NotRun.IMPORT, NotRun.REQUIREMENT]


# Which options install what is missing. That all of it is named at once is in test_extensions.py.

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
def declaring(tmp_path) -> Path:
    """A declaring that declares what it needs in each of the places."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "requirements-eval.txt").write_text("fourth-of-nobody  # a comment\n")
    return tmp_path


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no reader of TOML")
def test_each_place_has_its_options_and_the_hint_is_one_command(declaring):
    modules = [f"{name}_of_nobody" for name in ("needed", "tested", "first", "third", "fourth", "wild")]

    assert sources(modules, declaring) == {
        "needed_of_nobody": ("", "--install"),
        "tested_of_nobody": ("extra test", "--install"),
        "first_of_nobody": ("extra verify", "--install --extra verify"),
        "third_of_nobody": ("group bench", "--install --extra bench"),
        "fourth_of_nobody": ("requirements-eval.txt", "--with fourth-of-nobody"),
    }

    missing = [f"{name}_of_nobody" for name in ("first", "second", "third", "fourth", "wild")]
    hint = hint_of([f"ModuleNotFoundError: No module named '{name}'" for name in missing], declaring)

    assert "first_of_nobody (extra verify), " in hint
    assert ": --install --extra verify --extra tables --extra bench --with fourth-of-nobody." in hint
    assert "Missing here: wild_of_nobody. --install installs" in hint


@pytest.mark.parametrize(
    ("file", "torch", "option"),
    [
        ("requirements.txt", "torch>=2", "--requirements requirements.txt"),
        ("requirements.txt", "torch == 2.6", "--with fifth-of-nobody"),
        ("requirements/common.txt", "", "--requirements requirements/common.txt"),
        ("requirements/tpu.txt", "", "--with fifth-of-nobody"),
    ],
)
def test_a_file_for_one_platform_or_of_a_whole_environment_is_not_installed(tmp_path, file, torch, option):
    (tmp_path / "requirements").mkdir()
    (tmp_path / file).write_text(f"fifth-of-nobody==1.0\n{torch}\n")

    assert sources(["fifth_of_nobody"], tmp_path) == {"fifth_of_nobody": (file, option)}


def test_an_installed_package_without_its_module_is_not_installed_again(declaring, monkeypatch):
    """An index may have nothing but a placeholder of that name."""
    (declaring / "fourth_of_nobody-0.0.0.dist-info").mkdir()
    (declaring / "fourth_of_nobody-0.0.0.dist-info" / "METADATA").write_text("Name: fourth-of-nobody\nVersion: 0.0.0\n")
    monkeypatch.syspath_prepend(str(declaring))
    hint = hint_of(["ModuleNotFoundError: No module named 'fourth_of_nobody'"], declaring)

    assert "The installed fourth_of_nobody 0.0.0 has no fourth_of_nobody." in hint
    assert "--with fourth-of-nobody" not in hint


def test_what_a_setup_cfg_declares(tmp_path):
    text = "install_requires =\n    fifth-of-nobody>=8\n[options.extras_require]\nio =\n    sixth_of_nobody; python_version > '3.0'"
    (tmp_path / "setup.cfg").write_text(f"[metadata]\nname = ops\n[options]\n{text}\n")

    assert sources(["fifth_of_nobody", "sixth_of_nobody"], tmp_path) == {
        "fifth_of_nobody": ("", "--install"),
        "sixth_of_nobody": ("extra io", "--install --extra io"),
    }


def test_a_package_that_is_called_otherwise(tmp_path):
    (tmp_path / "requirements.txt").write_text("PyYAML\nopencv_python\n")

    assert set(sources(["yaml", "cv2"], tmp_path)) == {"yaml", "cv2"}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no reader of TOML")
@pytest.mark.parametrize(("extension", "option"), [("", "--install"), ("ext_modules=[CUDAExtension()],", "--with needed-of-nobody")])
def test_a_package_that_would_be_compiled_is_not_installed(declaring, extension, option):
    """What a setup.py declares is found, too, also if it is called a little otherwise."""
    needs = "needs = ['someone-fifth==0.7.1']\nextras['test'] = ['sixth[gpu]>1', 'seventh-a', 'seventh-b']"
    (declaring / "setup.py").write_text(f"{needs}\nsetup({extension} install_requires=needs)\n")

    assert sources(["needed_of_nobody", "fifth", "sixth", "seventh"], declaring) == {
        "needed_of_nobody": ("", option),
        "fifth": ("setup.py", "--with someone-fifth"),
        "sixth": ("setup.py", "--with sixth"),
    }
