"""Check that a pull request from a fork needs approval before it runs on a self-hosted runner. We ask GitHub whether this is so.

If a workflow names an environment that does not exist, GitHub creates it without reviewers and lets the job run. So we refuse a plan for
self-hosted runners unless the environment exists and requires reviewers. This check finds missing settings. It cannot stop a fork that
changes the workflow itself; docs/guides/runners.md says what can.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote

from warpwave.ci.plan import Leg
from warpwave.errors import InfrastructureError, UsageError

_HOSTED = re.compile(r"(ubuntu|windows|macos)-[\w.-]+")
_LIMIT_S = 10.0
_MOST_BYTES = 1 << 20
_MOST_EVENT_BYTES = 32 << 20
_SETTINGS = "Settings → Environments"
_GUIDE = "docs/guides/runners.md lists all settings that a public repository needs."


def check_forks(legs: Sequence[Leg], environment: str, variables: Mapping[str, str]) -> str:
    """Refuse a fork's pull request that would run on a self-hosted runner without approval. Return a sentence on what was found.

    `variables` are the job's: GITHUB_EVENT_PATH, GITHUB_REPOSITORY, GITHUB_API_URL and GITHUB_TOKEN.

    Raises:
        UsageError: the environment is missing or has no reviewers, or this job may not read it.
        InfrastructureError: GitHub does not answer.
    """
    repository = variables.get("GITHUB_REPOSITORY", "")
    own = [leg for leg in legs if not is_hosted(leg.runner)]
    if not own or not is_fork(_event(variables), repository):
        return ""
    if not environment:
        return "a fork's pull request: its jobs are skipped, because no environment for forks is named"
    if not (count := _reviewers(_ask(environment, repository, variables))):
        raise UsageError(
            f"The environment {environment!r} of {repository} requires no reviewers, and {own[0].name} runs on a self-hosted runner.",
            "A pull request from a fork would run there without approval.",
            f"Add required reviewers to it ({_SETTINGS}); private repositories need GitHub Enterprise for that. {_GUIDE}",
        )
    return f"a fork's pull request: it needs the approval of one of {count} reviewers of {environment}"


def is_hosted(labels: Sequence[str]) -> bool:
    """Return whether only GitHub's own machines can run a job with these labels. Any other label may select one of your machines."""
    return len(labels) == 1 and _HOSTED.fullmatch(labels[0]) is not None


def is_fork(event: Mapping[str, Any], repository: str) -> bool:
    """Return whether an event belongs to a pull request from another repository, or from a deleted one."""
    if not (request := event.get("pull_request")):
        return False
    head = request.get("head") if isinstance(request, dict) else None
    source = head.get("repo") if isinstance(head, dict) else None
    return not (isinstance(source, dict) and source.get("full_name") == repository and repository)


def _event(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return GitHub's description of the event; empty outside a job."""
    path = variables.get("GITHUB_EVENT_PATH")
    if not path:
        return {}
    try:
        with Path(path).open("rb") as file:
            event = json.loads(file.read(_MOST_EVENT_BYTES))
        if not isinstance(event, dict):
            raise ValueError("it is not a JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"The event of this job cannot be read from {path}: {error}.",
            "The runner writes this file and names it in GITHUB_EVENT_PATH. Without it, a fork looks like a branch.",
            "Run this in a job of GitHub Actions, or unset GITHUB_EVENT_PATH.",
        ) from None
    return event


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Sends the token only to the host that the runner has named."""

    def redirect_request(self, *arguments: Any) -> None:
        """Follow no redirect."""


def _ask(environment: str, repository: str, variables: Mapping[str, str]) -> Any:
    """Return the environment as `GET /repos/{owner}/{repo}/environments/{name}` describes it."""
    token, api = variables.get("GITHUB_TOKEN", ""), variables.get("GITHUB_API_URL", "https://api.github.com")
    if not token or not repository or not api.startswith(("https://", "http://")):
        raise UsageError(
            f"Cannot ask GitHub whether the environment {environment!r} requires reviewers: GITHUB_TOKEN or GITHUB_REPOSITORY is not set.",
            "The step that makes the plan does not get a token.",
            "Set `GITHUB_TOKEN: ${{ github.token }}` in its `env`, and `actions: read` in the job's permissions.",
        )
    url = f"{api.rstrip('/')}/repos/{quote(repository)}/environments/{quote(environment, safe='')}"
    headers = {"Accept": "application/vnd.github+json", "Authorization": f"Bearer {token}", "User-Agent": "warpwave"}
    try:
        with urllib.request.build_opener(_NoRedirect).open(urllib.request.Request(url, headers=headers), timeout=_LIMIT_S) as answer:  # noqa: S310
            return json.loads(answer.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        error.close()
        raise _refused(error.code, environment, repository) from None
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        raise InfrastructureError(
            f"GitHub did not answer whether the environment {environment!r} requires reviewers: {error}.",
            f"{api} does not answer, or not in JSON. Without the answer, a fork's pull request may not run on a self-hosted runner.",
            "Run the job again; see GitHub's status page.",
        ) from None


def _refused(status: int, environment: str, repository: str) -> UsageError | InfrastructureError:
    happened = f"GitHub answers {status} when asked whether the environment {environment!r} of {repository} requires reviewers."
    if status == 404:
        return UsageError(
            f"There is no environment {environment!r} in {repository}, or this job may not see it (GitHub answers 404).",
            "GitHub would create the environment without reviewers: a fork's pull request would run on a self-hosted runner "
            "without approval.",
            f"Create it with required reviewers ({_SETTINGS}), and give the job `actions: read`. {_GUIDE}",
        )
    if status in (401, 403):
        return UsageError(
            happened,
            "The token of this job may not read environments, or has reached GitHub's rate limit.",
            "Give the job that plans `permissions: {contents: read, actions: read}`. A workflow that calls it must grant them too.",
        )
    meaning = "GitHub has a fault, or the repository was renamed."
    return InfrastructureError(happened, meaning, "Run the job again; see GitHub's status page.")


def _reviewers(answer: Any) -> int:
    """Return how many people and teams review an environment; 0 if it requires no review."""
    rules = answer.get("protection_rules") if isinstance(answer, dict) else None
    found = [rule.get("reviewers") for rule in rules or () if isinstance(rule, dict) and rule.get("type") == "required_reviewers"]
    return sum(len(entry) for entry in found if isinstance(entry, list))
