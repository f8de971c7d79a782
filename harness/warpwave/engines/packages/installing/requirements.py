"""What is asked for, and what this environment has. torch, Triton and pytest stay what they are."""

import ast
import configparser
import importlib.metadata
import re
import sysconfig
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

# Beside this folder, on the host and in the plan: names of vendors' packages are data.
_PATTERNS = configparser.ConfigParser(allow_no_value=True, interpolation=None)  # in lower case, as normalized names are
_PATTERNS.read(Path(__file__).resolve().parents[1] / "packages.ini", encoding="utf-8")


def is_protected(name: str) -> bool:
    """Return whether nothing may replace this package."""
    return _is_in("protected", name)


def is_companion(name: str) -> bool:
    """Return whether this package is compiled for one build of torch."""
    return _is_in("companions", name)


def _is_in(section: str, name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in _PATTERNS[section])


def sort_out(lines: list[str], notes: list[str]) -> tuple[list[str], list[str]]:
    """Split the lines of requirement files into options and packages. Protected ones, and folders, are left out with a note."""
    options = [line for line in lines if line.startswith("-") and not re.match(r"-e\b|--editable", line)]
    rest = [line for line in lines if line not in options]
    folders = [line for line in rest if re.match(r"-e\b|--editable|\.|/|file:", line)]
    notes += [f"{line!r} of the requirements was left out: --install installs the package itself" for line in folders]
    wanted = [line for line in rest if line not in folders]
    brings_torch = any(name_of(line) == "torch" for line in wanted)
    wanted = [line for line in wanted if not (brings_torch and _is_in("runtime", name_of(line)))]
    return options, without_protected(wanted, "the requirements", notes)


def without_protected(lines: Iterable[str], who: str, notes: list[str]) -> list[str]:
    """Leave out requirements of torch, Triton and pytest, and note those that this environment does not meet."""
    kept = []
    for line in lines:
        found = parse(line)
        if found is not None and found.marker is not None and not found.marker.evaluate({"extra": ""}):
            continue
        if not is_protected(name_of(line)):
            kept.append(line)
        elif found is not None:
            notes += unmet(who, found)
    return kept


def unmet(who: str, requirement: Any) -> list[str]:
    """Return a note if what is present is not what is wanted."""
    name = plain(requirement.name)
    found = present().get(name)
    if found is None or requirement.specifier.contains(found, prereleases=True):  # None: another vendor's name for what is there
        return []
    return [f"{who} wants {requirement.name}{requirement.specifier}, present is {found}: installed without that requirement"]


def present() -> dict[str, str]:
    """Return the version of each package that this Python can import."""
    return {plain(one.metadata["Name"]): one.version for one in reversed(list(importlib.metadata.distributions())) if one.metadata["Name"]}


def own_packages() -> dict[str, str]:
    """Return what is installed in this environment itself, and not in the one below."""
    folder = sysconfig.get_paths()["purelib"]
    found = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions(path=[folder])}
    return {name: version for name, version in sorted(found.items()) if name and plain(name) not in ("pip", "setuptools", "wheel")}


def parse(line: str) -> Any:
    """Return a parsed requirement; None for a URL or a line that is none."""
    from pip._vendor.packaging.requirements import InvalidRequirement, Requirement  # type: ignore[import-not-found,unused-ignore]

    try:
        return Requirement(re.split(r"\s--", line)[0])
    except InvalidRequirement:
        return None


def in_extra(line: str, extra: str) -> str:
    """Return a requirement without its condition if it belongs to an extra; empty if it does not."""
    found = parse(line)
    if found is None or found.marker is None or found.marker.evaluate({"extra": ""}) or not found.marker.evaluate({"extra": extra}):
        return ""
    found.marker = None
    return str(found)


def any_companion(line: str) -> str:
    """Return a requirement without its versions if it is compiled for one build of torch: that of the torch which is here will do. pip
    would else look for another torch that goes with those versions, and download it to read what it needs."""
    found = parse(line) if is_companion(name_of(line)) else None
    return line if found is None or found.url else found.name + (f"; {found.marker}" if found.marker else "")


def name_of(line: str) -> str:
    """Return the normalized name at the start of a requirement; empty if there is none."""
    found = re.match(r"[A-Za-z0-9][\w.-]*", line)
    return plain(found[0]) if found else ""


def plain(name: str) -> str:
    """Return a package's name in its normalized form."""
    return re.sub(r"[-_.]+", "-", name).lower()


_EXTRAS = ("test", "tests", "testing", "dev")
_TOOLS = re.compile(
    r"pytest-(xdist|cov|forked|randomly|rerunfailures)|pre-commit|ruff|black|isort|flake8.*|pylint|mypy.*|pyright|yapf|autopep8|coverage|codecov|"
    r"nox|tox.*|build|twine|wheel|setuptools.*|pip.*|uv|hatch.*|poetry.*|sphinx.*|furo|mkdocs.*|jupyter.*|notebook|ipython|ipykernel|bump.*|"
    r"clang-format|cmake.*|ninja"
)


def is_installable(tree: Path) -> bool:
    """Return whether there is something to install: a build script, or settings of a build."""
    if (tree / "setup.py").is_file():
        return True
    project = read_toml(tree / "pyproject.toml")
    return bool(project.get("project") or project.get("build-system") or project.get("tool", {}).get("poetry")) or "metadata" in read_ini(
        tree
    )


def declared(tree: Path) -> list[str]:
    """Return what a package's files say that it needs, without running them."""
    project = read_toml(tree / "pyproject.toml").get("project", {})
    if isinstance(project.get("dependencies"), list):
        return [str(line) for line in project["dependencies"]]
    if lines := read_ini(tree).get("options", {}).get("install_requires", "").split("\n"):
        found = [line.strip() for line in lines if line.strip()]
        if found:
            return found
    return _of_setup(tree / "setup.py") or _of_unpacked(tree) or listed(tree / "requirements.txt")


def _of_unpacked(tree: Path) -> list[str]:
    """Return what a wheel needs that was unpacked into a folder; nothing if none was."""
    files = [*tree.glob("*.dist-info/METADATA")]
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in files if len(files) == 1]
    return [line for text in texts for line in HeaderParser().parsestr(text).get_all("Requires-Dist") or []]


def _of_setup(script: Path) -> list[str]:
    """Return the `install_requires` of a setup.py, if it is a list, or the name of one, that can be read without running it."""
    try:
        module = ast.parse(script.read_text(encoding="utf-8", errors="replace"))
    except (OSError, SyntaxError, ValueError):
        return []
    named = {
        node.targets[0].id: node.value
        for node in ast.walk(module)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.keyword) and node.arg == "install_requires":
            value = named.get(node.value.id, node.value) if isinstance(node.value, ast.Name) else node.value
            entries = value.elts if isinstance(value, (ast.List, ast.Tuple)) else []
            return [entry.value for entry in entries if isinstance(entry, ast.Constant) and isinstance(entry.value, str)]
    return []


def listed(file: Path) -> list[str]:
    """Return the packages in a requirements file; nothing if it is missing."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    found = [re.sub(r"(^|\s)#.*", "", line).strip() for line in lines]
    return [line for line in found if line and not line.startswith("-") and name_of(line)]


def wheel_requires(wheel: Path) -> list[str]:
    """Return what a wheel's metadata says that it needs."""
    return _metadata(wheel).get_all("Requires-Dist") or []


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        file = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(file).decode("utf-8", "replace"))


def helpers_of(tree: Path, wheel: Path | None) -> list[str]:
    """Return what the package's tests may need: its extras and groups for tests and development, without linters and other tools."""
    found = [line for line in wheel_requires(wheel) if "extra" in line] if wheel else []
    lines = [alone for line in found for name in _EXTRAS if (alone := in_extra(line, name))]
    project = read_toml(tree / "pyproject.toml")
    if not wheel:
        extras = project.get("project", {}).get("optional-dependencies", {})
        lines += [str(line) for name in _EXTRAS for line in extras.get(name, ())]
    lines += [line for name in _EXTRAS for line in [*_grouped(project, name), *_filed(tree, name)]]
    return [line for line in dict.fromkeys(lines) if not _TOOLS.fullmatch(name_of(line))]


def extra_lines(tree: Path, wheel: Path | None, name: str) -> list[str] | None:
    """Return what an extra of the package needs, or a dependency group, or a file such as `requirements-NAME.txt`; None if it has none.
    Extras that the extra itself names, as in `all = ["ops[a,b]"]`, are part of it."""
    project = read_toml(tree / "pyproject.toml")
    extras = _extras(project, wheel)
    if plain(name) in extras:
        own, lines, waiting, seen = plain(str(project.get("project", {}).get("name", ""))), [], [plain(name)], set()
        if wheel:
            own = plain(wheel.name.partition("-")[0])
        while waiting:
            extra = waiting.pop()
            seen.add(extra)
            for line in extras.get(extra, ()):
                found = parse(line)
                if found is not None and plain(found.name) == own:
                    waiting += [more for more in map(plain, found.extras) if more not in seen]
                else:
                    lines.append(line)
        return lines
    groups = [known for known in project.get("dependency-groups", {}) if plain(known) == plain(name)]
    return _grouped(project, groups[0]) if groups else _filed(tree, name) or None


def known_extras(tree: Path, wheel: Path | None) -> list[str]:
    """Return the names of the package's extras and dependency groups."""
    project = read_toml(tree / "pyproject.toml")
    return [*_extras(project, wheel), *project.get("dependency-groups", {})]


def _extras(project: dict[str, Any], wheel: Path | None) -> dict[str, list[str]]:
    if wheel:
        lines = wheel_requires(wheel)
        names = map(plain, _metadata(wheel).get_all("Provides-Extra") or [])
        return {name: [alone for line in lines if (alone := in_extra(line, name))] for name in names}
    return {plain(name): list(map(str, lines)) for name, lines in project.get("project", {}).get("optional-dependencies", {}).items()}


def _grouped(project: dict[str, Any], name: str, seen: frozenset[str] = frozenset()) -> list[str]:
    lines: list[str] = []
    for entry in project.get("dependency-groups", {}).get(name, ()) if name not in seen else ():
        if isinstance(entry, str):
            lines.append(entry)
        elif isinstance(entry, dict) and "include-group" in entry:
            lines += _grouped(project, entry["include-group"], seen | {name})
    return lines


def _filed(tree: Path, name: str) -> list[str]:
    names = (f"requirements-{name}.txt", f"requirements_{name}.txt", f"{name}-requirements.txt", f"requirements/{name}.txt")
    return [line for file in names for line in listed(tree / file)]


def locked_versions(tree: Path) -> list[str]:
    """Return `name==version` for each package of `uv.lock` that comes from an index, in one version."""
    packages = read_toml(tree / "uv.lock").get("package", ())
    found: dict[str, set[str]] = {}
    for entry in packages if isinstance(packages, list) else ():
        if "registry" in entry.get("source", {}) and entry.get("name") and entry.get("version"):
            found.setdefault(plain(str(entry["name"])), set()).add(str(entry["version"]))
    chosen = {name: versions for name, versions in found.items() if not (is_protected(name) or is_companion(name))}
    return [f"{name}=={next(iter(versions))}" for name, versions in chosen.items() if len(versions) == 1]


def leave_metadata(tree: Path, name: str, version: str) -> None:
    """Write the name and version of a package that could not be built, because packages ask for their own version."""
    project = read_toml(tree / "pyproject.toml").get("project", {})
    name = name or project.get("name")
    if isinstance(name, str):
        found = project.get("version") or version or "0"
        folder = Path(sysconfig.get_paths()["purelib"], f"{re.sub('[-_.]+', '_', name)}-{found}.dist-info")
        folder.mkdir(exist_ok=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {found}\n")
        (folder / "INSTALLER").write_text("warpwave\n")
        (folder / "RECORD").write_text("")


def read_toml(file: Path) -> dict[str, Any]:
    """Return a TOML file as tables; empty if it is missing or is not valid."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        from pip._vendor import tomli as tomllib  # type: ignore[no-redef,import-not-found,unused-ignore]
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def read_ini(tree: Path) -> dict[str, dict[str, str]]:
    """Return the sections of a package's `setup.cfg`; empty if it is missing or is not valid."""
    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    try:
        parser.read_string((tree / "setup.cfg").read_text(encoding="utf-8"))
    except (OSError, ValueError, configparser.Error):
        return {}
    return {section: {key: value or "" for key, value in parser[section].items()} for section in parser.sections()}
