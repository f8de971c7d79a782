"""Swap the parts of two stacks: their toolchains, and the commit of the package."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from harness.compare.toolchains.isolation import Isolation, isolate
from harness.compare.toolchains.question import Question, Reply
from harness.config.target import Target
from harness.config.toolchains import leg
from harness.engines.protocol import Say
from harness.errors import UsageError
from harness.options import RunOptions
from harness.records.registry.engines import ENGINES
from harness.records.toolchain import Toolchain, Toolchains
from harness.run.attempt import OnEvent
from harness.search.commits import Tree, commit_id, tree_of
from harness.search.steps import Step, Steps

Make = Callable[[Path | None, Path], RunOptions]
"""Takes the folder of the kernels (None for the user's own) and one for the results."""
_COMMIT = "commit"
_FACTS = ("runtime", "driver", "python", "platform")


@dataclass(frozen=True)
class Stacks:
    """A good and a bad stack on one target. `commits` are those of the package, if it is another one in each."""

    target: Target
    known: Toolchains
    good: Toolchain
    bad: Toolchain
    commits: tuple[str, str] | None


def isolate_stacks(question: Question, stacks: Stacks, make: Make, out: Path, say: Say, on_event: OnEvent) -> Isolation:
    """Return which part decides the question.

    Raises:
        UsageError: the two stacks do not differ in a part that can be swapped.
    """
    whole = make(None, out)
    parts, fixed = _parts(stacks, container=ENGINES[whole.engine or stacks.target.engine].container)
    with ExitStack() as stack:
        tree = None
        if stacks.commits is not None:
            good, bad = (commit_id(whole.kernels, commit) for commit in stacks.commits)
            stacks = replace(stacks, commits=(good, bad))
            tree = stack.enter_context(tree_of(whole.kernels, out / "tree"))
            parts |= {_COMMIT: (good[:12], bad[:12])} if good != bad else {}
        if not parts:
            raise UsageError(
                f"{stacks.good.name} and {stacks.bad.name} differ in nothing that can be swapped.",
                "; ".join(f"{part}: {why}" for part, why in fixed.items()) or "They set the same.",
                "Name two toolchains that differ, or give --from-commit and --to-commit.",
            )
        names = (stacks.good.name, stacks.bad.name)
        about: dict[str, object] = {"target": stacks.target.name, "stacks": list(names), "commits": list(stacks.commits or ())}
        steps = Steps(question, about, out, say, on_event)

        def step(from_good: bool, swapped: frozenset[str]) -> Step:
            return _step(stacks, tree, make, out, from_good, swapped)

        def ask(from_good: bool, swapped: frozenset[str]) -> Reply:
            return steps.ask_for(_name(stacks, from_good, swapped), lambda: step(from_good, swapped))

        found = isolate(question.words, names, parts, ask)
        facts = [steps.runs(step(side, frozenset()))[0].facts for side in (True, False)]
    for fact in _FACTS if all(facts) else ():
        old, new = (str(getattr(each, fact)) for each in facts)
        if old != new:
            fixed[fact] = f"{old} in {names[0]}, {new} in {names[1]}; it comes with the image or the machine"
    return replace(found, fixed=fixed)


def _step(stacks: Stacks, tree: Tree | None, make: Make, out: Path, from_good: bool, swapped: frozenset[str]) -> Step:
    """Return one stack with some parts of the other."""
    own, other = (stacks.good, stacks.bad) if from_good else (stacks.bad, stacks.good)
    name = _name(stacks, from_good, swapped)
    for part in sorted(swapped - {_COMMIT}):
        own = own.with_part(part, other)
    options, ready = make(None, out), _nothing
    if tree is not None and stacks.commits is not None:
        commit = stacks.commits[int(from_good == (_COMMIT in swapped))]
        ready = partial(tree.at, commit)
        ready()  # its settings are read now
        options = replace(make(tree.kernels, out), commit=commit[:12])
    return Step(name, leg(stacks.target, replace(own, name=name), stacks.known), options, ready)


def _name(stacks: Stacks, from_good: bool, swapped: frozenset[str]) -> str:
    return "+".join([(stacks.good if from_good else stacks.bad).name, *sorted(part.lstrip("$") for part in swapped)])


def _nothing() -> None:
    """Leave the user's own folder as it is."""


def _parts(stacks: Stacks, *, container: bool) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Return the parts in which two toolchains differ, and those that this engine cannot swap."""
    old, new = stacks.good.parts, stacks.bad.parts
    found = {part: (old.get(part, ""), new.get(part, "")) for part in {**old, **new} if old.get(part) != new.get(part)}
    if container or "base_image" not in found:
        return found, {}
    images = [image or "none" for image in found.pop("base_image")]
    return found, {"base_image": f"{' and '.join(images)}; the local engine runs without an image"}
