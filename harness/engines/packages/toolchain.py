"""The local engine's toolchain: a virtual environment with another Triton, on top of the chosen Python.

It has Triton alone: torch and everything else come from the Python below, unless the toolchain names another torch. One environment serves
every package, and two of them are there side by side.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

from harness.engines.packages import installing
from harness.engines.packages.plan import Plan, is_wanted
from harness.engines.packages.venv import Packages, provide_plan, venv_of
from harness.engines.protocol import Request, Say
from harness.errors import InfrastructureError
from harness.records.toolchain import Toolchain


def provide_toolchain(request: Request, say: Say) -> tuple[Request, Packages | None]:
    """Find the environment of the request's toolchain, or make it. Return the request with its Python, and what is in it.

    Raises:
        InfrastructureError: something cannot be installed.
    """
    if not has_environment(request):
        return request, None
    packages = provide_plan(request, _plan(request), say)
    return replace(request, options=replace(request.options, python=packages.python)), packages


def on_toolchain(request: Request) -> Request:
    """Return the request with the Python that `provide_toolchain` gives it, without making anything."""
    if not has_environment(request):
        return request
    return replace(request, options=replace(request.options, python=str(venv_of(request, _plan(request)) / "bin" / "python")))


def has_environment(request: Request) -> bool:
    """Return whether the request's toolchain has an environment of its own."""
    return request.target.toolchain is not None and request.target.toolchain.installs


def has_packages(request: Request) -> bool:
    """Return whether anything is installed for this request beside what the chosen Python has."""
    return is_wanted(request.options) or has_environment(request)


def releases(python: str | None, wheelhouse: Path | None, index: str = "") -> list[str]:
    """Return the releases of Triton for this Python, oldest first: those of the package index, or of a folder of wheels.

    `index` is another package index. Builds that are no releases count there, too: it is one of nightly builds.

    Raises:
        InfrastructureError: the index cannot be asked.
    """
    if wheelhouse is not None:
        found = [match[1] for path in wheelhouse.glob("triton-*.whl") if (match := re.match(r"triton-([^-]+)-", path.name))]
        return sorted(set(found), key=_order)
    command = [python or sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", "triton"]
    command += ["--pre", "--index-url", index] if index else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        said, why = done.stdout, (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
    except (OSError, subprocess.TimeoutExpired) as error:
        said, why = "", str(error)
    line = re.search(r"^\s*Available versions: (.+)$", said, re.MULTILINE)
    if not line:
        raise InfrastructureError(
            f"The releases of Triton cannot be listed: {why}.",
            f"pip asked {index or 'the package index that it is set up for'}, which cannot be reached, or has no Triton for this Python.",
            "Name a release, as in 3.9.0, or give a folder of wheels with --wheelhouse.",
        )
    return sorted((version.strip() for version in line[1].split(",")), key=_order)


def _order(version: str) -> list[tuple[int, str]]:
    """Order versions as people do: `3.9.0.post10` after `3.9.0.post2`, and a release after its candidates."""
    words = re.findall(r"\d+|[a-z]+", version.replace("+", "."))
    return [(int(word), "") if word.isdigit() else (-1 if word in ("a", "b", "rc", "dev") else 0, word) for word in words] + [(0, "")]


def _plan(request: Request) -> Plan:
    toolchain, build = request.target.toolchain, request.options.build
    assert toolchain is not None  # asked before
    wanted = {**asdict(toolchain), "name": "", "environment": {}, "base_image": ""}
    files = {f"installing/{path.name}": path.read_bytes() for path in sorted(Path(installing.__file__).parent.glob("*.py"))}
    files["packages.ini"] = Path(__file__).with_name("packages.ini").read_bytes()
    deciding = [hashlib.sha256(content).hexdigest() for content in files.values()]
    deciding += [f"{path.name} {path.stat().st_size}" for folder in (build.wheelhouse, _folder(toolchain)) for path in _wheels(folder)]
    key = hashlib.sha256(json.dumps([wanted, *deciding]).encode()).hexdigest()[:16]
    return Plan({**files, "plan.json": json.dumps({"toolchain": {**wanted, "index": _index(toolchain)}}).encode()}, key)


def _folder(toolchain: Toolchain) -> Path | None:
    return Path(toolchain.index) if toolchain.index and Path(toolchain.index).is_dir() else None


def _index(toolchain: Toolchain) -> str:
    folder = _folder(toolchain)
    return str(folder.resolve()) if folder else toolchain.index


def _wheels(folder: Path | None) -> list[Path]:
    return sorted(path for path in folder.glob("*.whl") if path.name.startswith("triton-")) if folder else []
