"""Every job's scripts, run here in their order: what is committed runs, and a leg that is missing, failed or dead still is in the report.

GitHub itself, pip, nox and the cards are stubs; the commands of warpwave are the real ones, and what the GPU legs bring is made up or
recorded.
"""

import hashlib
import json
import shutil

import command
import pytest
from runner import ACTION, REAL, RECORDED, WORKFLOWS, comparison, gpu
from synthetic import GPU_B, case, edit, facts, record, run, sample, write_raw

from warpwave.records import Stage, StageReport, Verdict


def test_two_legs_make_one_report(runner, real_card, tmp_path):
    """One brought everything; the other's machine has no card, which its doctor puts on record with what mends it."""
    ran = gpu(runner, {"cuda": real_card, "rocm": f'exec {REAL} "$@"'})
    targets = {target["target"]: target for target in comparison(ran, tmp_path)["targets"]}

    assert ran["cuda"]["status"] == "success", ran["cuda"]["log"]
    assert (ran["rocm"]["status"], ran["rocm"]["statuses"]["Run"]) == ("failure", 3)
    assert {name: target["verdict"] for name, target in targets.items()} == {"cuda": "passed", "rocm": "infra"}
    assert "/dev/kfd" in targets["rocm"]["reason"]
    assert "usermod -aG render,video" in targets["rocm"]["hint"]
    assert ran["report"]["statuses"]["Report"] == 3
    assert "could not run" in ran["report"]["summary"].splitlines()[0]
    assert "::error title=rocm%3A infra::" in ran["report"]["log"]


def test_a_leg_that_never_came_is_absent(runner, card, tmp_path):
    """Its runner was off, or the job was cancelled: a row, a reason, and no green tick."""
    ran = gpu(runner, {"cuda": card, "rocm": None})

    assert {target["target"]: target["verdict"] for target in comparison(ran, tmp_path)["targets"]} == {"cuda": "passed", "rocm": "absent"}
    assert ran["report"]["statuses"]["Report"] == 4
    assert {path.name for path in (tmp_path / "artifacts").iterdir()} == {"raw-cuda-1", "report-1"}


def test_no_leg_at_all_is_a_report_too(runner, tmp_path):
    """Nothing was uploaded, not even a folder to look into."""
    ran = gpu(runner, {"cuda": None, "rocm": None})

    assert [target["verdict"] for target in comparison(ran, tmp_path)["targets"]] == ["absent", "absent"]
    assert ran["report"]["statuses"]["Report"] == 4


@pytest.fixture
def compiled(tmp_path):
    left = tmp_path / "compiled" / "cpu"
    write_raw(left, run(record=record("cpu"), cases=(), samples=(), stages=(StageReport(Stage.COMPILE, Verdict.PASSED, 4.0),)))
    (left / "compile" / "triton-cache").mkdir(parents=True)
    (left / "compile" / "triton-cache" / "manifest.json").write_text('{"files": {}}')
    return left


# Says in a file what the job with a card starts with, then brings its results.
STARTS = 'echo "$COMPILED_HASH" $(cd "$RUNNER_TEMP/compiled" && find . -name manifest.json) >started'


def test_a_card_starts_with_what_was_compiled_without_one(runner, card, compiled, tmp_path):
    """The artifact is there and its hash comes with the plan, before the job runs; both jobs are in the report."""
    ran = gpu(runner, {"cuda": f'[ "$2" != leg ] || {STARTS}{card}'}, compiled=compiled)
    manifest = compiled / "compile" / "triton-cache" / "manifest.json"
    digest = hashlib.sha256(manifest.read_bytes()).hexdigest()

    assert (tmp_path / "compile" / "work" / "asked").read_text() == "sm_80,sm_90,sm_100\n"
    assert (tmp_path / "cuda" / "work" / "started").read_text() == f"{digest} ./raw/cpu/compile/triton-cache/manifest.json\n"
    assert ran["cuda"]["status"] == "success", ran["cuda"]["log"]
    assert not (tmp_path / "cuda" / "_temp" / "compiled").exists()
    assert {target["target"]: target["verdict"] for target in comparison(ran, tmp_path)["targets"]} == {"cuda": "passed", "cpu": "passed"}


def test_without_a_compiled_kernel_the_cards_job_compiles_for_itself(runner, card, compiled, tmp_path):
    """The job without a card left none, so there is no hash, and nothing is fetched."""
    shutil.rmtree(compiled / "compile" / "triton-cache")
    ran = gpu(runner, {"cuda": card}, compiled=compiled)

    assert "Fetch what was compiled" not in ran["cuda"]["statuses"]
    assert ran["cuda"]["status"] == "success", ran["cuda"]["log"]


def test_the_jobs_of_cards_wait_for_the_compiler_and_run_without_it():
    """The order of the workflow: a card is taken after the compilation, also after one that failed."""
    jobs = WORKFLOWS["gpu.yml"]["jobs"]

    assert "compile" in jobs["leg"]["needs"]
    assert jobs["leg"]["if"].startswith("${{ !cancelled() && needs.plan.result == 'success' && ")
    assert jobs["compile"]["runs-on"] == "ubuntu-24.04"
    steps = [step.get("name") for step in jobs["leg"]["steps"]]
    assert steps.index("Fetch what was compiled") < steps.index("Run")


# Finds the folder of a leg's results; whatever else is asked of warpwave on that machine, it does nothing.
OUT = 'while [ "$1" != --out ] && [ $# -gt 0 ]; do shift; done; [ $# = 0 ] && exit 0; mkdir -p "$2/raw"'


def test_a_leg_that_dies_keeps_what_it_has(runner, green, tmp_path):
    """The upload and the cleaning come after a failure, too."""
    dying = f'{OUT}; cp -r {green} "$2/raw"; exit 137'
    ran = gpu(runner, {"cuda": dying})

    assert (ran["cuda"]["status"], ran["cuda"]["statuses"]["Run"]) == ("failure", 137)
    assert ran["cuda"]["statuses"]["Remove what is left of our containers"] == 0
    assert not (tmp_path / "cuda" / "_temp" / "bundle").exists()
    assert comparison(ran, tmp_path)["targets"][0]["verdict"] == "passed"


def base_of(folder):
    """A `gh` that brings the results in `folder` as the base branch's last."""
    fetch = f'[ "$3 $4" = "41 --dir" ] && mkdir -p "$5" && cp -r {folder} "$5/raw-cpu-1"'
    return f'case "$1 $2" in "run list") echo 41;; "run download") {fetch};; *) exit 1;; esac'


def seal(folder, name):
    stages = json.loads((folder / "stages.json").read_text())
    next(entry for entry in stages["reports"] if name in entry["files"])["files"][name] = sha256(folder / name)
    edit(folder / "stages.json", reports=stages["reports"])
    edit(folder / "run.json", stages_hash=sha256(folder / "stages.json"))


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_base_branch_is_compared_with(runner, tmp_path):
    """A kernel that spills since then fails a run whose tests all pass."""
    before, after = tmp_path / "before" / "raw" / "cpu", tmp_path / "after" / "cpu"
    for folder in (before, after):
        shutil.copytree(RECORDED / "cpu", folder)
    rows = [json.loads(line) for line in (after / "compile" / "kernels.jsonl").read_text().splitlines()]
    spilling = next(row for row in rows if row["verdict"] == "passed" and row.get("spills") == 0)
    spilling["spills"] = 64
    (after / "compile" / "kernels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    seal(after, "compile/kernels.jsonl")
    card = f'{OUT}; cp -r {after} "$2/raw/cpu"'
    ran = gpu(runner, {"cpu": card}, gh=base_of(tmp_path / "before"))

    assert comparison(ran, tmp_path)["exit_code"] == 0
    assert ran["report"]["statuses"]["Report"] == 1, ran["report"]["log"]
    assert spilling["function"] in ran["report"]["summary"]
    assert "spill" in ran["report"]["summary"]


MARKED = "<!-- warpwave: one comment, edited in place -->\nold"
OURS = {"login": "github-actions[bot]", "type": "Bot"}
OTHERS = [
    {"id": 1, "user": {"login": "stranger", "type": "User"}, "body": MARKED},
    {"id": 2, "user": {"login": "github-actions[bot]", "type": "User"}, "body": MARKED},
    {"id": 3, "user": OURS, "body": "another workflow's"},
    {"id": 4, "user": OURS, "body": f"> {MARKED}"},
]


def github(tmp_path, comments):
    """A `gh` that knows one pull request and its comments, and writes down what it is asked."""
    (tmp_path / "comments.json").write_text(json.dumps(comments))
    (tmp_path / "pulls.json").write_text(json.dumps([{"number": 11, "head": {"sha": "of before"}}, {"number": 12, "head": {"sha": "abc"}}]))
    answer = f'case "$*" in *"/pulls "*) file=pulls;; *--paginate*) file=comments;; *) exit 0;; esac; cd {tmp_path}'
    query = 'while [ "$1" != --jq ]; do shift; done; exec jq -r "$2" "$file.json"'
    return f'[ "$1" = run ] || echo "$@" >>{tmp_path}/said; [ "$1" != api ] || {{ {answer}; {query}; }}; {base_of(tmp_path / "before")}'


def two_commits(tmp_path, **head):
    """Made-up results of two commits on one made-up card; returns a `gh` that has the first, and a leg that brings the second."""
    write_raw(tmp_path / "before" / "raw" / "cuda", run(record=record("cuda")))
    write_raw(tmp_path / "after" / "cuda", run(record=record("cuda", run_id="run-2"), **head))
    return base_of(tmp_path / "before"), f'{OUT}; cp -r {tmp_path}/after/cuda "$2/raw/cuda"'


@pytest.mark.skipif(not shutil.which("jq"), reason="gh's own --jq is played by jq")
@pytest.mark.parametrize(
    ("comments", "posted"),
    [
        ([*OTHERS, {"id": 5, "user": OURS, "body": MARKED}], "PATCH repos/owner/kernels/issues/comments/5"),
        (OTHERS, "POST repos/owner/kernels/issues/12/comments"),
    ],
    ids=["edited", "new"],
)
def test_the_comment_is_written_from_data_alone(runner, tmp_path, comments, posted):
    """It finds its pull request by branch and commit, and edits the one comment that it has made, and nobody else's."""
    two_commits(tmp_path, **SLOW)
    shutil.copytree(tmp_path / "after", tmp_path / "artifacts" / "raw-cuda-1" / "raw")
    values = {
        "github.event.workflow_run.id": 7,
        "github.event.workflow_run.head_repository.owner.login": "$(touch owned)",
        "github.event.workflow_run.head_branch": "`touch owned`; x",
        "github.event.workflow_run.head_sha": "abc",
        "github.event.workflow_run.name": "CI",
        "github.event.repository.default_branch": "main",
    }
    values["github.sha"] = "0123"
    ran = runner("comment", values, gh=github(tmp_path, comments)).run(WORKFLOWS["comment.yml"]["jobs"]["comment"]["steps"])
    said = (tmp_path / "said").read_text().splitlines()
    text = (tmp_path / "comment" / "work" / "comment.md").read_text()

    assert ran["status"] == "success", ran["log"]
    assert "head=$(touch owned):`touch owned`; x" in said[0]
    assert "--paginate repos/owner/kernels/issues/12/comments?per_page=100" in said[1]
    assert said[2:] == [f"api --silent --method {posted} -F body=@comment.md"]
    assert text.startswith("<!-- warpwave")
    assert "## Since the base branch" in text
    assert "is slower" in text
    assert 0 < len(text.encode()) <= 65_535
    assert list(tmp_path.rglob("owned")) == []


NOX = f"""
[ "$1" = --no-color ] && [ "$2" = -s ] || exit 2
grep -qx "def $3(session: nox.Session) -> None:" noxfile.py || grep -qx "  $3:" docker/targets.yml || exit 3
[ "$3" != cpu ] || {{ [ "$4 $5" = "-- --out" ] && mkdir -p "$6/raw" && cp -r {RECORDED}/cpu "$6/raw/cpu"; }}"""


@pytest.mark.parametrize("session", WORKFLOWS["ci.yml"]["jobs"]["checks"]["strategy"]["matrix"]["session"])
def test_a_check_is_a_session_that_exists(runner, session):
    """The workflow and the noxfile do not drift apart."""
    ran = runner("checks", {"matrix.session": session}, nox=NOX).run(WORKFLOWS["ci.yml"]["jobs"]["checks"]["steps"])

    assert ran["status"] == "success", ran["log"]


@pytest.mark.parametrize("merged", [True, False])
def test_the_lane_without_a_gpu_ends_with_a_summary_and_an_artifact(merged, runner, tmp_path):
    """Of the kind that the comment and the next comparison read. What was compiled is kept of what is merged only."""
    values = {"hashFiles('docker/targets.yml')": "0123", "hashFiles('kernels/**/*.py')": "4567"}
    values |= {"github.event_name == 'push' && steps.cache.outputs.cache-hit != 'true'": merged}
    values |= {"steps.cache.outputs.cache-primary-key": "triton-0123-4567"}
    ran = runner("cpu", values, nox=NOX).run(WORKFLOWS["ci.yml"]["jobs"]["cpu"]["steps"])

    assert ran["status"] == "success", ran["log"]
    assert ("actions/cache/save" in ran["statuses"]) is merged
    assert ran["summary"].startswith("### ✅")
    for name in ("raw/cpu/run.json", "comparison.html"):
        assert (tmp_path / "artifacts" / "raw-cpu-1" / name).is_file()


RUNS = f'exec {command.shell_words(light=True)} "$@"'


def of_the_action(package, **inputs):
    """The values that its expressions have on a runner without a card, for a push."""
    values = {"target": "cpu", "kernels": str(package), "engine": "local", "known": "", "fail-on": "new", **inputs}
    local = values["engine"] == "local"
    sources = "format('{0}/**/*.py', inputs.kernels), '**/pyproject.toml', '**/requirements*.txt', '**/uv.lock'"
    return {
        **{f"inputs.{name}": value for name, value in values.items()},
        "inputs.engine == 'local'": local,
        "steps.key.outputs.name": "Linux-x86_64-3.12.3-0123",
        f"hashFiles({sources})": "4567",
        "github.event_name == 'push' && inputs.engine == 'local' && steps.cache.outputs.cache-hit != 'true'": local,
        "steps.cache.outputs.cache-primary-key": "warpwave-cpu-Linux-x86_64-3.12.3-0123-4567",
    }


def test_the_action_runs_a_strangers_package(runner, tmp_path):
    """For real: its tests, in Triton's interpreter, on the local engine."""
    pytest.importorskip("triton", reason="the local engine needs torch and triton")
    package = tmp_path / "ops"
    package.mkdir()
    (package / "test_two.py").write_text("def test_two():\n    assert 1 + 1 == 2\n")
    values = of_the_action(package, options="--stage test -k 'two or three'")
    ran = runner("action", values, warpwave=RUNS).run(ACTION["runs"]["steps"])
    record = json.loads((tmp_path / "artifacts" / "raw-cpu-1" / "raw" / "cpu" / "run.json").read_text())

    assert ran["status"] == "success", ran["log"]
    assert "cpu passed 1 test" in ran["summary"]
    assert record["verdict"] == "passed"
    assert {"actions/cache/restore", "actions/cache/save"} <= ran["statuses"].keys()


def test_output_of_the_code_under_test_gives_the_runner_no_orders(runner, tmp_path):
    """Rule 11: neither what a test prints, nor its name, nor its message is at the start of a line as a workflow command."""
    pytest.importorskip("triton", reason="the local engine needs torch and triton")
    package = tmp_path / "ops"
    package.mkdir()
    order = "::add-mask::harness\\n::error::planted"
    mark = f"@pytest.mark.parametrize('x', ['{order}'])"
    body = f"def test_x(x):\n    print('{order}')\n    raise ValueError('{order}')\n"
    (package / "test_bad.py").write_text(f"import pytest\n{mark}\n{body}")
    values = of_the_action(package, options="--stage test")
    ran = runner("action", values, warpwave=RUNS).run(ACTION["runs"]["steps"])
    orders = [line for line in ran["log"].splitlines() if line.lstrip().startswith("::")]

    assert ran["status"] == "failure"
    assert orders
    assert [line for line in orders if not line.startswith("::error title=")] == []


SLOW = {"samples": tuple(sample(n, (3000.0 + n / 8) * (0.8 if n == 2048 else 1)) for n in (1024, 2048, 4096))}


@pytest.mark.parametrize(
    ("more", "status", "level"),
    [({}, 1, "error"), ({"inputs.fail-on": "verdict,spills"}, 0, "warning"), ({"inputs.threshold": "0.5"}, 0, None)],
    ids=["default", "allowed", "threshold"],
)
def test_a_speed_that_fell_decides_as_it_was_asked_to(runner, tmp_path, more, status, level):
    """All tests pass; one point of three takes a quarter longer than in the base branch."""
    gh, card = two_commits(tmp_path, **SLOW)
    ran = gpu(runner, {"cuda": card}, gh, more)["report"]
    told = [line for line in ran["log"].splitlines() if "title=slower" in line]

    assert ran["statuses"]["Report"] == status, ran["log"]
    assert [line.partition(" ")[0] for line in told] == ([f"::{level}"] if level else [])
    assert all("softmax/N=2048 triton on cuda" in line and "0.800 times as fast" in line for line in told)
    assert ("1 of 3 points is slower, 2 same" in ran["summary"]) == (level is not None)


def test_a_speed_of_another_card_is_refused_by_name_and_no_regression(runner, tmp_path):
    """A runner was exchanged: that is said, and the branch is not blamed."""
    gh, card = two_commits(tmp_path, facts=facts(GPU_B), **SLOW)
    ran = gpu(runner, {"cuda": card}, gh)["report"]

    assert ran["statuses"]["Report"] == 0, ran["log"]
    assert "different GPUs on cuda: BASE Synthetic GPU A, HEAD Synthetic GPU B" in ran["summary"]


@pytest.mark.parametrize(("fail_on", "status"), [("spills", 0), ("spills,lost-tests", 1)])
def test_a_test_that_is_gone_is_reported(runner, tmp_path, fail_on, status):
    """One was removed, one is skipped; nothing fails, unless that was asked for."""
    first, second = (case(f"softmax/test_softmax.py::test_softmax[{n}]") for n in (1, 2))
    skipped = case(second.id, Verdict.NOT_RUN, message="no card of this kind")
    gh, card = two_commits(tmp_path, cases=(first, skipped))
    ran = gpu(runner, {"cuda": card}, gh, {"inputs.fail-on": fail_on})["report"]

    assert ran["statuses"]["Report"] == status, ran["log"]
    assert "1 test is skipped now, 1 test is gone." in ran["summary"]
    assert "title=test is gone%3A softmax/test_softmax.py%3A%3Atest_softmax[3] on cuda" in ran["log"]


def test_a_leg_that_was_run_again_makes_the_report_green(runner, card, tmp_path):
    """`Re-run failed jobs`: the first attempt's artifact is still there, and says failed."""
    bad = tmp_path / "artifacts" / "raw-cuda-0"
    write_raw(bad / "raw" / "cuda", run(record=record("cuda", verdict=Verdict.INFRA, reason="a card was lost")))
    ran = gpu(runner, {"cuda": card})

    assert [target["verdict"] for target in comparison(ran, tmp_path)["targets"]] == ["passed"]
    assert ran["report"]["statuses"]["Report"] == 0


def test_a_cancelled_leg_uploads_no_link(runner, tmp_path):
    """What was killed before it could tidy up: links, hard links, pipes, closed files, and names that no artifact can hold."""
    (tmp_path / "secret").write_text("of the host")
    plant = f"""{OUT}; r="$2/raw"; ln -s {tmp_path}/secret "$r/ready"; ln -s {tmp_path} "$r/folder"; ln {tmp_path}/secret "$r/hard"
mkfifo "$r/pipe"; echo kept >"$r/a:b"; echo kept >"$r/closed"; chmod 0 "$r/closed"; kill -KILL $$"""
    dying = f'[ "$1 $2" = "ci leg" ] || exec {REAL} "$@"\n{plant}'
    gpu(runner, {"cuda": dying})
    kept = [path for path in (tmp_path / "artifacts" / "raw-cuda-1").rglob("*") if path.is_file()]

    assert {path.read_text() for path in kept} == {"kept\n"}
    assert len(kept) == 2
    assert not [path for path in kept if ":" in path.name]
    assert (tmp_path / "secret").read_text() == "of the host"
