"""The names of measurements in scripts: the same in every run, and different for what differs."""

from __future__ import annotations

import runpy
import textwrap

import pytest

from warpwave.inside.scripts.script import Names, Script

pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")


@pytest.fixture
def named(tmp_path):
    """Run a script whose `measure(function)` only names the call: case without its lead, and provider."""

    def run(text, arguments=()):
        path = tmp_path / "package" / "speed.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
        names = Names(Script(path, "speed.py", "speed", arguments), path.parent)
        found = []
        runpy.run_path(str(path), init_globals={"measure": lambda function, **more: found.append(names.of(function, **more))})
        assert all(call.case.startswith("speed/speed.py:") for call in found)
        return [(call.case.removeprefix("speed/speed.py:"), call.provider) for call in found]

    return run


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "for n in (1, 2):\n    last_ms = n * 1.5\n    measure(lambda: f(n))\ndef f(n): pass\n",
            [("3/n=1", "f"), ("3/n=2", "f")],
        ),
        (
            "def main(size, mode='fwd', device='cuda:0', base_ms=0.123, path='/tmp/x'):\n    measure(lambda: k[(1,)](size))\nmain(64)\n",
            [("2/size=64,mode=fwd", "k")],
        ),
        ("for provider in ('ours', 'theirs'):\n    measure(lambda: 1)\n", [("2", "ours"), ("2", "theirs")]),
        (
            "def ours(): pass\ndef theirs(): pass\nfor call in (ours, theirs):\n    measure(lambda: call())\n",
            [("4", "ours"), ("4", "theirs")],
        ),
        ("def f(): pass\nmeasure(f)\nmeasure(f)\n", [("2", "f"), ("3", "f")]),
        ("def f(): pass\nfor _ in range(2):\n    for again in range(2):\n        measure(f)\n", None),
        ("import functools\ndef f(): pass\nmeasure(functools.partial(f, 3))\n", [("3", "f")]),
        ("[measure(lambda: n) for n in (1, 2)]\n", [("1/n=1", "script"), ("1/n=2", "script")]),
        ("measure('torch.softmax(x, -1)')\n", [("1", "torch.softmax")]),
        ("import torch\nx = torch.empty(2, 3, dtype=torch.bfloat16)\nmeasure(lambda: f(x))\n", [("3/x=2x3:bf16", "f")]),
        (
            "import torch\nfor d in (torch.float16,):\n    measure(lambda: f(d), described={'label': 'fast'})\n",
            [("3/d=fp16,label=fast", "f")],
        ),
        ("for shape in ((8, 16), [32, 64]):\n    measure(lambda: f(shape))\n", [("2/shape=8x16", "f"), ("2/shape=32x64", "f")]),
        (
            "def helper(call, n):\n    return measure(call)\nfor n in (1, 2):\n    helper(lambda: f(n), n)\n",
            [("2/n=1", "f"), ("2/n=2", "f")],
        ),
        ("def run(call):\n    return measure(call)\nfor n in (1, 2):\n    run(lambda: f(n))\n", [("2/n=1", "f"), ("2/n=2", "f")]),
    ],
)
def test_a_name_holds_what_its_author_varies(named, text, expected):
    """Loops, parameters and what is called; never a time, a device or a path; tensors where there is nothing else."""
    found = named(text)
    if expected is None:
        assert len(set(found)) == len(found) == 4
        assert found == named(text)
        return
    assert found == expected


def test_arguments_are_in_the_name(named):
    """The same script with others is another benchmark."""
    text = "def f(): pass\nmeasure(f)\n"
    assert (named(text, ("--dtype", "bf16")), named(text)) == ([("2/--dtype bf16", "f")], [("2", "f")])


def test_a_configuration_is_named_by_its_parts(named):
    """A dataclass or a table of numbers."""
    text = """
    from dataclasses import dataclass
    @dataclass
    class Shape:
        m: int
        device: str = "cuda"
    for shape in (Shape(8), {"m": 16}):
        measure(lambda: f(shape))
    """
    assert [case for case, _ in named(text)] == ["8/m=8", "8/m=16"]
