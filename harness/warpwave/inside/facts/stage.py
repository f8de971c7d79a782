"""The facts stage: find out what this environment is, and whether it can run a kernel at all. No stage runs if it cannot.

Run as `python -m warpwave.inside.facts.stage job.json`; writes `facts.json`. Imports torch and triton, launches one small product a device.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from warpwave.inside.environment import modules_of, root_of, why_unwritable
from warpwave.inside.facts.device import accelerator, architecture_name, described
from warpwave.inside.process import sealing
from warpwave.inside.process.lease import Lease
from warpwave.inside.process.workers import as_stage
from warpwave.records import DeviceFacts, Facts, Job, Stage, StageReport, Verdict, to_json, to_text
from warpwave.records.run import EMULATOR

# If more memory is in use before this run has started, another process has it: the larger of 2 GiB and an eighth of the card.
_TAKEN_BYTES, _TAKEN_SHARE = 2 << 30, 8
_SETTLE_S = 60.0  # some systems free the memory of an ended process late
_POLL_S = 1.0
_TORCH, _TRITON = ("torch", (2, 6), "2.11 and 2.13"), ("Triton", (3, 6), "3.6 to 3.9")  # the oldest release, and those tested
_TOLD_S = 20.0  # for a tool whose answer is only shown


class UnusableError(Exception):
    """The environment cannot do what the job needs; message and hint are for the user."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


def gather(job: Job) -> Facts:
    """Look at the interpreter, at torch and triton, at the probe, and at every visible device."""
    try:
        import torch
        import triton
    except ImportError as error:
        raise UnusableError(f"{error.name or error} is not installed in {sys.executable}") from None
    _check_versions(job, torch.__version__, triton.__version__)
    _probe(job, torch)
    if job.emulate:
        check_emulator()
    if (job.emulate or job.needs_card or Stage.COMPILE in job.what.stages) and (why := why_unwritable()):
        raise UnusableError(why, "Make room there, or set TRITON_CACHE_DIR to a folder that can be written to.")
    devices = _devices(job, torch) if job.needs_card else ()
    # The probe names the attribute that torch has for this vendor's runtime, and so the runtime.
    name = (job.require or "").rpartition(".")[2]
    driver = None
    with suppress(OSError):
        driver = Path(job.driver_file).read_text().strip() if devices and job.driver_file else None
    return Facts(
        python=platform.python_version(),
        platform=platform.platform(),
        torch=torch.__version__,
        triton=triton.__version__,
        runtime=f"{name} {getattr(torch.version, name)}" if name else "none",
        driver=driver,
        fp_fusion=os.environ.get("TRITON_DEFAULT_FP_FUSION"),
        kernels_hash=source_hash(Path(job.kernels), root_of(job)),
        devices=devices,
    )


def _check_versions(job: Job, torch: str, triton: str) -> None:
    """Refuse a torch that this code cannot use, and a Triton whose interpreter it cannot. Triton's compiler may be older."""
    releases = [(*_TORCH, torch, "--python names another Python")]
    if job.interpret and Stage.TEST in job.what.stages:
        releases.append((*_TRITON, triton, "--triton 3.9.0 installs another for this run; --stage compile runs with this one"))
    for name, oldest, tested, version, otherwise in releases:
        if tuple(map(int, re.findall(r"\d+", version)[:2])) < oldest:
            reason = f"{name} {version} is too old: warpwave needs {name} {oldest[0]}.{oldest[1]} or later, and is tested with {tested}"
            raise UnusableError(f"{reason}", f"Run `{sys.executable} -m pip install --upgrade {name.lower()}`; or {otherwise}.")


def check_emulator() -> None:
    """Raise `UnusableError` if no test could be emulated here: a package or a compiler is missing."""
    missing = [name for name in EMULATOR if importlib.util.find_spec(name) is None]
    compiler = any(map(shutil.which, [os.environ.get("CC") or "cc", "gcc", "clang"]))
    lacking = [*missing, *([] if compiler else ["a C compiler"])]
    wanted = " ".join(f"'{EMULATOR[name]}'" for name in missing)
    # By their own names: an index may have a stranger's package of warpwave's name.
    fixes = [f"`{sys.executable} -m pip install {wanted}`"] if missing else []
    fixes += [] if compiler else ["`apt-get install gcc libc6-dev`"]
    if lacking:
        raise UnusableError(f"the emulator needs {', '.join(lacking)}, missing in {sys.executable}", f"Run {' and '.join(fixes)}.")


def source_hash(folder: Path, root: Path | None = None) -> str:
    """Return the SHA-256 over names and contents of every Python file below `folder`: it is the same for two runs of one package.

    If `folder` is only a part of the package at `root`, the other modules of the package count too. A link out of the package counts with
    what it says: in a container it leads nowhere.
    """
    digest = hashlib.sha256()
    whole = root or folder
    for path in sorted(folder.rglob("*.py") if whole == folder else modules_of(whole)):
        relative = path.relative_to(whole)
        if not any(part.startswith(".") or part == "__pycache__" for part in relative.parts):
            own = path.resolve().is_relative_to(whole.resolve()) and path.is_file()
            content = path.read_bytes() if own or not path.is_symlink() else os.fsencode(path.readlink())
            digest.update(relative.as_posix().encode() + b"\0" + content + b"\0")
    return digest.hexdigest()


def _changed(facts: Facts, path: Path) -> str:
    """Return in words what differs from the facts of an earlier run of this job; empty if nothing differs or there is no earlier run."""
    try:
        before = json.loads(path.read_text())
    except (OSError, ValueError):
        return ""
    now = json.loads(to_json(facts))
    if before.get("kernels_hash") != now["kernels_hash"]:
        return "the kernels have changed"
    names = ("python", "torch", "triton", "runtime", "driver", "fp_fusion")
    for name in names:
        if before.get(name) != now[name]:
            return f"{name.replace('_', ' ')} has changed from {before.get(name)} to {now[name]}"
    cards = [[(card["name"], card["uuid"]) for card in known["devices"]] for known in (before, now)]
    return "" if cards[0] == cards[1] else "the GPUs have changed"


def _probe(job: Job, torch: Any) -> None:
    """Check the target's own conditions: an attribute of torch that must be set, a command that must succeed."""
    if job.require:
        value: Any = torch
        for part in job.require.split(".")[1:]:
            value = getattr(value, part, None)
        if not value:
            built = f"torch {torch.__version__} in {sys.executable} was built for another vendor, or for none ({job.require} is not set)"
            index = f" --index-url {job.torch_index}" if job.torch_index else ""
            hint = f"Run `{sys.executable} -m pip install --force-reinstall torch{index}`, or name another --python."
            if job.driver_file and not Path(job.driver_file).exists():
                hint += f" This machine has no driver of such a card either ({job.driver_file}); `warpwave list` shows what needs no card."
            raise UnusableError(built, hint)
        if torch.accelerator.device_count() == 0:
            raise UnusableError("torch sees no GPU")
    if job.probe:
        try:
            done = subprocess.run(job.probe, capture_output=True, text=True, timeout=job.probe_limit_s)
        except subprocess.TimeoutExpired:
            raise UnusableError(
                f"`{' '.join(job.probe)}` did not answer within {job.probe_limit_s:g} s: the driver or a card hangs"
            ) from None
        if done.returncode:
            raise UnusableError(f"`{' '.join(job.probe)}` exited with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")


def _devices(job: Job, torch: Any) -> tuple[DeviceFacts, ...]:
    """Return every visible GPU; if several share the work, with the answers to the target's own question about each."""
    found = tuple(_device(job, torch, index) for index in range(torch.accelerator.device_count()))
    if job.gpus and len(found) != job.gpus:
        seen = f"torch sees {len(found)}"
        raise UnusableError(
            f"{job.gpus} GPUs were asked for, {seen}", "`warpwave doctor` lists them; give indices that are there, or --gpu all."
        )
    if job.visible_devices is None or len(found) < 2:
        return found
    answers = ask_about_cards(job.card_query, job.card_rows)
    return tuple(dataclasses.replace(device, told=answers.get(str(device.uuid).lower(), {})) for device in found)


def ask_about_cards(command: tuple[str, ...], rows: str) -> dict[str, dict[str, str]]:
    """Return what a vendor's tool says of each card, by its uuid; nothing if the tool is missing or does not answer: it is only shown."""
    if not command:
        return {}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TOLD_S)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    matches = [match.groupdict() for line in done.stdout.splitlines() if (match := re.search(rows, line))]
    return {match.pop("uuid").lower(): {name.replace("_", " "): value for name, value in match.items()} for match in matches}


def _device(job: Job, torch: Any, index: int) -> DeviceFacts:
    """Return one GPU, after a small product with a known result has shown that it works."""
    import triton
    from triton.testing import get_dram_gbps

    here = accelerator()
    assert here is not None
    kind, module = here
    _wait_for_memory(module, index)
    try:
        ones = torch.ones(64, 64, device=f"{kind}:{index}")
        if float((ones @ ones).sum()) != 64.0**3:
            raise UnusableError(f"GPU {index} computes a wrong product")
    except RuntimeError as error:
        raise UnusableError(f"GPU {index} does not run a small product: {str(error).splitlines()[0]}") from None
    properties, driver = module.get_device_properties(index), triton.runtime.driver.active
    target = driver.get_current_target()
    card = described(target, job.architectures)
    reported: dict[str, Any] = {}
    derived_gbps = None
    with suppress(Exception):  # not every driver answers
        reported = dict(driver.utils.get_device_properties(index))
    with suppress(Exception):  # from the memory's clock and the width of its bus
        derived_gbps = float(get_dram_gbps(index)) or None
    return DeviceFacts(
        index=index,
        name=properties.name,
        architecture=card.name if card else architecture_name(target),
        memory_bytes=properties.total_memory,
        # Not every vendor's torch counts them; Triton's driver does.
        multiprocessors=getattr(properties, "multi_processor_count", 0) or reported.get("multiprocessor_count", 0),
        cache_bytes=getattr(properties, "L2_cache_size", None),
        uuid=str(getattr(properties, "uuid", "")) or None,
        derived_gbps=derived_gbps,
        clock_mhz=reported.get("sm_clock_rate", 0) / 1000 or None,  # the driver reports kHz
    )


def _wait_for_memory(module: Any, index: int) -> None:
    """Refuse a card that other processes use: timings would be wrong, and a test could fail for lack of memory."""
    until = time.monotonic() + _SETTLE_S
    while True:
        free, total = module.mem_get_info(index)
        if total - free <= max(_TAKEN_BYTES, total // _TAKEN_SHARE):
            return
        if time.monotonic() >= until:
            used, whole = (f"{size / 2**30:.1f}" for size in (total - free, total))
            reason = f"GPU {index}: {used} of {whole} GiB are in use, though nothing of this run has begun"
            hint = "`warpwave doctor` shows who has it. Wait for that process, end it, or choose another card with --gpu."
            raise UnusableError(f"{reason}; that did not change within {_SETTLE_S:g} s", hint)
        time.sleep(_POLL_S)


def main() -> None:
    """Entry of the stage's process."""
    job = Job.load(Path(sys.argv[1]))
    output = Path(job.output)
    lease = Lease(job, Stage.FACTS)
    try:
        with suppress(ImportError):  # reported when it is needed; imported first, because it takes seconds
            importlib.import_module("torch")
            importlib.import_module("triton")
        if refused := lease.await_answer():
            raise UnusableError(refused, "Wait for that run, or raise limits.gpu_wait_s in a targets file.")
        facts = gather(job)
        changed = _changed(facts, output / "facts.json")
        if not changed:
            sealing.replace(output / "facts.json", to_text(facts))
        report = StageReport(Stage.FACTS, Verdict.PASSED)
        if changed:
            reason = f"not taken up again: {changed} since the run began, and results of both would be mixed"
            report = StageReport(Stage.FACTS, Verdict.INCOMPLETE, reason=reason, hint="Start a new run, with another --out.")
    except UnusableError as problem:
        report = StageReport(Stage.FACTS, Verdict.INFRA, reason=str(problem), hint=problem.hint)
    except Exception as error:  # a broken driver, library or cache folder
        traceback.print_exc()
        report = StageReport(Stage.FACTS, Verdict.INFRA, reason=f"{type(error).__name__}: {error}", hint="See facts/log.txt.")
    sealing.close(report, job)


if __name__ == "__main__":
    as_stage(main)
