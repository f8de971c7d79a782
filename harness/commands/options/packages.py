"""Turn the options for a package's environment into values: what to install, and which variables to set."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.config.package.pyproject import load_environment
from harness.errors import UsageError
from harness.options import Install

# What the harness sets itself, for every stage. PYTHONPATH is not among them: a user's folders come behind the harness's.
_OWN = re.compile(
    r"WARPWAVE_.*|HOME|USER|LOGNAME|PATH|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONHOME|TRITON_(CACHE_DIR|DEFAULT_FP_FUSION|INTERPRET)"
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][^\n\r]*")  # neither an option of pip nor a folder


def chosen_packages(options: dict[str, Any], kernels: Path) -> Install:
    """Return what to install: what the command line asks for, and with `--install` the requirements that the package's own file names.

    A file alone installs nothing. A build runs code, in Docker with a network, and the file may be a stranger's.

    Raises:
        UsageError: a file is missing, or two options contradict each other.
    """
    named = load_environment(kernels).requirements if options["install"] else ()
    if options["install"] and options["install_no_deps"]:
        raise UsageError(
            "--install and --install-no-deps were both given.",
            "The first installs what the package needs, the second installs the package alone.",
            "Give one of them.",
        )
    files = tuple(Path(path) for path in options["requirements"]) or named
    for file in files:
        if not file.is_file():
            raise UsageError(f"There are no requirements at {file}.", "The path is misspelt.", "Give a file with one requirement a line.")
    for name in options["with_packages"]:
        if not _REQUIREMENT.fullmatch(name):
            raise UsageError(
                f"--with {name!r} is not a package's name.",
                "It takes one requirement, as in a requirements file: a name, and a version if it matters.",
                "Write --with einops, or --with 'einops>=0.7'; for options of pip, use --requirements FILE.",
            )
    mode = "all" if options["install"] else "alone" if options["install_no_deps"] else ""
    return Install(tuple(file.resolve() for file in files), mode, tuple(options["with_packages"]))


def chosen_variables(pairs: Sequence[str]) -> dict[str, str]:
    """Return the user's variables for the kernels. NAME alone takes the caller's value.

    Raises:
        UsageError: a name is not allowed, or the caller has no such variable.
    """
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            if name not in os.environ:
                meaning = "A name alone passes your own value on."
                raise UsageError(f"--env {name}: you have no variable of this name.", meaning, f"Write --env {name}=VALUE.")
            value = os.environ[name]
        found[name] = value
    for name in found:
        check_variable(name)
    return found


def check_variable(name: str) -> None:
    """Refuse a name that is none, or that belongs to the harness.

    Raises:
        UsageError: it is one of those.
    """
    if not _NAME.fullmatch(name):
        meaning = "Names have letters, digits and underscores."
        raise UsageError(f"--env {name!r} is not a variable's name.", meaning, "Write --env NAME=VALUE.")
    if _OWN.fullmatch(name):
        raise UsageError(
            f"--env {name}: warpwave sets {name} itself.",
            "Its value decides where results go, or whether two targets can be compared.",
            f"Leave {name} out.",
        )
