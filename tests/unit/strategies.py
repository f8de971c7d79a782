"""Any record that has the right types, however absurd: what an artifact can hold without being refused."""

from __future__ import annotations

import dataclasses
import functools
import sys
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from warpwave.records import TargetRun
from warpwave.records.words import Bound, Checked

# Names that mean something to somebody who reads a report: a terminal, a browser, a spreadsheet, a runner, a shell, Markdown, rich.
NAMES = (
    "\x1b[2J\x1b]0;title\x07",
    "\x9b31m",
    "a\rb\nc\u2028d\x00\x85",
    "::error file=a::b\n::set-output name=x::y\n::stop-commands::t\n##[error]x",
    "</script><script>alert(1)</script><img src=x onerror=alert(1)>",
    "]]><!--<![CDATA[ & &amp; &#0;",
    "=cmd|' /C calc'!A1",
    "+1",
    "-1",
    "@SUM(1)",
    "\t=1",
    "＝1",
    "[red]x[/red] [link=http://example.invalid]y[/link] [/]",
    "| a | b |\n|---|---|\n```\n~~~",
    "[a](javascript:x) ![b](http://example.invalid/c.png) @somebody #1 <!-- --> <b>",
    "../../../etc/passwd",
    "/etc/passwd",
    "C:\\Windows\\x",
    "$(touch x) `touch x` ; rm -rf / && \\",
    "${{ github.token }} %0A %25 \\u0000 \\x1b",
    "{{ 7 * 7 }} {% for %} {#",
    "$\\frac{1}{0}$",
    "\u202egnp.exe\u2066",
    "a\u0301\u0301\u0301\u200b\ufeff\ue000\U0001f468\u200d\U0001f4bb",
    "",
    " ",
    "e" * 3000,
)

_EXTREMES = (0.0, -0.0, -1.0, 5e-324, -5e-324, 2.3e-308, 1e-300, 1e300, sys.float_info.max, -sys.float_info.max, 1.0, 100.0)
names = st.sampled_from(NAMES) | st.sampled_from(("a", "b", "softmax")) | st.text(max_size=12)
floats = st.sampled_from(_EXTREMES) | st.floats(allow_nan=False, allow_infinity=False)
integers = st.sampled_from((0, 1, -1, 64, (1 << 63) - 1, -(1 << 63) + 1)) | st.integers(-(1 << 63) + 1, (1 << 63) - 1)

anything = st.recursive(st.none() | st.booleans() | integers | floats | names, lambda inner: st.lists(inner, max_size=3))
_PLAIN = {str: names, float: floats, int: integers, bool: st.booleans(), type(None): st.none(), Any: anything}


def any_of(kind: Any) -> st.SearchStrategy:
    """Whatever an annotation of `records` allows. (`from_type` would have to be told so for every test there is.)"""
    if get_origin(kind) is Annotated:
        return _held(any_of(get_args(kind)[0]), *kind.__metadata__)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if get_origin(kind) is Union:
        return st.one_of(*map(any_of, get_args(kind)))
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if get_origin(kind) is tuple:
        return st.lists(any_of(get_args(kind)[0]), max_size=3).map(tuple)
    if get_origin(kind) is list:
        return st.lists(any_of(get_args(kind)[0]), max_size=3)
    if get_origin(kind) is dict:
        return st.dictionaries(*map(any_of, get_args(kind)), max_size=3)
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        return st.builds(
            kind, **{field.name: any_of(hints[field.name]) for field in dataclasses.fields(kind) if field.name != "schema_version"}
        )
    assert issubclass(kind, Enum), kind
    return st.sampled_from(kind)


def _held(values: st.SearchStrategy, *bounds: Any) -> st.SearchStrategy:
    """Values within what `warpwave.records.words` allows: what it refuses, or cuts, does not come back as it was."""
    for bound in bounds:
        if isinstance(bound, Checked):
            values = values.filter(functools.partial(_passes, bound.look))
        else:
            edges = [edge for edge in (bound.least, bound.most) if edge is not None]
            inside = values.filter(functools.partial(_fits, bound))
            values = inside | st.sampled_from(edges) if edges else inside
    return values


def _fits(bound: Bound, value: Any) -> bool:
    if bound.longest is not None:
        return len(value) <= bound.longest
    return (bound.least is None or value >= bound.least) and (bound.most is None or value <= bound.most)


def _passes(look: Any, value: Any) -> bool:
    try:
        return look(value) == value
    except ValueError:
        return False


target_runs = any_of(TargetRun)
