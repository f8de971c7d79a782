"""Plan which job runs which target on which runner: the matrix of a workflow. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from warpwave import console
from warpwave.config.hosts import Host
from warpwave.config.targets import load_targets
from warpwave.errors import UsageError
from warpwave.run import inputs

_EXAMPLE = """--runners '{"cpu": "ubuntu-latest"}', or a list of labels, or a list of such lists for several machines of one target."""
_MOST_LEGS = 64
_MOST_LABELS = 16


@dataclass(frozen=True)
class Leg:
    """One job of the matrix. `target` is what `ci leg` is given: a target, or a leg of a hosts file. `name` is unique among the target's
    legs and names the artifact. `shard` is such as `2/4`, or empty. `entry` is the target of a hosts file's leg, if it has another name."""

    target: str
    runner: tuple[str, ...]
    name: str
    shard: str = ""
    entry: str = field(default="", compare=False)


def plan_legs(text: str, known: Collection[str], shards: int = 1) -> tuple[Leg, ...]:
    """Return the legs for a JSON object that maps targets to runner labels, in its order, each split into `shards` jobs.

    Raises:
        UsageError: the text is not such an object, or names a target that does not exist.
    """
    asked = _parse(text)
    legs: list[Leg] = []
    for target, machines in asked.items():
        if target not in known:
            raise UsageError(
                f"--runners names a target that does not exist: {target!r}.",
                "The name is misspelt, or the file that defines it was not given with --targets.",
                f"Choose from: {', '.join(known)}.",
            )
        found = _machines(target, machines)
        legs += [Leg(target, labels, target if len(found) == 1 else f"{target}-{number}") for number, labels in enumerate(found, 1)]
    if shards > 1 and (several := [target for target in asked if sum(leg.target == target for leg in legs) > 1]):
        raise UsageError(
            f"--runners gives {several[0]} several machines, and --shards asks for several jobs on each.",
            "The shards of the two runs could not be distinguished.",
            "Give one list of labels that all of those machines have, or leave --shards out.",
        )
    return _bounded([part for leg in legs for part in _divided(leg, shards)], "--runners", _EXAMPLE)


def plan_hosts(hosts: Collection[Host], shards: int = 1) -> tuple[Leg, ...]:
    """Return the legs of a hosts file as jobs: each on the runner that has its card, which `runner` names by its labels.

    A leg is divided as the file says, or else into `shards`.

    Raises:
        UsageError: a leg names no runner, or no good one.
    """
    legs: list[Leg] = []
    for host in hosts:
        if not host.runner:
            raise UsageError(
                f"The leg {host.name} of the hosts file names no runner.",
                "A job runs on the machine that has the card, and a workflow finds that by its runner's labels.",
                f"Add them, for example {host.name}: {{runner: [self-hosted, h100]}}, or give the jobs with --runners.",
            )
        (labels,) = _machines(host.name, list(host.runner))
        legs += _divided(Leg(host.name, labels, host.name, entry=host.target), host.shards if host.shards > 1 else shards)
    return _bounded(legs, "The hosts file", "Use fewer shards.")


def _divided(leg: Leg, parts: int) -> list[Leg]:
    if parts == 1:
        return [leg]
    return [replace(leg, name=f"{leg.name}-{number}of{parts}", shard=f"{number}/{parts}") for number in range(1, parts + 1)]


def _bounded(legs: Sequence[Leg], who: str, remedy: str) -> tuple[Leg, ...]:
    if not 0 < len(legs) <= _MOST_LEGS:
        raise UsageError(f"{who} asks for {len(legs)} jobs.", f"The number must be between 1 and {_MOST_LEGS}.", remedy)
    return tuple(legs)


def as_outputs(legs: Sequence[Leg], cards: Mapping[str, Sequence[str]] = MappingProxyType({}), compiler: str = "") -> dict[str, str]:
    """Return the plan as outputs of a job, each on one line: a `matrix` for `strategy`, and the targets that a report should `expect`.

    A target on several machines is expected once for each, under the names that a report uses: `x`, `x (2)`. Shards are one run.

    `cards` has the architectures of each target with a card. A job without a card runs the target `compiler` first: it compiles for the
    architectures that `compile` lists. `artifact` is the name of what it leaves; the report has it, unless `compiler` is a leg itself.
    """
    ahead = dict.fromkeys(card for leg in legs for card in cards.get((leg.entry or leg.target).partition("@")[0], ()))
    compiles = bool(ahead and compiler)
    reported = compiles and all(leg.target != compiler for leg in legs)
    runs = dict.fromkeys((leg.target, leg.name if not leg.shard else "") for leg in legs)
    counts: Counter[str] = Counter()
    expect = []
    for target, _ in runs:
        counts[target] += 1
        expect.append(target if counts[target] == 1 else f"{target} ({counts[target]})")
    matrix = {"include": [{"target": leg.target, "runner": list(leg.runner), "name": leg.name, "shard": leg.shard} for leg in legs]}
    expect += [compiler] if reported else []
    return {
        "matrix": json.dumps(matrix),
        "expect": ",".join(expect),
        "compile": ",".join(ahead) if compiles else "",
        "artifact": "raw-compile" if reported else "compiled",
    }


def _parse(text: str) -> dict[str, Any]:
    try:
        asked = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--runners is not JSON: {error}.", "Quotes are missing, or the shell has removed them.", _EXAMPLE) from None
    if not isinstance(asked, dict):
        raise UsageError("--runners is not a JSON object.", "It maps each target to the labels of its runner.", _EXAMPLE)
    return asked


def _machines(target: str, value: Any) -> list[tuple[str, ...]]:
    """Return the labels of each machine. The value is a label or a list of labels for one machine, or a list of lists for several."""
    machines = [[value]] if isinstance(value, str) else value if _is_list_of(value, list) else [value]
    for labels in machines:
        if not _is_list_of(labels, str) or len(labels) > _MOST_LABELS or not all(label.isprintable() and label for label in labels):
            raise UsageError(f"--runners: {target}: {labels!r} is not a list of labels.", "A label is a string.", _EXAMPLE)
        if labels == ["self-hosted"]:
            raise UsageError(
                f"--runners: {target}: `self-hosted` alone matches every self-hosted runner.",
                "The job would run on any idle machine, with or without the GPU.",
                'Add labels that select the machine, for example ["self-hosted", "linux", "h200"].',
            )
    return [tuple(labels) for labels in machines]


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(entry, kind) for entry in value)


# Select the artifacts of a workflow's run that count: for a job that ran several times, the last attempt.

# The names that `gpu.yml` and `action.yml` give: the leg (a job of the matrix), and the number of the attempt.
_NAME = re.compile(r"(raw-.+)-(\d{1,6})")


def latest(folders: Iterable[Path]) -> list[Path]:
    """Return each folder, or the artifacts in it if it holds some. Leave out an attempt if the same leg has a later one.

    A folder with any other name stays, like any folder of results.
    """
    found: list[Path] = []
    for folder in folders:
        inner = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.is_symlink()] if folder.is_dir() else []
        attempts: dict[str, tuple[int, Path]] = {}
        for path in inner:
            match = _NAME.fullmatch(path.name)
            if match and (match[1] not in attempts or int(match[2]) > attempts[match[1]][0]):
                attempts[match[1]] = (int(match[2]), path)
        if not attempts:
            found.append(folder)
            continue
        found += [path for _, path in attempts.values()]
        found += [path for path in inner if not _NAME.fullmatch(path.name)]
    return found


# Hand kernels from the job that compiles without a card to the jobs with cards, by the options of `warpwave run`.

COMPILER = "cpu"  # the target that compiles for all cards, on a machine without one


def cards() -> dict[str, list[str]]:
    """Return the architectures of each target with a card."""
    return {name: [card.name for card in target.architectures] for name, target in load_targets(None).items() if target.visible_devices}


def keeping(architectures: str) -> list[str]:
    """Return the options of a run that only compiles, for these architectures, and keeps it; none if none are named."""
    return ["--stage", "compile", "--save-compiled", architectures] if architectures else []


def taking(folder: Path | None, digest: str) -> list[str]:
    """Return the options of a run that takes another job's kernels; none if there is no such job."""
    if not digest or folder is None:
        return []
    if not folder.is_dir():
        console.say(f"{folder} is missing, so this job compiles for itself: the artifact could not be downloaded.")
        return []
    return ["--stage", "test,bench", "--compiled", f"{folder}@{digest}"]


def digest_in(folder: Path) -> str:
    """Print and return the hash of the kernels in a job's results; empty if there are none."""
    try:
        digest = inputs.digest_of(inputs.find(folder))
    except UsageError as error:
        console.say(f"{error.happened} The jobs with cards compile for themselves.")
        return ""
    console.say(digest)
    return digest
