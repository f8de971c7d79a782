"""Whether a benchmark's own code raises whatever a card says, or the machine, the card or a clock may have decided so."""

import functools
import math
import runpy
import textwrap
import traceback
import warnings

import pytest

from warpwave.inside.fake_gpu.unknown import Asked, MadeUpTime, UnknownFloat, explained, of_unknown
from warpwave.inside.process.lacking import Package
from warpwave.inside.process.outcomes import Pretended, is_packages, reason_of
from warpwave.records import NotRun

HEAD = """
import functools
import importlib.util
import os
import runpy
import subprocess
import sys
import time

import torch


def own(x, block=1):
    return x


def no_gap():
    from warpwave.inside.process.outcomes import NotPretended
    raise NotPretended("a gap")


class Maker:
    def make(self):
        return self.size

"""

ITS_OWN = {
    "a name": "unknown_name",
    "a name after a measurement": "asked()\nunknown_name",
    "a keyword": "own(1, blok=2)",
    "a keyword after a measurement": "asked()\nown(1, blok=2)",
    "a key after a measurement": "asked()\n{}['a']",
    "a key beside a time": "2e-6 * 3 / asked() * {}['GB/s']",
    "a key after a time was rounded and printed": "print(f'{round(abs(-asked()), 2):.3f}', asked())\n{}['a']",
    "a key after math with a time": "math(asked())\n{}['a']",
    "a name after data": "print(unknown())\nunknown_name",
    "a key": "{'fp32': 1}['float32']",
    "a key that it hides": "try:\n    {}['a']\nexcept KeyError:\n    raise ValueError('no such size') from None",
    "a shape": "assert torch.zeros(2).shape == (3,), 'bad shape'",
    "an attribute": "Maker().make()",
    "a function that reads options, for another end": "{'a': 1}[runpy.run_path and 'b']",
    "a provider": "raise ValueError('no such provider')",
    "a table that lacks the card": "{(8, 0): 1}[torch.cuda.get_device_capability()]",
    "where it asks for the card beside": "sms = torch.cuda.get_device_properties(0)\nassert torch.zeros(2).shape == (3,)",
}
IN_DOUBT = {
    "a file": "open('/no/such/file')",
    "a file that it looks for": "if not os.path.exists('/no/such/file'):\n    raise RuntimeError('download it')",
    "a variable": "os.environ['NO_SUCH_VARIABLE_OF_MINE']",
    "a variable at the top": "if not ROOT:\n    raise RuntimeError('set MY_ROOT')",
    "an argument": "if len(sys.argv) < 9:\n    raise ValueError('usage')",
    "another process": "if subprocess.run(['false']).returncode:\n    raise RuntimeError('child failed')",
    "a clock": "start = time.perf_counter()\ntook = time.perf_counter() - start\nif took > -1:\n    raise RuntimeError('slow')",
    "a time that decides": "if asked() < 3:\n    raise RuntimeError('too fast')",
    "a time that has decided": "good = [1] if asked() > 3 else []\ngood[0]",
    "the least of several times": "best = min(asked(), asked() / 2)\n[][0]",
    "a time as a key": "{0.5: 'half'}[asked() * 2]",
    "a whole number of times": "[][round(10 / asked())]",
    "a time as a plain number": "[][float(asked()) > 3]",
    "a speed that is infinite": "try:\n    1 / (asked() - 1)\nexcept ZeroDivisionError:\n    {}['a']",
    "math with a time": "[][int(math(4 * asked()))]",
    "a time in an array": "global np\nimport numpy as np\n[1][np.float64(asked()).astype(int)]",
    "one card": "if torch.cuda.device_count() < 2:\n    raise RuntimeError('needs two')",
    "an old card": "if torch.cuda.get_device_capability() < (99, 0):\n    raise RuntimeError('needs a new one')",
    "an old card, at the top": "assert IS_NEW, 'needs a new one'",
    "an old card, in a function": "if not is_new():\n    raise RuntimeError('needs a new one')",
    "an old card, behind a return": "if is_new():\n    return\nraise RuntimeError('needs a new one')",
    "a function that refuses": "if not is_new():\n    refuse('needs a new one')",
    "the name of a card": "{'A100': 1}[torch.cuda.get_device_name()]",
    "what it does not support": "raise NotImplementedError('no fp4')",
    "data that it caught": "good = []\ntry:\n    bool(unknown() > 1) and good.append(1)\nexcept Exception:\n    pass\ngood[0]",
    "a gap that it caught": "try:\n    no_gap()\nexcept Exception:\n    pass\n[][0]",
    "a variable that data left out": "try:\n    if unknown() > 1:\n        ms = 1\nexcept Exception:\n    pass\nms",
}
TOP = """
ROOT = os.environ.get("NO_SUCH_VARIABLE_OF_MINE")
IS_NEW = False
if torch.cuda.is_available():
    IS_NEW = torch.cuda.get_device_capability()[0] > 99


@functools.lru_cache
def is_new():
    return torch.cuda.get_device_capability() > (99, 0)


def refuse(words):
    raise RuntimeError(words)
"""


@pytest.fixture
def raised(tmp_path, monkeypatch):
    """Return what a point raises whose file has this in its function, and this at its top."""
    import torch

    for name, answer in (("get_device_capability", (9, 0)), ("get_device_name", "H100"), ("device_count", 1), ("is_available", True)):
        monkeypatch.setattr(torch.cuda, name, lambda *args, answer=answer: answer)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: (9, 0))
    monkeypatch.setattr(Package, "root", tmp_path)

    def unknown():
        Asked.since_begin = True
        return UnknownFloat()

    def asked():
        Pretended.asked.add("do_bench")
        return MadeUpTime(1)

    def error_of(body, top=TOP):
        Asked.since_begin = Pretended.refused = Pretended.by_time = False
        Pretended.asked.clear()
        (tmp_path / "bench_it.py").write_text(f"{HEAD}{top}\n\ndef point(asked, unknown, math):\n{textwrap.indent(body, '    ')}\n")
        point = runpy.run_path(str(tmp_path / "bench_it.py"))["point"]
        with warnings.catch_warnings(), pytest.raises(Exception) as raised:
            point(asked, unknown, functools.partial(of_unknown, math.log2))
        error = raised.value
        error.__traceback__ = error.__traceback__.tb_next  # without this function
        return error

    yield error_of
    Asked.since_begin = Pretended.refused = Pretended.by_time = False
    Pretended.asked.clear()


@pytest.mark.parametrize("name", [*ITS_OWN, *IN_DOUBT])
def test_whose_fault_it_is(name, raised, tmp_path):
    error = explained(raised({**ITS_OWN, **IN_DOUBT}[name]))
    why, _ = reason_of(error)

    assert (why is NotRun.RAISED and is_packages(error, tmp_path, Asked.since_begin)) == (name in ITS_OWN), "".join(
        traceback.format_exception(error)
    )


GUARDED = """
try:
    from nobodys_module.parts import norm
    HAS_NORM = True
except ImportError:
    norm, HAS_NORM = None, False
"""
UNBOUND = """
try:
    from nobodys_module.parts import norm
except ImportError:
    pass
"""


@pytest.mark.parametrize(
    ("body", "top", "why"),
    [
        ("norm(1)", GUARDED, NotRun.REQUIREMENT),
        ("norm.of(1)", GUARDED, NotRun.REQUIREMENT),
        ("(lambda: norm(1))()", GUARDED, NotRun.REQUIREMENT),
        ("norm(1)", UNBOUND, NotRun.REQUIREMENT),
        ("if not HAS_NORM:\n    raise RuntimeError('install it')", GUARDED, NotRun.REQUIREMENT),
        ("assert norm is not None", GUARDED, NotRun.REQUIREMENT),
        ("nom(1)", UNBOUND, NotRun.RAISED),
        ("none = None\nnone(1)", GUARDED, NotRun.RAISED),
        ("x = 1\nassert norm is None and x == 2", GUARDED, NotRun.RAISED),
        ("norm(1)", GUARDED.replace("nobodys_module.parts", "json.no_such"), NotRun.RAISED),
        ("if importlib.util.find_spec('nobodys_module') is None:\n    raise ImportError('pip install it')", "", NotRun.REQUIREMENT),
        ("raise ImportError('circular')", "", NotRun.IMPORT),
    ],
)
def test_a_substitute_for_a_module_is_a_missing_requirement(body, top, why, raised):
    found, words = reason_of(raised(body, top))

    assert found is why
    assert ("No module named 'nobodys_module.parts'" in words) == (found is NotRun.REQUIREMENT and bool(top))
