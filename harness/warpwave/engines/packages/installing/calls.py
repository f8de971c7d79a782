"""Call pip with the plan's sources, and say why it failed."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Lines of pip that say only that something went wrong, and those that say what.
_NOISE = re.compile(
    r"note: |hint: |\(?See above for output\.|"
    r"error: (subprocess-exited-with-error|metadata-generation-failed)|ERROR: Failed (to build|building)|$"
)
_ERROR = re.compile(r"(\w+\.)*\w*(Error|Exception|Interrupt)\b|(ERROR|error): ")
# What a build printed, as pip shows it. A build that failed in another one is quoted there, so the innermost block counts.
_OF_A_BUILD = re.compile(r"\[\d+ lines? of output\]((?:(?!\[\d+ lines? of output\]).)*?)\[end of output\]", re.DOTALL)
_OF_A_TOOL = re.compile(r"(\w+\.)*CalledProcessError\b|error: [Cc]ommand '.*(exit (code|status)|status) ")
_OF_A_COMPILER = re.compile(r"[^:]+:\d+(?::\d+)?: (?:fatal )?error: ")
# How a build says that a program, a header or a toolkit is not there: Python, setuptools, a shell, a compiler, CMake, torch.
_LACKS = re.compile(
    r"No such file or directory: '(?:[^']*/)?([^'/]+)'|[Cc]ommand '(?:[^']*/)?([^'/]+)' failed: No such file"
    r"|\b([\w+-]+): (?:command )?not found|fatal error: (\S+): No such file"
    r"|No (CMAKE_\w+_COMPILER) could be found|\b([A-Z]+_HOME)\b.* not set"
)
_WHEEL_OF = re.compile(r"Failed building wheel for ([\w.-]+)")
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = " \u2502\u2570\u2500>\u00d7"


class FailedError(Exception):
    """pip failed. The message is its last line."""


def run_pip(plan: Path, command: str, *words: str, limit_s: float | None = None, **variables: str) -> None:
    """Run pip. What it prints goes to this process's output. Raises FailedError if it failed, with its last line, or it took too long."""
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
    """Return what says most of pip's output: the last error of a build, or what it printed before it ended, or pip's own error."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    if blocks := _OF_A_BUILD.findall(text):
        printed = [line.strip(_FRAME) for line in blocks[-1].splitlines() if line.strip(_FRAME)]
        errors = [line for line in printed if _ERROR.match(line)]
        said = " / ".join(printed[-3:]) or "its build ended with an error and printed nothing"
        if errors and _OF_A_TOOL.match(errors[-1]):  # what the tool said stands above, and above the traceback
            before = printed[: printed.index(_TRACEBACK)] if _TRACEBACK in printed else []
            refused = next((line for line in printed if _OF_A_COMPILER.match(line)), "")
            errors[-1] = refused or " / ".join([*before[-2:], errors[-1]])
        said = errors[-1] if errors else said
        name = _WHEEL_OF.search(text)
        if lacks := _LACKS.search(said):
            return f"{name[1] if name else 'it'} needs {next(filter(None, lacks.groups()))} to build"
        return said[:300] if errors else said[-300:]
    lines = [line.strip(_FRAME) for line in text.splitlines()]
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
