"""Check the options that the user passes through to pytest."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from harness.errors import UsageError
from harness.records import PytestSettings

_PROCESSES = "warpwave runs one pytest on each GPU and watches it; --gpus and --shard share the work."
_FILES = "warpwave writes pytest's results and settings itself, and reads them back."
_NO_RUN = "With it, pytest runs no test."
_MEMORY = "pytest's cache is off, because the package's folder is never written to."
_TESTS = "Ids begin at the kernels folder, which only warpwave knows."
# What may not be passed on: the meaning and the remedy.
_REFUSED = {
    **dict.fromkeys(
        ("-n", "--numprocesses", "--dist", "--tx", "--maxprocesses", "--forked", "--boxed", "-f", "--looponfail"),
        (_PROCESSES, "Leave it out."),
    ),
    **dict.fromkeys(("--pdb", "--trace", "--pdbcls"), ("Nobody can type into a run.", "Run that test with pytest itself.")),
    **dict.fromkeys(
        ("--junitxml", "--junit-xml", "--rootdir", "-c", "--config-file", "--basetemp", "--confcutdir", "--capture", "-s"),
        (_FILES, "Leave it out; the report's folder has junit.xml and the logs."),
    ),
    **dict.fromkeys(
        ("--collect-only", "--co", "--collectonly", "--help", "-h", "--version", "-V", "--fixtures", "--markers", "--setup-plan"),
        (_NO_RUN, "Use pytest itself for that."),
    ),
    **dict.fromkeys(
        ("--lf", "--last-failed", "--ff", "--failed-first", "--nf", "--new-first", "--sw", "--stepwise", "--cache-show", "--cache-clear"),
        (_MEMORY, "Use --last-failed RUN of warpwave."),
    ),
    "--pyargs": (_TESTS, "Name tests with --test ID."),
}
# Settings that warpwave has read, to find test files, before pytest reads them.
_READ = ("python_files", "testpaths", "cache_dir", "junit_")
# Plugins of pytest that no run can do without.
_NEEDED = (
    *("mark", "main", "runner", "fixtures", "helpconfig", "python", "terminal"),
    *("capture", "skipping", "tmpdir", "assertion", "junitxml", "reports"),
)
# Options that take a value as the next word; the two become one.
_WITH_VALUE = ("--deselect", "--ignore", "--ignore-glob", "--tb", "--maxfail", "--durations", "--import-mode", "--override-ini", "--strict")
_SHORT = ("-k", "-m", "-p", "-o", "-W", "-r")


def pytest_words(texts: Sequence[str]) -> tuple[str, ...]:
    """Split options as a shell would, each option with its value in one word if pytest allows that.

    Raises:
        UsageError: a quote is open, or an option would break the harness.
    """
    found: list[str] = []
    for text in texts:
        try:
            words = shlex.split(text)
        except ValueError as error:
            example = """Quote as in a shell: --pytest-args '-m "not slow"'."""
            raise UsageError(f"--pytest-args cannot be split: {error}.", "A quote is not closed.", example) from None
        while words:
            found.append(_checked(words.pop(0), words))
    return tuple(found)


def overridden(settings: PytestSettings, words: Sequence[str]) -> PytestSettings:
    """Return a package's settings without its `addopts` if the user gave others: `-o addopts=`."""
    others = any(word.startswith(("-o=addopts=", "--override-ini=addopts=")) for word in words)
    return replace(settings, addopts=()) if others else settings


def _checked(word: str, following: list[str]) -> str:
    option, equals, value = word.partition("=")
    if word[:1] == "-" and word[1:2] not in ("-", "") and not equals and len(word) > 2 and word[:2] in (*_SHORT, "-n", "-c"):
        option, equals, value = word[:2], "=", word[2:]  # -nauto, -kadd
    if option in (*_WITH_VALUE, *_SHORT) and not equals:
        value = following.pop(0) if following else ""
    if option in _REFUSED:
        raise UsageError(f"--pytest-args: {option} cannot be passed on.", *_REFUSED[option])
    left_out = value.removeprefix("no:") if option == "-p" and value.startswith("no:") else ""
    if left_out in _NEEDED or left_out.startswith("harness"):
        raise UsageError(
            f"--pytest-args: -p {value} cannot be passed on.",
            "The harness needs most of pytest's own plugins, and is one itself.",
            "Leave it out; plugins that are installed beside pytest can be left out.",
        )
    if option in ("-o", "--override-ini") and value.startswith(_READ):
        raise UsageError(
            f"--pytest-args: {option} {value.partition('=')[0]} cannot be passed on.",
            "warpwave reads this setting in the package's own file, to find its tests.",
            "Change it there.",
        )
    if not word.startswith("-"):
        raise UsageError(f"--pytest-args: {word!r} is no option.", _TESTS, "Name tests with --test ID, or behind the target.")
    if option == "-p":  # pytest reads it before it parses its options, and takes a = as part of the name
        return f"-p{value}"
    return f"{option}={value}" if option in (*_WITH_VALUE, *_SHORT) else word
