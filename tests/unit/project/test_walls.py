"""The walls of the house: who may import what, each shown in a fresh process, and no vendor in the code."""

import ast
import dataclasses
import functools
import graphlib
import importlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from warpwave.cli.options import where_options
from warpwave.config.targets import targets_schema
from warpwave.records import CHOSEN, STAGES, Stage, TargetRun
from warpwave.records.registry import DEFAULT, ENGINES, FALLBACK, HERE

HARNESS = Path(__file__).parents[3] / "harness" / "warpwave"
KERNELS = HARNESS.parents[1] / "kernels"
HOST = sorted(path for path in HARNESS.rglob("*.py") if "inside" not in path.parts)
INSIDE = sorted((HARNESS / "inside").rglob("*.py"))
# Who alone may import these.
OWNERS = {
    "docker": {"engines/docker/client.py"},
    "yaml": {"config/files.py"},
    "xml.parsers": {"collect/cases.py"},
    "xml.etree": set(),
    "junitparser": {"render/junit.py"},
    "torch": set(),
    "triton": set(),
    "warpwave.inside": set(),
}


@functools.cache
def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def below(modules: set[str], package: str) -> set[str]:
    return {module for module in modules if module == package or module.startswith(package + ".")}


def trespassers(paths: list[Path], wrong: Callable[[Path], object]) -> dict[str, object]:
    """What is `wrong` with each of these files, by its path; one test holds a rule for all of them."""
    assert paths
    return {str(path.relative_to(HARNESS.parent)): found for path in paths if (found := wrong(path))}


def test_host_files_import_only_what_is_theirs():
    """What reaches out has one owner each; torch, triton and the inside are never imported by the host."""

    def taken(path):
        name = path.relative_to(HARNESS).as_posix()
        return {package for package, owners in OWNERS.items() if below(imports(path), package) and name not in owners}

    assert trespassers(HOST, taken) == {}


def test_one_module_starts_git():
    """A package may bring settings with which git runs its programs; `harness/warpwave/git.py` switches them off."""

    def starts_git(path):
        words = [node.elts[0] for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, (ast.List, ast.Tuple)) and node.elts]
        return any(isinstance(word, ast.Constant) and word.value == "git" for word in words)

    assert trespassers([path for path in HOST if path != HARNESS / "git.py"], starts_git) == {}


def test_the_inside_stays_poor():
    """Inside there is the standard library, torch, triton, pytest, numpy, and of the harness only records, statistics and the emulator."""
    libraries = {*sys.stdlib_module_names, "torch", "triton", "pytest", "_pytest", "numpy"}
    rooms = ("warpwave.inside", "warpwave.records", "warpwave.stats", "warpwave.emulator")

    def foreign(path):
        return {
            module
            for module in imports(path) - {"warpwave"}
            if module.split(".")[0] not in libraries and not any(below({module}, room) for room in rooms)
        }

    assert trespassers(INSIDE, foreign) == {}


def test_kernels_know_nothing_of_the_harness():
    """A kernel package imports torch, triton, pytest, the standard library and its own modules."""
    paths = sorted(KERNELS.rglob("*.py"))
    allowed = {*sys.stdlib_module_names, "torch", "triton", "pytest", *(module.stem for module in paths)}

    assert trespassers(paths, lambda path: {module.split(".")[0] for module in imports(path)} - allowed) == {}


@pytest.mark.parametrize("module", ["warpwave.records", "warpwave.errors", "warpwave.stats"])
def test_layer_zero_needs_nothing(module):
    """records, errors and statistics load in a Python that has only its standard library."""
    code = f"import sys; import {module}; print({{name.split('.')[0] for name in sys.modules}} - set(sys.stdlib_module_names))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(HARNESS.parent)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert ast.literal_eval(done.stdout) <= {"warpwave", "__main__"}


PURE = [HARNESS / "stats.py", *sorted((HARNESS / "compare").rglob("*.py")), *sorted((HARNESS / "render").rglob("*.py"))]
# What each room may import of the harness, beside itself.
GROUND = {"warpwave.records", "warpwave.errors", "warpwave.safe_text", "warpwave.stats"}
ROOMS = {
    "compare": GROUND,
    "collect": GROUND,
    "render": GROUND | {"warpwave.compare"},
    "run": GROUND
    | {"warpwave.collect", "warpwave.engines", "warpwave.git", "warpwave.options", "warpwave.config.hosts", "warpwave.config.targets"},
    "engines": GROUND | {"warpwave.git", "warpwave.options", "warpwave.config.files", "warpwave.config.hosts", "warpwave.config.targets"},
}
# The folders and files of a room, from the ground up: each imports only those before it.
FLOORS = {
    "inside": (
        *(
            *("environment", "process", "imports", "benchmarks", "scripts", "facts", "codegen", "fake_gpu", "sanitize", "multi_gpu"),
            *("test", "compile", "precompile", "bench"),
        ),
    ),
    "compare": ("model", "speeds", "codegen", "tests", "answer", "upgrade"),
    "render": ("text", "sections", "excerpt", "charts", "exports", "html"),
}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_looks_down_only(room):
    """Comparing knows nothing of rendering, reading or running, and so on down the line."""

    def above(path):
        used = below(imports(path), "warpwave") - {"warpwave"}
        return used - {module for seen in ROOMS[room] | {f"warpwave.{room}"} for module in below(used, seen)}

    assert trespassers(sorted((HARNESS / room).rglob("*.py")), above) == {}


@pytest.mark.parametrize(("room", "floor"), [(room, floor) for room, floors in FLOORS.items() for floor in floors])
def test_a_floor_stands_on_those_below(room, floor):
    """A folder of `inside` that knows a stage above it could not be read, or used, without that stage."""
    above = FLOORS[room][FLOORS[room].index(floor) + 1 :]
    paths = [*(HARNESS / room / floor).rglob("*.py"), *(HARNESS / room).glob(f"{floor}.py")]
    used = set().union(*(imports(path) for path in paths))

    assert paths
    assert [name for name in above if below(used, f"warpwave.{room}.{name}")] == []


def test_no_module_needs_itself():
    """Also not by an import within a function: what goes in a circle cannot be read from one end."""
    modules = {
        ".".join(path.relative_to(HARNESS.parent).with_suffix("").parts).removesuffix(".__init__"): path for path in [*HOST, *INSIDE]
    }
    needs = {}
    for module, path in modules.items():
        named = imports(path) & set(modules)
        needs[module] = {name for name in named if name != module and not any(other.startswith(f"{name}.") for other in named)}

    assert len(list(graphlib.TopologicalSorter(needs).static_order())) == len(modules)


def test_only_the_command_line_knows_its_commands():
    others = [path for path in HOST if HARNESS / "cli" not in path.parents and path.name != "__main__.py"]

    assert trespassers(others, lambda path: below(imports(path), "warpwave.cli") | below(imports(path), "warpwave.__main__")) == {}


def test_the_middle_is_pure():
    """Comparing and rendering read no file, no clock and no environment: their files name nothing that could."""
    doors = {"os", "pathlib.Path", "time", "datetime", "subprocess", "socket", "io", "shutil", "tempfile"}

    assert trespassers(PURE, lambda path: {door for door in doors if below(imports(path), door)}) == {}


def test_the_host_starts_without_torch():
    """`warpwave list` works where torch, triton and the docker SDK cannot be imported."""
    block = "import sys\nfor name in ('torch', 'triton', 'docker'): sys.modules[name] = None\n"
    run = "from warpwave.__main__ import _run_cli\nsys.exit(_run_cli(['list']))"
    done = subprocess.run([sys.executable, "-c", block + run], capture_output=True, text=True)

    assert (done.returncode, "rocm" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["run", "--help"], ["run", "--no-such-option"], ["report"]])
def test_the_command_line_imports_what_the_command_needs(words):
    """Help and a wrong option come at once: what runs, reads and compares is imported only once there is something to do."""
    run = f"import sys; from warpwave.__main__ import _run_cli; _run_cli({words!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=True)
    heavy = {"docker", "jinja2", "pydantic", "yaml", "warpwave.collect", "warpwave.compare", "warpwave.config.targets", "warpwave.run"}

    assert heavy & set(done.stdout.splitlines()[-1].split()) == set()


@pytest.mark.parametrize("words", [["cdua"], ["cpu", "--kernels", "no-such-folder"]])
def test_what_a_run_refuses_by_name_imports_no_run(words, tmp_path):
    """A misspelt target or folder is answered before anything is validated: pydantic alone takes as long as `--version`."""
    run = f"import sys; from warpwave.__main__ import _run_cli; print(_run_cli(['run', *{words!r}])); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=True, cwd=tmp_path)
    code, modules = done.stdout.splitlines()

    assert (code, {"pydantic", "warpwave.config.targets", "warpwave.run"} & set(modules.split())) == ("2", set()), done.stderr


OPEN = """
import sys
sys.path[:0] = {paths!r}
from synthetic import no_gpu, two_targets
from warpwave.compare import compare
from warpwave.render.html import render_html
render_html(compare([no_gpu()]))  # reads its template, style and script, and imports what it needs
comparison = compare(two_targets(), ["alpha", "beta", "gamma"])
met = []
sys.addaudithook(lambda event, arguments: met.append(event) if event.split(".")[0] in {{"open", "os", "socket", "subprocess"}} else None)
page = render_html(comparison)
print(met, len(page) > 10_000)
"""


def test_rendering_opens_nothing_beside_its_own_package_data():
    """In a fresh process that watches itself: the second page is made without a file, a socket or a process."""
    code = OPEN.format(paths=[str(HARNESS.parent), str(Path(__file__).parents[1])])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stdout == "[] True\n", done.stderr


def test_package_data_is_read_by_the_page_alone():
    """Files of the package are a renderer's only door to the disk, and only the page needs it."""
    readers = {path.name for path in (HARNESS / "render").rglob("*.py") if below(imports(path), "importlib.resources")}

    assert readers == {"shell.py"}


VENDOR = re.compile(r"(?<![a-z])(nvidia|amd|rocm|hip|xpu)(?![a-z])", re.IGNORECASE)


EMULATOR = sorted((HARNESS / "emulator").rglob("*.py"))


def test_the_emulator_stands_alone():
    """It needs the standard library, tables, and readers of ELF and MessagePack: anyone can use it for a code object of their own."""
    allowed = {*sys.stdlib_module_names, "tinygrad", "elftools", "msgpack"}

    def foreign(path):
        found = imports(path) - {"warpwave"} - below(imports(path), "warpwave.emulator")
        return {module for module in found if module.split(".")[0] not in allowed}

    assert trespassers(EMULATOR, foreign) == {}


# Two places read one vendor's machine code, and cannot but name it: a compiled kernel's assembly, and the emulator of it. Two more stand in
# for the vendors' own management libraries and programs.
_TOOLS = {HARNESS / "inside" / "fake_gpu" / name for name in ("smi.py", "vendor_tools.py")}
NAMES_VENDORS = {*EMULATOR, HARNESS / "inside" / "codegen" / "binary.py", *_TOOLS}


def test_no_vendor_is_named_in_code():
    """Vendor facts are data in targets.yml. (`torch.cuda` and `device="cuda"` are torch's names for every vendor's GPU.)"""

    def named(path):
        text = path.read_text()
        lines = [line for line in text.splitlines() if VENDOR.search(line) and not line.lstrip().startswith("#")]
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        docstrings = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, documented)] if lines else []
        return [line for line in lines if not any(line.strip() in docstring for docstring in docstrings)]

    assert trespassers([path for path in HOST + INSIDE if path not in NAMES_VENDORS], named) == {}


# A new engine or stage is its own files and an entry: every other place reads the registries.

METHODS = {"prepare", "image_id", "layout", "execute"}


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_is_where_the_registry_says(name):
    """Its module can be imported without an engine that answers, has `connect`, and a class with the seam's methods and this name."""
    module = importlib.import_module(ENGINES[name].module)
    classes = [kind for kind in vars(module).values() if isinstance(kind, type) and vars(kind).get("name") == name]

    assert callable(module.connect)
    assert [kind for kind in classes if set(dir(kind)) >= METHODS]


def test_the_registry_names_every_file_of_an_engine():
    files = {path for path in (HARNESS / "engines").rglob("*.py") if "\ndef connect(" in path.read_text()}

    assert files == {HARNESS.parent / (entry.module.replace(".", "/") + ".py") for entry in ENGINES.values()}
    assert {DEFAULT, FALLBACK} <= set(ENGINES)


def test_the_user_chooses_from_the_registry():
    command = where_options(lambda: None)
    (engine,) = [option for option in command.__click_params__ if option.name == "engine"]

    assert list(engine.type.choices) == list(HERE)
    assert all(f'"{name}"' in targets_schema() for name in (*HERE, *(stage.value for stage in CHOSEN)))


def test_nobody_asks_for_an_engines_name():
    """What an engine can do is data; a comparison with its name would have to learn of each new one."""
    paths = sorted(HARNESS.rglob("*.py"))
    compared = [
        (path.relative_to(HARNESS).as_posix(), constant.value)
        for path in paths
        if any(name in (text := path.read_text()) for name in ENGINES)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Compare)
        for constant in ast.walk(node)
        if isinstance(constant, ast.Constant) and constant.value in ENGINES
    ]

    assert paths
    assert compared == []


@pytest.mark.parametrize("stage", Stage)
def test_a_stage_has_a_module_and_outputs_with_a_place(stage):
    """The inside starts `warpwave.inside.<stage>.stage`; what it writes goes to a field of the run."""
    fields = {field.name for field in dataclasses.fields(TargetRun)}

    assert (HARNESS / "inside" / stage.value / "stage.py").exists()
    assert {output.field for output in STAGES[stage].outputs} <= fields
    assert all(output.path.startswith((f"{stage.value}/", f"{stage.value}.")) for output in STAGES[stage].outputs)
