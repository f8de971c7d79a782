"""The first pass of the compiler after which a kernel computes something else."""

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from warpwave.inside.codegen.passes import FRONT_END, After, changes, first_other, one_by_one, snapshot

N = 200


@triton.jit
def scaled(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n, other=0.0).to(tl.float32)
    for _ in range(3):
        value = (value * 1.5).to(tl.bfloat16).to(tl.float32)
    tl.store(y + i, value, mask=i < n)
    tl.store(y + i, tl.load(y + i, mask=i < n) + 0.25, mask=i < n)


@triton.jit
def counted(x, y, n, BLOCK: tl.constexpr):
    tl.atomic_add(y, 1.0)


@pytest.fixture(scope="module", params=[("cuda", 90, 32), ("hip", "gfx942", 64)])
def codes(request, tmp_path_factory):
    """The code of both kernels behind each pass."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TRITON_DEFAULT_FP_FUSION", "1")
        patched.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        return {kernel.__name__: _codes(kernel, GPUTarget(*request.param)) for kernel in (scaled, counted)}


def _codes(kernel, target):
    found = []
    with one_by_one(found.append):
        triton.compile(ASTSource(kernel, {"x": "*bf16", "y": "*fp32", "n": "i32"}, {"BLOCK": 128}), target=target)
    return found


def run(codes, spoil_from=None, spoil_end=False):
    x, y = torch.linspace(-3, 3, N).to(torch.bfloat16), torch.zeros(N)
    storages = [(each.untyped_storage().data_ptr(), each.untyped_storage().nbytes()) for each in (x, y)]
    before, grid = snapshot(storages), (2, 1, 1)
    arguments = [x.data_ptr(), y.data_ptr(), N]
    want = x.float()
    for _ in range(3):
        want = (want * 1.5).bfloat16().float()
    end = {storages[0]: before[storages[0]], storages[1]: (want + 0.25 + spoil_end).numpy().view("u1")}
    names = [code.name for code in codes]
    first = names.index(spoil_from) if spoil_from else len(codes)
    planted = [
        After(code.name, code.code.replace("2.500000e-01", "7.500000e-01") if at >= first else code.code) for at, code in enumerate(codes)
    ]
    return first_other(planted, arguments, grid, before, end, {storages[0]: "bf16", storages[1]: "f4"})


SAME = "the front end, all {all} passes of make_ttir and make_ttgir and the machine code compute the same"
BEHIND = "all {all} passes of make_ttir and make_ttgir change nothing; what comes behind them, to the machine code, does"
FIRST = "{name} is the first pass after which it computes something else (pass {number} of {all})"


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        ({}, SAME),
        ({"spoil_end": True}, BEHIND),
        ({"spoil_from": "make_ttir/inliner"}, FIRST),
        ({"spoil_from": "make_ttir/cse"}, FIRST),
        ({"spoil_end": 1e-5}, f"{SAME}, but for rounding"),
        ({"spoil_from": "make_ttgir/coalesce"}, FIRST),
    ],
)
def test_the_first_wrong_step_is_named(codes, planted, told):
    passes = [code.name for code in codes["scaled"] if code.name.startswith(("make_ttir/", "make_ttgir"))]
    name = planted.get("spoil_from", "")
    number = passes.index(name) + 1 if name in passes else 0

    assert run(codes["scaled"], **planted) == told.format(name=name, number=number, all=len(passes))
    assert codes["scaled"][0].name == FRONT_END


@triton.jit
def attend(q, k, v, o, count, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    rows, at = tl.arange(0, M), tl.arange(0, D)
    left = tl.load(q + rows[:, None] * D + at[None, :])
    total = tl.zeros((M, D), tl.float32)
    for start in range(0, count, N):
        columns = start + tl.arange(0, N)
        right = tl.load(k + columns[None, :] * D + at[:, None], mask=columns[None, :] < count, other=0.0)
        weights = tl.exp(tl.dot(left, right) * 0.125)
        total += tl.dot(weights.to(tl.bfloat16), tl.load(v + columns[:, None] * D + at[None, :], mask=columns[:, None] < count, other=0.0))
    tl.store(o + rows[:, None] * D + at[None, :], total)


@pytest.mark.parametrize("architecture", ["gfx942", "gfx950", "gfx1100"])  # one has buffers, one copies straight to shared memory
def test_shared_memory_copies_and_buffers_are_executed(architecture, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    q, k, v, o = [*torch.randn(3, 96, 32).bfloat16(), torch.zeros(32, 32)]
    weights = torch.exp((q[:32].float() @ k.float().T) * 0.125).bfloat16().float()
    tensors, attributes = (q, k, v, o), [["tt.divisibility", 16], ["tt.pointer_range", 32]]
    signature = dict.fromkeys("qkv", "*bf16") | {"o": "*fp32", "count": "i32"}
    found: list[After] = []
    with one_by_one(found.append):
        constants = {"M": 32, "N": 32, "D": 32}
        source = ASTSource(attend, signature, constants, attrs={(at,): attributes for at in range(4)})
        triton.compile(source, target=GPUTarget("hip", architecture, 32 if architecture == "gfx1100" else 64))
    storages = [(each.untyped_storage().data_ptr(), each.untyped_storage().nbytes()) for each in tensors]
    before = snapshot(storages)
    o.copy_(weights @ v.float())
    types = dict(zip(storages, ["bf16"] * 3 + ["f4"], strict=False))
    arguments = [*(each.data_ptr() for each in tensors), 96]

    def told(codes):
        return first_other(codes, arguments, [1], before, snapshot(storages), types)

    passes = [code for code in found if code.name.startswith(("make_ttir/", "make_ttgir"))]
    assert told(found) == f"{SAME.format(all=len(passes))}, but for rounding"
    for number in range(1, len(passes) + 1, 6):
        planted = [code._replace(code=code.code.replace("1.250000e-01", "2.500000e-01")) for code in found[number:]]
        assert told([*found[:number], *planted]) == FIRST.format(name=found[number].name, number=number, all=len(passes))


def test_what_has_no_rule_is_not_executed(codes):
    assert run(codes["counted"]) == "not executed: its first code has tt.atomic_rmw"


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ('  %at = arith.constant 1 : i32\n  use %at loc(callsite(#loc1 at #loc20))\n#loc20 = loc("a.py":20:3)\n#loc1 = loc("a")\n', True),
        ("  %at_1 = arith.constant 1 : i32\n  use %at_1\n", True),
        ("  %0 = arith.constant 2 : i32\n  use %0\n", False),
        ("  %0 = arith.constant 1 : i32\n  use %1\n", False),
    ],
)
def test_only_other_code_has_another_digest(other, same):
    """Releases differ in the places in the source and in the names of values: neither is another code."""
    one = After("a", '  %0 = arith.constant 1 : i32 loc(#loc1)\n  use %0 loc(#loc)\n#loc = loc("a.py":1:3)\n')

    assert (one.digest == After("a", other).digest) == same


def test_only_steps_that_changed_the_code_are_named(codes):
    """All 45 steps were too long for a property of a test."""
    named = [step.partition(":")[0] for step in changes(codes["scaled"]).split()]

    assert (named[0], named[-1]) == (FRONT_END, "make_llir")
    assert len(named) < len(codes["scaled"])
    assert len(changes(codes["scaled"])) < 1500
