"""The same sweep on one card and on several of this host, and how much faster that is.

Usage, on a machine with the cards: python tests/bench/gpus.py --gpus 0,1 [--runs N] [--precision SHARE] [--kernels FOLDER] [--keep FOLDER]
Real runs (`warpwave run cuda --engine local --stage bench`), each with an empty Triton cache, in turn. Prints for each the wall time of the
command, of the bench stage, and of the sweep alone: from the first point that any card began to the last that any ended, by the journals.
What compiling ahead and importing torch take is not shared out, so the sweep's is the figure of the scheduler, the stage's that of a user.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "harness"))

from warpwave.records import What

PACKAGE = Path(__file__).with_name("softmax")
PATH = os.pathsep.join(filter(None, (str(REPOSITORY / "harness"), os.environ.get("PYTHONPATH"))))
WHAT = {"command": "the command", "stage": "the bench stage", "sweep": "the sweep"}


def run(chosen: list[str], arguments: argparse.Namespace, out: Path) -> dict:
    """One run on these cards; its times in seconds, and what each card did."""
    which = ["--gpu", ",".join(chosen)]
    command = [sys.executable, "-m", "warpwave", "run", arguments.target, "--engine", "local", "--stage", "bench", "--no-report"]
    command += ["--kernels", str(arguments.kernels), "--bench", arguments.bench, *which, "--out", str(out)]
    command += ["--precision", str(arguments.precision)]
    command += ["--targets", str(arguments.targets or own_targets(arguments.target, out.parent))]
    variables = {"TRITON_CACHE_DIR": str(out.with_name(f"{out.name}-cache")), "PYTHONPATH": PATH}
    started = time.monotonic()
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    wall = time.monotonic() - started
    raw = out / "raw" / arguments.target
    try:
        stages = json.loads((raw / "stages.json").read_text())["reports"]
        samples = lines(raw / "bench" / "samples.jsonl")
    except OSError as error:
        sys.exit(f"{error}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    if not samples:
        sys.exit(
            f"nothing was measured: {[(report['stage'], report['verdict'], report['reason']) for report in stages]}\n{done.stderr[-3000:]}"
        )
    events = [event for journal in (raw / "bench").rglob("journal.jsonl") for event in lines(journal)]
    began = min(event["at"] for event in events if event["event"] == "start" and is_point(event))
    ended = max(event["at"] for event in events if event["event"] in ("finish", "death") and is_point(event))
    stage = next(report["seconds"] for report in stages if report["stage"] == "bench")
    keys = [(sample["case"], sample["provider"]) for sample in samples]
    return {
        "seconds": {"command": wall, "stage": stage, "sweep": ended - began},
        "samples": samples,
        "ceilings": lines(raw / "bench" / "ceilings.jsonl"),
        "cards": Counter(sample["device"] for sample in samples),
        "verdicts": Counter(sample["verdict"] for sample in samples),
        "twice": len(keys) - len(set(keys)),
        "devices": json.loads((raw / "facts.json").read_text())["devices"],
    }


def own_targets(target: str, folder: Path) -> Path:
    """The local engine shows a package nothing of this repository; the sweep of the tutorial imports its kernel from there."""
    path = folder / "targets.yml"
    path.write_text(json.dumps({"schema_version": 1, "targets": {target: {"environment": {"PYTHONPATH": PATH}}}}))
    return path


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def is_point(event: dict) -> bool:
    """Whether an event is of a point, not of loading a file or of a ceiling."""
    return event["id"].endswith("]") and " [loading " not in event["id"]


def tell(label: str, made: dict) -> None:
    """One run, in a few lines."""
    seconds = ", ".join(f"{WHAT[what]} {value:.2f} s" for what, value in made["seconds"].items())
    print(f"{label}: {seconds}")
    shares = ", ".join(f"GPU {card} {count} points" for card, count in sorted(made["cards"].items()))
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in made["verdicts"].items())
    print(f"   {shares}; {verdicts}; {made['twice']} twice", flush=True)


def agreement(one: dict, several: dict) -> str:
    """How far the medians of a case on the first card lie from those of the run on one card, and of one on another card."""
    alone = {(sample["case"], sample["provider"]): sample["median_ms"] for sample in one["samples"] if sample["median_ms"]}
    moved: dict[int, list[float]] = {}
    for sample in several["samples"]:
        if sample["median_ms"] and (before := alone.get((sample["case"], sample["provider"]))):
            moved.setdefault(sample["device"], []).append(sample["median_ms"] / before)
    return ", ".join(f"GPU {card} {statistics.median(ratios):.4f}" for card, ratios in sorted(moved.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", default="0,1", help="the cards; the first one is the one that is alone")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--precision", type=float, default=What.precision, help="as in `warpwave run`: a finer one makes a longer sweep")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--targets", type=Path, help="as in `warpwave run`")
    parser.add_argument("--kernels", type=Path, default=PACKAGE)
    parser.add_argument("--bench", default="bench_*.py")
    parser.add_argument("--keep", type=Path, help="folder for all that was measured")
    arguments = parser.parse_args()
    names = arguments.gpus.split(",")
    found: dict[int, list[dict]] = {1: [], len(names): []}
    with tempfile.TemporaryDirectory() as temporary:
        root = (arguments.keep or Path(temporary)).resolve()
        root.mkdir(parents=True, exist_ok=True)
        for number in range(1, arguments.runs + 1):
            for count in found:
                made = run(names[:count], arguments, root / f"on-{count}-{number}")
                found[count].append(made)
                tell(f"{count} card{'s' * (count > 1)}, run {number}", made)
    last = found[len(names)][-1]
    print()
    for device in last["devices"]:
        mine = [entry for entry in last["ceilings"] if entry["device"] == device["index"]]
        copied = max((entry["bytes_moved"] / entry["median_ms"] * 1e-6 for entry in mine), default=0.0)
        print(f"GPU {device['index']}: {device['name']}, {device['uuid']}, {device['told'] or 'no tool told more'}, copy {copied:.1f} GB/s")
    print(f"median time over that of the run on one card, the median of all points: {agreement(found[1][-1], last)}")
    for what, words in WHAT.items():
        one, several = (min(made["seconds"][what] for made in found[count]) for count in found)
        print(
            f"{words}: {one:.2f} s on 1 card, {several:.2f} s on {len(names)}, {one / several:.2f} times as fast (best of {arguments.runs})"
        )


if __name__ == "__main__":
    main()
