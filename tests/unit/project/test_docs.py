"""Links lead somewhere, paths and quoted messages are in the code, and the reference of a targets file has every key."""

import ast
import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from recorded import recorded

from kernels.accuracy import error_of
from kernels.goals import GOALS, Goal, measure, read, table
from warpwave.config.targets import targets_schema

torch = pytest.importorskip("torch")


ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
CODE = ROOT / "harness" / "warpwave"
TEXTS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "reports/README.md")),
    *sorted(DOCS.rglob("*.md")),
    *sorted((ROOT / ".github").rglob("*.md")),
]
_spec = importlib.util.spec_from_file_location("hooks", DOCS / "hooks.py")
hooks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hooks)


def anchors(text):
    """The names by which a page's headings are linked."""
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def wrong_links(path, text):
    """Each link to a file or heading that is not there, each test that no file has, and each path of code that is not there."""
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if "://" in link or link.startswith("mailto:"):
            continue
        made = target.suffix != ".md" or "reference" in target.parts  # the headings of a reference are made from a schema
        if not target.exists() or (anchor and not made and anchor not in anchors(target.read_text())):
            wrong.append(link)
    tests = {found.name for room in ("tests", "kernels") for found in (ROOT / room).rglob("test_*.py")}
    wrong += [name for name in re.findall(r"`(test_\w+\.py)`", text) if name not in tests]
    rooms = {found.name for found in CODE.iterdir()}
    for name in re.findall(r"`((?:harness/warpwave/)?(\w+)/[\w/]*(?:\.\w+)?)`", text):
        if (name[1] in rooms or name[0].startswith("harness/")) and not any((base / name[0]).exists() for base in (CODE, ROOT)):
            wrong.append(name[0])
    return wrong


def test_every_link_leads_somewhere():
    """To a file of this repository, to a heading of it where one is named, to a test, and to code."""
    assert {str(path.relative_to(ROOT)): wrong for path in TEXTS if (wrong := wrong_links(path, path.read_text()))} == {}
    planted = "[a](none.md) [b](README.md#none) `test_none.py` `inside/none.py` `harness/warpwave/none/`"
    assert wrong_links(ROOT / "README.md", planted) == [
        "none.md",
        "README.md#none",
        "test_none.py",
        "inside/none.py",
        "harness/warpwave/none/",
    ]


def test_every_key_of_a_targets_file_is_in_the_reference():
    page = SimpleNamespace(file=SimpleNamespace(abs_src_path=str(DOCS / "reference" / "targets.md")))
    text = hooks.on_page_markdown((DOCS / "reference" / "targets.md").read_text(), page)
    keys = {key for body in json.loads(targets_schema())["$defs"].values() for key in body.get("properties", {})}
    shipped = yaml.safe_load((ROOT / "docker" / "targets.yml").read_text())

    assert [key for key in keys if f"| `{key}` |" not in text] == []
    assert {key for target in shipped["targets"].values() for key in target} <= keys


def literals():
    """Every text in the code of warpwave; a value in an f-string is `…`."""
    for path in CODE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_every_message_of_the_troubleshooting_page_is_in_the_code():
    """A heading quotes messages of ours, with `…` for what differs. What stands behind `from` is another program's."""
    heads = re.findall(r"^### (.*)$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    quoted = [message for head in heads for message in re.findall(r"`([^`]+)`", re.split(r"\b[Ff]rom\b", head)[0])]
    texts = set(literals())

    assert len(quoted) > 30
    wanted = {message: re.compile(".*".join(re.escape(part.strip()) for part in message.split("…"))) for message in quoted}
    assert [message for message, pattern in wanted.items() if not any(map(pattern.search, texts))] == []


# The table of goals says what a run's medians say.


REPO = Path(__file__).parents[3]


def samples(tmp_path, **medians_ms):
    """A run with one case, `op/N=8` of 2 GB, and a median in milliseconds by provider."""
    (tmp_path / "bench").mkdir()
    lines = [
        {
            "case": "op/N=8",
            "provider": name,
            "params": {"N": 8},
            "verdict": "passed" if ms else "crashed",
            "median_ms": ms,
            "unit": "GB/s",
            "value": ms and 2e3 / ms,
        }
        for name, ms in medians_ms.items()
    ]
    (tmp_path / "bench" / "samples.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return read(tmp_path)


def test_a_speed_is_a_ratio_of_medians_and_the_worst_case_counts(tmp_path):
    found = samples(tmp_path, triton=2.0, copy=1.9, torch=4.0)
    reached = measure(Goal("op", ("op/*",), "copy", speed=0.95), found)
    assert (reached.figure, reached.met, reached.peers, reached.faster) == (0.95, True, {"op/N=8": 0.475}, {})
    assert not measure(Goal("op", ("op/*",), "copy", speed=0.96), found).met


def test_a_time_is_at_most(tmp_path):
    found = samples(tmp_path, triton=2.1, floor=2.0)
    assert measure(Goal("op", ("op/*",), "floor", time=1.05), found).met
    assert not measure(Goal("op", ("op/*",), "floor", time=1.04), found).met


def test_memory_is_at_most(tmp_path):
    (tmp_path / "bench").mkdir()
    sample = {"case": "op/N=8", "params": {"N": 8}, "verdict": "passed", "median_ms": None, "unit": "GiB"}
    lines = [{**sample, "provider": name, "value": gib} for name, gib in {"triton": 1.59, "torch": 23.5}.items()]
    (tmp_path / "bench" / "samples.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = read(tmp_path)
    assert not measure(Goal("op", ("op/*",), gib=1.58), found).met
    assert "| op | at most 1.60 GiB | 1.59 (1 case) | 23.50 | yes |" in table((Goal("op", ("op/*",), gib=1.6),), found)


def test_what_a_goal_does_not_speak_of_is_left_out(tmp_path):
    found = samples(tmp_path, triton=2.0, copy=2.0)
    assert measure(Goal("op", ("other/*",), "copy", speed=1.0), found) is None
    assert measure(Goal("op", ("op/*",), "copy", speed=1.0, sizes=(9, 10)), found) is None
    assert measure(Goal("op", ("op/*",), "copy", speed=1.0, floor_mib=2 << 10), found) is None
    assert measure(Goal("op", ("op/*",), "cudnn", speed=1.0), found) is None


def test_a_kernel_that_crashed_reaches_nothing(tmp_path):
    assert measure(Goal("op", ("op/*",), "copy", speed=1.0), samples(tmp_path, triton=None, copy=2.0)) is None


def test_the_table_names_peers_that_are_faster(tmp_path):
    text = table((Goal("op", ("op/*",), "copy", speed=1.0), GOALS[0]), samples(tmp_path, triton=2.0, copy=2.0, liger=1.0))
    assert "| op | at least 1.00 of copy | 1.00 (1 case) | 2.00 | yes |" in text
    assert "| add | at least 1.00 of copy | not in this run | | |" in text
    assert "1 of 2 reached." in text
    assert "- op/N=8: liger is 2.00 x as fast" in text


def test_the_published_table_is_of_the_published_run():
    """What stands on the kernels' page is what the recorded run says, to the letter."""
    assert table(GOALS, read(recorded() / "raw" / "cuda")) in (REPO / "docs" / "kernels" / "README.md").read_text()


# What the kernels' tests and the fuzz call wrong in results that are no numbers.

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("ours", "pytorch", "exact", "wrong"),
    [
        (1.0, 1.0 + 2**-23, NAN, ""),  # float64 took another path: there is nothing to compare with
        (INF, INF, INF, ""),
        (INF, -INF, -INF, "infinities"),
        (INF, 1.0, NAN, "infinities"),
        (NAN, 1.0, NAN, "NaN"),
        (1.0, NAN, NAN, "NaN"),
        (3e38, INF, 4e38, "infinities"),
        (INF, 1.0, 1.0, "infinities"),
        (2.0, 1.0, 1.0, "worst error"),
    ],
)
def test_what_is_no_number_is_held_to_pytorch(ours, pytorch, exact, wrong):
    found = error_of(torch.tensor([ours]), torch.tensor([pytorch]), torch.tensor([exact], dtype=torch.float64)).wrong
    assert (wrong in found) if wrong else not found, found
