"""`warpwave known update RUN`; and what `--known`, `--known-base`, `--known-strict` and `--fail-on` mean to every report."""

import os
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import click

from warpwave import console
from warpwave.cli.options import FOLDER, OUT_FILE, Json, JsonCommand, json_option
from warpwave.cli.show import print_answer, read_runs
from warpwave.compare.known import FILE, SEEN, Entry, Known, Listed, apply, entries_of, parse, render
from warpwave.compare.known import update as updated
from warpwave.errors import NEW, ConfigError, Outcome, UsageError
from warpwave.git import ask_git, repository_of
from warpwave.records import TargetRun
from warpwave.records.words import HOST_FOLDER

_LARGEST = 16 << 20  # bytes of a file
_MOST_LINES = 20


def read_known(options: dict[str, Any], *, kernels: Path | None = None, runs: Sequence[Path] = ()) -> Known | None:
    """Return the known failures that the options name, and what the exit code depends on; None without a list and without such options.
    Without `--known`, the list is the package's own, at or above the folder `kernels`; or what was used for the folders `runs`. Raises
    UsageError if what an option names does not exist, and ConfigError if the list has a wrong line."""
    path: Path | None = options["known"]
    policy: dict[str, Any] = {
        "today": date.today().isoformat(),
        "fail_on": options["fail_on"] or NEW,
        "strict": options.get("known_strict", False),
    }
    if path is not None and path.is_dir():
        return Known(source=f"the run {path}", base=entries_of(read_runs([path])), **policy)
    if path is not None and not path.is_file():
        meaning = "The path is misspelt, or the list was not written yet."
        raise UsageError(f"--known: there is no {path}.", meaning, "Give a file or a run. `warpwave known update RUN` writes the file.")
    kept = [copy for folder in runs if _is_own(copy := folder / HOST_FOLDER / FILE)]
    path = path or (find(kernels) if kernels is not None else None)
    if path is None and not kept:
        return Known(**policy) if options["fail_on"] or policy["strict"] else None
    if path is None:
        entries = [entry for each in kept for entry in _read(each).entries if entry.key[0] != SEEN]
        return Known(tuple(entries), str(kept[0]) if len(kept) == 1 else f"{len(kept)} lists", **policy)
    listed = _read(path).entries
    own = tuple(entry for entry in listed if entry.key[0] != SEEN)
    policy["seen"] = tuple(entry for entry in listed if entry.key[0] == SEEN)
    base = options["known_base"]
    if not base or not os.path.lexists(repository_of(path.parent) / ".git"):
        return Known(own, str(path), **policy)
    before = tuple(entry for entry in _at(path, base) if entry.key[0] != SEEN)
    known = {(entry.key, entry.target, entry.until) for entry in before}
    added = tuple(entry for entry in own if (entry.key, entry.target, entry.until) not in known)
    return Known(before, f"{path} of {base}", added, **policy)


def without_known(runs: list[TargetRun], known: Known | None) -> list[TargetRun]:
    """Return runs in which known failures have the verdict `known`."""
    return apply(runs, known)[0] if known is not None else runs


def find(kernels: Path) -> Path | None:
    """Return the nearest list at or above a folder, up to its repository or to the current folder; None without one."""
    folder, here = kernels.resolve(), Path.cwd()
    stop = repository_of(folder)
    stop = here if folder.is_relative_to(here) and stop.is_relative_to(here) else stop
    above = [each for each in (folder, *folder.parents) if each.is_relative_to(stop)]
    return next((each / FILE for each in above if _is_own(each / FILE)), None)


def _is_own(path: Path) -> bool:
    """Return whether a list is there. A link is none: a stranger's would have another file's lines printed."""
    return path.is_file() and not path.is_symlink()


def _read(path: Path) -> Listed:
    try:
        if path.stat().st_size > _LARGEST:
            meaning = "It is no list of known failures."
            raise ConfigError(f"{path} is larger than {_LARGEST >> 20} MiB.", meaning, "`warpwave known update RUN` writes one.")
        return parse(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8.", "It is no text, or was saved in another encoding.", "Save it as UTF-8.") from None


def _at(path: Path, base: str) -> tuple[Entry, ...]:
    """Return the entries that the list has on the base branch; none if it does not have the list. Raises UsageError if git does not have
    that commit here."""
    folder = path.parent
    refs = [*_merged_into(folder, base), f"refs/remotes/origin/{base}", f"refs/heads/{base}", *([] if base.startswith("-") else [base])]
    found = (ask_git(folder, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}") for ref in refs)
    commit = next(filter(None, found), None)
    if commit is None:
        happened = f"--known-base {base}: git has no such commit here."
        meaning = f"Of a pull request, the base branch's {path.name} counts, and a shallow checkout does not have it."
        raise UsageError(happened, meaning, f"Check out with `fetch-depth: 2`, or run `git fetch origin {base}` before.")
    text = ask_git(folder, "show", f"{commit.strip()}:./{path.name}")
    return parse(text, f"{path.name} of {base}").entries if text is not None else ()


def _merged_into(folder: Path, base: str) -> list[str]:
    """Return what the runner's own merge of a pull request was made on. No other merge says which of its parents is the base."""
    is_merge = re.fullmatch(r"refs/pull/\d+/merge", os.environ.get("GITHUB_REF", "")) and os.environ.get("GITHUB_BASE_REF") == base
    head = ask_git(folder, "rev-parse", "--verify", "--quiet", "HEAD") if is_merge else None
    return ["HEAD^1"] if head and head.strip() == os.environ.get("GITHUB_SHA") else []


def keep_copy(known: Known | None, out: Path) -> None:
    """Write what counted beside the results, so that a later `warpwave report` says the same."""
    from warpwave.records import write_text

    copy = out / HOST_FOLDER / FILE
    copy.unlink(missing_ok=True)  # of an earlier attempt
    if known is not None and (entries := (*known.entries, *known.base)):
        write_text(copy, render(Listed(entries)))


@click.group()
def known() -> None:
    """Known failures: a list in the package's repository, of what may fail for now."""


@known.command(cls=JsonCommand)
@click.argument("runs", nargs=-1, required=True, type=FOLDER, metavar="RUN...")
@click.option(
    "--known", "file", type=OUT_FILE, metavar="FILE", help=f"The list.  [default: {FILE} here or above, up to the repository's root]"
)
@click.option("--prune", is_flag=True, help="Only remove what is not needed any more; add nothing.")
@json_option()
def update(runs: tuple[Path, ...], file: Path | None, prune: bool, json: Json) -> Outcome:
    """Write the list of known failures from RUNs: what fails there is listed, and what passes is not any more.

    What the RUNs did not run stays as it is: other targets, tests that -k or --quick left out. Comments and dates stay.
    """
    from warpwave.records import plural, write_text
    from warpwave.safe_text import json_text

    path = file or find(Path.cwd()) or Path.cwd() / FILE
    listed = _read(path) if path.is_file() else Listed()
    made = updated(listed, read_runs(runs), date.today().isoformat(), prune=prune)
    count = sum(entry.key[0] != SEEN for entry in made.listed.entries)
    if file or path.is_file() or count:  # a file that was named is there for --known of the next run, even if empty
        write_text(path, render(made.listed))
    changes = {"added": made.added, "removed": made.removed, "expired": made.expired}
    if print_answer(json, [json_text({**Outcome().fields(), "file": str(path), "entries": count, **changes}, indent=1) + "\n"]):
        return Outcome()
    told = ", ".join(f"{len(lines)} {what}" for what, lines in changes.items())
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    console.say(f"{shown}: {plural(count, 'known failure')} ({told})" if path.is_file() else "Nothing fails, so there is nothing to list.")
    for mark, lines in (("+", made.added), ("-", made.removed), ("expired:", made.expired)):
        console.say([f"  {mark} {line}" for line in lines[:_MOST_LINES]])
        if len(lines) > _MOST_LINES:
            console.say(f"  … and {len(lines) - _MOST_LINES} more")
    if made.chosen_by:
        how = ", ".join(made.chosen_by)
        console.say(f"A budget cut this run short, and its tests were chosen ({how}): the list does not say how far it came.")
        console.say("The next run may go further, and what fails there is new. Make the list with a longer budget, or from all tests.")
    if made.expired:
        console.say("An expired entry does not count. Change or remove its date, or fix what it lists.")
    return Outcome()
