"""Read a package's project files leniently: what other tools accept or ignore is not warpwave's to judge."""

from __future__ import annotations

import configparser
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(path: Path) -> dict[str, Any]:
    """Return a TOML file as tables; empty if it is missing or is not valid."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def read_ini(path: Path) -> dict[str, dict[str, str]]:
    """Return the sections of an INI file; empty if it is missing or is not valid."""
    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True, default_section="\0")
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, configparser.Error):
        return {}
    return {section: {key: value or "" for key, value in parser[section].items()} for section in parser.sections()}
