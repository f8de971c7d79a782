"""Random Triton programs, executed four times: by Triton's interpreter, by numpy, and by the emulator for two instruction sets.

    python tests/fuzz/programs.py [--seconds 60] [--seed 0] [--cards gfx942,gfx1201]

A program is a list of steps over values of 32 by 32 elements. Numbers are chosen such that every step is exact: whatever order a sum or a
product has, all four must agree bit for bit. Prints each disagreement with its program, and the figures. Exit code 1 if there is one.
"""

# ruff: noqa: E501 - it finds its modules first; a step is a line
import argparse
import linecache
import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
sys.path[:0] = [str(Path(__file__).parents[2] / "harness"), str(Path(__file__).parents[1] / "unit" / "emulator")]

import numpy as np
import torch
import triton
import triton.language as tl
from machine_code import WAVES, compiled, pack

from warpwave.emulator import EmulatorError, Found, Launch, execute, load

SIZE = 32
LIMIT_S = 60.0  # of a program on a card: nearly all take less than 3
ROWS, COLUMNS = np.arange(SIZE)[:, None], np.arange(SIZE)[None, :]
# A step of whole numbers: Triton's expression of {a}, {b} and a constant {k}, and numpy's; then one of small floats.
WHOLE: dict[str, tuple[str, Callable[[Any, Any, int], Any]]] = {
    "add": ("{a} + {b}", lambda a, b, k: a + b),
    "subtract": ("{a} - {b}", lambda a, b, k: a - b),
    "multiply": ("{a} * {b}", lambda a, b, k: a * b),
    "and": ("{a} & {b}", lambda a, b, k: a & b),
    "or": ("{a} | {b}", lambda a, b, k: a | b),
    "xor": ("{a} ^ ({b} + {k})", lambda a, b, k: a ^ (b + np.int32(k))),
    "shift left": ("{a} << ({k} % 31)", lambda a, b, k: a << np.int32(k % 31)),
    "shift right": ("{a} >> ({k} % 31)", lambda a, b, k: a >> np.int32(k % 31)),
    "divide": ("({a} & 0x7fffffff) // ({k} + 1)", lambda a, b, k: (a & 0x7FFFFFFF) // np.int32(k + 1)),
    "remainder": ("({a} & 0x7fffffff) % (({b} & 0xff) + 1)", lambda a, b, k: (a & 0x7FFFFFFF) % ((b & 0xFF) + 1)),
    "minimum": ("tl.minimum({a}, {b})", lambda a, b, k: np.minimum(a, b)),
    "maximum": ("tl.maximum({a}, {b})", lambda a, b, k: np.maximum(a, b)),
    "choose": ("tl.where({a} > {b}, {a} - {k}, {b} * 3)", lambda a, b, k: np.where(a > b, a - np.int32(k), b * np.int32(3))),
    "narrow": ("{a}.to(tl.int8).to(tl.int32) + {b}.to(tl.int16).to(tl.int32)", lambda a, b, k: a.astype(np.int8).astype(np.int32) + b.astype(np.int16).astype(np.int32)),
    "wide": ("(({a}.to(tl.int64) * {b}.to(tl.int64)) >> 16).to(tl.int32)", lambda a, b, k: (a.astype(np.int64) * b.astype(np.int64) >> 16).astype(np.int32)),
    "high half": ("tl.umulhi({a}.to(tl.uint32, bitcast=True), {b}.to(tl.uint32, bitcast=True)).to(tl.int32, bitcast=True)", lambda a, b, k: (a.view(np.uint32).astype(np.uint64) * b.view(np.uint32).astype(np.uint64) >> np.uint64(32)).astype(np.uint32).view(np.int32)),
    "transpose": ("tl.trans({a}) + {b}", lambda a, b, k: a.T + b),
    "sum of rows": ("{a} + tl.sum({b}, 1)[:, None]", lambda a, b, k: a + b.sum(1, dtype=np.int32)[:, None]),
    "sum of columns": ("{a} ^ tl.sum({b}, 0)[None, :]", lambda a, b, k: a ^ b.sum(0, dtype=np.int32)[None, :]),
    "largest": ("{a} - tl.max({b}, 1)[:, None]", lambda a, b, k: a - b.max(1)[:, None]),
    "place of the least": ("{a} + tl.argmin({b}, 0)[None, :]", lambda a, b, k: a + b.argmin(0).astype(np.int32)[None, :]),
    "scan": ("tl.cumsum({a}, 1)", lambda a, b, k: a.cumsum(1, dtype=np.int32)),
    "scan backwards": ("tl.cumsum({a}, 0, reverse=True)", lambda a, b, k: a[::-1].cumsum(0, dtype=np.int32)[::-1]),
    "gather": ("tl.gather({a}, {b} & 31, 1)", lambda a, b, k: np.take_along_axis(a, b & 31, 1)),
    "sort": ("tl.sort({a}, 1)", lambda a, b, k: np.sort(a, 1)),
    "product of halves": ("tl.dot(({a} & 15).to(tl.float16), ({b} & 15).to(tl.float16)).to(tl.int32)", lambda a, b, k: (a & 15) @ (b & 15)),
    "product of bfloat16": ("tl.dot(({a} & 15).to(tl.bfloat16), ({b} & 15).to(tl.bfloat16)).to(tl.int32)", lambda a, b, k: (a & 15) @ (b & 15)),
    "product of floats": ("tl.dot(({a} & 63).to(tl.float32), ({b} & 63).to(tl.float32), input_precision='ieee').to(tl.int32)", lambda a, b, k: (a & 63) @ (b & 63)),
    "product of bytes": ("tl.dot({a}.to(tl.int8), {b}.to(tl.int8))", lambda a, b, k: a.astype(np.int8).astype(np.int32) @ b.astype(np.int8).astype(np.int32)),
    "floats": ("(({a} & 1023).to(tl.float32) * 0.25 + ({b} & 255).to(tl.float32)).to(tl.int32)", lambda a, b, k: ((a & 1023) * np.float32(0.25) + (b & 255)).astype(np.int32)),
    "halves": ("(({a} & 31).to(tl.float16) * ({b} & 31).to(tl.float16)).to(tl.int32)", lambda a, b, k: (a & 31) * (b & 31)),
    "denormal quotient": ("tl.div_rn((({a} & 0xffffff) + 1).to(tl.float32) * 7.52316384526264e-37, (({b} & 0xffff) + 1).to(tl.float32)).to(tl.int32, bitcast=True)", lambda a, b, k: (((a & 0xFFFFFF) + 1).astype(np.float32) * np.float32(2.0**-120) / ((b & 0xFFFF) + 1).astype(np.float32)).view(np.int32)),
    "root": ("tl.sqrt((({a} & 255) * ({a} & 255)).to(tl.float32)).to(tl.int32)", lambda a, b, k: a & 255),
    "power": ("tl.exp2(({a} & 15).to(tl.float32)).to(tl.int32) + {b}", lambda a, b, k: (np.int32(1) << (a & 15)) + b),
    "double": ("(({a}.to(tl.float64) + {b}.to(tl.float64)) * 0.5).to(tl.int32)", lambda a, b, k: ((a.astype(np.float64) + b) * 0.5).astype(np.int32)),
    "load again": ("tl.load(x + (({a} & 31) * 32 + ({b} & 31)), mask={a} > {k}, other={k})", None),
}  # fmt: skip
KERNEL = """
def program(x, y, out, counts):
    at = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    v0 = tl.load(x + at)
    v1 = tl.load(y + at)
{steps}
    tl.atomic_add(counts + (v{last} & 63), 1)
    tl.store(out + at, v{last})
"""


def made(rng: random.Random, steps: int) -> tuple[str, list[tuple[str, int, int, int, int]]]:
    """Return a program's source, and its steps: name, operands, constant, and how often it is repeated."""
    lines, plan = [], []
    for n in range(2, steps + 2):
        name = rng.choice(list(WHOLE))
        a, b, k, times = (
            rng.randrange(max(0, n - 4), n),
            rng.randrange(n),
            rng.randrange(1, 1 << rng.randrange(1, 20)),
            rng.choice((1, 1, 1, 3)),
        )
        text = WHOLE[name][0]
        lines.append(f"    v{n} = " + text.format(a=f"v{a}", b=f"v{b}", k=k))
        if times > 1:
            lines += [f"    for _ in range({times - 1}):", f"        v{n} = " + text.format(a=f"v{n}", b=f"v{b}", k=k)]
        plan.append((name, a, b, k, times))
    return KERNEL.format(steps="\n".join(lines), last=steps + 1), plan


def by_numpy(plan: list[tuple[str, int, int, int, int]], x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values = [x, y]
    with np.errstate(all="ignore"):
        for name, a, b, k, times in plan:
            value = values[a]
            for _ in range(times):
                if name == "load again":
                    value = np.where(value > k, x[value & 31, values[b] & 31], np.int32(k))
                else:
                    value = WHOLE[name][1](value, values[b], k)
                value = np.ascontiguousarray(value, np.int32)
            values.append(value)
    return values[-1], np.bincount(values[-1].ravel() & 63, minlength=64).astype(np.int32)


def function_of(source: str, number: int) -> Any:
    """Return the Python function, whose source Triton can read."""
    name = f"<program {number}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"tl": tl}
    exec(compile(source, name, "exec"), space)
    return space["program"]


def by_emulator(function: Any, card: str, tensors: dict[str, torch.Tensor], warps: int) -> list[Found]:
    """Compile for a card and execute; return what the checks found."""
    binary = compiled(triton.jit(function), card, tensors, {}, num_warps=warps)
    kernel, found = load(binary.asm["hsaco"]), []
    packed = pack(kernel, [*tensors.values(), 0, 0])
    buffers = [(tensor.data_ptr(), tensor.nbytes) for tensor in tensors.values()]
    execute(kernel, Launch((1, 1, 1), warps * WAVES[card], packed, binary.metadata.shared, buffers), findings=found)
    return found


def tensors_of(x: np.ndarray, y: np.ndarray) -> dict[str, torch.Tensor]:
    """Return the arguments of a program, fresh."""
    whole = {"x": torch.from_numpy(x.copy()), "y": torch.from_numpy(y.copy())}
    return {**whole, "out": torch.zeros(SIZE * SIZE, dtype=torch.int32), "counts": torch.zeros(64, dtype=torch.int32)}


def drawn(number: int) -> tuple[str, list[tuple[str, int, int, int, int]], np.ndarray, np.ndarray, int]:
    """Return a program's source and plan, its two operands, and on how many warps it runs."""
    rng, numbers = random.Random(number), np.random.default_rng(number)
    source, plan = made(rng, rng.randrange(3, 12))
    x, y = (numbers.integers(-(2**31), 2**31, (SIZE, SIZE)).astype(np.int32) >> numbers.integers(0, 24) for _ in range(2))
    return source, plan, np.ascontiguousarray(x, np.int32), np.ascontiguousarray(y, np.int32), rng.choice((1, 2, 4, 8))


def compared(number: int, run: Callable[[Any, dict[str, torch.Tensor], int], list[Found]]) -> str:
    source, plan, x, y, warps = drawn(number)
    expected, tally = by_numpy(plan, x, y)
    tensors = tensors_of(x, y)
    try:
        if found := run(function_of(source, number), tensors, warps):
            return f"{found[0].check.name} at {found[0].place}"
    except (EmulatorError, RuntimeError, triton.TritonError) as error:
        return str(error).splitlines()[-1][:200]
    differ = (tensors["out"].numpy().reshape(SIZE, SIZE) != expected).sum(), (tensors["counts"].numpy() != tally).sum()
    return f"{differ[0]} of 1024 elements and {differ[1]} of 64 counts differ" if any(differ) else ""


def on_card(number: int, card: str) -> str:
    """Compare in a process of its own: Triton's compiler may end it, or never end itself."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)

    def run() -> None:
        theirs.send(compared(number, lambda function, tensors, warps: by_emulator(function, card, tensors, warps)))

    process = fork.Process(target=run)
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(LIMIT_S) else f"no result within {LIMIT_S} s"
    except EOFError:
        return "its process ended without a result"
    finally:
        process.kill()
        process.join()


def interpret() -> None:
    """Execute the programs whose numbers come in; Triton decides for a whole process whether it interprets."""
    for line in sys.stdin:
        print(compared(int(line), lambda function, tensors, warps: triton.jit(function)[(1,)](*tensors.values())), flush=True)


def one(number: int, cards: list[str], counts: Counter[str], interpreter: subprocess.Popen[str]) -> list[str]:
    """Make a program, execute it everywhere, and return what disagrees with numpy."""
    source, plan, _, _, warps = drawn(number)
    assert interpreter.stdin is not None and interpreter.stdout is not None  # noqa: PT018
    interpreter.stdin.write(f"{number}\n")
    interpreter.stdin.flush()
    wrong = {card: on_card(number, card) for card in cards}
    wrong["interpreter"] = interpreter.stdout.readline().strip()
    counts.update(name for name, *_ in plan)
    return [f"program {number}, {who}, {warps} warps: {what}\n{source}" for who, what in wrong.items() if what]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cards", default="gfx942,gfx1201")
    options = parser.parse_args()
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    interpreter = subprocess.Popen([sys.executable, __file__], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    began, number, counts, wrong = time.monotonic(), options.seed, Counter[str](), 0
    while time.monotonic() - began < options.seconds:
        for line in one(number, options.cards.split(","), counts, interpreter):
            wrong += 1
            print(line, flush=True)
        number += 1
    interpreter.kill()
    print(f"{number - options.seed} programs of {sum(counts.values())} steps, {len(counts)} of {len(WHOLE)} kinds; {wrong} disagreements")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(interpret() if os.environ.get("TRITON_INTERPRET") == "1" else main())
