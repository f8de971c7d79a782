"""A run is killed at a random moment and taken up again: nothing is lost, nothing runs twice, nothing is made up.

Four moments here; `nox -s soak` has fifty, and ten more for the engine alone. Killed are the container, warpwave itself (with a container,
and without), and the engine: also at each call that a run makes to it, before it hears the call and after it has answered.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from docker.errors import APIError
from own_engine import OwnEngine, Tap

from warpwave.collect import collect
from warpwave.records import Verdict

pytestmark = pytest.mark.slow

MOMENTS = int(os.environ.get("WARPWAVE_MOMENTS", "4"))
ENGINE_MOMENTS = int(os.environ.get("WARPWAVE_ENGINE_MOMENTS", "1"))
STEPS = os.environ.get("WARPWAVE_ENGINE_STEPS", "create,start").split(",")
SEED = int(os.environ.get("WARPWAVE_SEED", "20"))
VICTIMS = ("container", "harness", "engine", "harness without container")
STAGES = ("test", "test,compile")
EXITS = {0, 1, 3, 4, 5}
TESTS = """
import time, pytest
@pytest.mark.parametrize("n", range(10))
def test_op(n, record_property):
    record_property("n", n)
    time.sleep(0.2)
    assert n != 7
@pytest.mark.skip(reason="never")
def test_skipped():
    pass
"""
BENCH = """
import torch, triton, triton.language as tl
@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)
@triton.testing.perf_report(triton.testing.Benchmark(x_names=["N"], x_vals=[2**k for k in range(6, 12)], line_arg="provider",
    line_vals=["triton"], line_names=["Triton"], plot_name="op", ylabel="GB/s", args={}))
def benchmark(N, provider):
    x = torch.empty(N, device="cuda"); y = torch.empty_like(x)
    ms = triton.testing.do_bench(lambda: scale[(1,)](x, y, N, BLOCK=N))
    return 8.0 * N / ms
"""
TARGETS = """
schema_version: 1
targets:
  cpu: {interpret: false, stages: [test, compile], architectures: [sm_90]}
"""


class Runs:
    """Starts, kills and resumes runs of one small package."""

    def __init__(self, folder: Path, engine: OwnEngine, wheelhouse: Path, options: list[str]) -> None:
        self.folder, self.engine, self.options = folder, engine, options
        self.seconds: dict[str, float] = {}
        self.package = folder / "package"
        (self.package / "op").mkdir(parents=True)
        (self.package / "op" / "bench_op.py").write_text(BENCH)
        (self.package / "op" / "test_op.py").write_text(TESTS)
        (folder / "targets.yml").write_text(f"{TARGETS}build: {{wheelhouse: '{wheelhouse.resolve()}'}}\n")
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)

    def whole(self, stages: str) -> Path:
        """The folder of an undisturbed run, made when it is first asked for."""
        out = self.folder / f"whole-{stages}"
        if stages not in self.seconds:
            begun = time.monotonic()
            assert self.start(out, "docker", "--stage", stages).wait(600) == 1, (self.folder / f"{out.name}.log").read_text()
            self.seconds[stages] = time.monotonic() - begun
        return out

    def start(self, out: Path, engine: str, *more: str, host: str | None = None) -> subprocess.Popen[str]:
        words = ["--engine", engine, "--kernels", str(self.package), "--targets", str(self.folder / "targets.yml"), *self.options]
        command = [sys.executable, "-m", "warpwave", "run", "cpu", *words, "--out", str(out), *more]
        variables = {**os.environ, "DOCKER_HOST": host or self.engine.host}
        with open(self.folder / f"{out.name}.log", "a") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=variables, text=True, start_new_session=True)

    def report(self, out: Path) -> dict:
        command = [sys.executable, "-m", "warpwave", "report", str(out), "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode in EXITS, done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        told: dict = json.loads(done.stdout)
        return told

    def kill(self, victim: str, run: subprocess.Popen[str]) -> None:
        if victim.startswith("harness"):
            os.kill(run.pid, signal.SIGKILL)
        elif victim == "engine":
            self.engine.kill()
            self.engine.start()
        else:
            client = self.engine.client()
            for container in client.containers.list(filters={"label": "io.warpwave.run"}):
                with contextlib.suppress(APIError):  # it has just ended by itself: nobody is killed this time
                    container.kill("SIGKILL")
            client.close()


def content(out: Path) -> tuple[Counter, Counter]:
    run = collect(out / "raw" / "cpu")
    cases = Counter((case.id, case.verdict.value, case.message, tuple(case.properties.items())) for case in run.cases)
    # Not the binaries' hashes: debug information names the folder, which another engine sees elsewhere.
    kernels = Counter((row.function, row.architecture, str(row.constants), row.registers, row.verdict.value) for row in run.compiled)
    return cases, kernels


def starts(out: Path) -> Counter:
    lines = (out / "raw" / "cpu" / "test" / "journal.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return Counter(event["id"] for event in events if event["event"] in ("finish", "death"))


@pytest.fixture(scope="module")
def runs(engine, built, wheelhouse, tmp_path_factory):
    if os.getuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("needs root and dockerd, to start an engine that can be killed")
    own = OwnEngine()
    own.start()
    try:
        own.take(built[0].image, engine._api)
        if "build" in STEPS:
            own.take(os.environ["WARPWAVE_BASE_IMAGE"], engine._api)
        options = ["--base-image", os.environ["WARPWAVE_BASE_IMAGE"], "--no-report", "--quiet"]
        made = Runs(tmp_path_factory.mktemp("killed"), own, wheelhouse, options)
        yield made
    finally:
        own.stop()


FIGURES: list[dict] = []


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_a_killed_run_is_taken_up_again(runs, moment):
    """Whenever and whoever is killed: the bundle is valid and says why it is incomplete; resumed, it holds what an undisturbed run does."""
    dice = random.Random(SEED * 1000 + moment)
    victim = VICTIMS[moment % len(VICTIMS)]
    engine = "local" if "without" in victim else "docker"
    out = runs.folder / f"run{moment}"
    stages = STAGES[moment // len(VICTIMS) % 2]
    if engine == "local":
        pytest.importorskip("triton", reason="the local engine needs torch and triton; `nox -s soak` installs them")
    runs.whole(stages)
    run = runs.start(out, engine, "--stage", stages)
    while not (out / "raw" / "cpu" / "run.json").exists():
        assert run.poll() is None, (runs.folder / f"run{moment}.log").read_text()
        time.sleep(0.02)
    after = dice.uniform(0.0, 0.8 * runs.seconds[stages])
    try:
        run.wait(after)
    except subprocess.TimeoutExpired:
        runs.kill(victim, run)
    run.wait(300)
    is_completed(runs, out, engine, stages, {"victim": victim, "after_s": round(after, 2)})


@pytest.mark.parametrize("moment", range(ENGINE_MOMENTS))
def test_the_engine_is_killed_at_any_moment(runs, moment):
    dice = random.Random(SEED * 2000 + moment)
    out, stages = runs.folder / f"engine{moment}", STAGES[moment % 2]
    runs.whole(stages)
    run = runs.start(out, "docker", "--stage", stages)
    after = dice.uniform(0.2, runs.seconds[stages])
    try:
        run.wait(after)
    except subprocess.TimeoutExpired:
        runs.kill("engine", run)
    assert run.wait(300) in EXITS
    is_completed(runs, out, "docker", stages, {"victim": "engine", "after_s": round(after, 2)})


CALLS = {
    "prepare": "GET /info",
    "image": "GET /images/",
    "build": "POST /build",
    "create": "POST /containers/create",
    "attach": "POST /containers/[^/]+/attach",
    "start": "POST /containers/[^/]+/start",
    "wait": "GET /containers/[^/]+/json",
    "collect": "DELETE /containers/[0-9a-f]{64}",
}


@pytest.mark.parametrize("heard", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_the_engine_is_killed_at_each_call(runs, step, heard):
    """It dies before it hears a call, or once it has answered it: nothing is believed that was not seen, nothing runs twice."""
    out = runs.folder / f"{step}-{heard}"
    runs.whole("test")

    def die() -> None:
        runs.engine.kill()
        runs.engine.start()

    tap = Tap(runs.engine, CALLS[step], heard, die)
    try:
        more = ["--rebuild"] if step == "build" else []
        run = runs.start(out, "docker", "--stage", "test", *more, host=tap.host)
        assert run.wait(600) in EXITS
    finally:
        tap.stop()
    assert tap.hit, (runs.folder / f"{out.name}.log").read_text()
    is_completed(runs, out, "docker", "test", {"victim": "engine", "step": f"{'after' if heard else 'before'} {step}"})


def is_completed(runs: Runs, out: Path, engine: str, stages: str, figure: dict) -> None:
    """The bundle is valid and says why it is incomplete; resumed, it holds what an undisturbed run does."""
    whole = runs.whole(stages)
    told = runs.report(out)["comparison"]["targets"][0]
    stage = next((report["stage"] for report in told["stages"] if report["verdict"] == "not-run"), "-")
    figure = {**figure, "stages": stages, "verdict": told["verdict"], "reason": told["reason"], "waiting": stage}
    complete = told["verdict"] == Verdict.FAILED.value  # one of the tests does fail
    if not complete:
        assert told["verdict"] in (Verdict.INCOMPLETE.value, Verdict.INFRA.value), told
        assert told["reason"]
        assert told["hint"]
        again = runs.start(out, engine, "--stage", stages, "--resume", str(out))
        assert again.wait(600) == 1, (runs.folder / f"{out.name}.log").read_text()
    FIGURES.append({**figure, "resumed": not complete, "attempts": len(runs.report(out)["comparison"]["targets"][0]["attempts"]) + 1})
    if path := os.environ.get("WARPWAVE_FIGURES"):
        Path(path).write_text(json.dumps(FIGURES, indent=1))

    assert content(out) == content(whole)
    assert set(starts(out).values()) == {1}
    assert runs.report(out)["comparison"]["targets"][0]["complete"]
    shutil.rmtree(out)


def test_an_engine_that_is_restarted(runs):
    """Nobody has to do anything: infrastructure, once more in a fresh container of the new engine, and only for what was not finished."""
    out, whole = runs.folder / "restarted", runs.whole("test")
    run = runs.start(out, "docker", "--stage", "test")
    journal = out / "raw" / "cpu" / "test" / "journal.jsonl"
    until = time.monotonic() + 300
    while not (journal.exists() and journal.read_text().count('"finish"') > 2) and time.monotonic() < until:
        time.sleep(0.05)
    runs.engine.kill()
    killed = time.monotonic()
    runs.engine.start()
    code = run.wait(300)
    record = collect(out / "raw" / "cpu").record

    assert code == 1, (runs.folder / "restarted.log").read_text()
    assert time.monotonic() - killed < 240
    assert [attempt.verdict for attempt in record.attempts] == [Verdict.INFRA]
    assert "connection to the engine broke" in record.attempts[0].reason or "engine was restarted" in record.attempts[0].reason
    assert content(out) == content(whole)
    assert set(starts(out).values()) == {1}
