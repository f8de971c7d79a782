"""A comparison as large as a page has to carry: 2,000 cases on two made-up GPUs. Nothing in it was measured."""

import dataclasses

from synthetic import GPU_B, case, compiled, facts, record, run

from warpwave.compare import compare
from warpwave.records import Sample, Verdict

KERNELS = ("softmax", "layer_norm", "attention", "cross_entropy")


def points(cases: int, factor: float) -> tuple[Sample, ...]:
    """Sweeps of 125 sizes of four providers in four kernels: `cases` rows in all, each with its band."""
    found = []
    for number in range(cases):
        kernel, provider = KERNELS[number % 4], ("triton", "torch", "compile", "copy")[number // 4 % 4]
        size = 256 * (number // 16 + 1)
        value = factor * (1000.0 + 2.9 * (number % 1000) + 0.123456789 * number)
        time = size / value
        found.append(
            Sample(
                case=f"{kernel}/forward-bf16/bf16/N={size}",
                kernel=kernel,
                provider=provider,
                params={"M": 4096, "N": size, "dtype": "bf16"},
                device=0,
                verdict=Verdict.PASSED,
                unit="GB/s",
                value=value,
                median_ms=time,
                p20_ms=time * 0.9876543,
                p80_ms=time * 1.0123456,
                timer="synthetic",
                flush_bytes=1 << 28,
            )
        )
    return tuple(found)


def large(cases: int = 2000):
    """Two targets with as many tests as cases, and 500 compiled kernels each; a hundredth of the tests fails on the second."""
    tests = tuple(
        case(
            f"{KERNELS[n % 4]}/test_{KERNELS[n % 4]}.py::test_against_a_reference[bf16-{n}x781-contiguous]",
            kernel=KERNELS[n % 4],
            properties={"max_abs_err": f"{n}e-9", "max_ulp": f"{n % 7}.25"},
        )
        for n in range(cases)
    )
    second = tuple(
        dataclasses.replace(entry, verdict=Verdict.FAILED, message="AssertionError: 0.3 > 1e-5", detail="a line of a traceback\n" * 60)
        if number % 100 == 7
        else entry
        for number, entry in enumerate(tests)
    )
    code = [
        tuple(
            compiled(name, kernel=KERNELS[n % 4], function=f"_{KERNELS[n % 4]}_{n % 20}", constants={"BLOCK": n}, num_warps=8)
            for n in range(500)
        )
        for name in ("sy_90", "syn942")
    ]
    first = run("alpha", cases=tests, samples=points(cases, 1.0), compiled=code[0])
    other = run("beta", GPU_B, record=record("beta"), facts=facts(GPU_B), cases=second, samples=points(cases, 1.07), compiled=code[1])
    return compare([first, other], ["alpha", "beta"])
