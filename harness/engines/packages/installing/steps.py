"""Work out what is needed beside the package, and install it all."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .calls import FailedError, last_words, run_pip
from .package import build
from .project import helpers_of
from .requirements import (
    any_companion,
    is_companion,
    is_protected,
    name_of,
    own_packages,
    parse,
    plain,
    present,
    sort_out,
    unmet,
    without_protected,
)
from .toolchain import install_toolchain

_RESOLVE_LIMIT_S = 1800
_IMPORT_LIMIT_S = 300


def install(plan: Path) -> dict[str, Any]:
    """Install everything, and return the packages that are new and what a user should know.

    Raises:
        FailedError: something that was asked for cannot be installed.
    """
    about = json.loads((plan / "plan.json").read_text())
    if "toolchain" in about:
        return install_toolchain(plan, about["toolchain"])
    notes: list[str] = []
    lines = (plan / "requirements.txt").read_text().splitlines()
    locked = any("--hash" in line for line in lines)
    with tempfile.TemporaryDirectory() as scratch:
        wheel, needed = build(plan, about, Path(scratch), locked, notes) if about["mode"] else (None, [])
        options, wanted = sort_out(lines, notes)
        if locked:
            _install_locked(plan, Path(scratch), options + wanted)
        else:
            alone = about["mode"] != "all"
            needed = [] if alone else without_protected(needed, about["name"], notes)
            helpers = [] if alone else without_protected(helpers_of(plan / "package", wheel), about["name"], [])
            _install(plan, Path(scratch), options, wanted, [*needed, *helpers], notes)
        if wheel is not None:
            run_pip(plan, "install", "--no-deps", "--no-index", str(wheel))
    return {"packages": own_packages(), "notes": notes}


def _install_locked(plan: Path, scratch: Path, lines: list[str]) -> None:
    """Install exactly what is locked by hash, and nothing else."""
    (scratch / "locked.txt").write_text("\n".join(lines) + "\n")
    run_pip(plan, "install", "--require-hashes", "--no-deps", "--requirement", str(scratch / "locked.txt"))


def _install(plan: Path, scratch: Path, options: list[str], wanted: list[str], declared_lines: list[str], notes: list[str]) -> None:
    """Let pip work out what is needed, and install that without what is protected.

    What the user asked for must be there. Of what the package declares, that which cannot be had is left out: a library that is built with
    a GPU's toolkit would else keep every test from running, also those that do not need it.
    """
    if not (wanted or declared_lines):
        return
    declared_lines = list(map(any_companion, declared_lines))
    kept = {name: version for name, version in present().items() if is_protected(name)}
    (scratch / "present.txt").write_text("".join(f"{name}=={version}\n" for name, version in kept.items()))
    try:
        found, isolation = _resolved(plan, scratch, [*options, *wanted, *declared_lines])
    except FailedError as error:
        if refused := _refused(plan, scratch, options, wanted):
            raise FailedError("; ".join(why if line in why else f"{line}: {why}" for line, why in refused.items())) from None
        left_out = _refused(plan, scratch, options, declared_lines)
        if not left_out:
            raise error from None
        notes += [f"{line} of the package's dependencies was left out, and what imports it fails ({why})" for line, why in left_out.items()]
        declared_lines = [line for line in declared_lines if line not in left_out]
        if not (wanted or declared_lines):
            return
        found, isolation = _resolved(plan, scratch, [*options, *wanted, *declared_lines])
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
    """Replace a package that was compiled for another build of torch by the version for this one, or remove it.

    A package that something else needs may be pinned to an older torch. What would use one that does not fit cannot be imported either, but
    works without it.
    """
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


def _resolved(plan: Path, scratch: Path, lines: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return what pip would install, and the options that it needs to build it.

    First with torch as it is. If no versions go together with it, without that condition. A package that wants torch for its build gets the
    one that is there; then the last error says most.
    """
    (scratch / "wanted.txt").write_text("\n".join(lines) + "\n")
    report, own = scratch / "report.json", plan / "constraints.txt"
    given = ["--constraint", str(own)] if own.stat().st_size else []
    kept = ["--constraint", str(scratch / "present.txt")]
    last = FailedError("pip could not find versions that go together")
    for constraints, isolation in ((kept, []), ([], []), (kept, ["--no-build-isolation"])):
        report.unlink(missing_ok=True)
        words = ["--dry-run", "--quiet", "--report", str(report), *given, *constraints, *isolation]
        try:
            run_pip(plan, "install", *words, "--requirement", str(scratch / "wanted.txt"), limit_s=_RESOLVE_LIMIT_S)
            found: list[dict[str, Any]] = json.loads(report.read_text())["install"]
            return found, isolation
        except FailedError as error:
            last = error
    raise last


def _refused(plan: Path, scratch: Path, options: list[str], lines: list[str]) -> dict[str, str]:
    """Return the lines that cannot be had even alone, each with what pip says."""
    found = {}
    for line in lines:
        try:
            _resolved(plan, scratch, [*options, line])
        except FailedError as error:
            found[line] = str(error)
    return found


def _reachable(found: list[dict[str, Any]], asked: set[str]) -> list[dict[str, Any]]:
    """Leave out what is protected, and what only that needs."""
    items = {plain(item["metadata"]["name"]): item for item in found}
    reached: set[str] = set()
    waiting = [name for name in items if name in asked or items[name].get("requested")]
    while waiting:
        name = waiting.pop()
        if is_protected(name) or name in reached or name not in items:
            continue
        reached.add(name)
        waiting += [name_of(line) for line in items[name]["metadata"].get("requires_dist") or ()]
    return [items[name] for name in items if name in reached]


def _exact(item: dict[str, Any]) -> str:
    about, download = item["metadata"], item["download_info"]
    if not item.get("is_direct"):
        return f"{about['name']}=={about['version']}"
    vcs = download.get("vcs_info")
    return f"{about['name']} @ {vcs['vcs']}+{download['url']}@{vcs['commit_id']}" if vcs else f"{about['name']} @ {download['url']}"
