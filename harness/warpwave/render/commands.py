"""A kernel that falls short → the command that measures it again, alone, with its code and every case. Pure."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Container, Iterable, Iterator
from itertools import islice
from pathlib import PurePath
from urllib.parse import quote

from warpwave.compare.model import Comparison, TargetSummary, failures
from warpwave.errors import ExitCode
from warpwave.records import CaseResult, NotRun, resume_command
from warpwave.records.selection import CONFIGURATION_OF
from warpwave.safe_text import visible

# A run → the commands that repeat a part of it: on the same target, with each option that may decide a verdict. Pure.

# Every option of `warpwave run` is in one of these sets; a test checks them against the parser. What may decide a verdict is kept: what
# runs, where, with what, how it is checked and for how long. The first of each two sets has the options with a value.
_KEPT = frozenset(
    {
        *("--kernels", "--engine", "--python", "--targets", "--hosts", "--gpu", "--base-image", "--weaken"),
        *("--requirements", "--with", "--extra", "--config"),
        *("--env", "--pytest-args", "--bench", "--bench-script", "--compiled", "--test-workers", "--precision"),
        *("--test-timeout", "--timeout", "--budget", "--gates", "--architectures"),
    }
)
_KEPT_FLAGS = frozenset({"--sanitize", "--no-sanitize", "--install", "--here", "--quick", "--strict"})
# What chooses the part that runs is replaced, and what only decides where results go or how they are shown is left out.
_DROPPED = frozenset(
    {
        *("--stage", "-k", "--test", "--last-failed", "--changed-since", "--deselect-from", "--shard", "--shard-times"),
        *("--out", "--resume", "--save-compiled", "--known", "--known-base", "--fail-on"),
        *("--toolchain", "--triton"),  # the target's name has it: `cpu@triton-3.8`
    }
)
_DROPPED_FLAGS = frozenset(
    {
        *("--aa", "--rebuild", "--keep", "--verbose", "-v", "--no-report", "--dry-run", "--profile", "--watch", "--quiet", "--full"),
        "--known-strict",
    }
)
# What stands behind them may be their value or the next option; neither is kept by itself.
_OPTIONAL = frozenset({"--json"})
_LONGEST = 4000  # characters of options; the command is repeated beside each failed test


def repro(target: TargetSummary, result: CaseResult) -> str:
    """Return a shell command: `warpwave run cuda --kernels ../ops --stage test --test 'test_add.py::test_add[fp32-1]'`.

    What a tuner chose stays chosen: `--config 'add_kernel: BLOCK=128, num_warps=4'`.
    """
    chosen = {name.removeprefix(CONFIGURATION_OF): text for name, text in result.properties.items() if name.startswith(CONFIGURATION_OF)}
    configs = [("--config", f"{kernel}: {text.rpartition(' (')[0]}") for kernel, text in chosen.items() if text.endswith(")")]
    return rerun(target, ["--stage", "test", "--test", result.id, *itertools.chain(*configs)], without=("--config",))


def rerun(target: TargetSummary, more: Iterable[str], without: Container[str] = ()) -> str:
    """Return a shell command that runs on the same target with the options that its run had, except those `without`, and `more` options.

    It is empty if the options are too many to print: without some of them, the same test might pass.
    """
    # A second run of one target is shown as `cuda (2)`, but `warpwave run` takes the target's own name.
    name = re.sub(r" \(\d+\)$", "", target.target)
    kept = [word for option in _options(target.command) if option[0].partition("=")[0] not in without for word in option]
    if sum(map(len, kept)) > _LONGEST:
        return ""
    return visible(" ".join(map(shlex.quote, ["warpwave", "run", name, *kept, *more])))


def _options(command: Iterable[str]) -> Iterator[list[str]]:
    """Yield each option of a recorded command that is kept, with its value."""
    words = iter(command)
    for word in words:
        option, equals, _ = word.partition("=")
        if option in _KEPT or word in _DROPPED:
            whole = [word] if equals else [word, *islice(words, 1)]
            if option in _KEPT:
                yield whole
        elif option in _KEPT_FLAGS:
            yield [word]


def bench_patterns(comparison: Comparison) -> dict[str, str]:
    """Return a pattern for the benchmarks of each kernel: those in the folder of its name in which its tests are, if there is one."""
    found: dict[str, str] = {}
    for row in comparison.tests:
        if row.kernel not in found:
            folders = row.id.partition("::")[0].split("/")[:-1]
            inside = row.kernel in folders
            found[row.kernel] = "/".join([*folders[: folders.index(row.kernel) + 1], "bench_*.py"]) if inside else ""
    return found


def look_closer(target: TargetSummary, pattern: str) -> str:
    """Return a shell command: `warpwave run cuda --stage bench,compile --bench 'softmax/bench_*.py' --full`.

    The patterns that the run was given stay. Without any, and with an empty `pattern`, every benchmark runs. A quick look is not repeated.
    """
    given = any(word.partition("=")[0] == "--bench" for word in target.command)
    benches = ["--bench", pattern] if pattern and not given else []
    return rerun(target, ["--stage", "bench,compile", *benches, "--full"], without=("--quick", "--budget"))


# A run that ended → the command that most users type next. Pure.

_SCRIPT = re.compile(r"--bench-script ('[^']+'|[\w./+-]+) (?:runs\b|--bench-script)")  # as the stages write it


def next_commands(comparison: Comparison, out: PurePath) -> tuple[str, ...]:
    """Return shell commands: to finish the run in `out`, to run again what failed, or to see its page.

    If failures may be listed as known, or are listed and gone, a second one does that.
    """
    if unfinished := next((target for target in comparison.targets if "--resume" in target.hint and target.command), None):
        return (visible(resume_command(unfinished.command, out)),)
    failed = next((target for target in comparison.targets if failures(target.tests)), None)
    # Without the compile stage, the next report would not show the kernels that cannot launch, and so look better than this one.
    stages = "test,compile" if failed and failures(failed.compiled) else "test"
    again = rerun(failed, ["--stage", stages, "--last-failed", str(out)]) if failed and comparison.exit_code != ExitCode.USAGE else ""
    listing = visible(f"warpwave known update {shlex.quote(str(out))}")
    known = comparison.known
    more = (f"{listing} --prune",) if known and known.unneeded else (listing,) if comparison.exit_code == ExitCode.FAILED else ()
    if comparison.exit_code == ExitCode.NOTHING_RAN and (scripts := _scripts(comparison)):
        again = rerun(comparison.targets[0], ["--bench-script", scripts[0]])
    return again or show_page(out), *more


def _scripts(comparison: Comparison) -> list[str]:
    """Return the files of which a stage said that they are scripts, as values of --bench-script."""
    said = [cell.result.message for row in comparison.tests for cell in row.cells if cell.result.not_run is NotRun.EMPTY]
    said += [cell.compiled.reason for cell in comparison.compiled_cells if cell.compiled.not_run is NotRun.EMPTY]
    said += [target.hint for target in comparison.targets]
    return [found[1] for text in said if (found := _SCRIPT.search(text))]


def show_page(out: PurePath) -> str:
    """Return the shell command that shows the page in `out`."""
    return visible(f"warpwave open {shlex.quote(str(out))}")


# Where a kernel is in the source → an address at the commit of the run, if its remote is known. Pure.
#
# The address comes from a raw folder, which may be a stranger's: only a plain https address becomes a link.

_ADDRESS = re.compile(r"(https://[A-Za-z0-9.-]+(?:/[A-Za-z0-9._~%+-]+)+)#([^#?\x00-\x1f]*)")
_SOURCE = re.compile(r"([^:\x00-\x1f]+):(\d+)")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


def source_link(target: TargetSummary, source: str) -> str:
    """Return the address of a line, `…/blob/COMMIT/kernels/softmax/rows.py#L30`; empty if it is not known exactly.

    A work tree with changes has no address: the lines would be others.
    """
    remote, place = _ADDRESS.fullmatch(target.repository), _SOURCE.fullmatch(source)
    if not remote or not place or not _COMMIT.fullmatch(target.commit) or ".." in place[1].split("/"):
        return ""
    path = "/".join(filter(None, (remote[2].strip("/"), place[1].strip("/"))))
    return f"{remote[1]}/blob/{target.commit}/{quote(path)}#L{place[2]}"
