"""The softmax sweep of Triton's tutorial (98 sizes, three providers) by the harness and by `perf_report(...).run()`, side by side.

Usage, on a machine with a GPU: python tests/bench/sweep.py [--runs N] [--precision SHARE] [--keep FOLDER]
Each runs in processes of its own with an empty Triton cache, in turn. Prints the wall time of the processes and of the sweep in them; the
half-width of the 95% interval of each point's median, by the same rule for both; and what such an interval is worth: how far the medians
of two runs are from each other, and in how many points the median of another run lies within the interval.
"""

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "harness"))

from warpwave.records import Job, Stage, What, dump
from warpwave.stats import median_interval, quantile

PACKAGE = Path(__file__).with_name("softmax")
SIDES = ("perf_report", "harness")
# A process that asks the card for its name would share what it warmed up with the one that is timed.
CARD = """
import dataclasses, json, sys
from pathlib import Path
from warpwave.inside.facts.stage import gather
from warpwave.inside.facts.device import card_here
from warpwave.records import Job, dump
from warpwave.config.targets import load_targets
job = Job.load(Path(sys.argv[1]))
card = card_here()
known = {known.name: known for target in load_targets().values() for known in target.architectures}
facts = gather(job)
device = dataclasses.replace(facts.devices[0], architecture=card.name)
dump(dataclasses.replace(facts, devices=(device,)), Path(job.output) / "facts.json")
dump(dataclasses.replace(job, architectures=(known[card.name],)), Path(sys.argv[1]))
print(json.dumps({"gpu": device.name, "torch": facts.torch, "triton": facts.triton}))
"""


def perf_report(out: Path) -> None:
    """In a process of its own: run the mark as its author would, and keep what Triton measured."""
    import triton.testing

    from warpwave.inside.benchmarks import load_module

    measured: list[list[float]] = []
    summarise = triton.testing._summarize_statistics

    def keep(times, *arguments):
        measured.append([float(time_ms) for time_ms in times])
        return summarise(times, *arguments)

    triton.testing._summarize_statistics = keep
    mark = load_module(PACKAGE / "bench_softmax.py", PACKAGE).benchmark
    started = time.monotonic()
    try:
        import matplotlib.pyplot  # noqa: F401
        import pandas  # noqa: F401

        with tempfile.TemporaryDirectory() as folder:
            mark.run(print_data=False, save_path=folder)
        how = "perf_report(...).run()"
    except ImportError as error:  # then what run() does, less its table and its plot
        how = f"perf_report's loop, without its plot ({error})"
        bench = mark.benchmarks
        for size in bench.x_vals:
            for provider in bench.line_vals:
                mark.fn(**{bench.x_names[0]: size}, **{bench.line_arg: provider}, **bench.args)
    out.write_text(json.dumps({"how": how, "sweep_s": time.monotonic() - started, "points": measured}))


def run_perf_report(folder: Path, precision: float) -> dict:
    command = [sys.executable, __file__, "--as-perf-report", str(folder / "points.json")]
    wall = timed(command, folder)
    told = json.loads((folder / "points.json").read_text())
    return {**told, "wall_s": wall, "points": [(times, ()) for times in told["points"]]}


def run_harness(folder: Path, precision: float) -> dict:
    dump(Job("bench", "bench", str(PACKAGE), str(folder), what=What(stages=(Stage.BENCH,), precision=precision)), folder / "job.json")
    (folder / "bench").mkdir()
    described = subprocess.run([sys.executable, "-c", CARD, "job.json"], cwd=folder, env=environment(folder / "other"), capture_output=True)
    if described.returncode:
        sys.exit(described.stderr.decode())
    wall = timed([sys.executable, "-m", "warpwave.inside.bench.stage", "job.json"], folder)
    report = json.loads((folder / "bench" / "report.json").read_text())
    if report["verdict"] != "passed":
        sys.exit(f"the bench stage: {report['verdict']}, {report['reason']}")
    samples = [json.loads(line) for line in (folder / "bench" / "samples.jsonl").read_text().splitlines()]
    events = [json.loads(line) for line in (folder / "bench" / "journal.jsonl").read_text().splitlines()]
    started = min(event["at"] for event in events if event["event"] == "start" and "[" in event["id"] and "loading" not in event["id"])
    ended = max(event["at"] for event in events if event["event"] == "finish" and "sample" in event)
    samples.sort(key=lambda sample: (sample["params"]["N"], ["triton", "torch", "naive"].index(sample["provider"])))
    print("  ", described.stdout.decode().strip())
    print("   compiled ahead:", (folder / "bench" / "ahead.json").read_text().strip())
    late, timings = sum(sample["late"] for sample in samples), sum(len(sample["times_ms"]) for sample in samples)
    weak, noisy = sum(bool(sample["weak"]) for sample in samples), sum(sample["quiet"] is False for sample in samples)
    print(f"   flush {samples[0]['flush_bytes'] >> 20} MiB, cache {samples[0]['cache_bytes']}; {late} of {late + timings} timings late")
    print(f"   {noisy} points noisy at their cap, {weak} weak")
    points = [(sample["times_ms"], sample["rounds"]) for sample in samples]
    return {"how": "harness", "sweep_s": ended - started, "wall_s": wall, "points": points}


def environment(cache: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(REPOSITORY / "harness"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "TRITON_CACHE_DIR": str(cache), "PYTHONPATH": path, "TRITON_DEFAULT_FP_FUSION": "1"}


def timed(command: list[str], folder: Path) -> float:
    started = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment(folder / "cache"), capture_output=True, text=True)
    wall = time.monotonic() - started
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-4000:])
    return wall


def half_widths(points: list) -> list[float]:
    found = [median_interval(times, rounds) for times, rounds in points]
    return [(one.high - one.low) / 2 / one.value for one in found if one]


def reproduced(runs: list[list]) -> str:
    """How far medians of the same point are apart in two runs, over all pairs; and how many lie in the interval of the other."""
    moved, within = [], []
    for one, other in itertools.permutations(runs, 2):
        for (times, rounds), (again, _) in zip(one, other, strict=True):
            interval, median = median_interval(times, rounds), statistics.median(again)
            assert interval
            moved.append(abs(median / interval.value - 1))
            within.append(interval.low <= median <= interval.high)
    # Two medians of one distribution differ by the root of two times its deviation.
    half = 1.96 * math.sqrt(statistics.fmean(share**2 for share in moved) / 2)
    return f"another run's median moved by {spread(moved)}; 95% half-width {half:.3%}; {statistics.fmean(within):.0%} within the interval"


def spread(values: list[float]) -> str:
    return "  ".join(f"p{round(q * 100)} {quantile(values, q):.3%}" for q in (0.5, 0.9, 1.0)) + f"  mean {statistics.fmean(values):.3%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--precision", type=float, default=What.precision, help="half-width at which the harness ends a point")
    parser.add_argument("--keep", type=Path, help="folder for all that was measured")
    parser.add_argument("--as-perf-report", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.as_perf_report:
        perf_report(arguments.as_perf_report)
        return
    found: dict[str, list[dict]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as temporary:
        root = arguments.keep or Path(temporary)
        for number in range(arguments.runs):
            for side, run in zip(SIDES, (run_perf_report, run_harness), strict=True):
                folder = (root / f"{side}-{number}").resolve()
                folder.mkdir(parents=True)
                made = run(folder, arguments.precision)
                found[side].append(made)
                counts = [len(times) for times, _ in made["points"]]
                print(
                    f"{side} {number + 1}: {made['wall_s']:.1f} s in all, {made['sweep_s']:.1f} s of sweep, {len(counts)} points,", end=" "
                )
                print(f"{statistics.median(counts):.0f} timings each ({made['how']})")
                print(f"   half-width of the median's 95% interval: {spread(half_widths(made['points']))}", flush=True)
    print()
    for side, runs in found.items():
        if len(runs) > 1:
            print(f"{side}: {reproduced([made['points'] for made in runs])}")
    best = {side: [min(made[what] for made in runs) for what in ("wall_s", "sweep_s")] for side, runs in found.items()}
    ratios = [theirs / ours for theirs, ours in zip(best["perf_report"], best["harness"], strict=True)]
    print(f"perf_report / harness, best of each: {ratios[0]:.2f} in all, {ratios[1]:.2f} of sweep")


if __name__ == "__main__":
    main()
