"""Names that want to be something else on a page or in a terminal."""

import dataclasses
import functools
import sys
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from synthetic import GPU_B, case, compiled, facts, profile, record, run, sample

from warpwave.compare import compare
from warpwave.records import ProfiledLine, Sample, TargetRun, Verdict
from warpwave.records.words import Bound, Checked

PAGE_NAMES = (
    '</script><script>alert(1)</script>" onmouseover="alert(1)',  # the next one and the fifth
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "' autofocus onfocus='alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt; &amp;",
    "\u2028\u2029\u202egnp",
    "\x00\x1b[31m",
    "javascript:alert(1)",
    "</title></style></svg><base href=//evil.example>",
)


def hostile(name: str):
    """Two targets; on the first, every text from outside is `name`."""
    failed = case(f"softmax/{name}", Verdict.FAILED, kernel=name, message=name, detail=name, properties={name: "1.5"})
    return compare(
        [
            run(
                name,
                record=record(
                    name,
                    label=name,
                    verdict=Verdict.FAILED,
                    reason=name,
                    hint=name,
                    commit=name,
                    command=("warpwave", "run", "--kernels", name),
                ),
                cases=(failed, case()),
                samples=(
                    sample(kernel=name, provider=name, unit=name),
                    sample(case=name, kernel=name, provider=name, unit=name, params={"N": name}),
                ),
                compiled=(compiled(name, kernel=name, function=name, verdict=Verdict.FAILED, reason=name),),
                problems=(name,),
                profiles=(
                    profile(case=name, kernel=name, function=name, matrix={name: 1}, lines=(ProfiledLine(name, 1, name, {name: 1}),)),
                ),
            ),
            run(),
        ],
        [name, "alpha"],
    )


TERMINAL_NAMES = (
    "[bold]x[/bold]",
    "[/dev/kfd]",
    "\x1b[31mred",
    "\x9b2J",
    "a\r\nb\tc",
    "::error::owned",
    "##[error]owned",
    "\u202egnp",
    "\ud800",
    "日本" * 60,
)


# A comparison as large as a page has to carry: 2,000 cases on two made-up GPUs. Nothing in it was measured.

KERNELS = ("softmax", "layer_norm", "attention", "cross_entropy")


def points(cases: int, factor: float) -> tuple[Sample, ...]:
    """Sweeps of 125 sizes of four providers in four kernels: `cases` rows in all, each with its band."""
    found = []
    for number in range(cases):
        kernel, provider = KERNELS[number % 4], ("triton", "torch", "compile", "copy")[number // 4 % 4]
        size = 256 * (number // 16 + 1)
        value = factor * (1000.0 + 2.9 * (number % 1000) + 0.123456789 * number)
        time = size / value
        found.append(
            Sample(
                case=f"{kernel}/forward-bf16/bf16/N={size}",
                kernel=kernel,
                provider=provider,
                params={"M": 4096, "N": size, "dtype": "bf16"},
                device=0,
                verdict=Verdict.PASSED,
                unit="GB/s",
                value=value,
                median_ms=time,
                p20_ms=time * 0.9876543,
                p80_ms=time * 1.0123456,
                timer="synthetic",
                flush_bytes=1 << 28,
            )
        )
    return tuple(found)


def large(cases: int = 2000):
    """Two targets with as many tests as cases, and 500 compiled kernels each; a hundredth of the tests fails on the second."""
    tests = tuple(
        case(
            f"{KERNELS[n % 4]}/test_{KERNELS[n % 4]}.py::test_against_a_reference[bf16-{n}x781-contiguous]",
            kernel=KERNELS[n % 4],
            properties={"max_abs_err": f"{n}e-9", "max_ulp": f"{n % 7}.25"},
        )
        for n in range(cases)
    )
    second = tuple(
        dataclasses.replace(entry, verdict=Verdict.FAILED, message="AssertionError: 0.3 > 1e-5", detail="a line of a traceback\n" * 60)
        if number % 100 == 7
        else entry
        for number, entry in enumerate(tests)
    )
    code = [
        tuple(
            compiled(name, kernel=KERNELS[n % 4], function=f"_{KERNELS[n % 4]}_{n % 20}", constants={"BLOCK": n}, num_warps=8)
            for n in range(500)
        )
        for name in ("sy_90", "syn942")
    ]
    first = run("alpha", cases=tests, samples=points(cases, 1.0), compiled=code[0])
    other = run("beta", GPU_B, record=record("beta"), facts=facts(GPU_B), cases=second, samples=points(cases, 1.07), compiled=code[1])
    return compare([first, other], ["alpha", "beta"])


# Any record that has the right types, however absurd: what an artifact can hold without being refused.

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
