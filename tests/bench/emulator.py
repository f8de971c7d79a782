"""How many wave-instructions a second does the emulator execute?

`PYTHONPATH=harness:tests/unit/emulator python tests/bench/emulator.py [ARCH]`.

CPU time of `execute` alone, the best of five, after the C core is built and the kernel decoded. State the machine with the numbers.
`ARCH --before FOLDER` measures another checkout beside this one, in turns and each three times, and prints the ratios of the best.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import machine_code
import torch
import triton.language as tl
from test_kernels import add, collatz, matmul, ordered, row_softmax

from warpwave.emulator import Execution, load
from warpwave.emulator.library import core
from warpwave.emulator.program import program


def measured(kernel, launch, **options) -> Execution:
    """Execute five times, and print the best."""
    program(kernel)
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        done = execute(kernel, launch, **options)
        best = min(best, time.process_time() - start)
    speed = done.instructions / best / 1e6
    print(f"{kernel.name:14} {done.instructions:9,} instructions {done.waves:6,} waves {best * 1e3:8.1f} ms {speed:6.2f} M/s")
    return done


execute, machine_code.execute = machine_code.execute, measured


_SPEED = re.compile(r"^(\S+) +([\d,]+) instructions .* ([\d.]+) M/s$", re.MULTILINE)


def compare(arch: str, before: Path) -> None:
    """Measure two checkouts in turns; a row is a kernel, by its name and its place in the output."""
    best: dict[tuple[str, int], list[float]] = {}
    for _ in range(3):
        for which, folder in enumerate((before, Path(__file__).parents[2])):
            path = os.pathsep.join(str(folder / name) for name in ("", "tests/unit/emulator"))
            command = [sys.executable, "tests/bench/emulator.py", arch]
            output = subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, check=True, text=True, capture_output=True)
            for n, (kernel, _count, speed) in enumerate(_SPEED.findall(output.stdout)):
                both = best.setdefault((kernel, n), [0.0, 0.0])
                both[which] = max(both[which], float(speed))
    for (kernel, _), (old, new) in best.items():
        print(f"{kernel:14} {old:6.2f} M/s before, {new:6.2f} M/s now: {new / old:5.2f} times")


def main() -> None:
    arch = sys.argv[1] if len(sys.argv) > 1 else "gfx942"
    if "--before" in sys.argv:
        compare(arch, Path(sys.argv[sys.argv.index("--before") + 1]).resolve())
        return
    start = time.perf_counter()
    core(machine_code.WAVES[arch])
    print(f"{arch}: core built or found in {time.perf_counter() - start:.1f} s")
    x = torch.randn(1 << 20)
    machine_code.run(add, arch, (1024,), {"x": x, "y": x, "o": torch.zeros_like(x), "n": 1 << 20}, {"BLOCK": 1024})
    rows = torch.randn(256, 1000)
    machine_code.run(row_softmax, arch, (256,), {"x": rows, "o": torch.zeros_like(rows), "columns": 1000}, {"BLOCK": 1024})
    values, index = torch.randn(1024), torch.randint(0, 1024, (1024,), dtype=torch.int32)
    machine_code.run(ordered, arch, (1,), {"x": values, "index": index, "o": values.clone(), "g": values.clone()}, {"BLOCK": 1024})
    numbers = torch.arange(1, 129, dtype=torch.int32)
    machine_code.run(collatz, arch, (1,), {"x": numbers, "steps": numbers.clone()}, {"BLOCK": 128})
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for block in (32, 64, 128):
            a = torch.randn(256, 256).to(dtype)
            arguments = {"a": a, "b": a, "c": torch.zeros(256, 256), "M": 256, "N": 256, "K": 256}
            constants = {"BM": block, "BN": block, "BK": 32, "OUT": tl.float32, "PRECISION": "ieee"}
            machine_code.run(matmul, arch, (256 // block, 256 // block), arguments, constants)
    made = machine_code.compiled(matmul, arch, arguments, constants)
    start = time.process_time()
    decoded = program(load(made.asm["hsaco"])).instructions
    print(f"decoded {len(decoded):,} instructions in {(time.process_time() - start) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
