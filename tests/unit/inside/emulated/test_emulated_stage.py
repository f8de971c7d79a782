"""The test stage of an emulated target: what the core is given, and what becomes of a test by how its launches end."""

import gc
import json
import re
import struct
import types
import weakref
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from warpwave.config.targets import load_targets
from warpwave.emulator import Argument
from warpwave.emulator.counts import products
from warpwave.inside.fake_gpu.launches import Account, Fault
from warpwave.inside.test.notes import raised_by_host
from warpwave.records import OPEN, CounterLimit, Gates, Stage, Which

torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")
pytest.importorskip("elftools", reason="the emulator's extra; `nox -s tests` installs it")
arguments = pytest.importorskip("warpwave.inside.fake_gpu.emulated")
printing = pytest.importorskip("warpwave.inside.fake_gpu.emulated_findings")
lanes = pytest.importorskip("warpwave.inside.fake_gpu.lanes")
behind, buffers = lanes.behind, lanes.buffers

CARD = load_targets()["gfx942-emulated"].emulate


@pytest.fixture(scope="module")
def stage(run_inside, data):
    output = run_inside(data / "emulated", Stage.TEST, interpret=False, emulate=CARD, benches=(), test_s=60.0, sanitize=False)
    found = {}
    for case in ElementTree.parse(output / "test" / "junit.xml").getroot().iter("testcase"):
        bad = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        properties = {entry.get("name"): entry.get("value") for entry in case.iter("property")}
        outcome = ("passed", "") if bad is None else (bad.get("type"), bad.get("message"))
        found[case.get("name")] = (*outcome, properties)
    return found, json.loads((output / "stages.json").read_text())["reports"]


def test_each_end_has_its_verdict_and_the_others_run(stage):
    """A gap is an error, also where the package caught it: pytest saw a pass of what was never executed."""
    found, _ = stage

    assert {name: kind for name, (kind, *_) in found.items()} == {
        "test_good": "passed",
        "test_host_code_sees_the_card": "passed",
        "test_wrong": "failed",
        "test_unknown": "error",
        "test_unknown_and_caught": "error",
        "test_endless": "timeout",
        "test_outside": "failed",
        "test_prints": "failed",
        "test_after": "passed",
        "test_a_compiled_backward_is_on_the_card": "passed",
    }


def test_what_the_checks_find_fails_a_test_and_is_a_row(run_inside, data):
    """A race, which the result does not show, and an access outside, with the tensor that is nearest."""
    chosen = ("-k", "test_good or test_outside or test_wrong")
    output = run_inside(data / "emulated", Stage.TEST, interpret=False, emulate=CARD, benches=(), test_s=60.0, pytest_args=chosen)
    rows = {row["case"].partition("::")[2]: row for row in map(json.loads, (output / "test" / "findings.jsonl").read_text().splitlines())}
    failed = {case.get("name") for case in ElementTree.parse(output / "test" / "junit.xml").getroot().iter("testcase") if len(case)}

    assert failed == set(rows) | {"test_wrong"} == {"test_good", "test_outside", "test_wrong"}
    race, outside = rows["test_good"], rows["test_outside"]
    assert (race["defect"], race["access"], race["tensor"], race["index"], race["lane"], race["line"]) == (
        *("race", "load", "LDS", 512, 67, 9),
    )
    words = ("wave 1, lane 3", "ds_made_up v1", "wave 2 stores to it", "had not waited for that", "test_ends.py:9")
    assert all(word in race["other"] for word in words)
    assert race["text"] == Path(data / "emulated" / "test_ends.py").read_text().splitlines()[8].strip()
    assert (outside["defect"], outside["tensor"], outside["lane"], outside["program"]) == ("out-of-bounds", "out", 3, [0, 0, 0])


def test_what_was_executed_is_a_property_of_the_test(stage):
    """Two launches of 100 instructions each; nothing of a test that launched nothing."""
    found, reports = stage

    assert found["test_good"][2]["emulated"] == "gfx942: 200 wave-instructions in 2 launches"
    assert found["test_after"][2]["emulated"] == "gfx942: 100 wave-instructions in 1 launch"
    assert "emulated" not in found["test_host_code_sees_the_card"][2]
    assert reports[1]["notes"][:1] == ["8 of 10 tests launched kernels, which executed 120,000,400 wave-instructions of gfx942"]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("i1", True, b"\x01"),
        ("i8", -1, b"\xff"),
        ("u16", 65535, b"\xff\xff"),
        ("i32", -2, struct.pack("<i", -2)),
        ("u32", 1 << 31, struct.pack("<I", 1 << 31)),
        ("i64", -(1 << 63), struct.pack("<q", -(1 << 63))),
        ("fp32", 0.1, struct.pack("<f", 0.1)),
        ("fp32", 1e300, struct.pack("<f", float("inf"))),
        ("fp64", 0.1, struct.pack("<d", 0.1)),
        ("fp16", 1.5, b"\x00\x3e"),
        ("bf16", 1.5, b"\xc0\x3f"),
        ("*fp32", None, bytes(8)),
        ("*fp32", 0x1234, struct.pack("<Q", 0x1234)),
    ],
)
def test_a_value_becomes_the_bytes_of_its_type(kind, value, expected):
    assert arguments.encode(kind, value) == expected


def test_a_tensor_is_its_first_element():
    tensor = torch.zeros(8)[3:]

    assert arguments.encode("*fp32", tensor) == struct.pack("<Q", tensor.untyped_storage().data_ptr() + 12)


@dataclass
class Descriptor:
    """As `triton.tools.tensor_descriptor.TensorDescriptor`."""

    base: torch.Tensor
    shape: list[int]
    strides: list[int]
    padding: str = "nan"


def test_constants_go_and_tuples_and_descriptors_are_taken_apart():
    """A descriptor is base, shape, strides and padding, then shape and strides again: Triton lowers it to both."""
    base = torch.zeros(6)
    signature = ("*fp32", "constexpr", ("i32", ("constexpr", "fp32")), "tensordesc<fp32[2, 3]>")
    found = list(arguments.flatten(signature, (base, 64, (1, (None, 2.0)), Descriptor(base, [2, 3], [3, 1]))))

    assert found[:3] == [("*fp32", base), ("i32", 1), ("fp32", 2.0)]
    assert found[3] == ("*", base)
    assert found[4:] == [
        *(("i64", size) for size in (2, 3, 3, 1)),
        ("i1", True),
        *(("i32", size) for size in (2, 3)),
        *(("i64", stride) for stride in (3, 1)),
    ]


LAYOUT = (Argument(0, 8, "global_buffer"), Argument(8, 4, "by_value"), Argument(16, 8, "global_buffer"), Argument(24, 8, "global_buffer"))
VALUES = [("*fp32", 4096), ("i32", 7), ("*i8", None), ("*i8", None)]


def test_arguments_are_where_the_metadata_puts_them():
    hidden = (Argument(32, 4, "hidden_block_count_x"), Argument(36, 4, "hidden_block_count_z"), Argument(40, 2, "hidden_group_size_x"))
    packed = arguments.pack((*LAYOUT, *hidden), 48, VALUES, (5, 6, 7), 256)

    assert struct.unpack("<QixxxxQQiihxxxxxx", packed) == (4096, 7, 0, 0, 5, 7, 256)


@pytest.mark.parametrize(
    ("layout", "values", "words"),
    [
        (LAYOUT, VALUES[:3], "4 arguments, the launch 3"),
        (LAYOUT, [VALUES[0], ("i64", 7), *VALUES[2:]], "i64 has 8 bytes, the kernel reads 4"),
    ],
)
def test_what_does_not_fit_is_refused(layout, values, words):
    with pytest.raises(arguments.LaunchError, match=words):
        arguments.pack(layout, 48, values, (1, 1, 1), 64)


def test_a_launch_may_touch_the_storages_of_its_tensors_once():
    whole = torch.zeros(100)
    found = buffers([("*fp32", whole[10:20]), ("*fp32", whole), ("i32", 5), ("*fp32", torch.zeros(0)), ("*fp32", None)])

    assert found == [(whole.data_ptr(), 400)]


def test_a_table_of_addresses_brings_what_it_points_to():
    """As grouped matrix products are written; a number that is no address brings nothing."""
    first, second, other = torch.zeros(1 << 16), torch.zeros(1 << 16), torch.zeros(1 << 16)
    table = torch.tensor([first.data_ptr(), second[8:].data_ptr(), 12345678], dtype=torch.int64)
    found = buffers([("*i64", table)])

    assert sorted(found) == sorted([(table.data_ptr(), 24), (first.data_ptr(), 1 << 18), (second.data_ptr(), 1 << 18)])
    assert buffers([("i64", other.data_ptr() + 4)]) == [(other.data_ptr(), 1 << 18)]
    names = {tensor.data_ptr(): name for name, tensor in behind([("table", "*i64", table), ("at", "i64", other.data_ptr())])}
    assert names == {first.data_ptr(): "*table[0]", second.data_ptr(): "*table[1]", other.data_ptr(): "*at"}


class View:
    """A package's own view of a tensor, as Triton's launchers take it: whatever has `data_ptr`."""

    def __init__(self, held: object, address: int) -> None:
        self._held, self._address = held, address

    def data_ptr(self) -> int:
        return self._address


def test_a_view_of_a_packages_own_brings_the_tensor_that_it_looks_at():
    """FlagGems passes such views; its tensor is found in the object, or by its address."""
    whole = torch.zeros(1 << 12)

    for held in (whole, None):
        assert buffers([("*fp32", View(held, whole[5:].data_ptr()))]) == [(whole.data_ptr(), 1 << 14)]


def test_what_a_test_leaves_in_cycles_is_freed_before_the_next():
    from warpwave.inside.fake_gpu.launches import Account

    account, cycle = Account("gfx942", 64, 1.0), []
    gc.disable()
    try:
        cycle.append(cycle)
        cycle.append(torch.ones(100 << 20, dtype=torch.uint8))
        left = weakref.ref(cycle[1])
        del cycle
        account.begin()
    finally:
        gc.enable()

    assert left() is None


def test_a_tensor_that_the_compiler_traces_with_has_no_memory():
    """Its size is a formula, and torch's compiler keeps it alive after the test that compiled."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv())
    traced = mode.from_tensor(torch.zeros(5, 7))
    other = torch.zeros(64)

    assert not isinstance(traced.untyped_storage().nbytes(), int)
    assert buffers([("i64", other.data_ptr() + 4)]) == [(other.data_ptr(), 256)]


def message(form: str, *words: int | float) -> list[int]:
    """As the device libraries send it: the format, padded with zeros, and a word for each argument."""
    data = form.encode() + b"\0"
    data = data.ljust((len(data) + 7) // 8 * 8, b"\0")
    for word in words:
        data += struct.pack("<d", word) if isinstance(word, float) else (word & (1 << 64) - 1).to_bytes(8, "little")
    return list(struct.unpack(f"<{len(data) // 8}Q", data))


@pytest.mark.parametrize(
    ("form", "words", "expected"),
    [
        ("pid (%u, %u, %u) idx (%3u) x: %f\n", (0, 1, 2, 7, 1.5), "pid (0, 1, 2) idx (  7) x: 1.500000\n"),
        ("%d %i", (0xFFFFFFFF, -2), "-1 -2"),
        ("%u %x", (-1, -1), "4294967295 ffffffff"),
        ("%lld %llu %lx", (-5, -5, -1), "-5 18446744073709551611 ffffffffffffffff"),
        ("%p 100%%", (4096,), "0x1000 100%"),
        ("seven b", (), "seven b"),
    ],
)
def test_a_message_is_what_printf_makes_of_it(form, words, expected):
    assert printing.formatted(message(form, *words)) == expected


_STRIDED = """
import torch
import triton
import triton.language as tl


@triton.jit
def strided(x, y, STEP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    values = tl.load(x + i * STEP)
    tl.store(y + i, values)


def test_strided():
    x, y = torch.arange(16384.0, device="cuda"), torch.empty(1024, device="cuda")
    for _ in range(3):
        strided[(1,)](x, y, STEP=16, BLOCK=1024)
    assert torch.equal(y, x[::16])
"""


def test_a_profile_has_the_counters_of_each_line(run_inside, tmp_path):
    """Three launches load 1024 floats, each from a line of its own, and store them side by side."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "test_strided.py").write_text(_STRIDED)
    output = run_inside(package, Stage.TEST, interpret=False, emulate=CARD, benches=(), test_s=60.0, profile=True)
    (row,) = map(json.loads, (output / "test" / "profile.jsonl").read_text().splitlines())
    load, store = (next(line for line in row["lines"] if text in line["text"]) for text in ("tl.load", "tl.store"))

    assert (row["case"], row["function"], row["launches"], row["programs"]) == ("test_strided.py::test_strided", "strided", 3, 3)
    assert (load["counters"]["lines64"], load["counters"]["least64"]) == (3 * 1024, 3 * 64)
    assert (store["counters"]["lines64"], store["counters"]["least64"]) == (3 * 64, 3 * 64)
    assert row["counters"]["read_bytes"] == 3 * 1024 * 32
    # 5.3 TB/s, the bandwidth of MI300X's data sheet.
    assert row["bounds"]["memory"] == pytest.approx(3 * (1024 * 32 + 4096) / 5.3e6, rel=0.01)
    assert row["occupancy"] == 1


_TUNED = """import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": block}) for block in (64, 512)], key=["n"])
@triton.jit
def added(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


def test_added():
    x, y = torch.ones(1000, device="cuda"), torch.ones(1000, device="cuda")
    added[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, y, 1000)
"""


def test_each_configuration_is_counted_once_and_a_limit_of_the_package_is_kept(run_inside, tmp_path):
    """Launches that only tune are no launches of the test. The limit also turns counting on, and fails the test that breaks it."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "test_tuned.py").write_text(_TUNED)
    gates = Gates(OPEN, counters=tuple(CounterLimit(Which(function=(name,)), "memory", 3.0, "barriers") for name in ("added", "others")))
    output = run_inside(package, Stage.TEST, interpret=False, emulate=CARD, benches=(), test_s=60.0, autotune="all", gates=gates)
    rows = [json.loads(line) for line in (output / "test" / "profile.jsonl").read_text().splitlines()]
    (failure,) = ElementTree.parse(output / "test" / "junit.xml").getroot().iter("failure")

    assert [row["configuration"].partition(",")[0] for row in rows] == ["BLOCK=64", "BLOCK=512"]
    assert [(row["launches"], row["programs"]) for row in rows] == [(1, 16), (1, 2)]
    assert "memory of added" in failure.get("message")
    assert "others" not in failure.get("message")
    assert "no kernel was launched that the limit of memory of others is for" in (output / "stages.json").read_text()


_BUNDLED = """import sys
sys.path.insert(0, {root!r})
import torch
from kernels.add.add import add
from kernels.attention.attention import scaled_dot_product_attention
from kernels.layer_norm.layer_norm import layer_norm
from kernels.matmul.matmul import matmul
from kernels.rms_norm.rms_norm import rms_norm
from kernels.softmax.softmax import softmax

def rand(*shape): return torch.randn(shape, device="cuda", dtype=torch.float16)
def test_add(): add(rand(1 << 14), rand(1 << 14), alpha=1.5)
def test_softmax(): softmax(rand(64, 1024), 1)
def test_rms_norm(): rms_norm(rand(64, 1024), (1024,), rand(1024))
def test_layer_norm(): layer_norm(rand(64, 1024), (1024,), rand(1024), rand(1024))
def test_matmul(): matmul(rand(128, 64), rand(64, 256))
def test_attention(): scaled_dot_product_attention(*(rand(1, 2, 128, 64) for _ in range(3)))
"""


def test_totals_of_the_bundled_kernels_follow_from_the_algorithm(run_inside, tmp_path):
    """Bytes read and written once, of two each and of four for what the backward needs of a row; operations of products."""
    package, root = tmp_path / "package", Path(__file__).parents[4]
    package.mkdir()
    (package / "test_bundled.py").write_text(_BUNDLED.format(root=str(root)))
    output = run_inside(package, Stage.TEST, interpret=False, emulate=CARD, benches=(), test_s=60.0, profile=True, sanitize=False)
    found = map(json.loads, (output / "test" / "profile.jsonl").read_text().splitlines())
    rows = {row["case"].partition("::test_")[2]: row for row in found}
    moved = {name: (row["counters"]["read_bytes"], row["counters"]["written_bytes"]) for name, row in rows.items()}
    of_products = {
        name: sum(count * products(kind) for kind, count in row["matrix"].items()) for name, row in rows.items() if row["matrix"]
    }
    matrix = 64 * 1024 * 2

    assert moved == {
        "add": (2 * (2 << 14), 2 << 14),
        "softmax": (matrix, matrix),
        "rms_norm": (matrix + 1024 * 2, matrix + 64 * 4),
        "layer_norm": (matrix + 2 * 1024 * 2, matrix + 2 * 64 * 4),
        "matmul": (2 * (128 * 64 + 64 * 256), 2 * 128 * 256),
        "attention": (3 * 2 * 2 * 128 * 64, 2 * 2 * 128 * 64 + 2 * 128 * 4),
    }
    assert of_products == {"matmul": 2 * 128 * 256 * 64, "attention": 2 * 2 * 2 * 128 * 128 * 64}
    assert rows["add"]["counters"]["flop"] == 2 << 14


# What a suite of hundreds of kernels keeps in memory on an emulated target.

texts = pytest.importorskip("warpwave.inside.fake_gpu.emulated", reason="the inside needs torch and triton; `nox -s tests` installs them")


def test_texts_are_read_from_the_disk_when_asked_for(tmp_path):
    """They look as Triton's own do, however they are asked for. The binary stays."""
    (tmp_path / "k.ttir").write_text("first")
    files = {name: str(tmp_path / name) for name in ("k.json", "k.ttir", "k.hsaco")}
    kernel = SimpleNamespace()

    def init(self, source):
        self.metadata_group, self.asm = files, {"ttir": source, "hsaco": b"code", "made": "not in a file"}

    texts.with_texts_on_disk(init, kernel, "first")
    (tmp_path / "k.ttir").write_text("second")

    expected = {"ttir": "second", "hsaco": b"code", "made": "not in a file"}
    assert dict(kernel.asm) == {**kernel.asm} == dict(kernel.asm.items()) == expected
    assert (kernel.asm["ttir"], kernel.asm.get("ttir"), kernel.asm.get("ptx")) == ("second", "second", None)
    assert list(kernel.asm.values()) == list(expected.values())
    with pytest.raises(KeyError, match="ptx"):
        kernel.asm["ptx"]


# Which failures on an emulated target are host code's own. An innocent twin could be the emulator's: a card may pass it.


def raised(error, file="test_a.py"):
    """The error, as if a line of that file of the package had raised it."""
    code = compile("raise error", f"/package/{file}", "exec")
    with pytest.raises(type(error)) as caught:
        exec(code, {"error": error})
    return caught.value


def account(launches=1, read=True, fault=None):
    return types.SimpleNamespace(launches=launches, read=read, fault=fault)


@pytest.mark.parametrize(
    ("error", "file", "state", "why"),
    [
        (KeyError("hip"), "test_a.py", account(launches=0, read=False), "before the first launch"),
        (ValueError("n"), "test_a.py", account(launches=0, read=False), "before the first launch"),
        (KeyError("hip"), "test_a.py", account(), "by host code"),
        (NameError("n"), "test_a.py", account(), "by host code"),
        (ValueError("n"), "test_a.py", account(read=False), "before host code read a result"),
        (ValueError("waves_per_eu"), "triton/compiler.py", account(), "by Triton, before a launch"),
        (ValueError("n"), "test_a.py", account(), ""),
        (KeyError(3), "test_a.py", account(), ""),
        (AssertionError("not close"), "torch/testing/_comparison.py", account(read=False), ""),
        (AssertionError("not equal"), "numpy/testing/utils.py", account(read=False), ""),
        (KeyError("hip"), "test_a.py", account(fault=Fault("failed", "a trap")), ""),
    ],
)
def test_an_error_is_host_codes_own_if_no_number_can_be_its_cause(tmp_path, error, file, state, why):
    """A wrong number that a kernel made can end in anything that host code decides by what it read."""
    found = raised_by_host(raised(error, file), state, tmp_path)

    assert found == (f"{type(error).__name__} was raised {why}" if why else "")


@pytest.mark.parametrize("read", ["item", "tolist", "equal", "allclose", "numpy", "__bool__", "__array__"])
def test_what_turns_a_result_into_numbers_is_a_read(read):
    kept = Account("gfx942", 64, 60.0)
    function = getattr(torch.Tensor, read)
    kept.watch(function)
    before, kept.launches = kept.read, 1
    kept.watch(torch.Tensor.add)
    between = kept.read
    kept.watch(function)

    assert (before, between, kept.read) == (False, False, True)
    kept.begin()
    assert not kept.read, "the next test has read nothing"


def test_the_code_behind_each_pass_computes_what_the_machine_code_does(run_inside, tmp_path):
    """Also where tuning launches the kernel first; and digests of the code are kept, for another Triton to be compared with."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "test_tuned.py").write_text(_TUNED)
    output = run_inside(package, Stage.TEST, interpret=False, emulate=CARD, benches=(), test_s=60.0, passes=True)
    (case,) = ElementTree.parse(output / "test" / "junit.xml").getroot().iter("testcase")
    told = {entry.get("name"): entry.get("value") for entry in case.iter("property")}

    assert re.fullmatch(r"the front end, all \d+ passes of .* and the machine code compute the same", told["passes of added"])
    steps = [step.rpartition(":") for step in told["code of added"].split()]
    assert steps[0][0] == "front_end"
    assert {name.partition("/")[0] for name, _, _ in steps[1:]} == {"make_ttir", "make_ttgir_early", "make_ttgir", "make_llir"}
    assert len({digest for _, _, digest in steps}) > 5
