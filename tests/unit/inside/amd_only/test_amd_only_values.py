"""Public faults of Triton on AMD that warpwave's emulator finds without a card: docs/amd-only-faults.md.

Each kernel is compiled by the release that has the fault, in a process of its own, and executed here. `WARPWAVE_TRITONS` names a folder
with releases; the tests of a release that is neither there nor installed are skipped.
"""

import contextlib
import json
import os
import struct
from pathlib import Path

import command
import pytest

pytestmark = pytest.mark.slow  # of the installed release they only say that it has none of these faults
triton = pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")
for needed in ("elftools", "msgpack", "tinygrad"):
    pytest.importorskip(needed, reason="the emulator's extra; `nox -s tests` installs it")

import re

from warpwave.emulator import Access, Check, Launch, TimeLimit, execute, load
from warpwave.inside.codegen.barriers import acquired_alone, lds_in_flight, published_early

SCRIPT = Path(__file__).parents[3] / "amd_only" / "compiled.py"
RELEASES = ["3.5.1", "3.6.0", "3.7.1", "3.8.0", "3.9.0"]
HAVE_IT = RELEASES[:4]


def compiled(name: str, architecture: str, version: str, folder: Path):
    """Compile one of the kernels with a release; return the process, which wrote `folder / "kernel"` if it ended well."""
    release = Path(os.environ.get("WARPWAVE_TRITONS", "")) / version
    if triton.__version__ != version and not ("WARPWAVE_TRITONS" in os.environ and release.is_dir()):
        pytest.skip(f"Triton {version} is not in $WARPWAVE_TRITONS")
    path = {} if triton.__version__ == version else {"PYTHONPATH": str(release)}
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder), **path}
    return command.python(SCRIPT, name, architecture, folder / "kernel", env=environment, kind="stages" if path else "compiler")


def executed(name: str, architecture: str, version: str, folder: Path, values: list, limit: int = 100_000_000) -> list:
    """Compile one of the kernels with a release, and execute one program of it; return what the checks find."""
    done = compiled(name, architecture, version, folder)
    assert done.returncode == 0, done.stderr
    kernel, found = load((folder / "kernel").read_bytes()), []
    needed = json.loads((folder / "kernel.json").read_text())
    assert needed["triton"] == version
    packed = bytearray(kernel.kernarg_bytes)
    for argument, value in zip(kernel.arguments, [*values, 0, 0], strict=False):
        number = value.data_ptr() if isinstance(value, torch.Tensor) else value
        struct.pack_into({8: "<Q", 4: "<i"}[argument.size], packed, argument.offset, number)
    buffers = [(value.data_ptr(), value.nbytes) for value in values if isinstance(value, torch.Tensor)]
    execute(kernel, Launch((1, 1, 1), needed["threads"], bytes(packed), needed["lds"], buffers), findings=found, limit_instructions=limit)
    return found


def versions(*those_that_have_it):
    """Run a test with these releases, and with the one that is installed, which is right; `wrong` says which it is."""
    cases = [*((version, True) for version in those_that_have_it), ("3.9.0", False)]
    return pytest.mark.parametrize(("version", "wrong"), cases, ids=[version for version, _ in cases])


@pytest.mark.parametrize("version", [*HAVE_IT[1:], "3.9.0"])
def test_reads_that_a_barrier_does_not_complete(version, tmp_path):
    """triton-lang/triton#11696. Executed in order the result is right: only the check sees it. 3.9.0 waits in time."""
    a, b, c = torch.randn(128, 192), torch.randn(192, 128), torch.zeros(128, 128)
    found = executed("pingpong", "gfx942", version, tmp_path, [a, b, c, 128, 192])

    torch.testing.assert_close(c, a @ b, rtol=1e-4, atol=1e-3)
    if version == "3.9.0":
        assert found == []
    else:
        assert {(one.check, one.access, one.other_access, one.in_flight) for one in found} == {
            (Check.LDS_RACE, Access.STORE, Access.LOAD, True)
        }
        assert {one.place.line for one in found} == {one.other.line for one in found} == {"pingpong.py:27"}


@pytest.mark.parametrize("steps", [2, 8])
@versions("3.5.1")
def test_writes_that_a_barrier_does_not_complete(version, wrong, steps, tmp_path):
    """Two products, one of the other, in four stages: the gate reads the loop, the checks see it only where it is entered."""
    q, k, v, out = torch.randn(64, 64).half(), torch.randn(64 * steps, 64).half(), torch.randn(64 * steps, 64).half(), torch.zeros(64, 64)
    found = executed("chained", "gfx942", version, tmp_path, [q, k, v, out, 64 * steps])

    torch.testing.assert_close(out, (q.float() @ k.float().T).half().float() @ v.float(), rtol=1e-2, atol=0.5)
    assert bool(lds_in_flight((tmp_path / "kernel.s").read_text())) == wrong
    seen = {(one.check, one.access, one.other_access) for one in found}
    assert seen == ({(Check.LDS_RACE, Access.LOAD, Access.STORE)} if wrong and steps == 8 else set())
    assert any(one.in_flight for one in found) == bool(seen)


@pytest.mark.parametrize("architecture", ["gfx942", "gfx950"])
@versions("3.6.0", "3.7.1")
def test_what_is_masked_has_the_value_that_the_load_names(version, wrong, architecture, tmp_path):
    """triton-lang/triton#11256: a load that goes straight to LDS leaves what is masked as it was. The checks say that nobody wrote it."""
    x, out = torch.randn(1024), torch.zeros(1024)
    found = executed("straight-to-lds", architecture, version, tmp_path, [x, out, 1000])

    assert {one.check for one in found} == ({Check.LDS_UNWRITTEN} if wrong else set())
    assert torch.equal(out[:1000], x[:1000])
    assert (out[1000:] == 7.0).all() != wrong


@pytest.mark.parametrize("architecture", ["gfx942", "gfx1100", "gfx1201"])
@versions("3.6.0", "3.7.1")
def test_a_loop_whose_count_is_known_when_it_runs(version, wrong, architecture, tmp_path):
    """triton-lang/triton#11378: stores of one number before the loop and in it become one, and the loop goes wrong."""
    tokens, table = torch.randint(-8, 8, (6, 64), dtype=torch.int32), torch.randint(1, 3, (8,), dtype=torch.int32)
    lengths, offsets, out = (torch.zeros(n, dtype=torch.int32) for n in (6, 7, 448))
    executed("pack", architecture, version, tmp_path, [tokens, table, lengths, offsets, out, 6])
    expected = torch.where(tokens >= 0, table[tokens.clamp(0)], 0).sum(1)

    assert (lengths.tolist() == expected.tolist()) != wrong
    assert (offsets.tolist() == [0, *expected.cumsum(0).tolist()]) != wrong


@pytest.mark.parametrize("architecture", ["gfx942", "gfx950", "gfx1100"])
@versions("3.5.1", "3.6.0", "3.7.1")
def test_a_queue_is_empty_at_some_time(version, wrong, architecture, tmp_path):
    """triton-lang/triton#11037: an atomic in a `while` loop, which never ends. The launch ends at its limit of instructions."""
    queue, out = torch.zeros(1, dtype=torch.int32), torch.zeros(40, dtype=torch.int32)
    with pytest.raises(TimeLimit) if wrong else contextlib.nullcontext():
        executed("take-all", architecture, version, tmp_path, [queue, out, 40], limit=200_000)

    assert (out.tolist() == list(range(1, 41))) != wrong


@pytest.mark.parametrize("architecture", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
@versions("3.5.1")
def test_the_hyperbolic_tangent_of_large_numbers_is_one(version, wrong, architecture, tmp_path):
    x, out = torch.linspace(-200, 200, 1024), torch.zeros(1024)
    executed("tanh", architecture, version, tmp_path, [x, out])

    assert out.isnan().any() == wrong
    torch.testing.assert_close(out[(x > -40) & (x < 40)], torch.tanh(x[(x > -40) & (x < 40)]))


@pytest.mark.parametrize("architecture", ["gfx942", "gfx950", "gfx1201"])
@versions("3.5.1", "3.6.0")
def test_an_atomic_adds_what_its_mask_allows(version, wrong, architecture, tmp_path):
    """triton-lang/triton#9142: two numbers of 16 bits are added at once, and the mask of the first decides."""
    x, y = torch.zeros(256, dtype=torch.bfloat16), torch.ones(256, dtype=torch.bfloat16)
    if (version, architecture) == ("3.6.0", "gfx950"):
        pytest.skip("does not compile there: as another test says")
    executed("add-some-bf16", architecture, version, tmp_path, [x, y, 101])

    assert x.nonzero().flatten().tolist() == list(range(102 if wrong else 101))


@pytest.mark.parametrize("architecture", ["gfx942", "gfx1100"])
@versions("3.5.1", "3.6.0", "3.7.1")
def test_a_place_that_several_lanes_share_is_exchanged_once(version, wrong, architecture, tmp_path):
    """triton-lang/triton#9605: every copy of a lane exchanges, and what the last one finds is the result."""
    x, out = torch.tensor([1, 5] * 16, dtype=torch.int32), torch.zeros(32, 4, dtype=torch.int32)
    executed("exchange-i32", architecture, version, tmp_path, [x, out])

    assert x.tolist() == [2, 5] * 16
    assert (out == torch.tensor([1, 5] * 16)[:, None]).all() != wrong


def used(architecture: str, version: str, folder: Path):
    """Whether what was there before an atomic reached all lanes, and what the checks find."""
    x, y, out = torch.arange(32, dtype=torch.int32), torch.ones(32, dtype=torch.int32), torch.zeros(32, 32, dtype=torch.int32)
    found = executed("add-and-use-i32", architecture, version, folder, [x, y, out])
    assert x.tolist() == list(range(1, 33))
    return bool((out == torch.arange(32)[:, None]).all()), found


@versions("3.6.0", "3.7.1")
def test_what_was_there_before_an_atomic_reaches_all_lanes(version, wrong, tmp_path):
    """The other half of triton-lang/triton#9605: a buffer atomic whose result has copies."""
    assert used("gfx942", version, tmp_path)[0] != wrong


@pytest.mark.parametrize("architecture", ["gfx1100", "gfx1201"])
@versions("3.5.1")
def test_lanes_that_store_to_one_place(version, wrong, architecture, tmp_path):
    """triton-lang/triton#8633: the emulated result is right, because each lane stores its own value behind that."""
    right, found = used(architecture, version, tmp_path)

    assert right
    assert {(one.check, one.place == one.other) for one in found} == ({(Check.LDS_RACE, True)} if wrong else set())


@pytest.mark.parametrize(
    ("name", "architecture"), [("fp8e4b8-by-fp8e5b16", "gfx942"), ("fp8e4nv-by-fp8e5", "gfx950")], ids=["gfx942", "gfx950"]
)
@versions("3.5.1", "3.6.0")
def test_products_of_two_formats_of_eight_bits(version, wrong, name, architecture, tmp_path):
    """triton-lang/triton#9567: the operands are swapped, and the instruction is not."""
    fnuz = architecture == "gfx942"
    left, right = (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz) if fnuz else (torch.float8_e4m3fn, torch.float8_e5m2)
    k = 32 if fnuz else 16
    a, b, out = torch.randint(-4, 5, (32, k)).float().to(left), torch.randint(-4, 5, (k, 32)).float().to(right), torch.zeros(32, 32)
    executed(name, architecture, version, tmp_path, [a, b, out])

    assert torch.equal(out, a.float() @ b.float()) != wrong


@pytest.mark.parametrize("architecture", ["gfx942", "gfx1201"])
@pytest.mark.parametrize("version", RELEASES)
def test_nan_of_eight_bits_becomes_a_number(version, architecture, tmp_path):
    codes, out = torch.arange(256, dtype=torch.int32).to(torch.uint8), torch.zeros(256, dtype=torch.bfloat16)
    executed("fp8e4nv-bf16", architecture, version, tmp_path, [codes, out])
    expected = codes.view(torch.float8_e4m3fn).bfloat16()

    assert (out != expected).nonzero().flatten().tolist() == [0x7F, 0xFF]
    assert out[[0x7F, 0xFF]].tolist() == [480.0, -480.0]


@pytest.mark.parametrize("version", [*HAVE_IT, "3.9.0"])
@pytest.mark.parametrize("architecture", ["gfx90a", "gfx950", "gfx1201"])
def test_nan_of_eight_bits(architecture, version, tmp_path):
    """triton-lang/triton#10745: the only NaN of a format without -0 becomes -0."""
    codes, out = torch.arange(256, dtype=torch.int32).to(torch.uint8), torch.zeros(256, dtype=torch.float16)
    executed("fp8e4b8-fp16", architecture, version, tmp_path, [codes, out])
    expected = codes.view(torch.float8_e4m3fnuz).half()

    wrong = (out.view(torch.int16) != expected.view(torch.int16)) & ~(out.isnan() & expected.isnan())
    assert wrong.nonzero().flatten().tolist() == ([] if version == "3.9.0" else [0x80])


@versions(*HAVE_IT)
def test_nan_of_ten_fraction_bits(version, wrong, tmp_path):
    """triton-lang/triton#11783: where the matrix unit cuts off the low bits of a NaN, infinity is left. 3.9.0 makes it quiet before."""
    a, b, out = torch.eye(32), torch.eye(32), torch.zeros(32, 32)
    a.view(torch.int32)[3, 3] = 0x7F800001
    executed("tf32-nan", "gfx942", version, tmp_path, [a, b, out])

    assert bool(out[3, 3].isinf()) == wrong
    assert bool(out[3, 3].isnan()) != wrong


@pytest.mark.parametrize("version", [*HAVE_IT, "3.9.0"])
def test_products_of_bfloat16_are_rounded(version, tmp_path):
    x, y, out = torch.randn(4096).bfloat16(), torch.randn(4096).bfloat16(), torch.zeros(4096).bfloat16()
    executed("bf16-product", "gfx1201", version, tmp_path, [x, y, out])
    cut_off = ((x.float() * y.float()).view(torch.int32) & -65536).view(torch.float32).bfloat16()

    assert torch.equal(out, x * y if version in ("3.5.1", "3.9.0") else cut_off)


@pytest.mark.parametrize(("architecture", "between"), [("gfx942", float("nan")), ("gfx950", 448.0)])
def test_what_is_too_large_for_eight_bits(architecture, between, tmp_path):
    """Not reported elsewhere: software gives NaN between 464 and 480. gfx950 has an instruction, which saturates as MODE says."""
    x, out = torch.full((256,), 470.0, dtype=torch.float16), torch.zeros(256, dtype=torch.uint8)
    x[:3] = torch.tensor([460.0, 1000.0, -1000.0])
    executed("fp16-fp8e4nv", architecture, "3.9.0", tmp_path, [x, out])
    told = out.view(torch.float8_e4m3fn).float()

    assert told[:3].tolist() == [448.0, 448.0, -448.0]
    torch.testing.assert_close(told[3:], torch.full((253,), between), equal_nan=True)


# Public faults of Triton on AMD that warpwave finds without a card, with the releases that have them: docs/amd-only-faults.md.

PINGPONG = Path(__file__).parents[3] / "amd_only" / "pingpong.py"
IN_FLIGHT = "48 LDS reads of pingpong.py:27 in flight at the barrier of pingpong.py:27"


def reproduced(version, cache, architecture="gfx942", **variables):
    """What the script prints with a release of Triton: the version, and the findings."""
    folder = Path(os.environ.get("WARPWAVE_TRITONS", "")) / version
    if triton.__version__ != version and not ("WARPWAVE_TRITONS" in os.environ and folder.is_dir()):
        pytest.skip(f"Triton {version} is not in $WARPWAVE_TRITONS")
    path = {} if triton.__version__ == version else {"PYTHONPATH": str(folder)}
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache), **path, **variables}
    done = command.python(PINGPONG, architecture, env=environment, kind="stages" if path else "compiler")
    told, *found = done.stdout.splitlines()
    assert (told, done.returncode) == (version, 1 if found else 0), done.stderr
    return found


@pytest.mark.parametrize("version", ["3.6.0", "3.7.1", "3.8.0"])
def test_the_pingpong_race_is_found_in_the_releases_that_have_it(version, tmp_path):
    """triton-lang/triton#11696: wrong in 200 of 200 runs on an MI300X, by its reporter."""
    assert reproduced(version, tmp_path) == [IN_FLIGHT]


def test_the_release_that_fixed_it_is_not_blamed(tmp_path):
    """3.9.0 waits before the barrier; half of the waves still are a barrier ahead."""
    assert reproduced("3.9.0", tmp_path) == []


@pytest.mark.parametrize("version", ["3.6.0", "3.7.1", "3.8.0"])
@pytest.mark.parametrize(
    ("architecture", "variables"), [("gfx942", {"TRITON_HIP_USE_BLOCK_PINGPONG": "0"}), ("gfx950", {})], ids=["without", "gfx950"]
)
def test_without_that_schedule_there_is_no_race(version, architecture, variables, tmp_path):
    assert reproduced(version, tmp_path, architecture, **variables) == []


# Public faults of Triton on AMD that the compile stage finds: what some releases do not compile, and what the gates read in assembly.

# Kernel and architecture, the releases that do not compile it, and what they say.
SOME_REFUSE = {
    ("exchange-all-i32", "gfx942"): (RELEASES[:1], "'llvm.extractvalue' op Type mismatch"),  # triton-lang/triton#8867
    ("exchange-one-fp32", "gfx1100"): (RELEASES[:2], "must be signless integer or LLVM pointer type, but got 'f32'"),  # #9116
    ("fp8e5-by-fp8e4nv", "gfx1201"): (RELEASES[:2], "Unsupported conversion from 'f8E5M2' to 'f8E4M3FN'"),  # #9581
    ("add-some-fp16", "gfx942"): (RELEASES[1:2], "Cannot select: .*BUFFER_ATOMIC_FADD"),  # #9142
    ("choose", "gfx942"): (RELEASES[1:2], "expected then fat ptr canNarrow"),  # #9541
    ("choose-by-row", "gfx942"): (RELEASES[1:3], "Assertion"),  # #10381
    ("bf16-fp8e4b8", "gfx1100"): (RELEASES[:3], "Cannot select: intrinsic %llvm.amdgcn.cvt.pk.fp8.f32"),  # #10458
    ("checked-product", "gfx942"): (RELEASES[:2], "'tt.assert' op pipeliner doesn't know how to predicate this op"),  # ROCm/triton#937
    ("largest-fp64", "gfx942"): (RELEASES[1:3], "could not find LLVM intrinsic: .*buffer.atomic.max"),  # #10340
}
CASES = [(*which, version) for which, (have_it, _) in SOME_REFUSE.items() for version in [*have_it, "3.9.0"]]


@pytest.mark.parametrize(("name", "architecture", "version"), CASES, ids=["-".join(case) for case in CASES])
def test_a_kernel_that_some_releases_refuse(name, architecture, version, tmp_path):
    """A user's run reports the kernel as failed, or as crashed where the compiler ends the process."""
    have_it, told = SOME_REFUSE[name, architecture]
    done = compiled(name, architecture, version, tmp_path)

    assert (done.returncode != 0) == (version in have_it)
    if version in have_it:
        assert re.search(told, done.stderr)


@pytest.mark.parametrize("architecture", ["gfx942", "gfx950"])
@pytest.mark.parametrize("version", RELEASES)
def test_a_counter_of_programs_has_no_data_to_wait_for(version, architecture, tmp_path):
    """llvm/llvm-project#178316 leaves out a wait here, which harms nobody: nothing is stored before the atomic."""
    assert compiled("count", architecture, version, tmp_path).returncode == 0

    assert published_early((tmp_path / "kernel.s").read_text()) == ()


@pytest.mark.parametrize("architecture", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("version", RELEASES)
def test_waves_behind_a_barrier_read_what_one_acquired(version, architecture, tmp_path):
    """triton-lang/triton#11289: waves on the other compute unit keep their cache. A wait for a flag that another program sets."""
    assert compiled("wait-for", architecture, version, tmp_path).returncode == 0

    found = acquired_alone((tmp_path / "kernel.s").read_text())
    cache = "buffer_gl0_inv" if architecture == "gfx1100" else "global_inv"
    told = (f"buffer_load_b64 of kernels.py:48 behind a barrier, without {cache}: another wave acquired",)
    assert found == (told if version == "3.8.0" else ())


# Small kernels with what other public reports are about (tests/data/reports): what cpu and gfx942-emulated say of each.

REFUSED, TUNED, RACE, LANES = "cannot be launched on sm_90", "autotuning changed `x`", "race in ", "undefined-lanes in softmax_backward"
SAID = {
    "triton_10924": ("", RACE),
    "triton_1097": ("", RACE),
    "flaggems_3716": (LANES, LANES),
    "sglang_27074": ("", ""),  # right, as its maintainers said
    "triton_10448": ("", ""),
    "fla_172": (REFUSED, ""),
    "triton_580": (REFUSED, ""),
    "triton_6547": (TUNED, TUNED),
    "triton_9230": ("half with START=0", "half with START=0"),
    "triton_8908": ("", ""),  # missed: one run has no compile time to compare with
}


def test_each_report_is_found_where_the_page_says_so(data, tmp_path):
    targets = ("cpu", "gfx942-emulated")
    done = command.warpwave("run", *targets, "--kernels", data / "reports", "--stage", "test", "--quiet", "--out", tmp_path / "out")
    comparison = json.loads((tmp_path / "out" / "comparison.json").read_text())
    found = {
        row["id"].removeprefix("test_reports.py::test_"): {cell["target"]: cell["result"]["message"] for cell in row["cells"]}
        for row in comparison["tests"]
    }

    assert done.returncode == 1, done.stderr
    assert found.keys() == SAID.keys()
    for name, words in SAID.items():
        for target, said in zip(targets, words, strict=True):
            message = found[name][target]
            assert said in message and bool(said) == bool(message), (name, target, message)  # noqa: PT018 - one thing
