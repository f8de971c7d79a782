"""A fork's pull request and self-hosted runners: the plan is refused unless GitHub says that somebody is asked first."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner

from warpwave.__main__ import _run_cli
from warpwave.ci import forks
from warpwave.ci.forks import is_fork, is_hosted

SELF_HOSTED, HOSTED = '{"cuda": ["self-hosted", "h200"], "cpu": "ubuntu-24.04"}', '{"cpu": "ubuntu-24.04"}'
FORK = {"pull_request": {"head": {"repo": {"full_name": "stranger/kernels"}}}}
REVIEWERS = {"type": "required_reviewers", "reviewers": [{"type": "User", "reviewer": {"login": "a"}}, {"type": "Team", "reviewer": {}}]}
GUARDED = {"name": "gpu-forks", "protection_rules": [{"type": "wait_timer", "wait_timer": 30}, REVIEWERS]}


@pytest.fixture
def github():
    """GitHub's API on this machine: what it answers, and what it was asked."""

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
    """Exit code 2, and no matrix that a job could start from."""
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


@pytest.mark.parametrize("status", [301, 401, 403, 404, 500])
def test_every_refusal_has_three_beats(status):
    """What happened, with the environment; what that means; what to do."""
    found = forks._refused(status, "gpu-forks", "owner/kernels")

    assert "'gpu-forks'" in found.happened
    assert "owner/kernels" in found.happened
    assert all(text.endswith(".") for text in (found.happened, found.meaning, found.remedy))


def test_a_github_that_does_not_answer_is_infrastructure(github, plan, monkeypatch):
    """Nobody there, an address that is none, or something else than JSON: no plan, and no traceback."""
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
