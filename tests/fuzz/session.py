"""`nox -s fuzz -- MINUTES [READER…]`: fuzz each reader for its share of the minutes of CPU time, below 512 MB and ten seconds an input.

Starts from tests/data/corpus and from honest files; what is found lies in build/fuzz/READER, a crash in build/fuzz/crash-…, and the
figures go to build/fuzz/figures.json. `--keep` brings what reaches new code into tests/data/corpus, as few files as that takes.
"""

import io
import json
import os
import re
import resource
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "harness"), str(ROOT / "tests" / "unit"), str(Path(__file__).parent)]

from hostile import NAMES
from readers import FILES, MORE_FILES, READERS, SEPARATOR
from synthetic import record, run, two_targets, write_raw

from warpwave.records import Attempt, CardShare, Inputs, Stage, Verdict, to_json

BUILD = ROOT / "build" / "fuzz"
CORPUS = ROOT / "tests" / "data" / "corpus"
MEMORY_MB, INPUT_S, LONGEST = 512, 10, 1 << 16
TURN_S, MOST_FOUND = 60.0, 5
INTERRUPTED = 72  # libFuzzer's exit code for a signal from outside
KEPT_BYTES, KEPT_FILES = 4096, 60
CASES = (
    "<testcase classname='c' name='n' time='1e999'><skipped/><failure message='m' type='x'>a<![CDATA[b]]>&#65;</failure></testcase>",
    "<testsuite><testcase name='é'><properties><property name='id' value='a::b'/></properties><error type='oom'/></testcase></testsuite>",
    "<!-- c --><?p i?><testcase xmlns:a='urn:x' a:name='n' name='m'/>",
)
SHARES = (CardShare(Stage.TEST, 0, 3, 1.0), CardShare(Stage.BENCH, 1, 2, 1.0, "lost"))
NAMES_OF = {"junit": 4, "run": 0, "job": 1, "stages": 2, "facts": 3, "samples": 5, "ceilings": 6, "kernels": 7}


def seeds() -> dict[str, list[bytes]]:
    """Honest files to begin with."""
    found: dict[str, list[bytes]] = {name: [] for name in READERS}
    for position, source in enumerate((run(), two_targets()[1])):
        raw = write_raw(BUILD / "seeds" / str(position), source)
        files = [(raw / name).read_bytes() if (raw / name).exists() else b"" for name in FILES]
        files[8] = files[7]
        short = [b"\n".join(file.split(b"\n")[:6]) for file in files]
        for name, which in NAMES_OF.items():
            found[name].append(short[which] if which > 4 else files[which][:8000])
        found["folder"].append(SEPARATOR.join(short))
        found["code"].append(SEPARATOR.join((short[7], short[7].replace(b'"spills": 0', b'"spills": 9'))))
    shards = [_bundle(name, number) for number, name in enumerate(("one", "two"), start=1)]
    found["bundles"] = [SEPARATOR.join(shards), SEPARATOR.join((shards[0], shards[0])), SEPARATOR.join(map(_smallest, shards))]
    found["archive"] = [_archive(kind) for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)]
    found["shares"] = [b"\n".join(to_json(share).encode() for share in SHARES)]
    found["junit"] += [f"<testsuites><testsuite>{inner}</testsuite></testsuites>".encode() for inner in CASES]
    lines = [{"event": "stage", "stage": "test"}, {"event": "case", "stage": "test", "done": 1, "total": 3, "id": "a"}]
    lines += [{"event": "result", "verdict": name, "id": name, "message": name} for name in NAMES]
    lines += [{"event": "stage-end", "stage": "test", "verdict": "passed", "seconds": 1.5}]
    found["inputs"] = [to_json(Inputs("run-1", "alpha", dict.fromkeys(NAMES, "0"), "1", {"image id": "", "variable A": "1"})).encode()]
    found["events"] = ["\n".join(map(json.dumps, lines)).encode(), b"\n".join(name.encode() for name in NAMES)]
    return found


def _archive(kind: int) -> bytes:
    """Results as a machine sends them, with a name that needs a header of its own."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=kind) as tar:
        for name in (
            "run/",
            "run/facts.json",
            "run/run.json",
            "run/" + "d" * 90 + "/" + "f" * (60 if kind == tarfile.USTAR_FORMAT else 150),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.size = (tarfile.DIRTYPE, 0) if name.endswith("/") else (tarfile.REGTYPE, 600)
            tar.addfile(entry, io.BytesIO(b"x" * entry.size))
    return file.getvalue()[: -8 * 512]  # without most of the padding


def _bundle(name: str, number: int) -> bytes:
    """A shard of a run that was measured twice on two cards, with an earlier attempt: every file that a bundle can have."""
    source = two_targets()[number - 1]
    earlier = (Attempt("2026-01-01", 1.0, Verdict.INFRA, "lost"),)
    whole = replace(source, record=record("alpha", shard=f"{number}/2", attempts=earlier), again=source.samples)
    raw = write_raw(BUILD / "seeds" / name, whole)
    for path in ("test/cards.jsonl", "bench/cards.jsonl"):
        (raw / path).write_text("".join(to_json(share) + "\n" for share in SHARES))
    (raw / "bench/journal.jsonl").write_text(json.dumps({"event": "collected", "points": {"a": "b", "c": "d"}}) + "\n")
    files = [(raw / file).read_bytes() if (raw / file).exists() else b"" for file in (*FILES, *MORE_FILES)]
    files[8] = files[7]
    return SEPARATOR.join(b"\n".join(file.split(b"\n")[:6])[:9000] for file in files)


def _smallest(bundle: bytes) -> bytes:
    """The first line of each file: what `--keep` can keep."""
    lines = [file.split(b"\n")[0] for file in bundle.split(SEPARATOR)]
    return SEPARATOR.join(line if line.startswith((b"{", b"<")) and len(line) < 900 else b"" for line in lines)


def libfuzzer(name: str, *arguments: str) -> tuple[int, str, float]:
    """Exit status, log and CPU seconds of one fuzzing process. Its own time-out is for what hangs outside of Python."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    options = [f"-rss_limit_mb={MEMORY_MB}", f"-timeout={30 * INPUT_S}", f"-max_len={LONGEST}", f"-artifact_prefix={BUILD}/"]
    # With this Python first, which `env python3` in the first line of the program then finds.
    variables = {**os.environ, "READER": name, "SECONDS": str(INPUT_S), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [str(Path(__file__).with_name("fuzz.py")), *options, *arguments]
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.returncode, done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def fuzz(name: str, seconds: float, honest: list[bytes]) -> dict[str, Any]:
    """Fuzz one reader for so many seconds of CPU time, in turns that libFuzzer counts by the clock; its figures."""
    own, start = BUILD / name, BUILD / "start" / name
    for folder in (own, start, CORPUS / name):
        folder.mkdir(parents=True, exist_ok=True)
    for position, content in enumerate(honest):
        (start / f"honest-{position}").write_bytes(content)
    figures: dict[str, Any] = {"reader": name, "found": 0, "cpu_s": 0.0, "inputs": 0, "peak_rss_mb": 0, "slowest_s": 0, "edges": 0}
    while figures["cpu_s"] < seconds and figures["found"] < MOST_FOUND:
        turn = max(10.0, min(TURN_S, seconds - figures["cpu_s"]))
        code, log, cpu = libfuzzer(name, f"-max_total_time={turn:.0f}", "-print_final_stats=1", str(own), str(start), str(CORPUS / name))
        told = {key: int(value) for key, value in re.findall(r"stat::(\w+):\s+(\d+)", log)}
        if code not in (0, INTERRUPTED):
            print(log[-6000:], flush=True)
        figures["found"] += code not in (0, INTERRUPTED)
        figures["cpu_s"] = round(figures["cpu_s"] + cpu, 1)
        figures["inputs"] += told.get("number_of_executed_units", 0)
        for key, stat in (("peak_rss_mb", "peak_rss_mb"), ("slowest_s", "slowest_unit_time_sec")):
            figures[key] = max(figures[key], told.get(stat, 0))
        figures["edges"] = max([figures["edges"], *map(int, re.findall(r"cov: (\d+)", log))])
    return figures


def keep(name: str) -> int:
    """Bring what is small and reaches new code into the repository."""
    small, chosen = BUILD / "small" / name, BUILD / "kept" / name
    for folder in (small, chosen):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
    for path in [*(BUILD / name).iterdir(), *(CORPUS / name).iterdir()]:
        if path.stat().st_size <= KEPT_BYTES:
            (small / path.name).write_bytes(path.read_bytes())
    libfuzzer(name, "-merge=1", str(chosen), str(small))
    kept = sorted(chosen.iterdir(), key=lambda path: path.stat().st_size)[:KEPT_FILES]
    for path in kept:
        (CORPUS / name / path.name[:12]).write_bytes(path.read_bytes())
    return len(kept)


def main(arguments: list[str]) -> int:
    keeping = "--keep" in arguments
    words = [word for word in arguments if word != "--keep"]
    minutes = float(words[0]) if words else 5.0
    names = words[1:] or list(READERS)
    honest = seeds()
    figures = []
    for name in names:
        figures.append(fuzz(name, minutes * 60 / len(names), honest[name]))
        print(figures[-1], flush=True)
        if keeping:
            print(f"{name}: {keep(name)} inputs kept", flush=True)
    total = {"when": time.strftime("%Y-%m-%d", time.gmtime()), "cpu_minutes": round(sum(row["cpu_s"] for row in figures) / 60, 1)}
    (BUILD / "figures.json").write_text(json.dumps({**total, "readers": figures}, indent=1) + "\n")
    print(total)
    return int(any(row["found"] for row in figures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
