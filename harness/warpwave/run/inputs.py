"""Collect the inputs that decide a run's results: the kernel package, the harness, and the environment, as the host sees them.
`raw/<target>/inputs.json` stores them when a run starts. A run is resumed only if none of them has changed since. The results of a finished
run are accepted on the same condition. Collecting them starts no container and uses no GPU."""

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import warpwave
from warpwave.collect.untrusted import RejectedError, opened
from warpwave.config.targets import Target
from warpwave.engines.choose import close, load_engine
from warpwave.engines.docker.images import final_recipe
from warpwave.engines.packages.environments import on_toolchain, venv_of
from warpwave.engines.packages.plan import is_wanted, make_plan
from warpwave.engines.protocol import Request
from warpwave.engines.snapshot import secret
from warpwave.errors import InfrastructureError, UsageError
from warpwave.options import RunOptions
from warpwave.records import COMPILED_FOLDER, COMPILED_HERE, COMPILED_MANIFEST, COMPILED_NAME, Environment, Inputs
from warpwave.records.registry import ENGINES

# Files and folders that tools leave in a package and that no kernel reads.
_FOLDERS = frozenset({".git", ".hg", ".svn", ".nox", ".tox", ".hypothesis", ".idea", ".vscode", ".ipynb_checkpoints", "__pycache__"})
_FOLDER_MARKS = ("CACHEDIR.TAG", "pyvenv.cfg")
_FILES = re.compile(r".*\.py[co]|\..*\.sw[a-z]|.*~|\.?#.*|\.DS_Store|\.coverage.*")
_BUILT = frozenset({"build", "dist", "node_modules"})
_SETTINGS = frozenset({"pyproject.toml", "setup.cfg", "tox.ini", "pytest.ini", "pytest.toml"})
_MOST_SOURCES = 20_000  # files outside the kernels folder
_MOST_NAMED = 10_000  # files; a larger package has one digest for each entry of its top folder
_LARGE_BYTES = 64 << 20  # larger files count by size and time: reading them would take longer than some runs
_PIECE = 1 << 20
# The caller's variables that configure Python, pytest, torch and Triton, without those that only name folders of caches.
_VARIABLES = re.compile(r"(PYTEST|PYTHON|TORCH|PYTORCH|TRITON)[A-Z_]*")
_NOT_THESE = re.compile(r"PYTEST_CURRENT_TEST|PYTEST_XDIST_.*|PYTEST_VERSION|.*_DIR|PYTHONDONTWRITEBYTECODE|PYTHONUNBUFFERED")
_WHAT_RUNS = ("inside", "records", "stats.py")
# Runs in the Python that runs the kernels. An editable install counts with its files, any other package with its version.
_LIST = """
import hashlib, json, os, sys, urllib.parse
sys.path[:] = sys.path[sys.path[0] == "":]  # drop the current folder: its packages are not installed
from importlib import metadata
found = {"python": sys.version.split()[0]}
for one in metadata.distributions():
    name, version = one.metadata["Name"], one.version
    if not name or name.lower() == "warpwave":
        continue
    try:
        noted = json.loads(one.read_text("direct_url.json") or "{}")
    except ValueError:
        noted = {}
    if noted.get("dir_info", {}).get("editable") and noted.get("url", "").startswith("file://"):
        digest = hashlib.sha256()
        for folder, folders, files in os.walk(urllib.parse.unquote(noted["url"][7:])):
            folders[:] = sorted(each for each in folders if not each.startswith((".", "__")))
            for file in sorted(each for each in files if each.endswith(".py")):
                digest.update(file.encode(errors="replace") + open(os.path.join(folder, file), "rb").read())
        version += " " + digest.hexdigest()[:16]
    found.setdefault("package " + name, version)
print(json.dumps(found))
"""


def gather(request: Request, environment: Environment) -> Inputs:
    """Return the inputs that decide the results of this request in this environment."""
    target, options = request.target, request.options
    variables = {**_calling(environment), **target.environment, **options.package.declared.variables, **options.package.variables}
    facts = {
        "engine": environment.engine,
        "image": environment.image or "",
        "image id": environment.image_id or "",
        **_installed(environment),
        # Store digests only: a variable may hold a secret.
        **{f"variable {name}": _digest(value.encode(errors="surrogateescape")) for name, value in variables.items()},
        **({} if _is_elsewhere(environment) else _hardware(target)),
        "gpu": options.where.gpu or "",
        "shard": str(options.where.shard or ""),
        **({"requirements": make_plan(request).key} if is_wanted(options) else {}),
        "protections": " ".join(sorted(options.build.weaken)),
    }
    return Inputs(options.where.run_id, target.name, package(options), harness_code(), facts)


def still_there(request: Request, recorded: Environment) -> Environment:
    """Return the environment that a finished run would have today, as far as we know without preparing it."""
    request = on_toolchain(request)
    options = request.options
    if options.where.engine not in (None, recorded.engine):
        return replace(recorded, engine=str(options.where.engine))
    if _is_elsewhere(recorded) and not ENGINES[recorded.engine].container:
        return recorded  # nothing is known here of an environment that another machine has
    if recorded.image is None:
        own = venv_of(request, make_plan(request)) / "bin" / "python" if is_wanted(options) else None
        return replace(recorded, python=str(own or options.where.python or sys.executable))
    return replace(recorded, image=final_recipe(request).tag, image_id=_image_id(request, recorded))


def package(options: RunOptions) -> dict[str, str]:
    """Return a digest of each file of the kernels folder, by path, and of what the rest of the package may add: modules and settings.
    Caches, editors' files and results of runs do not count."""
    found = dict(_files(options.package.kernels, options.where.folder, options.package.folder))
    if options.package.folder != options.package.kernels:
        found |= dict(islice(_sources(options), _MOST_SOURCES))
    if len(found) <= _MOST_NAMED:
        return found
    folded: dict[str, list[str]] = {}
    for path, digest in found.items():
        folded.setdefault(path.partition("/")[0], []).append(f"{path} {digest}")
    return {top: _digest("\n".join(lines).encode()) for top, lines in folded.items()}


def _walk(root: Path, results: Path, kernels: Path | None = None) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Walk a package, without `kernels`, environments, caches and results of runs."""
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        real = Path(os.path.realpath(folder))
        if real in (results, kernels) or any(name in files for name in _FOLDER_MARKS) or any((here / "raw").glob("*/run.json")):
            folders.clear()
            continue
        # Not even a digest of a password leaves this machine: records are shared, and short passwords can be guessed.
        folders[:] = sorted(name for name in folders if name not in _FOLDERS and not secret(here / name))
        yield here, folders, sorted(files)


def _sources(options: RunOptions) -> Iterator[tuple[str, str]]:
    """Return the digests of a package's modules and settings outside the kernels folder: `../my_ops/relu.py`. Its data may be large."""
    root, kernels = options.package.folder, options.package.kernels
    for here, folders, files in _walk(root, options.where.folder, kernels):
        folders[:] = [name for name in folders if name not in _BUILT and not name.startswith(".")]
        for path in (here / name for name in files if name.endswith(".py") or name in _SETTINGS):
            yield _as_text(os.path.relpath(path, kernels)), _content(path, root)


def _as_text(path: str) -> str:
    """Return a path for a record, which holds text, while a path is bytes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def snapshot_of(options: RunOptions) -> str:
    """Return one digest of what all legs of a run have in common: the package's files and the harness."""
    lines = [harness_code(), *(f"{path} {digest}" for path, digest in sorted(package(options).items()))]
    return _digest("\n".join(lines).encode(errors="surrogateescape"))


def harness_code() -> str:
    """Return the version of warpwave and a digest of its files that run in the kernels' environment."""
    root = Path(warpwave.__file__).parent
    paths = [path for name in _WHAT_RUNS for path in sorted([root / name] if name.endswith(".py") else (root / name).rglob("*.py"))]
    return f"{warpwave.__version__} {_digest(b''.join(path.name.encode() + path.read_bytes() for path in paths))}"


def _files(root: Path, results: Path, package_root: Path) -> Iterator[tuple[str, str]]:
    for here, folders, files in _walk(root, results):
        linked = [name for name in folders if (here / name).is_symlink()]
        for path in (here / name for name in sorted([*files, *linked]) if not _FILES.fullmatch(name) and not secret(here / name)):
            yield _as_text(path.relative_to(root).as_posix()), _content(path, package_root)


def _content(path: Path, root: Path) -> str:
    """Return a digest of a file. A link out of the package counts with what it says, not with what it leads to."""
    try:
        if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
            return f"a link out of the package: {_digest(os.fsencode(path.readlink()))}"
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            return "no regular file"
        if state.st_size > _LARGE_BYTES:
            return f"{state.st_size} bytes of {state.st_mtime_ns}"
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
        return digest.hexdigest()[:32]
    except OSError as error:
        return error.strerror or "unreadable"


def _installed(environment: Environment) -> dict[str, str]:
    """Return what is installed in a Python of this machine. Return nothing for an image, which has an id, or for another machine."""
    if environment.image is not None or _is_elsewhere(environment):
        return {}
    try:
        # Packages are listed without the caller's PYTHONPATH, which counts as a variable.
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run([environment.python, "-c", _LIST], capture_output=True, text=True, timeout=60, env=variables)
        found: dict[str, str] = json.loads(done.stdout) if done.returncode == 0 else {"python": "unknown"}
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {"python": "unknown"}
    return found


def _is_elsewhere(environment: Environment) -> bool:
    return environment.engine in ENGINES and ENGINES[environment.engine].needs_host


def _calling(environment: Environment) -> dict[str, str]:
    """Return the caller's variables that reach the kernels. A container or another machine gets none of them."""
    if environment.image is not None or _is_elsewhere(environment):
        return {}
    return {name: value for name, value in os.environ.items() if _VARIABLES.fullmatch(name) and not _NOT_THESE.fullmatch(name)}


def _image_id(request: Request, recorded: Environment) -> str | None:
    """Return the image's id today, or the recorded id if no engine answers or the image was removed: nothing suggests a change then."""
    try:
        engine = load_engine(recorded.engine, request.options.where.host)
    except InfrastructureError:
        return recorded.image_id
    try:
        found = engine.image_id(request)
    finally:
        close(engine)
    return recorded.image_id if found is None else found


def _hardware(target: Target) -> dict[str, str]:
    """Return the driver and the cards of this machine, by PCI device number. Those of another one are named in its leg's results."""
    found = Path("/sys/bus/pci/devices").glob("*/vendor") if target.doctor.pci else ()
    cards = sorted(_text(str(path.with_name("device"))) for path in found if _text(str(path)) == target.doctor.pci)
    return {"driver": _text(target.probe.driver_file), "cards": " ".join(cards)}


def _text(path: str | None) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()[:200] if path else ""
    except OSError:
        return ""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


_MOST_FILES, _MOST_LIST, _MOST_BYTES, _MOST_TOGETHER = 100_000, 32 << 20, 256 << 20, 4 << 30  # files; bytes of their list, of each, of all
_REMEDY = "Compile again with --save-compiled, and hand over that run."


def _refused(happened: str, meaning: str = "The artifact was damaged or forged.") -> UsageError:
    return UsageError(happened, meaning, _REMEDY)


def find(folder: Path) -> Path:
    """Return the compiled kernels in a run's folder, in its `raw/`, or in a target's folder. Raises UsageError if there are none, or those
    of several targets."""
    places = [folder, *sorted((folder / "raw").glob("*")), *sorted(folder.glob("*"))]
    found = list(dict.fromkeys(place / COMPILED_FOLDER for place in places if (place / COMPILED_FOLDER / COMPILED_MANIFEST).is_file()))
    if len(found) != 1:
        raise UsageError(
            f"--compiled {folder}: {'there are no compiled kernels' if not found else 'there are several targets with compiled kernels'}.",
            "A run leaves them with --save-compiled ARCHITECTURE, in raw/TARGET/compile/.",
            "Name that run's folder, or the folder of one of its targets.",
        )
    return found[0]


def digest_of(folder: Path, expected: str = "") -> str:
    """Return the SHA-256 of the kernels' list, which holds the hash of each file. Raises UsageError if it is not the `expected` one, or
    cannot be read."""
    digest = hashlib.sha256(_read(folder, COMPILED_MANIFEST, _MOST_LIST)).hexdigest()
    if expected and digest != expected:
        raise _refused(
            f"{folder} does not hold the kernels that were planned: the SHA-256 of their list is {digest}.",
            "--compiled names another one, so the artifact was replaced or is of another run.",
        )
    return digest


def copy(folder: Path, raw: Path, planned: str) -> None:
    """Copy the kernels into a target's folder, where the inside looks for them. Nothing outside of their list is taken, and no link. Raises
    UsageError if they have changed since `planned`, the SHA-256 of their list; it names something else; or they would fill the disk."""
    digest_of(folder, planned)
    text = _read(folder, COMPILED_MANIFEST, _MOST_LIST)
    try:
        files = json.loads(text)["files"]
        if not isinstance(files, dict) or len(files) > _MOST_FILES or not all(COMPILED_NAME.fullmatch(name) for name in files):
            raise ValueError("it names something other than files of kernels")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _refused(f"The list of the kernels in {folder} cannot be read: {error}.") from None
    room = _MOST_TOGETHER
    for name, digest in files.items():
        data = _read(folder, name, _MOST_BYTES)
        room -= len(data)
        if room < 0:
            raise _refused(f"The kernels in {folder} have more than {_MOST_TOGETHER >> 30} GiB, and a package's kernels take far less.")
        if hashlib.sha256(data).hexdigest() != digest:
            raise _refused(f"{folder / name} was changed after it was compiled.")
        _write(raw / COMPILED_HERE / name, data)
    _write(raw / COMPILED_HERE / COMPILED_MANIFEST, text)


def _read(folder: Path, name: str, most: int) -> bytes:
    try:
        with opened(folder, name, most) as file:
            return file.read()
    except (RejectedError, OSError) as error:
        raise _refused(f"{folder / name}: {error}.", "The kernels of --compiled are not complete.") from None


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    with open(handle, "wb") as file:
        file.write(data)
