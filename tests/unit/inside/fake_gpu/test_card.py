"""Which configuration an autotuned kernel takes where nothing can be timed."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")
tuner = pytest.importorskip("warpwave.inside.fake_gpu.tuning", reason="the inside needs torch and triton; `nox -s tests` installs them")

import command
import numpy as np
import triton
from slow_cases import slow_but
from triton._C.libtriton import amd, nvidia
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime import _allocation
from triton.tools.tensor_descriptor import TensorDescriptor

from warpwave.config.targets import load_targets
from warpwave.inside.fake_gpu import objects
from warpwave.inside.fake_gpu.allocated import ALLOCATED
from warpwave.inside.fake_gpu.driver import scratch, vendor_products
from warpwave.inside.fake_gpu.emulated import EmulatedDriver
from warpwave.inside.fake_gpu.launches import LaunchRefusedError, check_descriptors, check_grid, check_scratch
from warpwave.inside.fake_gpu.unknown import UnknownInt
from warpwave.inside.process.outcomes import NotPretended
from warpwave.inside.test.notes import raised_by_host
from warpwave.records import Stage, to_json

CARD = SimpleNamespace(warp_size=64, program_threads=1024, properties={"max_shared_mem": 65536})


class Warmed:
    """A kernel whose configurations need as much shared memory as their name says; `broken` does not compile."""

    def __init__(self) -> None:
        self.asked = []

    def warmup(self, *args, grid, **config):
        self.asked.append((args, config))
        if config["size"] == "broken":
            raise RuntimeError("does not compile")
        return SimpleNamespace(metadata=SimpleNamespace(shared=config["size"], num_warps=config.get("num_warps", 4)))


def chosen(sizes: list, turn: int = 0) -> tuple[object, Warmed]:
    tuning, kernel = tuner.Tuning(), Warmed()
    tuning.turn, tuning.fits = turn, tuner.fits_on(CARD)
    asking = SimpleNamespace(fn=kernel, nargs={"x": 1}, base_fn=chosen)
    configs = [SimpleNamespace(size=size, all_kwargs=lambda size=size: {"size": size}) for size in sizes]
    (left,) = tuning.choosing(lambda tuner, kwargs: configs, asking, {"grid": (7,), "warmup": False, "n": 5})
    return left.size, kernel


@pytest.mark.parametrize(
    ("sizes", "taken"),
    [([100, 200], 100), ([98304, 131072, 65536, 10], 65536), ([98304, 131072], 98304), (["broken", 10], "broken"), ([98304], 98304)],
)
def test_a_configuration_that_does_not_fit_is_left_out(sizes, taken):
    """As an autotuner does on a card. If none fits, or one does not compile, the launch says what is wrong."""
    assert chosen(sizes)[0] == taken


def test_a_configuration_with_too_many_threads_is_left_out():
    wide, right = (SimpleNamespace(num_warps=warps) for warps in (32, 16))
    fits = tuner.has_threads(CARD)

    assert (fits(None, {}, wide), fits(None, {}, right)) == (False, True)


def test_a_turn_takes_the_next_that_fits():
    assert chosen([10, 98304, 20, 30], turn=1)[0] == 20


def test_a_configuration_is_compiled_for_the_arguments_of_its_launch():
    assert chosen([10, 20])[1].asked == [((1,), {"n": 5, "size": 10})]


def test_a_cache_that_cannot_be_emptied_stays():
    """FlagGems' autotuner keeps what it chose in a database, which has no `clear`."""
    tuning = tuner.Tuning()
    tuning.every = True
    kept, emptied = SimpleNamespace(cache=object()), SimpleNamespace(cache={"key": "config"})
    tuning._tuners += [kept, emptied]
    tuning.begin()

    assert emptied.cache == {}


class Launched:
    """A kernel that is a function of Python."""

    def __init__(self, function) -> None:
        self.fn, self.sizes = function, []

    def run(self, *args, SIZE, grid=None, warmup=False, num_warps=4, num_ctas=1, num_stages=3, maxnreg=None, ir_override=None, **named):
        self.sizes.append(SIZE)
        self.fn(*args, **named)


def double(x, n):
    x.mul_(2)


def total(x, out):
    out.add_(x.sum())


def move(x, out):
    out.copy_(x * 2)
    x.zero_()


def split(x, rest):
    x.copy_(rest)


def relu(x, n):
    x.relu_()


def swap(x, none, pair, descriptor):
    pair[1].sub_(x)


def count(x, n):
    count.calls = getattr(count, "calls", 0) + 1
    x.fill_(count.calls)


@pytest.fixture
def tuned():
    """Make a tuner of a function, as `@triton.autotune` does, where nothing can be timed."""
    torch, triton = pytest.importorskip("torch"), pytest.importorskip("triton")
    from warpwave.inside.fake_gpu.answers import autotuning, changes
    from warpwave.inside.fake_gpu.torch_device import apply

    tuning = tuner.Tuning()

    def tune(function, names, sizes=(1, 2, 3), pre_hook=None, **options):
        configs = [triton.Config({"SIZE": size}, pre_hook=pre_hook) for size in sizes]
        options = {"key": ["n"] if "n" in names else [], "reset_to_zero": None, "restore_value": None, **options}
        return triton.runtime.Autotuner(Launched(function), names, configs, **options)

    with contextlib.ExitStack() as undo:
        apply(changes(autotuning(tuning)), undo)
        yield SimpleNamespace(tune=tune, tuning=tuning, ones=torch.ones)


def test_a_tuner_is_left_as_on_a_card(tuned):
    """With a time for each configuration; and what it chooses may not be given."""
    kernel = tuned.tune(relu, ["x", "n"])
    kernel.run(tuned.ones(4), 4, grid=(1,), warmup=False)

    assert list(kernel.configs_timings) == kernel.configs
    with pytest.raises(ValueError, match="Conflicting meta-parameters: SIZE"):
        kernel.run(tuned.ones(5), 5, SIZE=2, grid=(1,), warmup=False)


def test_a_kernel_that_changes_what_it_is_tuned_on_does_so_here(tuned):
    """As on a card, the first call changes the memory more than once. The kernel, the argument and the remedy are named."""
    x = tuned.ones(4)
    tuned.tune(double, ["x", "n"]).run(x, 4, grid=(1,), warmup=False)

    assert x.tolist() == [4.0] * 4
    (said,) = tuned.tuning.in_place
    assert "`x`" in said
    assert "`double`" in said
    assert "restore_value=['x']" in said


@pytest.mark.parametrize(
    ("function", "given", "named"),
    [(total, ["x", "out"], "out"), (move, ["x", "out"], "x")],
    ids=["a sum", "what is only written is not named"],
)
def test_the_argument_that_is_read_and_then_written_is_named(tuned, function, given, named):
    tuned.tune(function, given).run(tuned.ones(4), tuned.ones(4))

    assert [said.partition(":")[0] for said in tuned.tuning.in_place] == [f"autotuning changed `{named}`"]


def test_a_view_and_what_is_no_tensor(tuned):
    """Two views of one storage, of which one changes; below a descriptor; beside None and a tuple."""
    both = tuned.ones(8)
    pair = (tuned.ones(2), both[1::2])
    tuned.tune(swap, ["x", "none", "pair", "descriptor"]).run(both[::2], None, pair, SimpleNamespace(base=tuned.ones(3)))

    assert both.tolist() == [1.0, -1.0] * 4
    assert [said.partition(":")[0] for said in tuned.tuning.in_place] == ["autotuning changed `pair`"]


@pytest.mark.parametrize(
    ("function", "names", "options"),
    [
        (double, ["x", "n"], {"restore_value": ["x"]}),
        (double, ["x", "n"], {"sizes": (1,)}),
        (double, ["x", "n"], {"pre_hook": lambda given: given["x"].fill_(1.0)}),
        (double, ["x", "n"], {"pre_hook": None, "prune_configs_by": {"early_config_prune": lambda configs, *_, **__: configs[:1]}}),
        (relu, ["x", "n"], {}),
        (total, ["out", "x"], {"restore_value": ["x"]}),
        (total, ["x", "out"], {"reset_to_zero": ["out"]}),
        (split, ["x", "rest"], {}),
        (count, ["x", "n"], {}),
    ],
    ids=["restored", "one", "hook", "pruned", "the same again", "restored sum", "zeroed", "only written", "a clock"],
)
def test_what_tuning_leaves_as_it_was_is_not_named(tuned, function, names, options):
    kernel = tuned.tune(function, names, **options)
    kernel.run(tuned.ones(4), 4 if "n" in names else tuned.ones(4) * 3, grid=(1,))

    assert tuned.tuning.in_place == []


def test_what_was_tuned_before_is_not_tuned_again(tuned):
    """By a fixture, or by an earlier call. Another key is tuned, and so is the next turn of the same test."""
    kernel = tuned.tune(double, ["x", "n"])
    kernel.run(tuned.ones(4), 4)
    tuned.tuning.begin()
    x, y = tuned.ones(4), tuned.ones(4)
    kernel.run(x, 4)
    assert tuned.tuning.in_place == []
    kernel.run(y, 5)
    assert (x.tolist(), y.tolist(), len(tuned.tuning.in_place)) == ([2.0] * 4, [4.0] * 4, 1)

    tuned.tuning.turn, tuned.tuning.every = 1, True
    tuned.tuning.begin()
    kernel.run(x, 4)
    kernel.run(y, 5)
    assert len(tuned.tuning.in_place) == 1
    assert set(kernel.fn.sizes) == {1, 2}


def test_a_choice_stays_for_later_tests_as_on_a_card(tuned):
    """Also one that its key should not share: of what depends on `m`, the key does not know. Each test names what it runs with."""
    options = {"early_config_prune": lambda configs, named, **_: [each for each in configs if each.kwargs["SIZE"] >= named["m"]]}
    kernel = tuned.tune(lambda x, n, m: None, ["x", "n", "m"], prune_configs_by=options)
    kernel.run(tuned.ones(4), 4, 1)
    tuned.tuning.begin()
    assert len(kernel.cache) == 1
    kernel.run(tuned.ones(4), 4, 2)
    assert kernel.fn.sizes[-1] == 1
    assert [text.partition(",")[0] for text in tuned.tuning.chosen.values()] == ["SIZE=1"]
    kernel.run(tuned.ones(4), 5, 2)
    assert kernel.fn.sizes[-1] == 2
    assert len(kernel.cache) == 2


def refuse_small(kernel):
    """From here on, sizes below 3 do not compile."""
    run = kernel.fn.run

    def refuse(*args, SIZE, **named):
        if SIZE < 3:
            raise CompileTimeAssertionFailure(None, None, "SIZE is too small")
        run(*args, SIZE=SIZE, **named)

    kernel.fn.run = refuse


def test_a_choice_that_does_not_compile_for_later_arguments_fails(tuned):
    """A tuner passes over it only while it tunes, and keeps what it chose for other keys."""
    kernel = tuned.tune(relu, ["x", "n"])
    kernel.run(tuned.ones(4), 4)
    refuse_small(kernel)
    kernel.run(tuned.ones(4), 5)
    assert kernel.fn.sizes[-1] == 3
    with pytest.raises(CompileTimeAssertionFailure):
        kernel.run(tuned.ones(4), 4)


def test_a_configuration_that_breaks_a_static_assertion_is_left_out(tuned):
    kernel = tuned.tune(relu, ["x", "n"])
    refuse_small(kernel)
    kernel.run(tuned.ones(4), 4)
    assert set(kernel.fn.sizes) == {3}
    assert tuned.tuning.chosen["relu"].endswith("(3 of 3)")


def test_a_launch_that_raises_is_not_tuned(tuned):
    def refuse(x):
        x.mul_(2)
        raise KeyError("BLOCK")

    x = tuned.ones(4)
    with pytest.raises(KeyError):
        tuned.tune(refuse, ["x"]).run(x)
    assert x.tolist() == [2.0] * 4
    assert tuned.tuning.in_place == []


# `autotune = "all"`: without a card, a test runs once with each configuration of its kernels.

# A kernel that is wrong with its third configuration: it then writes only every second element.
PACKAGE = """
import pytest, torch, triton, triton.language as tl
from collections import Counter

CONFIGS = [triton.Config({"BLOCK": block, "STEP": step}) for block, step in ((16, 1), (32, 1), (64, 2), (128, 1))]
SETUPS = Counter()

@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def double(x, y, n, BLOCK: tl.constexpr, STEP: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=(i < n) & (i % STEP == 0))

@triton.autotune(CONFIGS[:2], key=["n"])
@triton.jit
def good(x, y, n, BLOCK: tl.constexpr, STEP: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

@triton.autotune(CONFIGS[:2], key=["n"])
@triton.jit
def grow(x, n, BLOCK: tl.constexpr, STEP: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

@pytest.fixture
def fresh():
    SETUPS["function"] += 1
    yield []
    SETUPS["teardown"] += 1

@pytest.fixture(scope="module")
def shared():
    SETUPS["module"] += 1

def run(kernel):
    x = torch.ones(100, device="cuda")
    y = torch.zeros_like(x)
    kernel[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, y, 100)
    assert bool((y == 2).all())

def test_wrong(shared, fresh):
    run(double)

def test_good(shared, fresh):
    assert not fresh
    fresh.append(1)
    run(good)

def test_plain(shared, fresh, record_property):
    record_property("setups", str(dict(SETUPS)))

def test_in_place():
    x = torch.ones(100, device="cuda")
    grow[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, 100)
    assert bool((x == 2).all())

def test_skipped():
    run(good)
    pytest.skip("by its author")
"""


@pytest.mark.parametrize("autotune", slow_but(["one", "all", "asked"], ["all"]))
def test_a_wrong_configuration_is_found_and_named(run_inside, tmp_path, autotune):
    """With `one`, only the first configuration is tried, and the test passes; so does one that the user asks for, if it is right."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "test_double.py").write_text(PACKAGE)
    asked = {"configs": ("double: BLOCK=128", "good: BLOCK=32 STEP=1")} if autotune == "asked" else {"autotune": autotune}
    output = run_inside(tmp_path / "package", Stage.TEST, benches=(), **asked)
    cases = {case.get("name"): case for case in ElementTree.parse(output / "test" / "junit.xml").getroot().iter("testcase")}
    properties = {name: {entry.get("name"): entry.get("value") for entry in case.iter("property")} for name, case in cases.items()}
    bad = [name for name, case in cases.items() if case.find("failure") is not None]

    every = autotune == "all"
    assert bad == (["test_wrong", "test_in_place"] if every else ["test_in_place"])
    if every:
        said = cases["test_wrong"].find("failure").get("message").splitlines()[0]
        assert said.endswith("[double with BLOCK=64, STEP=2, num_warps=4, num_stages=3 (3 of 4)]")
    said, below = cases["test_in_place"].find("failure").get("message").split("\n", 1)
    assert "`grow`" in said
    assert "`x`" in said
    assert "restore_value" in said
    assert "AssertionError" in below
    chosen = {"one": ("16", "1 of 4", "1 of 2"), "all": ("64", "3 of 4", "2 of 2"), "asked": ("128", "4 of 4", "2 of 2")}[autotune]
    of_double, of_good = properties["test_wrong"]["configuration of double"], properties["test_good"]["configuration of good"]
    assert (of_double.partition(",")[0], of_double[-7:-1], of_good[-7:-1]) == (f"BLOCK={chosen[0]}", *chosen[1:])
    # Each run has its own function-scoped fixtures; the module's is set up once.
    assert properties["test_plain"]["setups"] == str({"module": 1, "function": 6 if every else 3, "teardown": 5 if every else 2})
    assert len(cases) == 5
    assert cases["test_skipped"].find("skipped") is not None


# Triton's handles of the vendors' products, on cards of two vendors.

CARDS = {card.name: card for card in load_targets()["cpu"].architectures}
WORKSPACE = torch.empty(16)


def handle(card: str, module, name: str):
    return next(made for owner, known, made in vendor_products(CARDS[card]) if (owner, known) == (module, name))


@pytest.mark.parametrize(("card", "module", "name"), [("sm_90", nvidia.cublas, "CublasLt"), ("gfx942", amd.hipblas, "HipblasLt")])
def test_a_card_has_that_of_its_vendor(card, module, name):
    a, b, c = torch.randn(4, 8).half(), torch.randn(6, 8).half(), torch.randn(4, 6).half()
    d, blas = torch.empty(4, 6).half(), handle(card, module, name)(WORKSPACE)
    blas.gemm(a, b, c, d, 2.0, 0.5)
    torch.testing.assert_close(d, (2 * (a.double() @ b.double().T) + c / 2).half())
    blas.matmul(a, b, d)
    torch.testing.assert_close(d, (a.double() @ b.double().T).half())


@pytest.mark.parametrize(("card", "module", "name"), [("gfx942", nvidia.cublas, "CublasLt"), ("sm_90", amd.hipblas, "HipblasLt")])
def test_it_has_not_that_of_another_one(card, module, name):
    with pytest.raises(RuntimeError, match=f"{name}: a machine with {card} does not have"):
        handle(card, module, name)(WORKSPACE)


def test_what_is_not_computed_here_is_refused():
    scaled = [name for name in vars(nvidia.cublas.CublasLt) if name.startswith("block_scaled")]
    for name in scaled:
        with pytest.raises(NotPretended, match=rf"CublasLt\.{name}"):
            getattr(handle("sm_90", nvidia.cublas, "CublasLt")(WORKSPACE), name)(WORKSPACE)


# Launches that the driver of a card refuses: too many programs or threads, clusters too large, scratch memory from nobody.

TALL = "`fill` cannot be launched on sm_90: its grid is (1, 65536, 1), the limit of y is 65535"


@pytest.mark.parametrize(
    ("name", "grid", "options", "said"),
    [
        ("sm_90", (1, 65535, 65535), {}, ""),
        ("sm_90", (1, 65536), {}, TALL),
        ("sm_90", (1, np.int64(65536)), {}, TALL),
        ("sm_80", (1, 1, 65536), {}, "the limit of z is 65535"),
        ("sm_100", (2**31 - 1,), {}, ""),
        ("sm_100", (2**31,), {}, "the limit of x is 2147483647"),
        ("sm_90", (2**30,), {"num_ctas": 2}, "the limit of x is 1073741823"),
        ("sm_90", (1,), {"num_ctas": 16}, ""),
        ("sm_90", (1,), {"num_ctas": 32}, "its clusters have 32 blocks, the limit is 16"),
        ("sm_80", (1,), {"num_ctas": 2}, "its clusters have 2 blocks, the limit is 1"),
        ("gfx942", (1,), {"num_ctas": 2}, "its clusters have 2 blocks, the limit is 1"),
        ("sm_90", (0, 70000), {}, ""),
        ("sm_90", (UnknownInt(), 70000), {}, "the limit of y is 65535"),
        ("sm_90", (UnknownInt(),), {}, ""),
        ("gfx942", (1, 70000, 70000), {}, ""),
        ("gfx942", (2**24 - 1,), {}, ""),
        ("gfx942", (2**24,), {}, "the limit of x is 16777215 with 256 threads a program"),
        ("gfx1201", (2**24,), {}, ""),
        ("gfx1201", (2**24,), {"num_warps": 8}, "the limit of x is 16777215"),
        ("sm_90", (132 * 16,), {"launch_cooperative_grid": True}, ""),
        ("sm_90", (132 * 16 + 1,), {"launch_cooperative_grid": True}, "at most 2112 blocks run at a time"),
        ("sm_90", (132 + 1,), {"launch_cooperative_grid": True, "shared": 200000}, "at most 132 blocks run at a time"),
        ("gfx942", (304 * 8,), {"launch_cooperative_grid": True}, ""),
        ("gfx942", (304 * 8 + 1,), {"launch_cooperative_grid": True}, "at most 2432 blocks run at a time"),
        ("sm_90", (2**20,), {"global_scratch_size": 2**16}, ""),
        (
            "sm_90",
            (2**21,),
            {"global_scratch_size": 2**16},
            "137438953472 bytes of scratch memory are more than the card's",
        ),
    ],
)
def test_refuses_the_grids_that_a_driver_refuses(name, grid, options, said):
    """Up to its limits a grid is launched, and one without programs is launched nowhere."""
    metadata = SimpleNamespace(**{"num_warps": 4, **options})
    if not said:
        check_grid(CARDS[name], "fill", grid, metadata)
        return
    with pytest.raises(LaunchRefusedError) as caught:
        check_grid(CARDS[name], "fill", grid, metadata)
    assert said in str(caught.value)


def test_what_a_binary_has_counts_beside_what_its_launch_adds():
    """Registers bound a cooperative grid; shared memory of fixed size comes on top of Triton's."""
    cooperative = SimpleNamespace(num_warps=4, shared=0, launch_cooperative_grid=True)
    check_grid(CARDS["gfx942"], "fill", (304 * 2,), cooperative, registers=256)
    with pytest.raises(LaunchRefusedError, match="at most 608 blocks run at a time"):
        check_grid(CARDS["gfx942"], "fill", (304 * 2 + 1,), cooperative, registers=256)

    shared = SimpleNamespace(num_warps=4, shared=60000)
    check_grid(CARDS["gfx942"], "fill", (1,), shared, static=5536)
    with pytest.raises(LaunchRefusedError, match="its 65537 bytes of shared memory, 5537 of fixed size, are more than 65536"):
        check_grid(CARDS["gfx942"], "fill", (1,), shared, static=5537)


@pytest.mark.parametrize(
    ("shape", "strides", "said"),
    [
        ([2**32, 64], [64, 1], ""),
        ([2**32 + 1, 64], [64, 1], "the axis of a descriptor has 4294967297 elements, the limit is 4294967296"),
        ([4, 64], [2**39 - 8, 1], ""),
        ([4, 64], [2**39, 1], "the stride of a descriptor has 1099511627776 bytes, the limit is 1099511627760"),
    ],
)
def test_a_tensor_map_has_limits_where_the_card_has_such_hardware(shape, strides, said):
    """Elsewhere a descriptor is a pointer and a few numbers."""
    descriptor = TensorDescriptor(torch.empty(64, dtype=torch.float16), shape, strides, [4, 64])
    check_descriptors(CARDS["gfx942"], "copy", [descriptor])
    if not said:
        check_descriptors(CARDS["sm_90"], "copy", [descriptor, 3, None])
        return
    with pytest.raises(LaunchRefusedError, match=said):
        check_descriptors(CARDS["sm_90"], "copy", [(descriptor,)])


@pytest.fixture
def allocators():
    before, profile = _allocation._allocator.get(), _allocation._profile_allocator.get()
    triton.set_allocator(_allocation.NullAllocator())
    yield
    triton.set_allocator(before)
    _allocation._profile_allocator.set(profile)


@pytest.mark.usefixtures("allocators")
def test_scratch_memory_needs_an_allocator_when_it_is_launched():
    """A profile has one of its own since Triton 3.9."""
    driver = SimpleNamespace(allocate_default_profile_scratch=lambda size, alignment, stream: None)
    copy, profiled = SimpleNamespace(global_scratch_size=256), SimpleNamespace(profile_scratch_size=64)
    check_scratch(CARDS["sm_90"], "add", SimpleNamespace(global_scratch_size=0), driver)
    with pytest.raises(LaunchRefusedError, match="`copy` cannot be launched on sm_90: it needs 256 bytes of scratch memory"):
        check_scratch(CARDS["sm_90"], "copy", copy, driver)
    if hasattr(_allocation, "has_profile_allocator"):
        check_scratch(CARDS["sm_90"], "copy", profiled, driver)
    triton.set_allocator(lambda size, alignment, stream: None)
    check_scratch(CARDS["sm_90"], "copy", copy, driver)


@pytest.mark.usefixtures("allocators")
@pytest.mark.parametrize("made", [lambda size: None, lambda size: torch.empty(size - 1, dtype=torch.int8)])
def test_memory_that_an_allocator_returns_is_checked(made):
    """All of it: of two programs, and of the two blocks of their clusters."""
    asked = []
    triton.set_allocator(lambda size, alignment, stream: asked.append((size, alignment, stream)) or made(size))
    metadata = SimpleNamespace(global_scratch_size=256, global_scratch_align=128, num_ctas=2)
    with pytest.raises(LaunchRefusedError, match="1024 bytes of scratch memory, and the allocator returned"):
        scratch(CARDS["sm_90"], "copy", metadata, None, (2, 1, 1), 7)
    assert asked == [(1024, 128, 7)]
    assert scratch(CARDS["sm_90"], "copy", metadata, None, (0, 1, 1), 7) == [None, None]


@pytest.mark.usefixtures("allocators")
def test_an_emulated_launch_is_checked_before_it_is_executed():
    metadata = SimpleNamespace(num_warps=4, global_scratch_size=0)
    driver = EmulatedDriver(SimpleNamespace(), None, CARDS["gfx942"], SimpleNamespace(type="cuda"))
    launch = driver.launcher_cls(SimpleNamespace(signature={}), metadata)
    rest = (0, SimpleNamespace(name="fill", registers=32, lds=0), None, None, None, None)
    with pytest.raises(LaunchRefusedError, match="the limit of x is 16777215"):
        launch(2**24, 1, 1, *rest)
    launch(0, 1, 1, *rest)
    metadata.global_scratch_size = 256
    with pytest.raises(LaunchRefusedError, match="no allocator was set"):
        launch(0, 1, 1, *rest)


def test_a_refused_launch_is_no_fault_of_the_emulator():
    """A card refuses it, too, whatever the emulator has computed before. The place is the package's, not where warpwave raises."""
    account = SimpleNamespace(fault=None, launches=3, read=True)
    try:
        check_grid(CARDS["sm_90"], "fill", (1, 65536), SimpleNamespace(num_warps=4))
    except LaunchRefusedError as error:
        found = raised_by_host(error, account, Path(__file__).parents[4])
    assert "at tests/unit/inside/fake_gpu/test_card.py:" in found
    assert found.endswith("by the driver, before a launch")


INTERPRETED = """
import json, sys, torch, triton, triton.language as tl
from warpwave.inside.fake_gpu.allocated import ALLOCATED
from warpwave.inside.fake_gpu.card import interpreted_device
from warpwave.records import Architecture, from_json
interpreted_device(from_json(Architecture, sys.argv[1]), ["cuda"])

@triton.jit
def fill(out):
    tl.store(out + tl.program_id(2), 1.0)

out = torch.zeros(4, device="cuda")
said = []
for grid, options in (
    ((1, 1, 4), {}), ((1, 70000, 0), {}), (lambda meta: [1, 70000], {}), ((1, 1, 65536), {}), ((1,), {"num_warps": 64}),
    ((1,), {"num_ctas": 32}), ((1,), {"num_warps": 3}),
):
    try:
        fill[grid](out, **options)
        said.append("nothing")
    except (AssertionError, RuntimeError) as error:
        said.append(str(error))
    except triton.runtime.errors.OutOfResources as error:
        said.append(str(error))
tuned = triton.autotune([triton.Config({}, num_warps=64), triton.Config({}, num_warps=4)], key=[])(fill)
tuned[(1, 1, 4)](out)
print(json.dumps([said, out.tolist()]))
"""


def test_the_interpreter_refuses_what_the_pretended_card_does(tmp_path):
    """An autotuner leaves out a configuration with more threads than the card has, as it does on the card."""
    (tmp_path / "kernels.py").write_text(INTERPRETED)
    done = command.python(tmp_path / "kernels.py", to_json(CARDS["sm_90"]), env={**os.environ, "TRITON_INTERPRET": "1"})

    assert done.returncode == 0, done.stderr
    (right, empty, tall, deep, wide, clustered, three), out = json.loads(done.stdout.splitlines()[-1])
    assert (right, empty, out) == ("nothing", "nothing", [1.0] * 4)
    assert tall == "`fill` cannot be launched on sm_90: its grid is (1, 70000, 1), the limit of y is 65535"
    assert deep.endswith("its grid is (1, 1, 65536), the limit of z is 65535")
    assert "threads" in wide
    assert "2048" in wide
    assert "32 blocks" in clustered
    assert three == "num_warps must be a power of 2"


def test_what_torch_follows_with_symbols_takes_no_memory():
    """A compiler's tensors have sizes that are symbols. To compare such a number would ask torch to decide it."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    before = ALLOCATED.bytes["all"].current
    ALLOCATED.note(torch.empty((ShapeEnv().create_unbacked_symint(), 4), device="meta"))

    assert ALLOCATED.bytes["all"].current == before


def test_what_another_process_prints_is_not_lost(monkeypatch, capfd):
    """Started anew, it has streams of its own. As a copy, it would write to what stands in for them here."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    process = multiprocessing.get_context("spawn").Process(target=divmod, args=(1, 0))

    assert objects.fork(process).wait() == 1
    assert "ZeroDivisionError" in capfd.readouterr().err
