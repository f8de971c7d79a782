"""The command line: `warpwave run | report | list | doctor | clean`. nox sessions call it, so both do the same.

Standard output carries the result, standard error progress and errors. Errors are raised anywhere and caught once, here.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from harness import __version__
from harness.engines import Build
from harness.errors import ExitCode, StoppedError, UsageError, WarpwaveError
from harness.records import Stage

Options = Callable[[Callable[..., Any]], Callable[..., Any]]

_STAGES = [stage.value for stage in (Stage.TEST, Stage.BENCH, Stage.COMPILE)]
_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)


def _several(*decorators: Options) -> Options:
    """A group of options that belong together."""

    def apply(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


_what = _several(
    click.option("--kernels", type=_FOLDER, default=Path("kernels"), show_default=True, help="Folder of the kernel package."),
    click.option("--stage", "stages", metavar="S,S", help=f"Only these stages: {', '.join(_STAGES)}. Default: the target's own."),
    click.option("--bench", "benches", multiple=True, help="Pattern of bench files; repeatable.  [default: bench_*.py]"),
    click.option("-k", "keyword", metavar="EXPR", help="Only tests that match, as in pytest."),
    click.option("--commit", metavar="SHA", help="Commit of the kernels, where their folder is no git checkout.", envvar="WARPWAVE_COMMIT"),
    click.option("--gpu", metavar="N", help="Index of the GPU to use. Default: the first one that is visible."),
    click.option("--quick", is_flag=True, help="Three sizes of each sweep and a fifth of the timing: a look, not a measurement."),
    click.option("--test-timeout", type=float, default=300.0, show_default=True, metavar="S", help="Limit for one test or point."),
    click.option("--timeout", type=float, default=10800.0, show_default=True, metavar="S", help="Limit for one target."),
)
_where = _several(
    click.option("--engine", type=click.Choice(["docker", "local"]), help="Never falls back. Default: the target's own, which may."),
    click.option("--python", metavar="PATH", help="Python of the local engine.  [default: this one]"),
    click.option("--out", type=_FOLDER, help="Folder for the results.  [default: reports/runs/RUN_ID]"),
    click.option("--targets", "overlay", type=_FILE, help="A targets file laid over the shipped one."),
)
_build = _several(
    click.option("--base-image", metavar="NAME", help="Base image instead of the target's, e.g. from your own registry."),
    click.option("--wheelhouse", type=_FOLDER, help="Folder of wheels: the image is then built without any index."),
    click.option("--ca-bundle", type=_FILE, help="Certificates that pip trusts during the build."),
    click.option("--pip-config", type=_FILE, help="pip.conf for the build."),
    click.option("--build-network", metavar="MODE", help="Network of the build, e.g. host."),
    click.option("--build-arg", "build_args", multiple=True, metavar="K=V", help="Passed to the Dockerfile; repeatable."),
    click.option("--rebuild", is_flag=True, help="Build even when an image with the same contents exists."),
    click.option("--weaken", multiple=True, metavar="NAME", help="Give up one protection of the container, by name; shown in the report."),
    click.option("--keep", is_flag=True, help="Keep the container after the run."),
)
_output = _several(
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else on standard output."),
    click.option("--quiet", is_flag=True, help="No progress."),
    click.option("--full", is_flag=True, help="Every case in the table, not only a summary a kernel."),
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="warpwave")
def cli() -> None:
    """Run one Triton kernel package on every vendor's target and compare what comes out."""


@cli.command()
@click.argument("names", nargs=-1, required=True, metavar="TARGET...")
@_what
@_where
@_build
@click.option("--no-report", is_flag=True, help="Leave merging to a later `warpwave report`.")
@_output
def run(**options: Any) -> int:
    """Run TARGETs (see `warpwave list`) in the order given, then write the comparison."""
    from harness.progress import Progress
    from harness.report import write_report
    from harness.run import run_target
    from harness.targets import load_targets, select

    targets = select(load_targets(options["overlay"]), list(options["names"]))
    settings = _settings(options)
    records = []
    for target in targets:
        with Progress(_stderr(), target.name, quiet=options["quiet"]) as progress:
            records.append(run_target(target, settings, progress.say, progress.on_event))
        if records[-1].exit is not None and records[-1].exit.interrupted:
            break
    if not options["no_report"]:
        comparison = write_report([settings.out], settings.out, [target.name for target in targets])
        code = _show(comparison, settings.out, options)
    else:
        code = _show_records(records, settings.out, options)
    return ExitCode.INTERRUPTED if any(record.exit and record.exit.interrupted for record in records) else code


@cli.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FOLDER...")
@click.option("--out", type=_FOLDER, help="Where to write the comparison.  [default: the first FOLDER]")
@click.option("--svg", type=_FILE, help="Also draw what the terminal shows into this file.")
@click.option("--expect", multiple=True, metavar="TARGET", help="A target that must be there; shown as absent if it is not. Repeatable.")
@_output
def report(folders: tuple[Path, ...], out: Path | None, svg: Path | None, expect: tuple[str, ...], **options: Any) -> int:
    """Merge raw results, of this machine or of others, into one comparison."""
    from harness.report import write_report

    expected = [name for value in expect for name in value.split(",")]
    where = out or (folders[0] if folders[0].is_dir() else Path())
    comparison = write_report(list(folders), where, expected)
    if svg is not None:
        _draw(comparison, svg, full=options["full"])
    return _show(comparison, where, options)


@cli.command(name="list")
@click.option("--targets", "overlay", type=_FILE, help="A targets file laid over the shipped one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_targets(overlay: Path | None, as_json: bool) -> int:
    """Show every target with its engine, stages, image and architectures."""
    from harness.targets import load_targets

    targets = load_targets(overlay)
    if as_json:
        click.echo(json.dumps([asdict(target) for target in targets.values()], default=str))
        return ExitCode.GOOD
    for target in targets.values():
        click.echo(f"{target.name:<8}{target.label}")
        click.echo(f"{'':8}engine {target.engine}; stages {', '.join(stage.value for stage in target.stages)}; image {target.image.base}")
        click.echo(f"{'':8}compiles for {', '.join(card.name for card in target.architectures)}")
    return ExitCode.GOOD


@cli.command()
@click.option("--targets", "overlay", type=_FILE, help="A targets file laid over the shipped one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def doctor(overlay: Path | None, as_json: bool) -> int:
    """Say what is missing on this machine, target by target, and what mends it. Changes nothing."""
    from harness.doctor import examine
    from harness.targets import load_targets

    findings = examine(load_targets(overlay))
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings]))
    else:
        for finding in findings:
            mark = Text(f"{finding.state:<5}", {"pass": "green", "warn": "yellow", "fail": "red"}.get(finding.state, "dim"))
            _stdout().print(mark, Text(f"{finding.check}: {finding.evidence}"), soft_wrap=True)
            if finding.fix:
                _stdout().print(Text(f"      {finding.fix}", "dim"), soft_wrap=True)
    return ExitCode.INFRASTRUCTURE if any(finding.state == "fail" for finding in findings) else ExitCode.GOOD


@cli.command()
@click.option("--yes", is_flag=True, help="Remove them; without it they are only listed.")
def clean(yes: bool) -> int:
    """List, or remove, containers that a killed run of ours left behind on this machine."""
    from harness.engines.docker import clean as clean_containers

    found = clean_containers(dry_run=not yes)
    for name in found:
        click.echo(f"{'removed' if yes else 'left behind'}: {name}")
    click.echo(f"{len(found)} container(s)" + ("" if yes or not found else "; `warpwave clean --yes` removes them"))
    return ExitCode.GOOD


def _settings(options: dict[str, Any]) -> Any:
    from harness.run import Settings, new_run_id

    kernels: Path = options["kernels"]
    if not kernels.is_dir():
        raise UsageError(
            f"There is no kernel package at {kernels}.",
            "warpwave looks for a folder of test_*.py and bench_*.py files, `kernels` in the current folder unless told otherwise.",
            "Give its path with --kernels.",
        )
    run_id = new_run_id()
    return Settings(
        run_id=run_id,
        out=(options["out"] or Path("reports") / "runs" / run_id).resolve(),
        kernels=kernels.resolve(),
        engine=options["engine"],
        stages=_parse_stages(options["stages"]),
        gpu=options["gpu"],
        commit=options["commit"],
        quick=options["quick"],
        benches=options["benches"] or ("bench_*.py",),
        pytest_args=("-k", options["keyword"]) if options["keyword"] else (),
        test_limit_s=options["test_timeout"],
        stage_limit_s=options["timeout"],
        limit_s=options["timeout"],
        python=options["python"],
        build=Build(
            base_image=options["base_image"],
            wheelhouse=options["wheelhouse"],
            ca_bundle=options["ca_bundle"],
            pip_config=options["pip_config"],
            network=options["build_network"],
            args=dict(_key_value(pair) for pair in options["build_args"]),
            rebuild=options["rebuild"],
        ),
        weaken=options["weaken"],
        keep=options["keep"],
        command=("warpwave", *sys.argv[1:]),
    )


def _parse_stages(text: str | None) -> tuple[Stage, ...] | None:
    if text is None:
        return None
    for name in text.split(","):
        if name not in _STAGES:
            raise UsageError(f"There is no stage {name!r}.", "Stages are separated by commas.", f"Choose from {', '.join(_STAGES)}.")
    return tuple(Stage(name) for name in text.split(","))


def _key_value(pair: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    if not equals:
        raise UsageError(f"--build-arg {pair!r} has no value.", "Build arguments are written K=V.", "For example --build-arg TORCH=base.")
    return key, value


def _show(comparison: Any, out: Path, options: dict[str, Any]) -> int:
    """Print the comparison; returns its exit code."""
    from harness.compare import exit_code

    code = int(exit_code(comparison))
    if options["as_json"]:
        click.echo(json.dumps({"ok": code == 0, "exit_code": code, "out": str(out), "comparison": asdict(comparison)}, allow_nan=False))
        return code
    from harness.render.terminal import render_terminal

    _stdout().print(render_terminal(comparison, full=options["full"]))
    _stdout().print(Text(f"Reports: {_shorten(out)}/comparison.md, comparison.json, junit.xml, bandwidth.csv"), soft_wrap=True)
    return code


def _draw(comparison: Any, path: Path, *, full: bool) -> None:
    """The terminal's view as a picture, for a README or a chat; it names a font and loads none."""
    from harness.records import write_text
    from harness.render.terminal import render_terminal

    console = Console(record=True, width=84, file=io.StringIO(), highlight=False, force_terminal=True)
    console.print(render_terminal(comparison, full=full))
    write_text(path, re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="warpwave"), flags=re.DOTALL))


def _show_records(records: list[Any], out: Path, options: dict[str, Any]) -> int:
    """What is known without a report; the exit code of the worst target."""
    from harness.run import exit_code_of

    if options["as_json"]:
        click.echo(json.dumps({"out": str(out), "targets": [asdict(record) for record in records]}, allow_nan=False))
    for record in records:
        if not options["as_json"]:
            _stdout().print(Text(f"{record.target}: {record.verdict.value}{': ' + record.reason if record.reason else ''}"), soft_wrap=True)
            if record.hint:
                _stdout().print(Text(f"  {record.hint}"), soft_wrap=True)
    return max((exit_code_of(record.verdict) for record in records), default=ExitCode.NOTHING_RAN)


def _shorten(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _stdout() -> Console:
    # CI logs have no terminal, yet their readers have one: 80 columns are too few for nobody.
    return Console(highlight=False)


def _stderr() -> Console:
    return Console(stderr=True, highlight=False)


def main() -> None:
    """Entry point of the console script: the one place where errors become text and an exit code."""
    try:
        sys.exit(_run_cli(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)


def _run_cli(arguments: list[str]) -> int:
    try:
        return int(cli.main(arguments, prog_name="warpwave", standalone_mode=False) or 0)
    except click.Abort:
        error: WarpwaveError = StoppedError("Stopped by the user.", "Ctrl-C was pressed.", "What was finished has been kept.")
    except click.ClickException as problem:
        problem.show()
        return ExitCode.USAGE
    except WarpwaveError as raised:
        error = raised
    if os.environ.get("WARPWAVE_TRACEBACK"):
        raise error
    if "--json" in arguments:
        body = {"code": int(error.exit_code), "message": error.happened, "meaning": error.meaning, "hint": error.remedy}
        click.echo(json.dumps({"ok": False, "exit_code": int(error.exit_code), "error": body}))
    else:
        _stderr().print(Text("error: ", "bold red") + Text(error.happened), Text(f"  {error.meaning}"), Text(f"  {error.remedy}"), sep="\n")
    return int(error.exit_code)


if __name__ == "__main__":
    main()
