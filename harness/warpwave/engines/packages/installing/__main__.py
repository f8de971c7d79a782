"""Make a virtual environment on top of this Python, and install a plan's packages there. Runs on the host or while an image is built.

`python -m installing PLAN VENV [SCRATCH]`, with nothing but the standard library and a pip. torch, Triton and pytest stay what they are:
pip works out what is needed, and then installs exactly that without them. The result is in `VENV/warpwave.json`. If it fails, the last
line of the output begins with `warpwave: `. What a stopped installation with the same SCRATCH and VENV finished is not done again.
"""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from .calls import FailedError, last_words, run_pip, say, source_options, variables_for
from .requirements import (
    any_companion,
    declared,
    extra_lines,
    helpers_of,
    is_companion,
    is_installable,
    is_protected,
    known_extras,
    leave_metadata,
    listed,
    locked_versions,
    name_of,
    own_packages,
    parse,
    plain,
    present,
    read_toml,
    sort_out,
    unmet,
    wheel_requires,
    without_protected,
)

_BUILD_LIMIT_S = 1800
_DESCRIBE_LIMIT_S = 300


def build(plan: Path, about: dict[str, Any], scratch: Path, locked: bool, notes: list[str]) -> tuple[Path | None, list[str]]:
    """Build the package's wheel from the copy. Return it with what it needs; without a wheel, with what the package says that it needs."""
    tree, name = plan / "package", about["name"]
    if not is_installable(tree):
        notes.append(f"{name} has no project file, so nothing of it was installed; its modules are imported from its folder")
        return None, declared(tree)
    variables: dict[str, str] = {}
    try:
        if about["left_out"]:
            raise FailedError(about["left_out"])
        variables = _tools(plan, tree, scratch / "tools", about["version"], locked)
        wheel = _wheel(plan, tree, scratch / "wheel", variables)
        return wheel, wheel_requires(wheel)
    except FailedError as error:
        found = _described(plan, tree, scratch / "described.json", variables)
        needed = found["requires_dist"] or declared(tree)
        then = (
            "its declared dependencies are installed"
            if needed
            else "it declares no dependency that can be read: name what it needs with --with or --requirements"
        )
        notes.append(f"{name} could not be built ({error}); its Python files are used from its folder, and {then}")
        leave_metadata(tree, found["name"], found["version"] or about["version"])
        return None, needed


def _tools(plan: Path, tree: Path, tools: Path, version: str, locked: bool) -> dict[str, str]:
    """Install what the build needs, and return its variables. Without pip's isolation, which would download another torch for a package
    that needs torch to be built."""
    requires = read_toml(tree / "pyproject.toml").get("build-system", {}).get("requires", ["setuptools>=40.8", "wheel"])
    wanted = [line for line in requires if not is_protected(name_of(line))]
    done = tools.with_suffix(".done")
    if wanted and not locked and not done.exists():  # a locked installation takes nothing that is not locked
        run_pip(plan, "install", "--upgrade", "--target", str(tools), *wanted)
        done.touch()
    path = f"{tools}{os.pathsep}{tree}"  # some builds import their own helpers
    more = {"PYTHONPATH": path, "PATH": f"{tools}/bin{os.pathsep}{os.environ.get('PATH', '')}"}
    return more | (dict.fromkeys(("SETUPTOOLS_SCM_PRETEND_VERSION", "PBR_VERSION"), version) if version else {})


def _wheel(plan: Path, tree: Path, out: Path, variables: dict[str, str]) -> Path:
    done = out.with_suffix(".done")
    if not done.exists():
        words = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(out), str(tree)]
        run_pip(plan, "wheel", *words, limit_s=_BUILD_LIMIT_S, **variables)
        done.touch()
    found = sorted(out.glob("*.whl"))
    if not found:
        raise FailedError("the build made no wheel")
    return found[0]


def _described(plan: Path, tree: Path, report: Path, variables: dict[str, str]) -> dict[str, Any]:
    """Return what the build script says of the package where it builds nothing: many compute their dependencies. Empty if it fails, too."""
    metadata: dict[str, Any] = {}
    if variables:
        words = ["--dry-run", "--quiet", "--no-deps", "--no-build-isolation", "--report", str(report), str(tree)]
        try:
            run_pip(plan, "install", *words, limit_s=_DESCRIBE_LIMIT_S, **variables)
            metadata = json.loads(report.read_text())["install"][0]["metadata"]
        except (FailedError, OSError, ValueError, LookupError):
            metadata = {}
    return {"name": "", "version": "", "requires_dist": [], **metadata}


def install_toolchain(plan: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Install what this Python does not have already, and return what is in the environment. Raises FailedError if a version cannot be
    had."""
    here = present()
    notes: list[str] = []
    if wanted["torch"] and here.get("torch", "").split("+")[0] != wanted["torch"]:
        _install_torch(plan, wanted)
        notes.append(f"torch {wanted['torch']} was installed for this toolchain; below it is {here.get('torch', 'none')}")
    is_here = here.get("triton") == wanted["triton"] and not wanted["index"]  # an index may have another build of the same version
    lines = [f"triton=={wanted['triton']}"] if wanted["triton"] and not is_here else []
    lines += wanted["packages"]
    if lines:
        run_pip(plan, "install", "--no-deps", "--ignore-installed", *_source(wanted["index"]), *lines)
    return {"packages": own_packages(), "notes": notes}


def _install_torch(plan: Path, wanted: dict[str, Any]) -> None:
    source = _source(wanted["torch_index"])
    run_pip(plan, "install", "--no-deps", "--ignore-installed", *source, f"torch=={wanted['torch']}")
    importlib.invalidate_caches()
    needs = [line for line in importlib.metadata.requires("torch") or () if "triton" not in name_of(line)]
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "torch.txt")
        file.write_text("\n".join(needs) + "\n")
        run_pip(plan, "install", *source, "--requirement", str(file))


def _source(index: str) -> list[str]:
    if not index:
        return []
    return ["--no-index", "--find-links", index] if Path(index).is_dir() else ["--index-url", index]


_RESOLVE_LIMIT_S = 1800
_IMPORT_LIMIT_S = 300


def install(plan: Path, scratch: Path) -> dict[str, Any]:
    """Install everything, and return the packages that are new and what a user should know. Raises FailedError if something that was asked
    for cannot be installed."""
    about = json.loads((plan / "plan.json").read_text())
    if "toolchain" in about:
        return install_toolchain(plan, about["toolchain"])
    notes: list[str] = []
    lines = (plan / "requirements.txt").read_text().splitlines()
    locked = any("--hash" in line for line in lines)
    for metadata in Path(sysconfig.get_paths()["purelib"]).glob("*.dist-info"):  # of a stopped installation: pip names itself at the end
        if not (metadata / "INSTALLER").is_file():
            shutil.rmtree(metadata)
    wheel, needed = build(plan, about, scratch, locked, notes) if about["mode"] else (None, [])
    options, wanted = sort_out(lines, notes)
    if locked:
        (scratch / "locked.txt").write_text("\n".join(options + wanted) + "\n")
        run_pip(plan, "install", "--require-hashes", "--no-deps", "--requirement", str(scratch / "locked.txt"))
    else:
        tree, alone = plan / "package", about["mode"] != "all"
        skipped = {plain(name) for name in about["skipped"]}
        needed = [] if alone else _without(skipped, without_protected(needed, about["name"], notes), notes)
        helpers = [] if alone else [*helpers_of(tree, wheel), *([] if needed else listed(tree / "requirements.txt"))]
        helpers = _without(skipped, without_protected(helpers, about["name"], []), notes)
        for extra in about["extras"]:
            found = extra_lines(tree, wheel, extra)
            if found is None:
                known = ", ".join(known_extras(tree, wheel)) or "none"
                raise FailedError(f"{about['name']} has no extra and no dependency group {extra!r}; it has {known}")
            wanted += _without(skipped, without_protected(found, f"{about['name']}[{extra}]", notes), notes)
        known_names = {name_of(line) for line in [*wanted, *needed]}
        # What only tests and development want is never built: a library without a wheel may take a GPU's toolkit, and hours.
        options += [f"--only-binary={name}" for name in dict.fromkeys(map(name_of, helpers)) if name not in known_names]
        _install(plan, scratch, options, wanted, [*needed, *helpers], notes)
    if wheel is not None:
        run_pip(plan, "install", "--no-deps", "--no-index", "--force-reinstall", str(wheel))
    return {"packages": own_packages(), "notes": notes}


def _without(skipped: set[str], lines: list[str], notes: list[str]) -> list[str]:
    """Leave out the requirements that the package's own file skips, each with a note."""
    left_out = [line for line in lines if name_of(line) in skipped]
    notes += [f"{line} was left out, and what imports it fails: skip-requirements in pyproject.toml names it" for line in left_out]
    return [line for line in lines if line not in left_out]


def _install(plan: Path, scratch: Path, options: list[str], wanted: list[str], declared_lines: list[str], notes: list[str]) -> None:
    """Let pip work out what is needed, and install that without what is protected. What the user asked for must be there. Of what the
    package declares, that which cannot be had is left out: a library that is built with a GPU's toolkit would else keep every test from
    running, also those that do not need it."""
    if not (wanted or declared_lines):
        return
    declared_lines = list(map(any_companion, declared_lines))
    kept = {name: version for name, version in present().items() if is_protected(name)}
    (scratch / "present.txt").write_text("".join(f"{name}=={version}\n" for name, version in kept.items()))
    try:
        found, isolation = _resolved(plan, scratch, [*options, *wanted, *declared_lines], notes)
    except FailedError as error:
        if refused := _refused(plan, scratch, options, wanted):
            names = {line: line.partition(" @ ")[0] for line in refused}  # without a path
            raise FailedError("; ".join(why if line in why else f"{names[line]}: {why}" for line, why in refused.items())) from None
        left_out = _refused(plan, scratch, options, declared_lines)
        if not left_out:
            raise error from None
        notes += [f"{line} of the package's dependencies was left out, and what imports it fails ({why})" for line, why in left_out.items()]
        declared_lines = [line for line in declared_lines if line not in left_out]
        if not (wanted or declared_lines):
            return
        found, isolation = _resolved(plan, scratch, [*options, *wanted, *declared_lines], notes)
    chosen = _reachable(found, {name_of(line) for line in [*wanted, *declared_lines]})
    for item in chosen:
        about = item["metadata"]
        for line in about.get("requires_dist") or ():
            requirement = parse(line)
            applies = requirement is not None and (requirement.marker is None or requirement.marker.evaluate({"extra": ""}))
            if requirement is not None and applies and is_protected(plain(requirement.name)):
                notes += unmet(f"{about['name']} {about['version']}", requirement)
    if chosen:
        (scratch / "exact.txt").write_text("\n".join([*options, *map(_exact, chosen)]) + "\n")
        run_pip(plan, "install", "--no-deps", *isolation, "--requirement", str(scratch / "exact.txt"))
    for name in filter(is_companion, (plain(item["metadata"]["name"]) for item in chosen)):
        _keep_if_it_fits(plan, scratch, name, notes)


def _keep_if_it_fits(plan: Path, scratch: Path, name: str, notes: list[str]) -> None:
    """Replace a package that was compiled for another build of torch by the version for this one, or remove it. A package that something
    else needs may be pinned to an older torch. What would use one that does not fit cannot be imported either, but works without it."""
    if not (why := _refuses_torch(name)):
        return
    run_pip(plan, "uninstall", "--yes", name)
    try:
        run_pip(plan, "install", "--constraint", str(scratch / "present.txt"), name, limit_s=_RESOLVE_LIMIT_S)
        replaced = not _refuses_torch(name)
    except FailedError:
        replaced = False
    else:
        if not replaced:
            run_pip(plan, "uninstall", "--yes", name)
    done = f"replaced by {name} {present().get(name)}" if replaced else "removed"
    notes.append(f"{name} was {done}: it is built for another torch than {present().get('torch')} ({why})")


def _refuses_torch(name: str) -> str:
    """Return why a package cannot be imported beside this torch; empty if it can."""
    words = [sys.executable, "-c", f"import torch, {name}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_IMPORT_LIMIT_S, check=False)
    return last_words(done.stderr) if done.returncode else ""


def _resolved(plan: Path, scratch: Path, lines: list[str], notes: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return what pip would install, and the options that it needs to build it. First with the versions of uv.lock, if the package has one,
    and with torch as it is; a note says if they do not go together. If no versions go together with torch, without that condition. A
    package that wants torch for its build gets the one that is there; then the last error says most."""
    (scratch / "wanted.txt").write_text("\n".join(lines) + "\n")
    report, own, first = scratch / "report.json", plan / "constraints.txt", ""
    given = ["--constraint", str(own)] if own.stat().st_size else []
    kept = ["--constraint", str(scratch / "present.txt")]
    last = FailedError("pip could not find versions that go together")
    ways = [(kept, []), ([], []), (kept, ["--no-build-isolation"])]
    if locked := locked_versions(plan / "package"):
        (scratch / "locked.txt").write_text("\n".join(locked) + "\n")
        its_versions = ["--constraint", str(scratch / "locked.txt")]
        ways = [([*kept, *its_versions], []), (its_versions, []), *ways]
    for constraints, isolation in ways:
        report.unlink(missing_ok=True)
        words = ["--dry-run", "--quiet", "--report", str(report), *given, *constraints, *isolation]
        try:
            run_pip(plan, "install", *words, "--requirement", str(scratch / "wanted.txt"), limit_s=_RESOLVE_LIMIT_S)
            found: list[dict[str, Any]] = json.loads(report.read_text())["install"]
            if locked and its_versions[1] not in constraints:
                notes.append(f"the versions of uv.lock do not go together with what is here, so others were installed ({first})")
            return found, isolation
        except FailedError as error:
            first = first or str(error)
            last = error
    raise last


def _refused(plan: Path, scratch: Path, options: list[str], lines: list[str]) -> dict[str, str]:
    """Return the lines that cannot be had even alone, each with what pip says."""
    found = {}
    for line in lines:
        try:
            _resolved(plan, scratch, [*options, line], [])
        except FailedError as error:
            found[line] = str(error)
    return found


def _reachable(found: list[dict[str, Any]], asked: set[str]) -> list[dict[str, Any]]:
    """Leave out what is protected, and what only that needs. A stopped installation may have brought a part of what is asked for."""
    items = {plain(item["metadata"]["name"]): item for item in found}
    needs = {name: item["metadata"].get("requires_dist") or () for name, item in items.items()}
    needs |= {plain(name): importlib.metadata.requires(name) or () for name in own_packages() if plain(name) not in needs}
    reached: set[str] = set()
    waiting = [*asked, *(name for name in items if items[name].get("requested"))]
    while waiting:
        name = waiting.pop()
        if is_protected(name) or name in reached or name not in needs:
            continue
        reached.add(name)
        waiting += map(name_of, needs[name])
    return [items[name] for name in items if name in reached]


def _exact(item: dict[str, Any]) -> str:
    about, download = item["metadata"], item["download_info"]
    if not item.get("is_direct"):
        return f"{about['name']}=={about['version']}"
    vcs = download.get("vcs_info")
    return f"{about['name']} @ {vcs['vcs']}+{download['url']}@{vcs['commit_id']}" if vcs else f"{about['name']} @ {download['url']}"


_OLDEST_PIP = (22, 2)  # `--report`


def main(plan: Path, venv: Path, scratch: Path | None = None) -> int:
    """Make the environment, then continue in its Python."""
    if scratch is None:
        with tempfile.TemporaryDirectory() as folder:
            return main(plan, venv, Path(folder))
    if Path(sys.prefix).resolve() != venv.resolve():
        done = scratch / "venv.done"
        if not done.exists():
            shutil.rmtree(venv, ignore_errors=True)
            _make(plan, venv)
            done.touch()
        python = str(venv / "bin" / "python")
        return subprocess.run([python, "-m", __package__, str(plan), str(venv), str(scratch)], check=False).returncode
    try:
        result = install(plan, scratch)
    except FailedError as error:
        say(f"warpwave: {error}\n")
        return 1
    (venv / "warpwave.json").write_text(json.dumps(result, indent=1))
    return 0


def _make(plan: Path, venv: Path) -> None:
    """Make an environment that sees this Python's packages. It may itself be a venv, which `--system-site-packages` would not show."""
    import site

    below = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    below += [path for path in site.getsitepackages() if path not in below and Path(path).is_dir()]
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = venv / "bin" / "python"
    own = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"], capture_output=True, text=True, check=True
    )
    Path(own.stdout.strip(), "base.pth").write_text(f"import site; list(map(site.addsitedir, {below!r}))\n")
    if _pip_version(python) < _OLDEST_PIP:
        subprocess.run([str(python), "-m", "ensurepip", "--upgrade"], check=False)
        if _pip_version(python) < _OLDEST_PIP:
            command = [str(python), "-m", "pip", "install", *source_options(plan), "--upgrade", "pip"]
            subprocess.run(command, check=False, env=variables_for(plan))


def _pip_version(python: Path) -> tuple[int, ...]:
    done = subprocess.run([str(python), "-c", "import pip; print(pip.__version__)"], capture_output=True, text=True, check=False)
    return tuple(int(part) for part in re.findall(r"\d+", done.stdout)[:2])


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
