"""What only an emulator sees: planted faults are reported, with both instructions; what looks alike and is right stays silent."""

import os
import re
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from machine_code import WAVES, assembled, compiled, linked, pack, run

from warpwave.emulator import Access, Check, Launch, OutOfMemoryBounds, execute, load
from warpwave.emulator import program as decoded_cache
from warpwave.emulator.program import Decoded

# ruff: noqa: E501 - a fault is a line


# s[0:1]: pointers in and out; v0: the thread. v1: four times the thread.
BEGIN = "s_load_dwordx4 s[4:7], s[0:1], 0x0\n s_waitcnt lgkmcnt(0)\n v_lshlrev_b32 v1, 2, v0\n v_mov_b32 v3, 0\n"
WRITE = "ds_write_b32 v1, v0\n s_waitcnt lgkmcnt(0)\n"
# v2: the address of the other of two waves.
OTHER = "v_xor_b32 v2, 0x100, v1\n"
STORE = "global_store_dword v1, v4, s[6:7]\n"
BARRIER = "s_barrier\n"
READ = "ds_read_b32 v4, v2\n s_waitcnt lgkmcnt(0)\n"
# s[8:11]: a resource of 2 GiB from the input on. Lane 0 gets another offset than its own.
BUFFER = "s_mov_b32 s8, s4\n s_and_b32 s9, s5, 0xffff\n s_mov_b32 s10, 0x7ffffffe\n s_mov_b32 s11, 0x27000\n v_cmp_eq_u32 vcc, 0, v0\n v_mov_b32 v5, {}\n v_cndmask_b32 v5, v1, v5, vcc\n buffer_load_dword v4, v5, s[8:11], 0 offen offset:16\n s_waitcnt vmcnt(0)\n"
ADD = "v_mov_b32 v5, 1\n global_atomic_add v3, v5, s[6:7]\n"


def check(body: str, groups: int = 1, threads: int = 128) -> list:
    """Return what is found in an assembled kernel of `groups` workgroups; it reads ones and stores to zeros."""
    kernel = load(assembled("gfx942", "\n".join("\t" + line for line in (BEGIN + body).splitlines())))
    source, out = np.ones(4096, np.uint32), np.zeros(4096, np.uint32)
    buffers = [(memory.ctypes.data, memory.nbytes) for memory in (source, out)]
    found: list = []
    execute(kernel, Launch((groups, 1, 1), threads, struct.pack("<QQ", *(start for start, _ in buffers)), 4096, buffers), findings=found)
    return found


# Loads into v6 and on, and LDS reads: as many as a counter holds, and one more.
LOADS = "".join(f"global_load_dword v{6 + n}, v1, s[4:5]\n " for n in range(64))
READS = WRITE + "".join(f"ds_read_b32 v{6 + n}, v1\n " for n in range(16))
RIGHT = {
    "a barrier between a write and a read": OTHER + WRITE + BARRIER + READ + STORE,
    "a wave reads what it wrote": WRITE + "ds_read_b32 v4, v1\n s_waitcnt lgkmcnt(0)\n" + STORE,
    "a wait for all but the youngest": "global_load_dword v4, v1, s[4:5]\n global_load_dword v6, v1, s[4:5] offset:4\n s_waitcnt vmcnt(1)\n" + STORE,
    "the first of more loads than a counter holds": LOADS + "v_mov_b32 v4, v6\n" + STORE,
    "the first of more LDS reads than a counter holds": READS + "v_mov_b32 v4, v6\n" + STORE,
    "a second load into a register": "global_load_dword v4, v1, s[4:5]\n global_load_dword v4, v1, s[4:5]\n s_waitcnt vmcnt(0)\n" + STORE,
    "a store in flight at a barrier": "v_mov_b32 v4, 1\n" + STORE + BARRIER + WRITE,
    "waves write the same": "v_mov_b32 v4, 7\n ds_write_b32 v3, v4\n s_waitcnt lgkmcnt(0)\n s_barrier\n ds_read_b32 v4, v3\n s_waitcnt lgkmcnt(0)\n" + STORE,
    "lanes that differ by rounding": "v_mov_b32 v4, 1.0\n v_add_u32 v4, v4, v0\n ds_write_b32 v3, v4\n s_waitcnt lgkmcnt(0)\n",
    "copies in two waves that differ a little": "v_mov_b32 v4, 1.0\n v_add_u32 v4, v4, v0\n ds_write_b32 v3, v4\n s_waitcnt lgkmcnt(0)\n",
    "lanes write the same": "v_mov_b32 v4, 7\n global_store_dword v3, v4, s[6:7]\n",
    "a lane of a buffer load that is off": BUFFER.format("0x80000000") + STORE,
    "lanes that a branch leaves out store nothing": "v_cmp_gt_u32 vcc, 32, v0\n s_and_saveexec_b64 s[12:13], vcc\n v_mov_b32 v4, 1\n" + STORE + "s_mov_b64 exec, s[12:13]\n",
    "LDS atomics": "v_mov_b32 v4, v0\n ds_write_b32 v1, v3\n s_waitcnt lgkmcnt(0)\n s_barrier\n ds_add_u32 v3, v4\n s_waitcnt lgkmcnt(0)\n",
    "a load straight to LDS, waited for": "s_mov_b32 m0, 0\n global_load_lds_dword v1, s[4:5]\n s_waitcnt vmcnt(0)\n ds_read_b32 v4, v3\n s_waitcnt lgkmcnt(0)\n" + STORE,
}  # fmt: skip
WRONG = {
    "no barrier": (WRITE + BARRIER + OTHER + "v_mov_b32 v5, 9\n ds_write_b32 v1, v5\n s_waitcnt lgkmcnt(0)\n" + READ + STORE, Check.LDS_RACE, Access.LOAD),
    "a read in flight at a barrier": (WRITE + BARRIER + OTHER + "ds_read_b32 v4, v2\n" + BARRIER + "v_mov_b32 v5, 9\n ds_write_b32 v1, v5\n s_waitcnt lgkmcnt(0)\n", Check.LDS_RACE, Access.STORE),
    "a write in flight at a barrier": (OTHER + "ds_write_b32 v1, v0\n" + BARRIER + READ + STORE, Check.LDS_RACE, Access.LOAD),
    "whole numbers in two waves that differ a little": ("v_lshrrev_b32 v4, 6, v0\n v_add_u32 v4, 0x3e8, v4\n ds_write_b32 v3, v4\n s_waitcnt lgkmcnt(0)\n", Check.LDS_RACE, Access.STORE),
    "numbers that differ a little, of two instructions": ("v_mov_b32 v4, 1.0\n v_add_u32 v4, v4, v0\n v_readfirstlane_b32 s12, v0\n s_cmp_eq_u32 s12, 0\n s_cbranch_scc1 .Lother\n ds_write_b32 v3, v4\n s_endpgm\n.Lother:\n ds_write_b32 v3, v4\n", Check.LDS_RACE, Access.STORE),
    "two lanes, one place in LDS": ("ds_write_b32 v3, v0\n s_waitcnt lgkmcnt(0)\n", Check.LDS_RACE, Access.STORE),
    "two lanes, one element": ("v_lshrrev_b32 v5, 1, v1\n v_and_b32 v5, -4, v5\n global_store_dword v5, v0, s[6:7]\n", Check.GLOBAL_RACE, Access.STORE),
    "a buffer load in front of the tensor": (BUFFER.format("-20") + STORE, Check.OUT_OF_RANGE, Access.LOAD),
    "nobody wrote to LDS": ("ds_read_b32 v4, v1\n s_waitcnt lgkmcnt(0)\n" + STORE, Check.LDS_UNWRITTEN, Access.LOAD),
    "the second of more loads than a counter holds": (LOADS + "v_mov_b32 v4, v7\n" + STORE, Check.USED_EARLY, Access.LOAD),
    "the second of more LDS reads than a counter holds": (READS + "v_mov_b32 v4, v7\n" + STORE, Check.USED_EARLY, Access.LOAD),
    "no wait for a global load": ("global_load_dword v4, v1, s[4:5]\n v_add_u32 v4, v4, v4\n" + STORE, Check.USED_EARLY, Access.LOAD),
    "a wait for too few": ("global_load_dword v4, v1, s[4:5]\n global_load_dword v6, v1, s[4:5] offset:4\n s_waitcnt vmcnt(1)\n v_mov_b32 v4, v6\n", Check.USED_EARLY, Access.LOAD),
    "no wait for LDS": (WRITE + "ds_read_b32 v4, v1\n v_add_u32 v5, v4, v4\n", Check.USED_EARLY, Access.LOAD),
    "no wait for a scalar load": ("s_load_dword s12, s[4:5], 0x0\n v_mov_b32 v4, s12\n", Check.USED_EARLY, Access.LOAD),
    "a load that comes after what overwrites it": ("global_load_dword v4, v1, s[4:5]\n v_mov_b32 v4, 1\n", Check.USED_EARLY, Access.STORE),
    "nobody wrote to what is stored": (STORE, Check.REGISTER_UNWRITTEN, Access.LOAD),
    "lanes that a branch leaves out wrote to nothing": ("v_cmp_gt_u32 vcc, 32, v0\n s_and_saveexec_b64 s[12:13], vcc\n v_mov_b32 v4, 1\n s_mov_b64 exec, s[12:13]\n" + STORE, Check.REGISTER_UNWRITTEN, Access.LOAD),
    "a barrier that one of two waves jumps over": (OTHER + WRITE + "v_readfirstlane_b32 s12, v0\n s_cmp_eq_u32 s12, 64\n s_cbranch_scc1 .Lover\n s_barrier\n.Lover:\n" + READ + STORE, Check.LDS_RACE, Access.LOAD),
    "no wait for a load to LDS": ("s_mov_b32 m0, 0\n global_load_lds_dword v1, s[4:5]\n ds_read_b32 v4, v1\n s_waitcnt lgkmcnt(0)\n", Check.LDS_USED_EARLY, Access.LOAD),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_stays_silent(name):
    assert check(RIGHT[name], threads=64 if re.search("straight|wave reads|rounding", name) else 128) == []


@pytest.mark.parametrize("name", WRONG)
def test_planted_faults_are_found(name):
    body, expected, access = WRONG[name]
    found = check(body, threads=64 if "load to LDS" in name else 128)

    assert (expected, access) in {(one.check, one.access) for one in found}
    assert {one.check for one in found} == {expected}
    assert "in_flight=True" in repr(found) if "in flight" in name else all(one.times >= 1 for one in found)


# Each workgroup stores to its own place; the last one reads all places.
TAKE = "v_mov_b32 v5, 1\n buffer_wbl2 sc1\n s_waitcnt vmcnt(0)\n global_atomic_add v5, v3, v5, s[6:7] sc0\n s_waitcnt vmcnt(0)\n"
LAST = "v_mov_b32 v4, 3\n v_lshl_add_u32 v1, s2, 8, v1\n global_store_dword v1, v4, s[6:7] offset:256\n s_waitcnt vmcnt(0)\n" + TAKE
LAST += (
    "buffer_inv sc1\n s_cmp_lg_u32 s2, 2\n s_cbranch_scc1 .Lend2\n v_lshlrev_b32 v1, 2, v0\n global_load_dword v6, v1, s[6:7] offset:256\n"
)
LAST += "s_waitcnt vmcnt(0)\n.Lend2:\n"
BETWEEN_GROUPS = {
    "each its own": ("v_mov_b32 v4, s2\n v_lshl_add_u32 v1, s2, 9, v1\n" + STORE, set()),
    "the same to the same": ("v_mov_b32 v4, 5\n" + STORE, set()),
    "atomics": (ADD, set()),
    "another value to the same": ("v_add_u32 v4, 1, v0\n v_add_u32 v4, s2, v4\n" + STORE, {Access.STORE}),
    "one reads what another wrote": ("global_load_dword v6, v1, s[6:7] offset:4\n s_waitcnt vmcnt(0)\n v_add_u32 v4, 1, v0\n" + STORE, {Access.LOAD}),
    "a plain read of what others add to": (ADD + "s_waitcnt vmcnt(0)\n global_load_dword v6, v3, s[6:7]\n s_waitcnt vmcnt(0)\n", {Access.ATOMIC}),
    "the last one reads all, behind an atomic": (LAST, set()),
    "it reads before its atomic": (LAST.replace(TAKE, ""), {Access.LOAD}),
    "its atomic gives nothing back": (LAST.replace(TAKE, ADD), {Access.LOAD}),
    "nothing is written back": (LAST.replace("buffer_wbl2 sc1", ""), {Access.LOAD}),
    "it empties no cache": (LAST.replace("buffer_inv sc1", ""), {Access.LOAD}),
    "it empties that of its workgroup": (LAST.replace("buffer_inv sc1", "buffer_inv sc0"), {Access.LOAD}),
    "an atomic behind its own store": ("v_mov_b32 v4, 0\n s_cmp_lg_u32 s2, 0\n s_cbranch_scc1 .Ladd2\n global_store_dword v3, v4, s[6:7]\n.Ladd2:\n" + ADD, {Access.ATOMIC}),
    "no atomic before a plain read": ("s_cmp_eq_u32 s2, 0\n s_cbranch_scc1 .Ladd\n global_load_dword v6, v3, s[6:7]\n s_waitcnt vmcnt(0)\n s_endpgm\n.Ladd:\n " + ADD, {Access.LOAD}),
}  # fmt: skip


@pytest.mark.parametrize("name", BETWEEN_GROUPS)
def test_races_between_workgroups(name):
    body, expected = BETWEEN_GROUPS[name]
    found = check(body, groups=3, threads=64)

    assert {one.check for one in found} <= {Check.GLOBAL_RACE}
    assert {one.access for one in found} == expected


@triton.jit
def reduce(x, out, N: tl.constexpr, M: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    value = tl.load(x + at)
    tl.store(out + tl.arange(0, M), tl.sum(value, 1))
    tl.store(out + M + tl.arange(0, N), tl.cumsum(tl.sum(value, 0), 0))


def checked(binary: bytes, made, arch: str, x: torch.Tensor, out: torch.Tensor) -> list:
    kernel, found = load(binary), []
    buffers = [(tensor.data_ptr(), tensor.nbytes) for tensor in (x, out)]
    launch = Launch((1, 1, 1), made.metadata.num_warps * WAVES[arch], pack(kernel, [x, out, 0, 0]), made.metadata.shared, buffers)
    execute(kernel, launch, findings=found)
    return found


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_each_barrier_that_is_missing_is_reported(arch):
    """With all its barriers, the kernel is silent; without any one of them, waves race in the line of the kernel."""
    x, out = torch.arange(64 * 128, dtype=torch.float32).reshape(64, 128), torch.zeros(512)
    made = compiled(reduce, arch, {"x": x, "out": out}, {"N": 128, "M": 64})
    text = made.asm["amdgcn"]
    barriers = [*re.finditer(r"^\ts_barrier(_wait)?\b.*\n", text, re.MULTILINE)]

    assert checked(made.asm["hsaco"], made, arch, x, out) == []
    assert len(barriers) > 3
    for barrier in barriers if arch == "gfx942" else barriers[:3]:
        start = barrier.start() if arch == "gfx942" else text.rindex("\ts_barrier_signal", 0, barrier.start())
        kept = "" if arch == "gfx942" else text[text.index("\n", start) + 1 : barrier.start()]
        found = checked(linked(text[:start] + kept + text[barrier.end() :], arch), made, arch, x, out)
        assert {one.check for one in found} <= {Check.LDS_RACE, Check.LDS_UNWRITTEN}
        lines = {one.place.line for one in found}
        assert lines
        assert lines <= {f"test_checks.py:{reduce.fn.__code__.co_firstlineno + n}" for n in (4, 5)}


def test_a_wave_that_signals_before_its_wait_is_reported():
    """A barrier in two halves: what is in flight at the first half is not done, however soon the wave waits afterwards."""
    x, out = torch.arange(64 * 128, dtype=torch.float32).reshape(64, 128), torch.zeros(512)
    made = compiled(reduce, "gfx1201", {"x": x, "out": out}, {"N": 128, "M": 64})
    early, count = re.subn(r"(\ts_wait_(?:loadcnt_)?dscnt .*\n)(\ts_barrier_signal -1\n)", r"\2\1", made.asm["amdgcn"])
    found = checked(linked(early, "gfx1201"), made, "gfx1201", x, out)

    assert count
    assert {one.check for one in found} == {Check.LDS_RACE}


def test_an_index_outside_of_lds_ends_the_launch():
    with pytest.raises(OutOfMemoryBounds, match="4096"):
        check("ds_write_b32 v1, v0 offset:4096\n s_waitcnt lgkmcnt(0)\n")


def test_a_lock_is_not_blamed():
    """Each program reads and writes the sum while it holds the lock: the read before its own store is ordered, too."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "planted"))
    import races

    x, lock, out = torch.randn(8 * 128), torch.zeros(8, dtype=torch.int32), torch.zeros(1)
    for fault in ("", "unlocked too early"):
        made = compiled(races.locked, "gfx942", {"x": x, "lock": lock.zero_(), "out": out}, {"BLOCK": 128, "FAULT": fault})
        kernel, found = load(made.asm["hsaco"]), []
        buffers = [(tensor.data_ptr(), tensor.nbytes) for tensor in (x, lock, out)]
        execute(kernel, Launch((8, 1, 1), 256, pack(kernel, [x, lock, out]), made.metadata.shared, buffers), findings=found)
        assert {one.check for one in found} == ({Check.GLOBAL_RACE} if fault else set())


# Atomics of less than a word at the end of a tensor: the compiler widens them, and an access that is really outside is reported.


@triton.jit
def _add(x, n, block: tl.constexpr):
    i = tl.arange(0, block)
    tl.atomic_add(x + i, 1.0, mask=i < n)


@triton.jit
def _swap(x, expected, new):
    tl.atomic_cas(x, expected.to(tl.int16), new.to(tl.int16))


@triton.jit
def _copy(x, y, n, block: tl.constexpr):
    i = tl.arange(0, block)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


@pytest.mark.parametrize("arch", WAVES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_word_around_the_last_half_may_end_behind_the_tensor(arch, dtype):
    behind = torch.full((16,), 5.0, dtype=dtype)
    x = behind[:7]
    x.zero_()

    run(_add, arch, (1,), {"x": x, "n": 7}, {"block": 64}, num_warps=1)

    assert behind.tolist() == [1.0] * 7 + [5.0] * 9


@pytest.mark.parametrize("arch", WAVES)
def test_a_swap_of_the_only_half_of_a_tensor(arch):
    """The word is loaded by a scalar instruction, as all lanes share its address."""
    for place in (4, 5):
        whole = torch.full((16,), 5, dtype=torch.int16)
        run(_swap, arch, (1,), {"x": whole[place : place + 1], "expected": 5, "new": 9}, {}, num_warps=1)
        assert whole.tolist() == [9 if index == place else 5 for index in range(16)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_an_atomic_behind_the_tensor_is_reported(dtype):
    x = torch.zeros(16, dtype=dtype)[:8]

    with pytest.raises(OutOfMemoryBounds):
        run(_add, "gfx1100", (1,), {"x": x, "n": 9}, {"block": 64}, num_warps=1)


def test_a_plain_load_behind_the_tensor_is_reported():
    x, y = torch.zeros(16, dtype=torch.float16)[:7], torch.zeros(16, dtype=torch.float16)

    with pytest.raises(OutOfMemoryBounds):
        run(_copy, "gfx942", (1,), {"x": x, "y": y, "n": 8}, {"block": 64}, num_warps=1)


# What is kept of decoded code on the disk has a limit: what was used least recently goes first.


def test_the_least_recently_used_goes_first(tmp_path, monkeypatch):
    codes = [load(assembled("gfx942", f"\tv_mov_b32 v0, {n}")) for n in range(8)]
    words = b"".join(os.urandom(4) for _ in range(len(codes[0].image) // 4 + 1))
    decoded = Decoded(os.urandom(1000), words, (1, 2))  # does not compress
    monkeypatch.setattr(decoded_cache, "_MOST_CACHED_BYTES", 5 * (len(words) + 1200))
    made = []

    def ask(n: int) -> None:
        assert decoded_cache.kept(codes[n], tmp_path / "core.so", lambda: made.append(n) or decoded) == decoded
        for age, file in enumerate(sorted((tmp_path / "decoded").iterdir(), key=lambda file: -file.stat().st_mtime_ns)):
            os.utime(file, (1e9 - age, 1e9 - age))  # older at each question, whatever the clock of the disk resolves

    for n in range(5):
        ask(n)
    ask(0)  # is there, and is the youngest now
    ask(5)  # too much: the oldest go

    assert made == [0, 1, 2, 3, 4, 5]
    assert sum(file.stat().st_size for file in (tmp_path / "decoded").iterdir()) <= 5 * (len(words) + 1200)
    ask(0)
    ask(1)
    assert made == [0, 1, 2, 3, 4, 5, 1]
