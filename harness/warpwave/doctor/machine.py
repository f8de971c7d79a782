"""The machine as the checks see it: files, commands and the clock. Tests and recordings set `root` and `variables`."""

import glob
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from warpwave.config.targets import Target
from warpwave.engines.protocol import Answer
from warpwave.records import grouped

_WHOLE_S = 60.0
_MOST_BYTES = 1 << 20
_DISPLAY = ("0x03", "0x12")  # PCI classes: display controllers, processing accelerators


@dataclass
class Machine:
    """This machine, or one below `root`. Commands are found in the PATH of `variables`, and share one minute."""

    root: Path = Path("/")
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    deadline: float = field(default_factory=lambda: time.monotonic() + _WHOLE_S)
    _asked: dict[tuple[str, ...], Answer] = field(default_factory=dict)

    def paths(self, pattern: str) -> list[Path]:
        """Return the existing paths that match an absolute glob pattern, sorted."""
        # Path.glob does not follow links such as those below /sys/class.
        return [Path(path) for path in sorted(glob.glob(str(self.root / pattern.lstrip("/"))))]  # noqa: PTH207

    def name(self, path: Path) -> str:
        """Return a path's name on the machine itself."""
        return "/" + str(path.relative_to(self.root))

    def read(self, path: str | Path) -> str | None:
        """Return the first MiB of a text file; None if it cannot be read."""
        try:
            with (self.root / str(path).lstrip("/") if isinstance(path, str) else path).open(errors="replace") as file:
                return file.read(_MOST_BYTES)
        except OSError:
            return None

    def run(self, command: Sequence[str], limit_s: float = 10.0) -> Answer:
        """Run a command without input. A repeated command returns the first answer."""
        key = tuple(command)
        if key not in self._asked:
            self._asked[key] = self._run(key, min(limit_s, self.deadline - time.monotonic()))
        return self._asked[key]

    def on_bus(self, vendor: str) -> list[str]:
        """Return the PCI addresses of a vendor's GPUs (`0x` and four digits), with or without a driver."""
        devices = [path.parent for path in self.paths("/sys/bus/pci/devices/*/vendor") if (self.read(path) or "").strip() == vendor]
        return [device.name for device in devices if (self.read(device / "class") or "").startswith(_DISPLAY)]

    def nodes(self, target: Target) -> list[Path]:
        """Return the device nodes that a container of this target is given."""
        return [path for pattern in target.devices.nodes for path in self.paths(pattern)]

    def may_use(self, path: Path) -> bool:
        """Return whether this user may read and write a device node."""
        return os.access(path, os.R_OK | os.W_OK)

    def has_driver(self, target: Target) -> bool:
        """Check for the vendor's kernel driver: by its file, or by its device nodes, some of which other vendors share."""
        if target.probe.driver_file is not None and self.paths(target.probe.driver_file):
            return True
        if not target.devices.nodes or not all(map(self.paths, target.devices.nodes)):
            return False
        # If the bus is visible and has no such GPU, the nodes belong to another vendor.
        return target.doctor.pci is None or not self.paths("/sys/bus/pci/devices/*") or bool(self.on_bus(target.doctor.pci))

    def has(self, target: Target) -> bool:
        """Return whether the machine has a GPU of the target's vendor, with or without a driver."""
        return self.has_driver(target) or (target.doctor.pci is not None and bool(self.on_bus(target.doctor.pci)))

    def _run(self, command: tuple[str, ...], limit_s: float) -> Answer:
        started = time.monotonic()
        if limit_s <= 0:
            return Answer(trouble="silent")
        # Use a file, not a pipe: a command that hangs in a driver survives SIGKILL, and its pipe would never close.
        with tempfile.TemporaryFile() as output:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**self.variables, "LC_ALL": "C"},
                    start_new_session=True,
                )
            except OSError:
                return Answer(trouble="absent")
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                with suppress(subprocess.TimeoutExpired):  # the driver may block the kill
                    process.wait(1.0)
                return Answer(trouble="silent", seconds=round(time.monotonic() - started, 3))
            output.seek(0)
            text = output.read(_MOST_BYTES).decode(errors="replace")
        return Answer(text, "refused" if code else "", round(time.monotonic() - started, 3))


PASS, WARN, FAIL, SKIP = "pass", "warn", "fail", "skip"


@dataclass(frozen=True)
class Finding:
    """One check. `state` is pass, warn, fail or skip; `evidence` what was seen; `fix` the command that fixes it; `seconds` its duration."""

    check: str
    state: str
    evidence: str
    fix: str = ""
    seconds: float = 0.0


def found(check: str, good: bool, evidence: str, fix: str, *, otherwise: str = FAIL) -> Finding:
    """Return a pass without a fix, or `otherwise` with one."""
    return Finding(check, PASS, evidence) if good else Finding(check, otherwise, evidence, fix)


def bad(findings: Iterable[Finding], *, strict: bool) -> list[Finding]:
    """Return what must be fixed before a run; with `strict`, warnings too."""
    return [finding for finding in findings if finding.state == FAIL or (strict and finding.state == WARN)]


def fit(findings: Iterable[Finding], targets: Iterable[str]) -> list[str]:
    """Return the targets that are present and have no failed check. A target's checks are named `target` or `target: check`."""
    states = grouped((finding.check.partition(":")[0], finding.state) for finding in findings)
    return [name for name in targets if {*states.get(name, ())} - {SKIP} and FAIL not in states[name]]
