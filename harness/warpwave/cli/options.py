"""The options of `warpwave run` in groups, as click declares them."""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Union

import click

from warpwave.errors import UsageError
from warpwave.records import CHOSEN, MOST_SECONDS, PytestSettings, What
from warpwave.records.registry import HERE

Options = Callable[[Callable[..., Any]], Callable[..., Any]]
# The value of `--json`: None without it, True for standard output, or the file.
Json = Union[Path, bool, None]

COMMAND = "warpwave.command"  # the context key for a parsed command line that is not this process's own
POSITIONAL = "node_ids"  # the parameter of ids that stand behind the target
FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)


class _Written(click.Path):
    """A path to write to. No link that came with a repository or with results is on the way."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Return the path. If it is a file, the last part may be a link: writing replaces it."""
        from warpwave.run.folders import check_no_links

        path = Path(os.fsdecode(super().convert(value, parameter, context)))
        check_no_links(path if self.dir_okay else path.parent)
        return path


class _Kernels(click.Path):
    """The folder of a package."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Return the path. Of a file, say how it is named. Raises UsageError."""
        path = Path(os.fsdecode(value))
        if path.is_file():
            meaning = "--kernels takes the folder of a package. A file of tests, or a test in one, is named behind the target."
            folder = shlex.quote(str(path.parent))
            raise UsageError(f"{path} is a file.", meaning, f"Type `warpwave run cpu --kernels {folder} {shlex.quote(path.name)}`.")
        return super().convert(value, parameter, context)


_KERNELS = _Kernels(path_type=Path, file_okay=False)
OUT_FOLDER = _Written(path_type=Path, file_okay=False)
OUT_FILE = _Written(path_type=Path, dir_okay=False)


def complete_target(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Return the names of shipped targets, for the shell's completion."""
    from warpwave.config.targets import load_targets

    return [name for name in load_targets() if name.startswith(typed)]


def complete_list(words: Callable[[], Iterable[str]]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return a completion of lists with commas: of the last word, by those of `words` that the list does not have yet."""

    def complete(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
        before, comma, last = typed.rpartition(",")
        return [f"{before}{comma}{word}" for word in words() if word.startswith(last) and word not in before.split(",")]

    return complete


def _weakenings() -> Iterable[str]:
    from warpwave.engines.docker.container import WEAKENINGS

    return WEAKENINGS


class JsonCommand(click.Command):
    """A command with `--json`, alone or with a file behind it."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parse the words, after the file of `--json` was told from an argument of the command."""
        return super().parse_args(context, json_words(self, args))


def json_words(command: click.Command, words: Sequence[str]) -> list[str]:
    """Return the words with `--json` as `--json=-`, `--json FILE.json` as `--json=FILE.json`, and `--install` as `--install=all`. Click
    would take any word behind an option with an optional value as its value: `report --json FOLDER` would have no folder."""
    valued = {name for option in command.params if isinstance(option, click.Option) and not option.is_flag for name in option.opts}
    found: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*found, word, *rest]
        if word == "--json":
            word = f"--json={rest.pop(0) if rest and rest[0].endswith('.json') else '-'}"
        elif word == "--install":
            word = "--install=all"
        elif word in valued and rest:
            found.append(word)
            word = rest.pop(0)
        found.append(word)
    return found


def _note_json(context: click.Context, parameter: click.Parameter, value: Path | None) -> Json:
    asked = True if value == Path("-") else value
    if isinstance(context.obj, dict):
        context.obj["json"] = asked
    return asked


def json_option() -> Options:
    """Return the option `--json`: one document on standard output or in a file, also after an error. Its command is a `JsonCommand`."""
    text = "Print one JSON document instead of text; with FILE.json, write it there and print the text too."
    return click.option("--json", metavar="[FILE.json]", type=OUT_FILE, is_eager=True, callback=_note_json, help=text)


# What most people type. `--help` shows these options, and `--help-all` every option in its group.
_COMMON = {
    *("kernels", "stages", "keyword", "tests", "last_failed", "changed_since", "quick", "budget"),
    *("install", "with_packages", "out", "resume", "watch", "dry_run", "json"),
}
_GROUPS: dict[str, str] = {}  # the title of each option's group, by the option's name


def several(title: str, *decorators: Options) -> Options:
    """Combine the options of a group into one decorator. An option that a smaller group has stays in that."""

    def apply(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        for option in getattr(function, "__click_params__", ()):
            _GROUPS.setdefault(option.name, title)
        return function

    return apply


_ALL = "warpwave.help_all"  # the context key


def _show_all(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    usual = context.command.get_help_option(context)
    if asked and usual and usual.callback:
        context.meta[_ALL] = True
        usual.callback(context, parameter, True)


_HELP_ALL = click.Option(
    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all, help="Show all options, in groups."
)


class GroupedCommand(JsonCommand):
    """A command whose `--help` fits one screen. `--help-all` shows all options, in groups."""

    def get_params(self, context: click.Context) -> list[click.Parameter]:
        """Return the parameters, with `--help-all` behind `--help`."""
        return [*super().get_params(context), _HELP_ALL]

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the common options, or those of each group."""
        options = [param for param in self.get_params(context) if isinstance(param, click.Option)]
        groups: dict[str, list[tuple[str, str]]] = {}
        for option in options:
            name, record = option.name or "", option.get_help_record(context)
            about = name.startswith("help")
            title = "Options" if about or not context.meta.get(_ALL) else _GROUPS.get(name, "Options")
            if record and (about or context.meta.get(_ALL) or name in _COMMON):
                groups.setdefault(title, []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)


# What may not be passed on to pytest: the options, the meaning and the remedy.
_REFUSED = {
    option: (meaning, remedy)
    for options, meaning, remedy in (
        (
            "-n --numprocesses --dist --tx --maxprocesses --forked --boxed -f --looponfail",
            "warpwave runs one pytest on each GPU and watches it; --gpu 0,1 and --shard share the work.",
            "Leave it out.",
        ),
        ("--pdb --trace --pdbcls", "Nobody can type into a run.", "Run that test with pytest itself."),
        (
            "--junitxml --junit-xml --rootdir -c --config-file --basetemp --confcutdir --capture -s",
            "warpwave writes pytest's results and settings itself, and reads them back.",
            "Leave it out; the report's folder has junit.xml and the logs.",
        ),
        (
            "--collect-only --co --collectonly --help -h --version -V --fixtures --markers --setup-plan",
            "With it, pytest runs no test.",
            "Use pytest itself for that.",
        ),
        (
            "--lf --last-failed --ff --failed-first --nf --new-first --sw --stepwise --cache-show --cache-clear",
            "pytest's cache is off, because the package's folder is never written to.",
            "Use --last-failed RUN of warpwave.",
        ),
        ("--pyargs", "Ids begin at the kernels folder, which only warpwave knows.", "Name tests with --test ID."),
    )
    for option in options.split()
}
# Settings that warpwave has read, to find test files, before pytest reads them.
_READ = ("python_files", "testpaths", "cache_dir", "junit_")
# Plugins of pytest that no run can do without.
_NEEDED = (
    *("mark", "main", "runner", "fixtures", "helpconfig", "python", "terminal"),
    *("capture", "skipping", "tmpdir", "assertion", "junitxml", "reports"),
)
# Options that take a value as the next word; the two become one.
_SHORT = ("-k", "-m", "-p", "-o", "-W", "-r")
_VALUED = (
    *("--deselect", "--ignore", "--ignore-glob", "--tb", "--maxfail", "--durations", "--import-mode", "--override-ini", "--strict"),
    *_SHORT,
)


def pytest_words(texts: Sequence[str]) -> tuple[str, ...]:
    """Split options as a shell would, each option with its value in one word if pytest allows that. Refuse what breaks the harness."""
    found: list[str] = []
    for text in texts:
        words = split(text, "--pytest-args", """-m "not slow\"""")
        while words:
            found.append(_checked(words.pop(0), words))
    return tuple(found)


def split(text: str, option: str, example: str) -> list[str]:
    """Split options as a shell would. Nothing in them is expanded or run. Raises UsageError if a quote is not closed."""
    try:
        return shlex.split(text)
    except ValueError as error:
        remedy = f"Quote as in a shell: {option} '{example}'."
        raise UsageError(f"{option} cannot be split: {error}.", "A quote is not closed.", remedy) from None


def take_node_ids(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the targets, and keep the node ids that stand behind them. No target's name has `::` or ends with `.py`."""
    ids = tuple(word for word in words if "::" in word or word.endswith(".py"))
    context.params[POSITIONAL] = ids
    targets = tuple(word for word in words if word not in ids)
    if words and not targets:
        raise click.UsageError(f"There is a test, {ids[0]!r}, and no target before it. For example: warpwave run cpu {shlex.quote(ids[0])}")
    return targets


def overridden(settings: PytestSettings, words: Sequence[str]) -> PytestSettings:
    """Return a package's settings without its `addopts` if the user gave others: `-o addopts=`."""
    others = any(word.startswith(("-o=addopts=", "--override-ini=addopts=")) for word in words)
    return replace(settings, addopts=()) if others else settings


def _checked(word: str, following: list[str]) -> str:
    option, equals, value = word.partition("=")
    if word[:1] == "-" and word[1:2] not in ("-", "") and not equals and len(word) > 2 and word[:2] in (*_SHORT, "-n", "-c"):
        option, equals, value = word[:2], "=", word[2:]  # -nauto, -kadd
    if option in _VALUED and not equals:
        value = following.pop(0) if following else ""
    refused, left_out = _REFUSED.get(option), value.removeprefix("no:") if option == "-p" and value.startswith("no:") else ""
    if left_out in _NEEDED or left_out.startswith("warpwave"):
        meaning = "The harness needs most of pytest's own plugins, and is one itself."
        refused = (meaning, "Leave it out; plugins that are installed beside pytest can be left out.")
        option = f"-p {value}"
    elif option in ("-o", "--override-ini") and value.startswith(_READ):
        refused = ("warpwave reads this setting in the package's own file, to find its tests.", "Change it there.")
        option = f"{option} {value.partition('=')[0]}"
    if refused:
        raise UsageError(f"--pytest-args: {option} cannot be passed on.", *refused)
    if not word.startswith("-"):
        remedy = "Name tests with --test ID, or behind the target."
        raise UsageError(f"--pytest-args: {word!r} is no option.", _REFUSED["--pyargs"][0], remedy)
    if option == "-p":  # pytest reads it before it parses its options, and takes a = as part of the name
        return f"-p{value}"
    return f"{option}={value}" if option in _VALUED else word


STAGES = [stage.value for stage in CHOSEN]
MOST_WORKERS = 64


def parse_compiled(text: str | None) -> tuple[Path, str] | None:
    """Return the folder of a run, and the SHA-256 that the list of its kernels must have; empty if none is named."""
    if text is None:
        return None
    folder, at, digest = text.rpartition("@")
    return (Path(folder), digest) if at and re.fullmatch(r"[0-9a-f]{64}", digest) else (Path(text), "")


def _check_time(context: click.Context, parameter: click.Parameter, seconds: float | None) -> float | None:
    if seconds is not None and not 0 < seconds <= MOST_SECONDS:
        raise click.BadParameter(f"{seconds:g} is not a time in seconds, above 0.")
    return seconds


_TIME = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")
_LEAST_BUDGET_S = 20.0


def parse_budget(text: str | None) -> float | None:
    """Return a time such as `90s`, `10m`, `1h30m` or `90` in seconds; None without one. Raises UsageError if it is no time, or too short
    for any stage."""
    if text is None:
        return None
    found = _TIME.fullmatch(text) if text else None
    seconds = sum(int(part or 0) * unit for part, unit in zip(found.groups(), (3600, 60, 1), strict=True)) if found else 0
    if not _LEAST_BUDGET_S <= seconds <= MOST_SECONDS:
        meaning = "It is a number with its unit: s, m or h." if not seconds else "It takes about that long to start all stages."
        raise UsageError(f"--budget {text!r} is not a time of at least {_LEAST_BUDGET_S:g} s.", meaning, "For example --budget 10m.")
    return float(seconds)


def parse_workers(text: str) -> int:
    """Return how many processes run tests on each card; 0 for as many as fit. Raises UsageError if the text is neither a number from 1 to
    64 nor `auto`."""
    if text == "auto":
        return 0
    if not text.isdecimal() or not 1 <= int(text) <= MOST_WORKERS:
        happened = f"--test-workers {text!r} is neither a number nor `auto`."
        meaning = "Each worker is a process that imports torch and keeps tensors on the card."
        raise UsageError(happened, meaning, f"Give a number from 1 to {MOST_WORKERS}; 1 runs one test after the other.")
    return int(text)


# What `--help` says of the options whose declaration fills a line.
_HELP = {
    "--strict": "Exit with 4 if something could not be checked, such as a test that needs a card.",
    "--stage": f"Run only these stages: {', '.join(STAGES)}.  [default: the target's own]",
    "--bench-script": "Run these files of the package as they are, and measure each do_bench in them; repeatable.",
    "--architectures": "Compile for these only, by name of the card or of its code: mi300x,h100,gfx1100; or for all.  [default: the "
    "target's own]",
    "--pytest-args": "Options for pytest, quoted; repeatable. Or write them behind `--`.",
    "--config": "Run tests with this configuration of an autotuned kernel, and no other: 'matmul: BLOCK=128 num_warps=4'; repeatable.",
    "--quick": "A quick look of a minute (--budget): up to 12 tests or three of each function, three sizes of a sweep, two architectures.",
    "--budget": "Take this long for each target, 10m or 90s: compile, run what failed last time, what changed, one test of each function, "
    "the rest; and say what was left out.  [default: none, or 1m with --quick]",
    "--sanitize": "Check what interpreted or emulated kernels do to memory: bounds, unwritten data, races; with a card, what "
    "Triton's ConSan and FpSan find.  [default: on without a card]",
    "--gates": "Fail on the gates that the package's pyproject.toml sets, or also on those that only advise.",
    "--precision": "Measure a point until its median is this precise, with 95% confidence, or the benchmark's own time limit is reached.",
    "--save-compiled": "Keep what the compile stage compiles for these architectures, for --compiled of another run.",
    "--compiled": "Use the kernels that this run compiled with --save-compiled; refuse them if the SHA-256 of their list is another.",
    "--test-workers": "Run tests in N processes on each card, or on this machine's cores; auto: as many as fit. Never while "
    "anything is measured.",
    "--test-timeout": "Limit for one test or point.  [default: 300, or 120 with --quick]",
    "--timeout": "Limit for one target.",
    "--requirements": "Install these packages beside torch and Triton; repeatable.",
    "--install": "Install the package at the kernels' root, with what it declares to need, or alone.",
    "--extra": "With --install: also this extra, or dependency group, of it; repeatable.",
    "--toolchain": "Run each target on this toolchain of the targets file, as a leg of its own; repeatable.",
    "--hosts": "Run each leg where this file says.  [default: hosts.yml beside the kernels, or in ~/.config/warpwave]",
    "--weaken": "Give up one protection of the container, by name; shown in the report.",
    "--known": "What may fail: a list, or what failed in that run.  [default: known-failures.txt of the package]",
    "--known-base": "Of the list, only what it has in this commit counts; what was added since is shown.  [default: a pull request's base]",
}


def _option(name: str, *more: str, **settings: Any) -> Options:
    return click.option(name, *more, help=_HELP[name.partition("/")[0]], **settings)


def _parsed(parse: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    return lambda context, parameter, value: parse(value)


what_options = several(
    "What to run",
    click.option("--kernels", type=_KERNELS, default=Path("kernels"), show_default=True, help="Folder of the kernel package."),
    _option("--stage", "stages", metavar="S,S", shell_complete=complete_list(lambda: STAGES)),
    click.option("--bench", "benches", multiple=True, help="Pattern of bench files; repeatable.  [default: bench_*.py]"),
    _option("--bench-script", "bench_scripts", multiple=True, metavar="GLOB [-- ARGS]"),
    _option("--architectures", metavar="A,A", default=""),
    click.option("-k", "keyword", metavar="EXPR", help="Run only tests that match, as in pytest."),
    click.option("--test", "tests", multiple=True, metavar="ID", help="Run only this test, file or folder: pytest's node id; repeatable."),
    click.option("--last-failed", type=FOLDER, metavar="RUN", help="Run only the tests that did not pass in that earlier run."),
    click.option("--changed-since", metavar="REF", help="Run only the test files and benches that a change since that commit touches."),
    click.option("--deselect-from", type=FILE, metavar="FILE", help="Leave out the tests in FILE: a node id a line, # for comments."),
    _option("--pytest-args", multiple=True, metavar="ARGS", callback=_parsed(pytest_words)),
    _option("--config", "configs", multiple=True, metavar="KERNEL: NAME=VALUE …"),
    _option("--quick", is_flag=True),
    _option("--budget", metavar="TIME", callback=_parsed(parse_budget)),
    _option("--sanitize/--no-sanitize", default=None),
    click.option("--profile", is_flag=True, help="Count what emulated kernels ask of memory, LDS and matrix units, by line of the source."),
    _option("--gates", type=click.Choice(["package", "strict"]), default="package", show_default=True),
    _option("--precision", type=click.FloatRange(0, 1, min_open=True), default=What.precision, show_default=True, metavar="SHARE"),
    click.option("--aa", "again", is_flag=True, help="Measure everything twice (A/A), to see how much speeds vary without a change."),
    _option("--save-compiled", metavar="A,A"),
    _option("--compiled", metavar="RUN[@SHA256]", callback=_parsed(parse_compiled)),
)


def known_options(*, usual: str = "new", words: bool = False, for_workflow: bool = False, of_one_run: bool = True) -> Options:
    """Return the options about known failures, the same for every command with a report; `cli/known.py` reads them. `usual` is what
    `--fail-on` is by default. With `words`, it also takes words for what may not get worse. In a workflow, variables set the options. Only
    a report `of_one_run` can say that an entry is not needed any more."""
    listed = "new|worse|any|nothing" if not words else "WHAT,WHAT"
    more = "; or words for what may not get worse" if words else ""
    strict = click.option("--known-strict", is_flag=True, help="Fail also if something is listed that does not fail any more.")
    return several(
        "Known failures",
        _option("--known", type=click.Path(path_type=Path), metavar="FILE|RUN", envvar="KNOWN" if for_workflow else None),
        _option("--known-base", metavar="REF", envvar="GITHUB_BASE_REF"),
        *([strict] if of_one_run else []),
        click.option(
            "--fail-on",
            metavar=listed,
            default=usual if usual != "new" else None,
            type=str if words else click.Choice(["new", "worse", "any", "nothing"]),
            envvar="FAIL_ON" if for_workflow else None,
            help="Fail on failures that are not known; on those and what got worse since the base; on all; or never"
            f"{more}.  [default: {usual}]",
        ),
    )


limit_options = several(
    "Limits",
    _option("--test-workers", metavar="N", default="auto", show_default=True, callback=_parsed(parse_workers)),
    _option("--test-timeout", type=float, callback=_check_time, metavar="S"),
    _option("--timeout", type=float, callback=_check_time, default=10800.0, show_default=True, metavar="S"),
)
package_options = several(
    "The package and what it needs",
    _option("--requirements", type=FILE, multiple=True, metavar="FILE"),
    click.option("--with", "with_packages", multiple=True, metavar="NAME", help="Install this package, as pip names it; repeatable."),
    _option("--install", type=click.Choice(["all", "alone"]), metavar="[=alone]"),
    _option("--extra", "extras", multiple=True, metavar="NAME"),
    click.option("--env", multiple=True, metavar="NAME[=VALUE]", help="Set a variable for the kernels, or pass yours on; repeatable."),
)
where_options = several(
    "Where to run",
    click.option("--engine", type=click.Choice(list(HERE)), help="Use this engine, with no fallback.  [default: the target's own]"),
    _option("--toolchain", "toolchains", multiple=True, metavar="NAME"),
    click.option("--triton", "tritons", multiple=True, metavar="VERSION", help="The same for a release, or `newest`; repeatable."),
    click.option("--gpu", metavar="LIST", help="Use this GPU; share the work between several: 0,1 or `all`.  [default: the first one]"),
    click.option("--shard", metavar="I/N", help="Run only part I of N of the test files and benches; `report` joins the parts."),
    click.option("--shard-times", type=FOLDER, metavar="RUN", help="Balance shards by the times of that earlier run.  [default: by size]"),
    click.option("--python", metavar="PATH", help="Python of the local engine.  [default: this one]"),
    click.option("--out", type=OUT_FOLDER, help="Folder for the results.  [default: reports/runs/RUN_ID]"),
    click.option("--resume", type=OUT_FOLDER, metavar="RUN", help="Finish the run in that folder; finished parts are not run again."),
    click.option("--targets", "overlay", type=FILE, help="A targets file; its entries override the shipped ones."),
    _option("--hosts", type=FILE),
    click.option("--here", is_flag=True, help="Run on this machine, whatever hosts.yml says."),
)
build_options = several(
    "How the image is built",
    click.option("--base-image", metavar="NAME", help="Base image instead of the target's, e.g. from your own registry."),
    click.option("--rebuild", is_flag=True, help="Build even if an image with the same contents exists."),
    _option("--weaken", multiple=True, metavar="NAME", shell_complete=complete_list(_weakenings)),
    click.option("--keep", is_flag=True, help="Keep the container after the run."),
)
# Of every command that runs something.
run_options = several("", what_options, limit_options, package_options, where_options, build_options)
strict_option = _option("--strict", is_flag=True)
output_options = several(
    "What is printed",
    json_option(),
    click.option("--quiet", is_flag=True, help="Show no progress."),
    click.option("--full", is_flag=True, help="Show every case in the table, not only one summary for each kernel."),
)
