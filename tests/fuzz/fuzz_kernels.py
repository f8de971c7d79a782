"""Random calls of the bundled kernels, on a card or in Triton's interpreter, against float64: at most twice PyTorch's error.

    python tests/fuzz/fuzz_kernels.py [--cases 300] [--seconds 600] [--seed 0] [--op softmax] [--json FILE]

Prints each case that breaks the rule with the command that repeats it, and how many cases of each op were tried. Exit code 1 if one does.
"""

import argparse
import json
import os
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "harness"), str(Path(__file__).parent)]
if __name__ == "__main__" and "--interpret" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"

import torch

torch.set_num_threads(1)
torch.backends.mkldnn.enabled = False  # with some of its kernels, a gelu of infinity is NaN: no measure for ours

from kernel_cases import OPS, Case, draw

from kernels.accuracy import error_of

AGAIN = 16


def round_narrow_floats() -> None:
    """Let Triton's interpreter round to bf16 as a card does, and not toward zero: in twice the error that would be all of it."""
    from warpwave.inside.fake_gpu.answers import arithmetic, changes

    for owner, name, value in changes(arithmetic()):
        setattr(owner, name, value)


def device() -> torch.device:
    found = None if os.environ.get("TRITON_INTERPRET") == "1" else torch.accelerator.current_accelerator()
    return torch.device("cpu" if found is None else found.type)


def faults(case: Case, seed: int, on: torch.device, ops: list[str]) -> list[str]:
    """Return what is wrong with the results of a case: of the op, and of the gradient of each tensor.

    On few numbers, PyTorch may be lucky. So a case whose error is too large is drawn again, and the worst of all draws is compared.
    """
    first = results(case, seed)
    found = {name: error_of(*three).wrong for name, three in first.items()}
    wrong = {name: text for name, text in found.items() if text}
    if not any("worst error" in text for text in wrong.values()):
        return [f"{name}: {text}" for name, text in wrong.items()]
    draws = [first, *(results(draw(seed, on, ops, on.type != "cpu", again), seed + 1_000_003 * again) for again in range(1, AGAIN))]
    said = []
    for name, text in wrong.items():
        ours, theirs = (max(worst(each[name][at], each[name][2]) for each in draws) for at in (0, 1))
        if "worst error" not in text or any(exceeds(each[name], theirs, rounding(each)) for each in draws):
            said.append(f"{name}: {text}; of {AGAIN} draws {ours:.3e} and {theirs:.3e}")
    return said


def results(case: Case, seed: int) -> dict[str, list[torch.Tensor]]:
    """Return ours, PyTorch's and the exact result, and the same of each gradient."""
    exact = [x.double() if x.is_floating_point() else x for x in case.tensors]
    upstream: list[torch.Tensor] = []
    for _ in range(2 if any(x.is_cuda for x in case.tensors) else 0):
        run(case, case.ours, case.tensors, upstream, seed)  # the third call of a kind may be played (kernels/launches/tape.py)
    runs = (case.ours, case.tensors), (case.pytorch, case.tensors), (case.pytorch, exact)
    three = [run(case, op, given, upstream, seed) for op, given in runs]
    names = ["result", *(f"gradient of tensor {n}" for n in range(len(three[0]) - 1))]
    return {name: list(of) for name, *of in zip(names, *three, strict=True)}


def worst(found: torch.Tensor, exact: torch.Tensor) -> float:
    finite = found.isfinite() & exact.isfinite()
    return (found[finite].double() - exact[finite]).abs().max().item() if finite.any() else 0.0


def exceeds(three: list[torch.Tensor], theirs: float, rounding: float) -> bool:
    """Return whether an error is more than twice PyTorch's worst, and a unit in the last place, as in the tests."""
    ours, _, exact = three
    finite = ours.isfinite() & exact.isfinite()
    ulp = exact[finite].abs() * torch.finfo(ours.dtype).eps
    return bool(((ours[finite].double() - exact[finite]).abs() > 2 * theirs + ulp + rounding).any())


def rounding(named: dict[str, list[torch.Tensor]]) -> float:
    """Return a few units of fp32 in the largest number of a case, at least 1. A gradient may be the small difference of such numbers."""
    exact = [of[2][of[2].isfinite()] for of in named.values()]
    return 4 * torch.finfo(torch.float32).eps * max(max((x.abs().max().item() for x in exact if x.numel()), default=0.0), 1.0)


def run(case: Case, op, given, upstream: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Return the result of one implementation, and the gradients; all get the same one from above."""
    leaves = [x.detach().requires_grad_(case.gradients and x.is_floating_point()) for x in given]
    out = op(*leaves)
    if not case.gradients:
        return [out]
    if not upstream:
        numbers = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed))
        upstream.append(numbers.to(out.device, out.dtype))
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    return [out.detach(), *torch.autograd.grad(out, wanted, upstream[0].to(out.dtype))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0, help="of the first case; each has the next")
    parser.add_argument("--op", action="append", choices=OPS, help="only these; repeatable")
    parser.add_argument("--interpret", action="store_true", help="in Triton's interpreter, without a card")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if os.environ.get("TRITON_INTERPRET") == "1":
        round_narrow_floats()
    ops, on, until = options.op or list(OPS), device(), time.monotonic() + options.seconds
    tried, wrong = Counter[str](), []
    for seed in range(options.seed, options.seed + options.cases):
        if time.monotonic() > until:
            break
        case = draw(seed, on, ops, big=on.type != "cpu")
        tried[case.op] += 1
        try:
            found = faults(case, seed, on, ops)
        except Exception:
            found = [traceback.format_exc(limit=-3).strip()]
        if found:
            wrong.append({"seed": seed, "case": str(case), "found": found})
            only = "".join(f" --op {op}" for op in options.op or ())
            sys.stdout.write("\n".join([f"{case}", *found, f"  repeat: --seed {seed} --cases 1{only}", ""]) + "\n")
            sys.stdout.flush()
    sys.stdout.write(f"{sum(tried.values())} cases on {on}, {len(wrong)} wrong: {dict(sorted(tried.items()))}\n")
    if options.json:
        options.json.write_text(json.dumps({"device": str(on), "tried": tried, "wrong": wrong}, indent=1), encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
