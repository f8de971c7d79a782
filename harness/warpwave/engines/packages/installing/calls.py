"""Call pip with the plan's sources, and say why it failed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Lines of pip that say only that something went wrong, and those that say what.
_NOISE = re.compile(
    r"note: |hint: |\(See above for output\.\)|\[\d+ lines of output\]|"
    r"\[end of output\]|error: (subprocess-exited-with-error|metadata-generation-failed)|ERROR: Failed (to build|building)|$"
)
_ERROR = re.compile(r"(\w+\.)*\w*(Error|Exception|Interrupt)\b|(ERROR|error): ")


class FailedError(Exception):
    """pip failed. The message is its last line."""


def run_pip(plan: Path, command: str, *words: str, limit_s: float | None = None, **variables: str) -> None:
    """Run pip. What it prints goes to this process's output.

    Raises:
        FailedError: it failed, with its last line, or it took too long.
    """
    source = [] if command == "uninstall" or "--no-index" in words else source_options(plan)
    line = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", command, *source, *words]
    say(f"+ pip {command} {' '.join(words)}\n")
    environment = {**variables_for(plan), **variables}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        try:
            code = subprocess.run(line, stdout=output, stderr=subprocess.STDOUT, env=environment, timeout=limit_s, check=False).returncode
        except subprocess.TimeoutExpired:
            code = -1
        output.seek(0)
        text = output.read()
    say(text)
    if code:
        raise FailedError(f"it took longer than {limit_s:g} s" if code == -1 else last_words(text))


def say(text: str) -> None:
    """Write to this process's output, which the host keeps as a log."""
    os.write(1, text.encode("utf-8", "replace"))


def last_words(text: str) -> str:
    """Return the line of pip's output that says most: the last error of a build, or of pip."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip(" │╰─>\u00d7") for line in text.splitlines()]
    found = [line for line in lines if _ERROR.match(line) and not _NOISE.match(line)]
    left = [line for line in lines if line and not _NOISE.match(line)]
    return (found or left or ["pip failed and said nothing"])[-1][:300]


def source_options(plan: Path) -> list[str]:
    """Return pip's options if a wheelhouse is the only source."""
    wheels = plan / "wheelhouse"
    return ["--no-index", "--find-links", str(wheels)] if wheels.is_dir() and any(wheels.iterdir()) else []


def variables_for(plan: Path) -> dict[str, str]:
    """Return pip's environment: the plan's certificates and settings, and nothing that hides packages."""
    found = dict(os.environ)
    found.pop("PYTHONPATH", None)
    if (plan / "pip.conf").is_file():
        found["PIP_CONFIG_FILE"] = str(plan / "pip.conf")
    if (plan / "ca-bundle.crt").is_file():
        found |= dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), str(plan / "ca-bundle.crt"))
    return found
