"""Whether a fork's pull request has to wait for somebody before it meets a self-hosted runner: asked of GitHub, not believed of a name.

GitHub creates an environment that a workflow names and that does not exist, without reviewers, and lets the job through. So a plan for
self-hosted runners is refused unless the environment is there and requires reviewers. This finds settings that are missing. It cannot
stop a fork that brings a workflow of its own: docs/guides/runners.md says what can.
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

from harness.ci.plan import Leg
from harness.errors import InfrastructureError, UsageError

_HOSTED = re.compile(r"(ubuntu|windows|macos)-[\w.-]+")
_LIMIT_S = 10.0
_MOST_BYTES = 1 << 20
_MOST_EVENT_BYTES = 32 << 20
_SETTINGS = "RunOptions → Environments"
_GUIDE = "docs/guides/runners.md has all that a public repository needs."


def check_forks(legs: Sequence[Leg], environment: str, variables: Mapping[str, str]) -> str:
    """Refuse a fork's pull request whose jobs would meet a self-hosted runner before anybody has agreed; a sentence on what was found.

    `variables` are those of a job: GITHUB_EVENT_PATH, GITHUB_REPOSITORY, GITHUB_API_URL and GITHUB_TOKEN.

    Raises:
        UsageError: the environment is missing or has no reviewers, or GitHub does not let this job look at it.
        InfrastructureError: GitHub does not answer.
    """
    repository = variables.get("GITHUB_REPOSITORY", "")
    own = [leg for leg in legs if not is_hosted(leg.runner)]
    if not own or not is_fork(_event(variables), repository):
        return ""
    if not environment:
        return "a fork's pull request, and no environment for forks is named: its jobs are skipped"
    if not (count := _reviewers(_ask(environment, repository, variables))):
        raise UsageError(
            f"The environment {environment!r} of {repository} requires no reviewers, and {own[0].name} runs on a self-hosted runner.",
            "A pull request from a fork would run there before anybody has looked at it.",
            f"Add required reviewers to it ({_SETTINGS}); private repositories need GitHub Enterprise for that. {_GUIDE}",
        )
    return f"a fork's pull request: {environment} asks one of {count} reviewers first"


def is_hosted(labels: Sequence[str]) -> bool:
    """Whether a job with these labels can only be GitHub's own machine's; any other label may be that of a machine of yours."""
    return len(labels) == 1 and _HOSTED.fullmatch(labels[0]) is not None


def is_fork(event: Mapping[str, Any], repository: str) -> bool:
    """Whether an event is of a pull request from another repository, or from one that is gone."""
    if not (request := event.get("pull_request")):
        return False
    head = request.get("head") if isinstance(request, dict) else None
    source = head.get("repo") if isinstance(head, dict) else None
    return not (isinstance(source, dict) and source.get("full_name") == repository and repository)


def _event(variables: Mapping[str, str]) -> dict[str, Any]:
    """What GitHub says of the event; empty outside of a job."""
    path = variables.get("GITHUB_EVENT_PATH")
    if not path:
        return {}
    try:
        with Path(path).open("rb") as file:
            event = json.loads(file.read(_MOST_EVENT_BYTES))
        if not isinstance(event, dict):
            raise ValueError("it is no object")
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"The event of this job cannot be read from {path}: {error}.",
            "GITHUB_EVENT_PATH names the file that the runner has written; without it a fork cannot be told from a branch.",
            "Run this in a job of GitHub Actions, or unset GITHUB_EVENT_PATH.",
        ) from None
    return event


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token goes to the host that the runner has named and to no other."""

    def redirect_request(self, *arguments: Any) -> None:
        """Follow nothing."""


def _ask(environment: str, repository: str, variables: Mapping[str, str]) -> Any:
    """The environment, as `GET /repos/{owner}/{repo}/environments/{name}` describes it."""
    token, api = variables.get("GITHUB_TOKEN", ""), variables.get("GITHUB_API_URL", "https://api.github.com")
    if not token or not repository or not api.startswith(("https://", "http://")):
        raise UsageError(
            f"Whether the environment {environment!r} requires reviewers cannot be asked: GITHUB_TOKEN or GITHUB_REPOSITORY is not set.",
            "The step that plans hands no token on.",
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
            f"GitHub does not say whether the environment {environment!r} requires reviewers: {error}.",
            f"{api} does not answer, or not in JSON. Without that answer no fork's pull request runs on a self-hosted runner.",
            "Run the job again; see GitHub's status page.",
        ) from None


def _refused(status: int, environment: str, repository: str) -> UsageError | InfrastructureError:
    asked = f"GitHub answers {status} to the question whether the environment {environment!r} of {repository} requires reviewers."
    if status == 404:
        return UsageError(
            f"There is no environment {environment!r} in {repository}, or this job may not see it (GitHub answers 404).",
            "GitHub creates an environment that a job names, without reviewers: a fork's pull request would run on a self-hosted runner "
            "before anybody has looked at it.",
            f"Create it with required reviewers ({_SETTINGS}), and give the job `actions: read`. {_GUIDE}",
        )
    if status in (401, 403):
        return UsageError(
            asked,
            "The token of this job may not read environments, or has asked too often.",
            "Give the job that plans `permissions: {contents: read, actions: read}`; a workflow that calls it has to grant that too.",
        )
    return InfrastructureError(asked, "GitHub has a fault, or the repository was renamed.", "Run the job again; see GitHub's status page.")


def _reviewers(answer: Any) -> int:
    """How many people and teams an environment asks; 0 where it asks nobody."""
    rules = answer.get("protection_rules") if isinstance(answer, dict) else None
    found = [rule.get("reviewers") for rule in rules or () if isinstance(rule, dict) and rule.get("type") == "required_reviewers"]
    return sum(len(entry) for entry in found if isinstance(entry, list))
