"""Commits of a package as steps of a search: a work tree of their own, and `git bisect` in it. The user's folder is never touched."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.compare.toolchains.bisection import Bisection, Tried
from harness.compare.toolchains.question import Answer, Reply
from harness.errors import UsageError

_FIRST = re.compile(r"^([0-9a-f]{40}) is the first '?bad'? commit", re.MULTILINE)
_WORDS = {Answer.GOOD: "good", Answer.BAD: "bad", Answer.SKIPPED: "skip", Answer.AMBIGUOUS: "skip"}
_SKIPPED = "only 'skip'ped commits left"


class Tree:
    """A work tree of the repository that holds `kernels`, in another folder."""

    def __init__(self, folder: Path, below: str) -> None:
        self.folder, self._below = folder, below

    @property
    def kernels(self) -> Path:
        """The kernels' folder in this work tree."""
        return self.folder / self._below

    def git(self, *words: str) -> str:
        """Run git in the work tree, and return what it prints.

        Raises:
            UsageError: git refuses it.
        """
        return _git(self.folder, *words)

    def at(self, commit: str) -> None:
        """Check that commit out, without what an earlier one left."""
        self.git("checkout", "--quiet", "--force", "--detach", commit)
        self.git("clean", "-ffdxq")


@contextmanager
def tree_of(kernels: Path, folder: Path) -> Iterator[Tree]:
    """Make a work tree in `folder`, and remove it in the end.

    Raises:
        UsageError: the kernels are not in a git repository.
    """
    repository = Path(_git(kernels, "rev-parse", "--show-toplevel").strip())
    _git(repository, "worktree", "prune")
    if folder.exists():  # of a search that was killed
        _git(repository, "worktree", "remove", "--force", str(folder))
    folder.parent.mkdir(parents=True, exist_ok=True)
    _git(repository, "worktree", "add", "--quiet", "--detach", str(folder))
    try:
        yield Tree(folder, kernels.resolve().relative_to(repository.resolve()).as_posix())
    finally:
        _git(repository, "worktree", "remove", "--force", str(folder))


def commit_id(kernels: Path, name: str) -> str:
    """Return the full id of a commit.

    Raises:
        UsageError: there is no such commit.
    """
    return _git(kernels, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}").strip()


def bisect_commits(question: str, tree: Tree, good: str, bad: str, ask: Callable[[str], Reply]) -> Bisection:
    """Let git choose the commits between `good` and `bad`, both full ids, and ask each. git knows merges, and what was skipped."""
    tried: list[Tried] = []

    def answer(commit: str) -> Answer:
        tried.append(Tried(commit[:12], ask(commit)))
        return tried[-1].reply.answer

    for commit, wanted in ((good, Answer.GOOD), (bad, Answer.BAD)):
        if answer(commit) is not wanted:
            fault = f"{commit[:12]} is {tried[-1].reply.answer.value}, and should be {wanted.value}: {tried[-1].reply.reason}"
            return Bisection(question, tuple(tried), fault=fault)
    said = tree.git("bisect", "start", "--no-checkout", bad, good)
    while not _FIRST.search(said) and _SKIPPED not in said:
        said = tree.git("bisect", _WORDS[answer(tree.git("rev-parse", "BISECT_HEAD").strip())])
    first = tree.git("rev-parse", "refs/bisect/bad").strip()
    goods = tree.git("for-each-ref", "--format=%(objectname)", "refs/bisect/good-*").split()
    between = tree.git("rev-list", "--reverse", first, *(f"^{one}" for one in goods)).split()
    tree.git("bisect", "reset", "HEAD")
    parents = tree.git("rev-list", "--parents", "-1", first).split()[1:]
    last_good = next((one for one in parents if one in goods), goods[-1])
    return Bisection(question, tuple(tried), last_good[:12], first[:12], tuple(one[:12] for one in between if one != first))


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=120, check=False)
        code, said, why = done.returncode, done.stdout, (done.stderr or done.stdout).strip().splitlines()
    except (OSError, subprocess.TimeoutExpired) as error:
        code, said, why = 1, "", [str(error)]
    if code and _SKIPPED not in said:
        raise UsageError(
            f"git {' '.join(words[:2])} failed in {folder}: {why[-1] if why else 'it printed nothing'}.",
            "The kernels are not in a git repository, or a commit is misspelt, or is not in this clone.",
            "Give commits that `git log` shows, as --good and --bad.",
        )
    return said
