"""A runner that is not fit leaves a record like a run's, and what is published fits where it goes."""

import dataclasses
import json
import re
import threading
from contextlib import contextmanager
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from synthetic import case, compiled, run, two_targets

from warpwave.__main__ import _run_cli
from warpwave.ci import forks, job
from warpwave.ci.forks import is_fork, is_hosted
from warpwave.ci.job import COMMENT_BYTES, MARKER, annotate, command, cut, outputs
from warpwave.compare import compare
from warpwave.doctor import Finding
from warpwave.errors import InfrastructureError
from warpwave.records import Stage, StageReport, Verdict

TARGET = SimpleNamespace(name="cuda", label="NVIDIA CUDA")
FAULTS = [
    Finding("cuda: driver", "fail", "no driver", "Install it."),
    Finding("cuda: probe", "fail", "exit code 9", ""),
    Finding("cuda: toolkit", "fail", "missing", "Install it."),
]


def test_a_machine_that_is_not_fit_is_on_record(tmp_path):
    """Infrastructure, with every fault and each fix once; the commit is that of the kernels, the time is now in UTC."""
    (tmp_path / "ops").mkdir()
    made = job.put_on_record(TARGET, FAULTS, tmp_path / "ops", tmp_path / "out", "2/4", ("warpwave", "run", "cuda"))
    told = json.loads((tmp_path / "out" / "raw" / "cuda" / "run.json").read_text())
    age = datetime.now(timezone.utc) - datetime.fromisoformat(made.started)

    assert (made.target, made.label, made.verdict, made.seconds) == ("cuda", "NVIDIA CUDA", Verdict.INFRA, 0.0)
    assert made.reason == "cuda: driver: no driver; cuda: probe: exit code 9; cuda: toolkit: missing"
    assert made.hint == "Install it."
    assert (made.shard, made.kernels, made.command, made.commit) == ("2/4", "ops", ("warpwave", "run", "cuda"), "")
    assert 0 <= age.total_seconds() < 60
    assert (told["run_id"], told["verdict"]) == (made.run_id, "infra")
    assert made.run_id


def test_each_record_is_a_run_of_its_own_and_replaces_none(tmp_path):
    """Another run's results are not overwritten; without a shard there is none."""
    first, second = (job.put_on_record(TARGET, FAULTS, tmp_path, tmp_path / str(n)) for n in range(2))

    assert first.run_id != second.run_id
    assert (first.shard, first.command) == ("", ())
    with pytest.raises(FileExistsError):
        job.put_on_record(TARGET, FAULTS, tmp_path, tmp_path / "0")


def test_leftovers_are_named(monkeypatch):
    asked = []
    answers = [["container a", "container b"], [], InfrastructureError("no engine", "It is off.", "Start it.")]

    def clean(dry_run):
        asked.append(dry_run)
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr("warpwave.engines.choose.clean", clean)
    said = [job.end_leftovers() for _ in range(3)]

    assert asked == [False] * 3
    assert "container a, container b" in said[0]
    assert "container" in said[1]
    assert "no engine" in said[2]


def test_numbers_are_exported_for_each_tool_where_there_are_any(tmp_path):
    found = job.export(compare(two_targets()), tmp_path)

    assert sorted(path.name for path in found) == sorted(path.name for path in tmp_path.iterdir())
    assert "openmetrics.txt" in {path.name for path in found}
    assert all(path.suffix == ".json" for path in found if path.name != "openmetrics.txt")
    assert not any(path.stem == "csv" for path in found)
    assert all(path.stat().st_size for path in found)
    assert job.export(compare([run(samples=())]), tmp_path / "none") == []


def test_a_summary_and_a_comment_fit(tmp_path):
    """Each may have half; what is left of it goes to the other."""
    comparison = compare(two_targets())
    whole = job.summary(comparison, "", 1 << 20)
    long = "".join(f"change {n}\n" for n in range(10_000))
    both = job.summary(comparison, long, 4000)

    assert job.summary(comparison, "\nwhat changed\n", 1 << 20) == whole + "\nwhat changed\n"
    assert len(both.encode()) <= 4000
    assert both.startswith(whole[:40])
    assert job.summary(comparison, long, 1 << 16).rstrip().endswith(f"{job._IN_ARTIFACT}_")
    assert 1000 < both.encode().index(b"change 0\n") <= 2100
    assert len(job.summary(comparison, "", 1000).encode()) <= 1000

    # By its marker, in its first line; GitHub refuses one that is a byte too long.
    short = job.comment(compare(two_targets()), "\nwhat changed\n")
    cases = tuple(case(f"k.py::test_{n}", Verdict.FAILED, message="x" * 500) for n in range(500))
    long = job.comment(compare([run(cases=cases)]), "".join(f"change {n}\n" for n in range(10_000)))

    assert short.startswith(MARKER + "\n")
    assert short.endswith("\nwhat changed\n")
    assert long.startswith(MARKER + "\n")
    assert COMMENT_BYTES * 0.4 < len(long.encode()) <= COMMENT_BYTES


def test_no_leg_that_brought_anything_is_a_report_of_absent_targets(tmp_path):
    """Of whatever was expected, in the files of any report."""
    comparison = job.merge([tmp_path / "none"], tmp_path / "out", ["alpha", "beta"])

    assert [(target.target, target.verdict) for target in comparison.targets] == [("alpha", Verdict.ABSENT), ("beta", Verdict.ABSENT)]
    assert (tmp_path / "out" / "comparison.json").is_file()


@pytest.mark.parametrize(("extra", "whole"), [(0, True), (-1, False)])
def test_a_text_is_cut_only_where_it_does_not_fit(extra, whole):
    """A text of exactly as many bytes does; what is cut ends with a line, and all of it is within the limit."""
    text = "".join(f"{n:09}\n" for n in range(20))
    short = cut(text, len(text) + extra, "There.")

    assert (short == text) == whole
    assert len(short) <= len(text) + extra
    if not whole:
        kept, note = short.split("\n\n", 1)
        assert text.startswith(kept + "\n") or text.startswith(kept)
        assert len(kept) > len(text) - len(note) - 15
        assert note.endswith("There._\n")


def test_a_command_leaves_out_what_is_empty():
    """Values are percent-encoded: a colon or a comma would end a property. A line break, which would end the command, is shown as text."""
    assert command("error", "a\nb%") == "::error::a\\nb%25"
    assert command("warning", "said", title="a: b, c%", file="") == "::warning title=a%3A b%2C c%25::said"
    assert command("notice", "said", title="x", line="3") == "::notice title=x,line=3::said"
    assert outputs({"a": "1\n2", "b": ""}, "EOF") == "a<<EOF\n1\n2\nEOF\nb<<EOF\n\nEOF\n"


def test_annotations_come_in_the_order_of_their_weight():
    """The verdict, targets that are not complete, tests, what got worse, files that cannot be read; each says what it is about."""
    tests = (case("k.py::test_a", Verdict.FAILED, message="first\nsecond"), case("k.py::test_b", Verdict.FAILED), case("k.py::test_c"))
    broken = dataclasses.replace(
        run(cases=tests),
        stages=(StageReport(Stage.TEST, Verdict.CRASHED, reason="it died", hint="Look."),),
        problems=("bench/samples.jsonl: invalid: x",),
    )
    comparison = compare([broken], ["alpha", "beta"])
    lines = list(annotate(comparison, ["::warning::slower"]))

    assert lines[0] == command("error", comparison.sentence, title="warpwave")
    assert [line.split("::")[1] for line in lines[1:]] == [
        *("error title=alpha%3A crashed", "error title=beta%3A absent", "error title=k.py%3A%3Atest_a on alpha"),
        *("error title=k.py%3A%3Atest_b on alpha", "warning", "warning title=invalid"),
    ]
    assert lines[3].endswith("::first")
    assert lines[4].endswith("::failed")
    assert lines[1].endswith("::test: it died Look.")
    assert lines[2].endswith("raw/beta.")
    assert lines[6].endswith("::alpha: bench/samples.jsonl: invalid: x")


def test_what_fails_is_shown_at_its_line():
    """The kernel's line, if the message names it; else that of the test. A path that several files have, or none, has no place."""
    tests = (
        case("test_a.py::test_kernel", Verdict.FAILED, message="out-of-bounds in double at rows.py:9", detail="test_a.py:30: in x"),
        case(
            "test_a.py::test_plain", Verdict.FAILED, message="1 != 2", detail="/work/ops/test_a.py:12: in y\ntest_a.py:14: AssertionError"
        ),
        case("test_b.py::test_twice", Verdict.FAILED, message="1 != 2", detail="test_b.py:3: AssertionError"),
    )
    kernels = [
        compiled(name, verdict=Verdict.FAILED, reason="too much", source="rows.py:7", card=card) for name, card in (("a", "A1"), ("b", ""))
    ]
    comparison = compare([run(cases=tests, compiled=tuple(kernels))])
    lines = list(annotate(comparison, files=["ops/rows.py", "ops/test_a.py", "ops/test_b.py", "more/test_b.py"]))

    assert [re.sub("^.*?::error title=", "", line).split("::")[0].partition(",")[2] for line in lines[1:]] == [
        *("file=ops/rows.py,line=9", "file=ops/test_a.py,line=14", "", "file=ops/rows.py,line=7")
    ]
    assert lines[-1].endswith("::a (A1), b: too much")


@pytest.mark.parametrize(("count", "shown"), [(8, 8), (9, 9), (10, 8), (30, 8)])
def test_a_runner_shows_ten_annotations_and_the_last_counts_the_rest(count, shown):
    """The verdict is one of them; none is left out where all fit."""
    since = [f"::warning::{n}" for n in range(count)]
    failed = compare([run(cases=(case(verdict=Verdict.FAILED),))])
    passed = compare([run()])
    lines, quiet = list(annotate(failed, since[1:])), list(annotate(passed, since))

    assert len(lines) == 1 + (count if shown == count else 9)
    assert quiet[:shown] == since[:shown]
    assert len(quiet) == (count if shown == count else 9)
    if shown < count:
        assert f"{count - shown} more" in quiet[-1]


# A fork's pull request and self-hosted runners: the plan is refused unless GitHub says that somebody is asked first.

SELF_HOSTED, HOSTED = '{"cuda": ["self-hosted", "h200"], "cpu": "ubuntu-24.04"}', '{"cpu": "ubuntu-24.04"}'
FORK = {"pull_request": {"head": {"repo": {"full_name": "stranger/kernels"}}}}
REVIEWERS = {"type": "required_reviewers", "reviewers": [{"type": "User", "reviewer": {"login": "a"}}, {"type": "Team", "reviewer": {}}]}
GUARDED = {"name": "gpu-forks", "protection_rules": [{"type": "wait_timer", "wait_timer": 30}, REVIEWERS]}


@pytest.fixture
def github():
    @contextmanager
    def serve(status, body, headers=()):
        asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append((self.path, self.headers["Authorization"]))
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

            def log_message(self, *arguments):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    return serve


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """`warpwave ci plan` in a job; returns its exit code, what it printed and what it handed on."""

    def plan(api, event=FORK, runners=SELF_HOSTED, environment="gpu-forks", token="secret-token"):
        (tmp_path / "event.json").write_text(event if isinstance(event, str) else json.dumps(event))
        variables = {"GITHUB_API_URL": api, "GITHUB_REPOSITORY": "owner/kernels", "GITHUB_TOKEN": token, "RUNNERS": runners}
        variables |= {"GITHUB_EVENT_PATH": str(tmp_path / "event.json"), "FORK_ENVIRONMENT": environment, "no_proxy": "*"}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        output = tmp_path / "output"
        output.unlink(missing_ok=True)
        with CliRunner().isolation() as (out, err, *_):
            code = _run_cli(["ci", "plan", "--output", str(output)])
            told = out.getvalue().decode() + err.getvalue().decode()
        assert "secret-token" not in told
        return code, told, output.read_text() if output.exists() else ""

    return plan


def test_an_environment_with_reviewers_lets_the_plan_through(github, plan):
    """It is asked for by its whole name, with the token."""
    with github(200, GUARDED) as (api, asked):
        code, told, output = plan(api, environment="gpu/for ks")

    assert code == 0
    assert "needs the approval of one of 2 reviewers" in told
    assert "matrix<<" in output
    assert asked == [("/repos/owner/kernels/environments/gpu%2Ffor%20ks", "Bearer secret-token")]


@pytest.mark.parametrize(
    "answer",
    [
        {"protection_rules": []},
        {"protection_rules": [{"type": "wait_timer", "wait_timer": 30}]},
        {"protection_rules": [{"type": "required_reviewers", "reviewers": []}]},
        {"protection_rules": [{"type": "required_reviewers", "reviewers": 7}, 5, None]},
        {"protection_rules": None},
        {},
        [],
    ],
    ids=str,
)
def test_an_environment_that_asks_nobody_is_refused(github, plan, answer):
    with github(200, answer) as (api, _):
        code, told, output = plan(api)

    assert (code, output) == (2, "")
    assert "requires no reviewers" in told
    assert "Add required reviewers" in told


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (404, 2, "There is no environment 'gpu-forks' in owner/kernels"),
        (403, 2, "actions: read"),
        (401, 2, "actions: read"),
        (500, 3, "GitHub answers 500"),
        (301, 3, "GitHub answers 301"),
    ],
)
def test_an_answer_that_is_none_is_refused(github, plan, status, code, words):
    """In three beats, and without following a redirect, which would take the token elsewhere."""
    with github(status, {"message": "::error::planted"}, [("Location", "http://127.0.0.1:9/")]) as (api, asked):
        found, told, output = plan(api)

    assert (found, output) == (code, "")
    assert words in told
    assert "planted" not in told
    assert len(asked) == 1


def test_a_github_that_does_not_answer_is_infrastructure(github, plan, monkeypatch):
    monkeypatch.setattr(forks, "_LIMIT_S", 0.5)
    with github(200, b"<html>") as (api, _):
        answers = [plan(api), plan("http://127.0.0.1:9"), plan("http://[::")]

    assert [(code, output) for code, _, output in answers] == [(3, "")] * 3
    assert all("requires reviewers" in told for _, told, _ in answers)


@pytest.mark.parametrize("changes", [{"token": ""}, {"event": "{"}, {"event": "[]"}, {"api": "file:///etc/passwd"}], ids=str)
def test_a_step_without_what_it_takes_is_refused(plan, changes):
    """Nothing is assumed of a question that could not be asked."""
    code, _, output = plan(**{"api": "http://127.0.0.1:9", **changes})

    assert (code, output) == (2, "")


@pytest.mark.parametrize(
    "changes",
    [
        {"event": {}},
        {"event": {"pull_request": {"head": {"repo": {"full_name": "owner/kernels"}}}}},
        {"runners": HOSTED},
        {"environment": ""},
    ],
    ids=["push", "branch", "hosted", "skipped"],
)
def test_nothing_is_asked_where_nobody_strange_meets_a_runner(plan, changes):
    """A push, a branch of the repository, GitHub's own machines, or jobs that are skipped: GitHub need not answer."""
    code, _, output = plan(**{"api": "http://127.0.0.1:9", **changes})

    assert code == 0
    assert "matrix<<" in output


@pytest.mark.parametrize(
    "event",
    [
        {"pull_request": {"head": {"repo": None}}},
        {"pull_request": {"head": {"repo": {}}}},
        {"pull_request": {"head": {}}},
        {"pull_request": {"x": 1}},
        {"pull_request": [1]},
        FORK,
    ],
    ids=str,
)
def test_what_is_not_known_to_be_a_branch_is_a_fork(event):
    """Of a fork that was deleted there is no repository to name."""
    assert is_fork(event, "owner/kernels")
    assert is_fork({"pull_request": {"head": {"repo": {"full_name": ""}}}}, "")


def test_any_label_of_ones_own_is_a_machine_of_ones_own():
    """`self-hosted` need not be among them: a scale set has one name, and a runner is found by any of its labels."""
    assert [is_hosted(labels) for labels in (["ubuntu-24.04"], ["macos-15"], ["windows-latest"])] == [True] * 3
    assert not any(is_hosted(labels) for labels in (["self-hosted", "h200"], ["nvidia-h200"], ["ubuntu-24.04", "h200"], ["ubuntu"], []))


# What a workflow's last job writes from the comparison. All data is made up.
