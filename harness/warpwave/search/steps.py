"""Ask a question of one step after another. Answers are kept on disk, so a search that was stopped continues."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from warpwave.collect import collect_all, find_raw
from warpwave.compare.runs import join
from warpwave.compare.search import Answer, Question, Reply, reply
from warpwave.config.targets import Target
from warpwave.engines import waiting
from warpwave.engines.protocol import Say
from warpwave.errors import ConfigError, InfrastructureError, NothingRanError, StoppedError, UsageError
from warpwave.options import RunOptions
from warpwave.records import RunRecord, Shard, Stage, TargetRun, write_text
from warpwave.records.selection import is_bench
from warpwave.run import check_target, run_target
from warpwave.run.attempt import OnEvent
from warpwave.run.legs import Leg
from warpwave.run.shards import files_of


def run_legs(legs: Sequence[Target], options: RunOptions, say: Say, on_event: OnEvent) -> list[RunRecord]:
    """Run each leg in turn. One whose folder exists is resumed, which does nothing if it is finished. Raises UsageError if a leg makes no
    sense, or its folder holds another run, and StoppedError if the user stopped it."""
    asked = [(leg, options.placed(resume=(options.where.out / "raw" / leg.name).exists())) for leg in legs]
    for leg, own in asked:
        check_target(leg, own)  # before the first one runs
    records = []
    for leg, own in asked:
        records.append(run_target(leg, own, say, on_event))
        if waiting.asked():
            remedy = f"The same command with --out {options.where.out} continues."
            raise StoppedError("Stopped by the user or the CI system.", "What is finished has been kept.", remedy)
    return records


_TRIES = 3  # of a step whose answer is ambiguous
_ENDS = 2  # steps that a search asks first
_IMPOSSIBLE = (UsageError, ConfigError, NothingRanError)  # of a step: its package has no such test, or wrong settings
_RECORD = "search.json"
_ANSWER = "answer.json"


@dataclass(frozen=True)
class Step:
    """What is tried: a leg, and the options of its run. `name` identifies it within the search."""

    name: str
    leg: Target
    options: RunOptions


class Steps:
    """The steps of one search, below the folder `out`. Each step is compared with the first one. The first two are its ends, good and bad.
    A step in between whose files do not import is skipped, for its tests say nothing. If the files of an end do not import, that is the
    fault which is searched for, and counts as a failed test in every step."""

    def __init__(self, question: Question, about: dict[str, object], out: Path, say: Say, on_event: OnEvent) -> None:
        self.question, self.out, self.say, self.on_event = question, out, say, on_event
        self._base: list[list[TargetRun]] = []  # the runs of the first step, by try
        self._first: Step | None = None
        self._asked = 0
        self._imports_decide = False
        _check_same(out, {"question": question.words, "fixed": question.fixed, **about})

    def ask(self, step: Step) -> Reply:
        """Return the step's answer: the recorded one, or that of a run. An ambiguous one is asked again, at most three times in all. Raises
        UsageError if the step's run makes no sense for its target, and StoppedError if the user stopped it."""
        self._first = self._first or step
        self._asked += 1
        record = self.folder(step) / _ANSWER
        if record.is_file():
            known = json.loads(record.read_text())
            found, seen = self._decided(Reply(Answer(known["answer"]), known["reason"], bool(known.get("broken")))), " (known)"
        else:
            tried = self._try(step)
            write_text(record, json.dumps({"answer": tried.answer.value, "reason": tried.reason, "broken": tried.broken}) + "\n")
            found, seen = self._decided(tried), f": {tried.reason}"
        self.say(f"{step.name}: {found.answer.said(self.question.fixed)}{seen}"[:300])
        return found

    def ask_for(self, name: str, make: Callable[[], Step]) -> Reply:
        """Make a step and return its answer. One that cannot be made, such as a Triton that cannot compile for the target, is skipped.
        Raises UsageError if it is the first step."""
        try:
            step = make()
        except _IMPOSSIBLE as error:
            if self._first is None:
                raise
            self._asked += 1
            self.say(f"{name}: skipped: {error.happened}"[:300])
            return Reply(Answer.SKIPPED, error.happened)
        return self.ask(step)

    def _decided(self, found: Reply) -> Reply:
        """Return the reply, in which files that do not import count as a failed test if they decide this search."""
        self._imports_decide |= found.broken and self._asked <= _ENDS
        if not (found.broken and self._imports_decide):
            return found
        return replace(found, answer=Answer.GOOD if self.question.fixed else Answer.BAD)

    def runs(self, step: Step, stages: Sequence[Stage] | None = None, number: int = 1) -> list[TargetRun]:
        """Return the runs of a step with these stages, or with those that the question needs. What has run already runs no more."""
        folder = self.folder(step) / ("-".join(stage.value for stage in stages) if stages else str(number))
        wanted = tuple(stages) if stages else step.options.what.stages or self.question.stages
        if not (folder / "done").is_file():
            options = replace(step.options.placed(out=folder), what=replace(step.options.what, stages=wanted))
            run_legs([step.leg], options, self.say, self.on_event)
            write_text(folder / "done", "")
        return join(collect_all(find_raw([folder])))

    def folder(self, step: Step) -> Path:
        """Return where a step's runs and its answer are."""
        return self.out / "steps" / re.sub(r"[^\w.+-]", "-", step.name)

    def _try(self, step: Step) -> Reply:
        found = Reply(Answer.SKIPPED, "it was never tried")
        for number in range(1, _TRIES + 1):
            try:
                runs = self.runs(step, number=number)
            except (InfrastructureError, *_IMPOSSIBLE) as error:
                if step == self._first and not isinstance(error, (InfrastructureError, ConfigError)):
                    raise
                return Reply(Answer.SKIPPED, error.happened)
            found = reply(self.question, self._compared(step, runs, number), runs)
            if found.answer is not Answer.AMBIGUOUS:
                return found
            self.say(f"{step.name}: ambiguous ({number} of {_TRIES} tries)")
        return found

    def _compared(self, step: Step, runs: list[TargetRun], number: int) -> list[TargetRun]:
        """Return the first step's runs for a question that compares with them. Another try measures them again, too."""
        if not self.question.compares or self._first is None:
            return []
        return runs if step == self._first else self.runs(self._first, number=number)


def _check_same(out: Path, about: dict[str, object]) -> None:
    path = out / _RECORD
    if not path.is_file():
        out.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(about, indent=1) + "\n")
    elif (before := json.loads(path.read_text())) != about:
        name = next(key for key in {**before, **about} if before.get(key) != about.get(key))
        happened = f"The search in {out} is another one: its {name} was {before.get(name)!r}, now it is {about.get(name)!r}."
        meaning = "A search continues in its own folder, with the answers that it has."
        raise UsageError(happened, meaning, "Give the options of that search, or another --out.")


_MOST_TURNS = 8  # each turn starts two processes, or two containers


def in_turns(toolchains: Sequence[Target], options: RunOptions) -> list[Leg]:
    """Return the legs of one target on several toolchains, in the order in which they run. Where they measure, the package is divided into
    shards. All toolchains run the first shard, then all run the second one, and so on, each time in the reverse order. A card that becomes
    warmer, or a machine that becomes busier, then slows down no toolchain more than another."""
    measured = Stage.BENCH in (options.what.stages or tuple(Stage)) and any(Stage.BENCH in target.stages for target in toolchains)
    benches = [path for path in files_of(options) if is_bench(path, options.what.benches)]
    turns = min(len(benches), _MOST_TURNS)
    if not measured or turns < 2 or options.where.shard:
        return [Leg(target, options) for target in toolchains]
    legs = []
    for number in range(1, turns + 1):
        part = options.placed(
            shard=Shard(number, turns),
            out=options.where.out / "shards" / f"{number}of{turns}",
            whole=options.where.out,
            run_id=f"{options.where.run_id}-{number}of{turns}",
        )
        legs += [Leg(target, part) for target in (toolchains if number % 2 else reversed(toolchains))]
    return legs
