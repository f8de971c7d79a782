"""Check the machine of a leg: ask it everything in one script, and judge the answers as those of this machine. The script prints the files
that the checks read and what their commands say. They become a folder and recorded answers, so every check works unchanged. What a machine
answers is not believed: it decides no path outside of that folder, and is printed as text."""

import importlib
import secrets
import shlex
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from warpwave.config.hosts import Host
from warpwave.config.targets import Target
from warpwave.doctor.checks import Engine, examine_engine, examine_python, examine_vendor, python_question
from warpwave.doctor.machine import FAIL, PASS, Finding, Machine, found
from warpwave.engines.choose import close, load_engine
from warpwave.engines.protocol import Answer
from warpwave.errors import InfrastructureError, WarpwaveError
from warpwave.records.registry import DEFAULT, ENGINES

_WHOLE_S = 60.0
_OWN_S = 20.0
_MOST_FILES = 2000
_CONTAINER = ENGINES[DEFAULT]
_PYXIS = ("sh", "-c", "enroot version && srun --help 2>&1 | grep -qe --container-image")  # a plugin of Slurm, without a program of its own
_RUNTIMES = {"enroot": _PYXIS, "pyxis": _PYXIS}
_BUS = ("/sys/bus/pci/devices/*/vendor", "/sys/bus/pci/devices/*/class")
# Patterns are expanded by the shell there, but nothing else in them is.
_SCRIPT = """
LC_ALL=C; export LC_ALL
PATH=$PATH:/usr/sbin:/sbin; export PATH
limit() { if command -v timeout >/dev/null 2>&1; then timeout "$@"; else shift; "$@"; fi; }
show() {
  for path in $1; do
    [ -e "$path" ] || continue
    use=no; [ -r "$path" ] && [ -w "$path" ] && use=yes
    if [ -f "$path" ]; then echo "$mark file $use $path"; head -c 4096 "$path" 2>/dev/null; echo; else echo "$mark node $use $path"; fi
  done
}
IFS=
"""


@dataclass
class FarMachine(Machine):
    """A machine as it has described itself: its files below `root`, its answers to commands, and what its user may not use."""

    answers: Mapping[tuple[str, ...], Answer] = field(default_factory=dict)
    closed: frozenset[str] = frozenset()

    def run(self, command: Sequence[str], limit_s: float = 10.0) -> Answer:
        """Return what the command said there."""
        return self.answers.get(tuple(command), Answer(trouble="absent"))

    def may_use(self, path: Path) -> bool:
        """Return whether the user there may read and write it."""
        return self.name(path) not in self.closed


def examine_leg(host: Host, target: Target) -> list[Finding]:
    """Return the findings about the machine of a leg: does it answer, has it an engine, and what do the vendor's checks say there?"""
    module = importlib.import_module(ENGINES[host.runs_with].module)
    python = host.python or target.python
    contained = host.container != "none" and (host.slurm is not None or ENGINES.get(host.engine, _CONTAINER).container)
    runtime = _RUNTIMES.get(host.container, (host.container, "version"))
    own = (runtime,) if host.container and contained else () if contained else (python_question(target, python),)
    asked = {**dict.fromkeys(own, _OWN_S), **{check.run: check.limit_s for check in target.doctor.checks if check.run}}
    mark = f"ww{secrets.token_hex(8)}"
    started = time.monotonic()
    try:
        limit_s = min(_WHOLE_S, 10.0 + sum(asked.values()))
        answer: Answer = module.ask(host, ["sh", "-c", _questions(mark, target, asked)], limit_s)
    except WarpwaveError as error:
        return [Finding("answers", FAIL, error.happened, error.remedy)]
    seconds = round(time.monotonic() - started, 3)
    findings = [Finding("answers", PASS, f"in {seconds:.1f} s", seconds=seconds)]
    engine, info = _ask_engine(host)
    findings += engine if info is None else []
    with tempfile.TemporaryDirectory(prefix="warpwave-doctor-") as folder:
        machine = _picture(answer.text, mark, list(asked), Path(folder), host)
        if own and contained:
            findings.append(_runtime(host, machine.run(own[0])))
        elif own and not host.module:  # which Python there is, a module decides, that only a job loads
            findings.append(examine_python(target, machine, python))
        if info is not None:
            findings += examine_engine(Engine(info=info), machine, needed=True)
        if target.has_card:
            findings += examine_vendor(target, machine, info, needed=True, contained=contained)
    return findings


def _ask_engine(host: Host) -> tuple[list[Finding], Mapping[str, Any] | None]:
    try:
        engine: Any = load_engine(host.runs_with, host)
    except WarpwaveError as error:
        return [Finding("engine", FAIL, error.happened, error.remedy)], None
    try:
        return [Finding("engine", PASS, f"{host.runs_with} takes jobs")], engine.info() if hasattr(engine, "info") else None
    except InfrastructureError as error:
        return [Finding("engine", FAIL, error.happened, error.remedy)], None
    finally:
        close(engine)


def _runtime(host: Host, answer: Answer) -> Finding:
    said = " ".join("".join(character for character in answer.text if character.isprintable() or character == "\n").split())[:80]
    fix = f"Ask the site for it, or choose another `container` for {host.name} in hosts.yml."
    return found("container", not answer.trouble, f"{host.container} {said}" if not answer.trouble else f"no {host.container} there", fix)


def _questions(mark: str, target: Target, asked: Mapping[tuple[str, ...], float]) -> str:
    """Return a script for `sh` that reads the files of a target's checks and runs the commands, each with its limit in seconds."""
    checks = target.doctor.checks
    patterns = [*_BUS, *target.devices.nodes, *([target.probe.driver_file] if target.probe.driver_file else [])]
    patterns += [pattern for check in checks for pattern in (*check.files, *([check.count] if check.count else []))]
    lines = [f"mark={mark}", *(f"show {shlex.quote(pattern)}" for pattern in dict.fromkeys(patterns))]
    for number, (command, limit_s) in enumerate(asked.items()):
        lines += [f"echo; echo {mark} run {number}", f"limit {limit_s:g} {shlex.join(command)} </dev/null 2>&1"]
        lines += [f"code=$?; echo; echo {mark} code $code"]
    return _SCRIPT + "\n".join(lines) + "\n"


def _picture(text: str, mark: str, commands: Sequence[tuple[str, ...]], folder: Path, host: Host) -> FarMachine:
    answers: dict[tuple[str, ...], Answer] = {}
    closed: set[str] = set()
    files = asked = 0
    for part in f"\n{text}".split(f"\n{mark} ")[1:]:
        head, _, body = part.partition("\n")
        kind, _, rest = head.partition(" ")
        if kind == "run" and rest.isdigit() and int(rest) < len(commands):
            asked = int(rest)
            answers[commands[asked]] = Answer(body, "silent")  # until its exit code is there
        elif kind == "code" and commands and commands[asked] in answers:
            trouble = {"0": "", "124": "silent", "127": "absent"}.get(rest, "refused")
            answers[commands[asked]] = Answer(answers[commands[asked]].text, trouble)
        elif kind in ("file", "node") and files < _MOST_FILES:
            use, _, path = rest.partition(" ")
            files += _write(folder, path, body)
            closed |= set() if use == "yes" else {path}
    return FarMachine(folder, {"DOCKER_HOST": host.where}, answers=answers, closed=frozenset(closed))


def _write(folder: Path, path: str, body: str) -> bool:
    parts = PurePosixPath(path).parts
    if not path.isprintable() or len(path) > 500 or parts[:1] != ("/",) or ".." in parts:
        return False
    with suppress(OSError, ValueError):
        place = folder.joinpath(*parts[1:])
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(body.removesuffix("\n"))
        return True
    return False
