"""For how long a run holds its card, how much of that it uses, and what it compiles: with empty caches, and with kernels handed over.

Usage, on a machine with a card: python tests/bench/gpu_minutes.py [--target NAME] [--kernels FOLDER] [--against DIRECTORY] [-- OPTIONS]
Both runs test and measure with empty caches of Triton and of torch's compiler, one after the other. The second one gets the kernels of
the first one with `--compiled`, as from another machine. `--against` is another checkout (`git worktree add`), run first and in the same
way; one that locks its card for the whole run held it for as long as it ran. Prints figures, and their ratios to those of the first run.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "harness"))

from warpwave.records import Job, dump

PACK = """
import sys
from pathlib import Path
from warpwave.inside.handed_over import pack
from warpwave.records import Job
pack(Job.load(Path(sys.argv[1])))
"""


def run(checkout: Path, out: Path, target: str, kernels: Path, options: list[str]) -> dict[str, str]:
    caches = {"TRITON_CACHE_DIR": str(out / "triton"), "TORCHINDUCTOR_CACHE_DIR": str(out / "inductor")}
    variables = {**os.environ, **caches, "PYTHONPATH": os.pathsep.join([str(checkout / "harness"), os.environ.get("PYTHONPATH", "")])}
    words = ["run", target, "--kernels", kernels, "--stage", "test,bench", "--out", out / "run", "--quiet", *options]
    done = subprocess.run([sys.executable, "-m", "warpwave", *map(str, words)], cwd=checkout, env=variables, capture_output=True, text=True)
    print(f"# {out.name}: exit code {done.returncode}\n{done.stderr[-2000:]}", file=sys.stderr, flush=True)
    return variables


def keep_compiled(out: Path, target: str, variables: dict[str, str]) -> None:
    """Pack what a run compiled, as `--save-compiled` does."""
    raw = out / "run" / "raw" / target
    card = json.loads((raw / "facts.json").read_text())["devices"][0]["architecture"]
    (raw / "compile").mkdir(exist_ok=True)
    job = Job.load(raw / "job.json")
    dump(dataclasses.replace(job, what=dataclasses.replace(job.what, save_compiled=(card,))), out / "job.json")
    subprocess.run([sys.executable, "-c", PACK, str(out / "job.json")], env=variables, check=True)


def figures(out: Path, target: str) -> dict[str, float]:
    raw = out / "run" / "raw" / target
    record, stages = json.loads((raw / "run.json").read_text()), json.loads((raw / "stages.json").read_text())["reports"]
    held = record.get("held") or {"whole run": record["seconds"]}
    print(f"# {out.name}: held {held}, verdicts {[(each['stage'], each['verdict'], each['counts']) for each in stages]}", file=sys.stderr)
    used = sum(each.get("used_s") or 0.0 for each in stages)
    return {
        "held, s": sum(held.values()),
        "of it for tests, s": held.get("test", 0.0),
        "of it for sweeps, s": held.get("bench", 0.0),
        "used, s": used,
        "used / held": used / sum(held.values()),
        "compiled before": sum(each.get("compiled_ahead", 0) for each in stages),
        "compiled meanwhile": sum(each.get("compiled_here", 0) for each in stages),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--kernels", type=Path, default=ROOT / "kernels")
    parser.add_argument("--against", type=Path)
    parser.add_argument("--keep", type=Path, help="folder for the runs' results; by default they are deleted")
    parser.add_argument("options", nargs="*", help="more options of `warpwave run`, behind --")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (asked.keep or Path(temporary)).resolve()
        rows: dict[str, dict[str, float]] = {}
        if asked.against:
            run(asked.against, folder / "against", asked.target, asked.kernels, asked.options)
            rows["against"] = figures(folder / "against", asked.target)
        variables = run(ROOT, folder / "cold", asked.target, asked.kernels, asked.options)
        rows["cold"] = figures(folder / "cold", asked.target)
        keep_compiled(folder / "cold", asked.target, variables)
        handed = ["--compiled", str(folder / "cold" / "run"), *asked.options]
        run(ROOT, folder / "handed-over", asked.target, asked.kernels, handed)
        rows["handed-over"] = figures(folder / "handed-over", asked.target)
    first = next(iter(rows.values()))
    print("".join(f"{head:>22}" for head in ("", *rows)))
    for name in first:
        cells = [f"{row[name]:.3g}" + (f" ({row[name] / first[name]:.2f})" if first[name] else "") for row in rows.values()]
        print(f"{name:>22}" + "".join(f"{cell:>22}" for cell in cells))


if __name__ == "__main__":
    main()
