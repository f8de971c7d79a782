"""The workflows keep the rules of a public repository with GPU runners, each by its name; and what they call does what they trust it to."""

import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from synthetic import no_gpu

from warpwave.ci.job import annotate, command, outputs
from warpwave.ci.plan import latest
from warpwave.compare import compare
from warpwave.records import Verdict

ROOT = Path(__file__).parents[3]
FILES = {path.name: path for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}
WORKFLOWS = {name: yaml.safe_load(path.read_text()) for name, path in FILES.items()}
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
JOBS = {f"{name}: {job}": body for name, workflow in WORKFLOWS.items() for job, body in workflow["jobs"].items()}
STEPS = [(name, step) for name, job in JOBS.items() for step in job.get("steps", [])] + [("action.yml", s) for s in ACTION["runs"]["steps"]]
LEG = WORKFLOWS["gpu.yml"]["jobs"]["leg"]


def uses(action):
    return [(name, step) for name, step in STEPS if step.get("uses", "").startswith(f"{action}@")]


def value_of(expression, event, inputs):
    """What GitHub makes of an expression with `!`, `&&`, `||`, `==` and `!=` in it; whatever is not there is null, and so false."""

    def look_up(found):
        planned = {"plan": {"result": "success", "outputs": {"compile": "sm_90"}}}
        value = {"github": {"event": event, "repository": "owner/kernels"}, "inputs": inputs, "needs": planned}
        for key in found[0].split("."):
            value = value.get(key) if isinstance(value, dict) else None
        return repr(value)

    words = re.sub(r"(?<!')\b(?:github|inputs|needs)(?:\.[\w-]+)+", look_up, expression.removeprefix("${{").removesuffix("}}").strip())
    return eval(re.sub(r"!(?!=)", " not ", words).replace("&&", " and ").replace("||", " or "), {"cancelled": lambda: False})


EVENTS = {
    "a push": ({}, True, "gpu"),
    "a branch of this repository": ({"head": {"repo": {"full_name": "owner/kernels", "fork": False}}}, True, "gpu"),
    "a fork": ({"head": {"repo": {"full_name": "stranger/kernels", "fork": True}}}, False, "gpu-forks"),
    "a fork that was deleted": ({"head": {"repo": None}}, False, "gpu-forks"),
}


@pytest.mark.parametrize("name", EVENTS)
def test_gpu_jobs_of_a_fork_are_sent_to_its_environment(name):
    """Rule 1: without an environment for forks they are skipped."""
    pull_request, ours, environment = EVENTS[name]
    event = {"pull_request": pull_request} if pull_request else {}
    without, guarded = ({"environment": "gpu", "fork-environment": named} for named in ("", "gpu-forks"))

    for job in (LEG, WORKFLOWS["gpu.yml"]["jobs"]["compile"]):
        assert value_of(job["if"], event, without) is ours
        assert value_of(job["if"], event, guarded) is True
    assert value_of(LEG["environment"], event, guarded) == environment
    assert WORKFLOWS["ci.yml"]["jobs"]["gpu"]["with"]["fork-environment"] == "gpu-forks"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_no_trigger_runs_a_pull_request_with_our_rights(name):
    """Rule 3. (`on` is what YAML 1.1 takes for true.)"""
    assert set(WORKFLOWS[name][True]) <= {"push", "pull_request", "workflow_call", "workflow_dispatch", "workflow_run", "schedule"}

    # Rule 5.
    assert WORKFLOWS[name]["permissions"] == {}
    assert all("permissions" in job for job in WORKFLOWS[name]["jobs"].values())


def test_the_job_that_may_write_has_no_code_of_the_pull_request():
    """Rule 4: it checks out its own branch and takes nothing but data from the other run."""
    writers = {name for name, job in JOBS.items() if "write" in str(job["permissions"])}
    checkouts = [step["with"] for name, step in uses("actions/checkout") if name == "comment.yml: comment"]

    assert writers == {"comment.yml: comment", "release.yml: publish"}
    assert [name for name, _ in uses("actions/checkout") if name == "release.yml: publish"] == []  # and runs on a tag only
    assert checkouts == [{"persist-credentials": False, "ref": "${{ github.sha }}"}]
    assert {text for _, step in STEPS for text in re.findall(r"allow-unsafe-pr-checkout", str(step))} == set()


def test_every_action_is_pinned_to_a_commit_and_says_its_version():
    """Rule 6: one commit for each version, and one version for each action."""
    lines = [
        line
        for path in (*FILES.values(), ROOT / "action.yml")
        for line in path.read_text().splitlines()
        if "uses: " in line and "./" not in line
    ]
    pins = {match.groups() for line in lines if (match := re.search(r"uses: (actions/[\w/-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)$", line))}

    assert len([line for line in lines if re.search(r"@[0-9a-f]{40} # v", line)]) == len(lines) > 0
    assert len(pins) == len({action for action, _, _ in pins})


def test_nothing_is_left_for_code_of_a_pull_request():
    """Rule 7."""
    assert [name for name, step in uses("actions/checkout") if step.get("with", {}).get("persist-credentials") is not False] == []

    # Rule 8: what a stranger chooses, a branch's name for one, reaches a script as a variable.
    assert [step["run"] for _, step in STEPS if "${{" in step.get("run", "")] == []

    # Rule 2: a hosted runner by its name, or the labels that the plan has checked.
    assert {job.get("runs-on", job.get("uses")) for job in JOBS.values()} == {
        "ubuntu-24.04",
        "${{ matrix.runner }}",
        "./.github/workflows/gpu.yml",
    }


def test_gpu_jobs_have_no_secret_and_no_shared_cache():
    """Rule 9: not the token either, and no cache anywhere that a pull request could write."""
    text = yaml.safe_dump(LEG)

    assert [word for word in ("secrets.", "github.token", "GH_TOKEN", "id-token") if word in text] == []
    assert not any("actions/cache@" in path.read_text() or "secrets." in path.read_text() for path in FILES.values())
    assert "actions/cache" not in text
    for _, step in uses("actions/cache/save"):
        assert step["if"].startswith("${{ github.event_name == 'push' && ")


def test_scripts_write_no_variable_for_later_steps():
    """Rule 12: outputs go through `warpwave ci plan`, with a delimiter that nobody can guess."""
    assert [step["run"] for _, step in STEPS if re.search("GITHUB_(ENV|PATH)", step.get("run", ""))] == []
    assert [step["run"] for _, step in STEPS if "GITHUB_OUTPUT" in step.get("run", "")] == [
        'warpwave ci plan --output "$GITHUB_OUTPUT"',
        'exec "$RUNNER_TEMP/warpwave/bin/warpwave" ci compiled "$RUNNER_TEMP/bundle" --output "$GITHUB_OUTPUT"',
        next(step["run"] for step in ACTION["runs"]["steps"] if step.get("id") == "key"),  # of the machine and of the action's own files
    ]
    assert outputs({"a": "x\nb<<EOF"}, "7f3a") == "a<<7f3a\nx\nb<<EOF\n7f3a\n"


def test_every_job_has_an_end_and_every_workflow_one_run_a_branch():
    """Rule 13. A job that calls a workflow has its limits there."""
    assert [name for name, job in JOBS.items() if "uses" not in job and not 0 < job.get("timeout-minutes", 0) <= 180] == []
    assert all("group" in workflow["concurrency"] for workflow in WORKFLOWS.values())
    assert next(step for step in LEG["steps"] if step.get("name") == "Run")["timeout-minutes"] < LEG["timeout-minutes"]


@pytest.mark.parametrize("steps", [LEG["steps"], ACTION["runs"]["steps"]], ids=["leg", "action"])
def test_results_are_kept_and_containers_removed_whatever_happens(steps):
    """Ours only, by their labels; and a script's last command gets the signals that the runner sends."""
    always = [step for step in steps if step.get("if", "").startswith("${{ always() ")]

    assert any("upload-artifact" in step.get("uses", "") for step in always)
    assert "clean --yes" in always[-1]["run"]
    assert all(step["run"].strip().splitlines()[-1].startswith("exec ") for step in steps if step.get("name") in ("Run", "Report"))


UPLOADING = {name: job["steps"] for name, job in JOBS.items() if any("upload-artifact" in str(step) for step in job.get("steps", []))}
UPLOADING |= {"action.yml": ACTION["runs"]["steps"]}
UPLOADING |= {"starter": yaml.safe_load((ROOT / "starter/.github/workflows/kernels.yml").read_text())["jobs"]["cpu"]["steps"]}


@pytest.mark.parametrize("name", UPLOADING)
def test_nothing_is_uploaded_with_links_in_it(name):
    """Where the code under test ran, its folder is tidied first, also in a job that was cancelled; if that fails nothing is uploaded."""
    steps = UPLOADING[name]
    upload = next(step for step in steps if "upload-artifact" in step.get("uses", ""))
    if name == "release.yml: build":  # of this repository's own tag
        assert upload["with"]["path"] == "dist"
        return
    if name == "gpu.yml: report":  # it runs nothing of a package, and uploads what it has written itself
        assert upload["with"]["path"] == "report"
        return
    tidy = next(step for step in steps if step.get("id") == "tidy")

    assert tidy["if"] == "${{ always() }}"
    assert "ci tidy" in tidy["run"]
    assert tidy["run"].split()[-1].strip('"').replace("$RUNNER_TEMP", "${{ runner.temp }}") == upload["with"]["path"]
    assert upload["if"].endswith("&& steps.tidy.outcome == 'success' }}")
    assert next(at for at, step in enumerate(steps) if "ci leg" in str(step) or "exec nox" in str(step)) < steps.index(tidy)
    assert steps.index(tidy) < steps.index(upload)


@pytest.mark.parametrize("name", EVENTS)
def test_a_fork_is_planned_by_the_base_branch(name):
    """What asks about the environment is not the pull request's own copy."""
    event = {"pull_request": {**EVENTS[name][0], "base": {"sha": "base"}}} if EVENTS[name][0] else {}
    expression = next(step for step in WORKFLOWS["gpu.yml"]["jobs"]["plan"]["steps"] if "checkout" in step.get("uses", ""))["with"]["ref"]

    assert value_of(expression.replace("github.sha", "'head'"), event, {}) == ("base" if "fork" in name else "head")


def test_the_job_that_may_write_installs_by_hash():
    """All that warpwave needs is in the lock, so that nothing is resolved beside a token that may write."""
    script = next(step["run"] for name, step in STEPS if name == "comment.yml: comment" and step.get("name") == "Install")
    (lock,) = re.findall(r"-r (\S+)", script)
    locked = set(re.findall(r"^([a-z0-9._-]+)==", (ROOT / lock).read_text(), re.MULTILINE))
    needed = re.findall(
        r'^    "([a-z]+)[><=]+[\d.]+",$', (ROOT / "pyproject.toml").read_text().partition("[project.optional")[0], re.MULTILINE
    )

    assert "--require-hashes" in script
    assert script.count("--no-deps") == 1
    assert {"click", "rich", "pydantic"} <= set(needed) <= locked
    assert "hatchling" in locked


@pytest.mark.parametrize("page", ["README.md", "docs/guides/ci.md"])
def test_what_the_pages_call_takes_what_they_give_it(page):
    """Every input is known, and none that is required is missing."""
    known = {"gpu.yml": WORKFLOWS["gpu.yml"][True]["workflow_call"]["inputs"], "warpwave": ACTION["inputs"]}
    called = r"uses: OWNER/(?:warpwave/.github/workflows/)?([\w.]+)@COMMIT[^\n]*\n(?: +permissions[^\n]*\n)? +with:(.*?)^```"
    found = re.findall(called, (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)

    assert found
    for name, given in found:
        inputs = set(yaml.safe_load(given))
        assert inputs <= set(known[name])
        assert {key for key, entry in known[name].items() if entry.get("required")} <= inputs


def test_an_annotation_cannot_be_broken_out_of():
    """Neither with lines, nor with the signs that end a property, nor with an order in the middle."""
    line = command("error", "100%\r\n::set-output name=x::y", title="a,b:c\n::error::z")

    assert line.count("\n") == 0
    assert re.fullmatch(r"::error title=[^,:]*::[^\n]*", line)
    assert "::set-output" not in line

    # Silence is the good sign.
    first = no_gpu()
    passed = dataclasses.replace(first, compiled=(), stages=tuple(stage for stage in first.stages if stage.verdict is Verdict.PASSED))

    assert list(annotate(compare([passed], ["cpu"]))) == []


def test_a_base_is_never_a_pull_requests_run():
    """A fork may have a branch of the base branch's name, and a run of it brings whatever it likes."""
    fetches = [step["run"] for _, step in STEPS if step.get("name", "").startswith("Fetch the base")]

    assert len(fetches) == 2
    runs = [{"databaseId": n, "event": "pull_request" if n % 2 else "push"} for n in range(20)]
    for script in fetches:
        (chosen,) = re.findall(r"--jq '([^']+)'", script)
        assert """.event == ("push", "schedule", "workflow_dispatch")""" in chosen
        if jq := shutil.which("jq"):
            told = subprocess.run([jq, chosen], input=json.dumps(runs), capture_output=True, text=True, check=True).stdout
            assert told.split() == ["0", "2", "4", "6", "8"]


def test_of_a_leg_that_was_run_again_the_last_attempt_counts(tmp_path):
    """The first one failed; with both in the report it would stay red. A link is not followed, and another folder stays."""
    for name in ("raw-a-1", "raw-a-2", "raw-a-10", "raw-a-1-1", "mine"):
        (tmp_path / name).mkdir()
    (tmp_path / "raw-b-1").symlink_to(tmp_path / "mine")

    assert {path.name for path in latest([tmp_path])} == {"raw-a-10", "raw-a-1-1", "mine"}
    assert latest([tmp_path / "mine", tmp_path / "no"]) == [tmp_path / "mine", tmp_path / "no"]
