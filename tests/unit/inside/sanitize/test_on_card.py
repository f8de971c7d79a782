"""What `--sanitize` does where a card is: which of Triton's sanitizers run, what they leave out, and the comparison of schedules.

There is no card here. Codes are compiled for one, and launches are played by a function. An H200 with Triton 3.9 printed the assertions.
"""

from types import SimpleNamespace

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")


import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from warpwave.inside.sanitize import on_card
from warpwave.inside.sanitize.schedules import SLOW, Schedules, comparable
from warpwave.records import Defect

pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
HOPPER = GPUTarget("cuda", 90, 32)


@pytest.fixture(autouse=True)
def no_capture(monkeypatch):
    """torch without CUDA cannot be asked."""
    monkeypatch.setattr("torch.cuda.is_current_stream_capturing", lambda: False)


@triton.jit
def plain(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.cumsum(tl.load(x + i) - tl.max(tl.load(x + i), 0), 0))


@triton.jit
def alone(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.load(x + i) * 2)


@triton.jit
def through_memory(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.load(x + i))
    tl.store(x + i, tl.load(y + N - 1 - i))


@triton.jit
def in_a_loop(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    for step in range(4):
        tl.store(x + i * step, tl.load(x + i + step))


@triton.jit
def largest(x, y, N: tl.constexpr):
    tl.store(y, tl.max(tl.load(x + tl.arange(0, N)), 0, return_indices=True)[0])


@triton.jit
def indexed(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.load(x + tl.load(x + i).to(tl.int32)))


@triton.jit
def bits(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.load(x + i).to(tl.int32, bitcast=True).to(tl.float32))


@triton.jit
def adds(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_add(y + i, tl.load(x + i))


@triton.jit
def until(x, y, N: tl.constexpr):
    value = tl.load(x)
    while value > 1.0:
        value *= 0.5
    tl.store(y, value)


@triton.jit
def volatile(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.load(x + i, volatile=True))


@triton.jit
def product(x, y, N: tl.constexpr):
    i = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y + i, tl.dot(tl.load(x + i), tl.load(x + i)))


def code(kernel, dtype="fp32", n=64):
    return triton.compile(ASTSource(kernel, {"x": "*fp32", "y": f"*{dtype}", "N": "constexpr"}, {(2,): n}), HOPPER).asm["ttir"]


@pytest.mark.parametrize(
    ("kernel", "is_compared"),
    [
        (plain, True),
        (product, True),
        (through_memory, True),
        (in_a_loop, True),
        (alone, False),
        (largest, False),
        (indexed, False),
        (bits, False),
        (adds, False),
        (until, False),
    ],
)
def test_what_is_compared(kernel, is_compared):
    """Lanes meet in it, and it takes no order, address or end from floats: FpSan's numbers are others than the kernel's."""
    assert comparable(code(kernel)) is is_compared


def test_a_large_product_is_not_compared():
    """FpSan's code of it takes a minute to compile."""
    assert not comparable(code(product, n=256))


@pytest.mark.parametrize(("dtype", "is_small"), [("bf16", True), ("i8", True), ("fp32", False), ("fp64", False)])
@pytest.mark.parametrize("kernel", [plain, adds])
def test_gsan_leaves_out_kernels_that_store_parts_of_words(kernel, dtype, is_small):
    """It keeps one record for four bytes: two programs that write one half each would be a race."""
    if kernel is adds and dtype == "i8":
        pytest.skip("Triton has no such atomic")
    assert on_card.stores_parts_of_words(code(kernel, dtype)) is is_small


def test_gsan_leaves_out_volatile_loads():
    """A program that polls a word that another one publishes would be a race."""
    assert on_card._UNORDERED.search(code(volatile))
    assert not on_card._UNORDERED.search(code(plain))


def test_stores_of_gluon_kernels_are_seen():
    """Their first code names them otherwise. The line is of a kernel of the bundled package."""
    line = "ttng.async_tma_copy_local_to_global %desc[%a, %b] %x : !tt.tensordesc<1x128x64xf16, #shared>, !ttg.memdesc<1x128x64xf16>"
    assert on_card.stores_parts_of_words(line)
    assert not on_card.stores_parts_of_words(line.replace("f16", "f32"))


@pytest.mark.parametrize(
    ("target", "modes"),
    [
        (HOPPER, ["consan", "gsan", "fpsan"]),
        (GPUTarget("hip", "gfx942", 64), ["fpsan"]),
        (GPUTarget("hip", "gfx1100", 32), []),
        (GPUTarget("hip", "gfx1250", 32), ["consan", "fpsan"]),
    ],
)
@pytest.mark.skipif(not hasattr(triton.knobs.compilation, "fpsan_homomorphic_casts"), reason="this Triton has ConSan alone")
def test_each_card_has_the_sanitizers_of_its_compiler(target, modes):
    """As Triton 3.9 has them."""
    assert on_card._of_triton(target) == modes


@pytest.mark.parametrize(
    ("modes", "asked", "chosen"),
    [
        (["consan", "gsan", "fpsan"], "", ["consan", "fpsan"]),
        (["consan", "gsan", "fpsan"], "gsan", ["gsan", "fpsan"]),
        (["fpsan"], "gsan", ["fpsan"]),
        (["consan"], "gsan", ["consan"]),
    ],
)
def test_gsan_runs_if_asked_for_and_without_consan(modes, asked, chosen):
    """A card or a Triton may not have it."""
    assert on_card._chosen(modes, asked) == chosen


@pytest.mark.parametrize("begins", [True, False])
def test_consan_runs_where_gsan_cannot_begin(begins, tmp_path, monkeypatch):
    """Which it cannot without a C++ compiler."""
    notes: list[str] = []
    sanitizers = plugin(tmp_path, "", pool=None)
    sanitizers.journal = SimpleNamespace(write=lambda kind, text: notes.append(text))
    monkeypatch.setattr(triton.runtime.driver, "_active", SimpleNamespace(get_current_target=lambda: HOPPER), raising=False)
    monkeypatch.setattr(on_card, "_of_triton", lambda target: ["consan", "gsan", "fpsan"])
    monkeypatch.setattr(sanitizers, "_follow_memory", lambda: begins)
    monkeypatch.setattr(triton.knobs.compilation, "instrumentation_mode", "gsan")
    monkeypatch.setattr(triton.runtime.jit.JITFunction, "run", triton.runtime.jit.JITFunction.run)
    monkeypatch.setattr(triton.runtime._allocation.NullAllocator, "__call__", triton.runtime._allocation.NullAllocator.__call__)
    sanitizers._begin()
    first = "GSan checked" if begins else "ConSan checked"
    assert sanitizers.modes == ["gsan" if begins else "consan", "fpsan"]
    assert first in notes[-1]


def test_a_card_without_a_sanitizer_is_not_checked(tmp_path):
    """Green would mean more than was done."""
    sanitizers, item = plugin(tmp_path, "", pool=None), SimpleNamespace(user_properties=[])
    sanitizers._begun, sanitizers._none = True, "Triton 3.9.0 has no sanitizer for this card"
    test = sanitizers.pytest_runtest_call(item)
    next(test)
    with pytest.raises(StopIteration):
        test.send(None)
    assert item.user_properties == [("not-followed", "Triton 3.9.0 has no sanitizer for this card")]


GSAN = "/k.py:30: : block: [13,0,0], thread: [4,0,0] Assertion `Read after write race detected` failed.\n"
LIMIT = "/k.py:30: : block: [1,0,0], thread: [0,0,0] Assertion `Vector clock overflowed` failed.\n"


def test_an_assertion_of_gsan_is_a_race(tmp_path):
    """Threads print it each; a row has the first program."""
    log = tmp_path / "log.txt"
    log.write_text("")
    asserted = on_card.Asserted(log)
    (row,) = asserted.rows(GSAN * 2)
    assert (row.defect, row.line, row.program) == (Defect.RACE, 30, (13, 0, 0))
    assert row.sentence == "race in unknown at k.py:30: global memory: read after write, and nothing orders the two, program (13, 0, 0)"
    assert not asserted.is_beyond


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("Shared memory reused before barrier invalidation", True),
        ("Barrier used before initialization or after invalidation", True),
        ("Deadlock detected while waiting on an mbarrier", True),
        ("Async shared-memory access is missing fence_async_shared", True),
        ("Buffer being accessed has outstanding reads", True),
        ("index out of range", False),
    ],
)
def test_what_consan_says_of_shared_memory_is_a_race(text, is_found):
    """An assertion of the kernel's author is none."""
    found = on_card.findings(f"/k.py:188: unknown: block: [0,1,4], thread: [0,0,0] Assertion `{text}` failed.\n")
    assert [row.sentence for row in found] == [f"race in unknown at k.py:188: shared memory: {text}, program (0, 1, 4)"] * is_found


@pytest.mark.parametrize(("grid", "mode"), [((4,), "gsan"), ((0,), "")])
def test_a_launch_without_programs_is_not_gsans(tmp_path, monkeypatch, grid, mode):
    """GSan's clocks go from launch to launch, and no program would pass them on."""
    monkeypatch.setattr(on_card.Sanitizers, "_not_followed", lambda *_: "")
    modes = []
    sanitizers = plugin(tmp_path, "", pool=object())
    sanitizers.modes = ["gsan"]
    launch = sanitizers._checking(lambda *_, **__: modes.append(triton.knobs.compilation.instrumentation_mode) or SimpleNamespace(asm={}))
    launch(plain, torch.zeros(4), torch.zeros(4), grid=grid, warmup=False)
    assert modes[-1] == mode


def plugin(tmp_path, printed, pool):
    """The plugin after a test that has printed this."""
    log = tmp_path / "log.txt"
    log.write_text("")
    asserted = on_card.Asserted(log)
    asserted.rows(printed)
    sanitizers = on_card.Sanitizers(None, asserted)
    sanitizers._pool = pool
    return sanitizers


@pytest.mark.parametrize(
    ("printed", "error", "is_skipped"),
    [
        (LIMIT, None, True),
        (LIMIT, RuntimeError("device-side assert"), True),
        ("", torch.OutOfMemoryError("out of memory"), True),
        (GSAN, RuntimeError("device-side assert"), False),
        ("", None, False),
    ],
)
def test_a_test_beyond_gsans_limits_is_skipped(tmp_path, printed, error, is_skipped):
    """They are no fault of the package."""
    item = SimpleNamespace(user_properties=[])
    test = plugin(tmp_path, printed, pool=object()).pytest_runtest_call(item)
    next(test)
    with pytest.raises((StopIteration, pytest.skip.Exception, RuntimeError)) as ended:
        test.throw(error) if error else test.send(None)
    assert (ended.type is pytest.skip.Exception) is is_skipped
    assert bool(item.user_properties) is is_skipped


def test_without_gsan_a_test_that_has_no_room_fails(tmp_path):
    """Only GSan needs several times the memory."""
    test = plugin(tmp_path, "", pool=None).pytest_runtest_call(SimpleNamespace(user_properties=[]))
    next(test)
    with pytest.raises(torch.OutOfMemoryError):
        test.throw(torch.OutOfMemoryError("out of memory"))


def launched(body, *args, asm=None, times=1):
    """Compare a kernel that `body(x, y, warps)` plays; return what was found, and the calls."""
    calls, found = [], on_card.Collected()

    def run(function, x, y, *, grid, warmup, num_warps=8, num_stages=3):
        calls.append((triton.knobs.compilation.instrumentation_mode, num_warps, num_stages))
        body(x, y, num_warps)

    compiled = SimpleNamespace(
        metadata=SimpleNamespace(num_warps=8, num_stages=3), src=SimpleNamespace(signature={}, constants={}, attrs={})
    )
    schedules = Schedules(run, found)
    for _ in range(times):
        schedules.compare(plain, args, (1,), {}, compiled, code(plain) if asm is None else asm)
    return found.take(), calls


def test_elements_that_depend_on_the_schedule_are_found():
    """The tensors are as before then: the test's own launch comes next."""
    x, y = torch.zeros(4), torch.full((2, 3), 7.0)

    def body(x, y, warps):
        y[1] += warps
        y[0, 0] = 1

    (row,), calls = launched(body, x, y)
    assert calls == [("fpsan", 8, 3), ("fpsan", 16, 1)]
    assert (row.defect, row.function, row.tensor, row.indices) == (Defect.ORDER, "plain", "y", (1, 0))
    assert row.sentence == (
        f"depends-on-order in plain at test_on_card.py:{row.line}: y[1, 0], of shape [2, 3], is different with num_warps=16, num_stages=1 "
        "from num_warps=8, num_stages=3, as are 2 more; FpSan counts in whole numbers, so it is not rounding: "
        "def plain(x, y, N: tl.constexpr):"
    )
    assert torch.equal(y, torch.full((2, 3), 7.0))


def test_a_kernel_that_gives_the_same_bits_is_right():
    """It is launched twice for its first launch in a test, and not for the next ones."""
    x, y = torch.zeros(4), torch.zeros(4)
    found, calls = launched(lambda x, y, warps: y.fill_(3), x, y, times=3)
    assert (found, len(calls)) == ([], 2)


@pytest.mark.parametrize(("spent_s", "said"), [(33.0, ""), (34.0, SLOW)])
def test_fpsan_takes_half_as_long_as_all_else(monkeypatch, spent_s, said):
    """Of 100 seconds, a third. Its code takes up to ten times as long to compile."""
    clock = iter([0.0, *[100.0] * 10])
    monkeypatch.setattr("warpwave.inside.sanitize.schedules.time.monotonic", lambda: next(clock))
    schedules = Schedules(lambda *args, **kwargs: None, on_card.Collected())
    schedules.spent_s = spent_s
    compiled = SimpleNamespace(
        metadata=SimpleNamespace(num_warps=8, num_stages=3), src=SimpleNamespace(signature={}, constants={}, attrs={})
    )
    assert schedules.compare(plain, (torch.zeros(4), torch.zeros(4)), (1,), {}, compiled, code(plain)) == said


def test_what_fpsan_cannot_compile_is_left_alone():
    """The test's own launch says what is wrong with a kernel, if anything is."""
    x, y = torch.zeros(4), torch.zeros(4)

    def body(x, y, warps):
        y[0] = warps
        raise RuntimeError("failed to legalize operation 'tt.dot'")

    assert launched(body, x, y)[0] == []
    assert torch.equal(y, torch.zeros(4))


def test_nothing_is_compared_while_a_graph_is_captured(monkeypatch):
    """To wait for a result there would end the capture."""
    monkeypatch.setattr("torch.cuda.is_current_stream_capturing", lambda: True)
    assert launched(lambda *_: None, torch.zeros(4), torch.zeros(4)) == ([], [])


def test_a_kernel_that_is_not_comparable_is_not_launched():
    """An address could be anywhere."""
    assert launched(lambda *_: None, torch.zeros(4), torch.zeros(4), asm=code(indexed)) == ([], [])
