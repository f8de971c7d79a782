"""Records of valid types with values that no machine produces: they are read back unchanged, and every report of them is written."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from strategies import any_of, target_runs

from warpwave.collect.untrusted import read_lines, read_record
from warpwave.compare import compare
from warpwave.compare.changed_codegen import bundle, diff
from warpwave.errors import UsageError
from warpwave.records import Ceiling, CompiledKernel, Facts, Inputs, Job, RunRecord, Sample, Stages, TargetRun, dump, to_json
from warpwave.render.charts.pictures import pictures
from warpwave.render.exports import FORMATS
from warpwave.render.sections.changes import code_sentence, diff_sections
from warpwave.render.terminal import render_terminal
from warpwave.report import WRITERS

RECORDS = (Job, Inputs, Facts, Stages, RunRecord)
LINES = (Sample, Ceiling, CompiledKernel)
COMMAND = re.compile(r"^\s*::(add-mask|debug|echo|error|group|notice|set-env|set-output|stop-commands|warning)", re.MULTILINE)
# Shrinking a finding takes minutes: only `nox -s fuzz` runs these.
searching = pytest.mark.skipif("WARPWAVE_SEARCH" not in os.environ, reason="a search of minutes: nox -s fuzz")
slow = settings(max_examples=20 if "WARPWAVE_SEARCH" in os.environ else 8, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("kind", [*RECORDS, *LINES])
def test_a_record_comes_back_as_it_was(kind, tmp_path_factory):
    """As a separate file and as a line among others: equal, and without a fault."""
    folder = tmp_path_factory.mktemp("records")

    @slow
    @given(any_of(kind), any_of(kind))
    def check(first, second):
        dump(first, folder / "one.json")
        (folder / "many.jsonl").write_text(f"{to_json(first)}\n{to_json(second)}\n", encoding="utf-8")

        assert read_record(folder, "one.json", kind) == (first, None)
        assert read_lines(folder, "many.jsonl", kind) == ((first, second), None)

    check()


def check_inert(name: str, text: str) -> None:
    """Text printed to a terminal or a job's log controls neither."""
    assert {character for character in text if not character.isprintable()} <= {"\n"}, name
    assert not COMMAND.search(text), name
    assert "##[" not in text, name


@searching
@slow
@given(st.lists(target_runs, min_size=1, max_size=3))
def test_no_values_keep_a_report_from_being_written(tmp_path_factory, runs):
    """Every file of a report, the terminal and every export is written completely, and strictly if the format has a parser."""
    out = tmp_path_factory.mktemp("report")
    comparison = compare(runs, ["alpha"])
    for name, write in WRITERS.items():
        write(comparison, out / name)

    def refuse(text):
        raise AssertionError(text)

    json.loads((out / "comparison.json").read_text("utf-8"), parse_constant=refuse)
    ElementTree.parse(out / "junit.xml")
    widths = {len(row) for row in csv.reader(io.StringIO((out / "bandwidth.csv").read_text("utf-8")))}
    assert len(widths) == 1
    console = Console(file=io.StringIO(), width=80)
    console.print(render_terminal(comparison, full=True))
    for picture in pictures(comparison, "auto"):
        ElementTree.fromstring(picture.svg)
    for name, render in FORMATS.items():
        text = render(comparison)
        assert name in ("csv", "openmetrics") or json.loads(text, parse_constant=refuse) is not None
        check_inert(name, text)
    check_inert("terminal", console.file.getvalue())
    for name in WRITERS:
        if name != "junit.xml":  # for machines: a parser must read the same text back
            check_inert(name, (out / name).read_text("utf-8"))


@searching
@slow
@given(target_runs, target_runs)
def test_no_values_keep_generated_code_from_being_compared(first: TargetRun, second: TargetRun):
    """The same is true of the diff of two runs."""
    try:
        sides = bundle("a", [first]), bundle("b", [second])
    except UsageError:
        return
    found = diff(sides[0].kernels, sides[1].kernels)
    code_sentence(found, ())
    diff_sections(*sides, found, (), True)
