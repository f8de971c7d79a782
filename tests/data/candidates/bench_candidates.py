"""Kernels whose autotuners have candidates that spill, that do not fit, or that are the only ones."""

import torch
import triton
import triton.language as tl
from triton.runtime import Autotuner
from triton.runtime.errors import OutOfResources

# A limit that its block does not fit into: without one, only blocks of 8,192 elements spill, and each takes a second to compile.
REGISTERS = 24
SPILLING, CLEAN = triton.Config({}, num_warps=1, maxnreg=REGISTERS), triton.Config({}, num_warps=16)


def wide(name):
    """A kernel of this name that spills with one warp and does not with sixteen."""

    def body(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n, other=float("-inf"))
        tl.store(y_ptr + offsets, x - tl.max(x, 0), mask=offsets < n)

    body.__name__ = body.__qualname__ = name
    return triton.jit(body)


def only_spilling(configs, named_args, **kwargs):
    return [config for config in configs if config.num_warps == 1]


class OwnTuner(Autotuner):
    """Launches in its own way, as tuners of some packages do."""

    def run(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args))
        best = min(self.prune_configs(kwargs), key=lambda config: self._bench(*args, config=config, **kwargs))
        return self.fn.run(*args, **kwargs, **best.all_kwargs())


def own(function):
    return OwnTuner(function, function.arg_names, [SPILLING, CLEAN], [], None, None)


tuned = triton.autotune([SPILLING, CLEAN], key=["BLOCK"])(wide("tuned"))
hopeless = triton.autotune([SPILLING, triton.Config({}, num_warps=1, num_stages=1, maxnreg=REGISTERS)], key=[])(wide("hopeless"))
pruned = triton.autotune([SPILLING, CLEAN], key=[], prune_configs_by={"early_config_prune": only_spilling})(wide("pruned"))
guessed = triton.heuristics({"BLOCK": lambda args: 1024})(triton.autotune([SPILLING, CLEAN], key=[])(wide("guessed")))
tuned_guess = triton.autotune([SPILLING, CLEAN], key=[])(triton.heuristics({"BLOCK": lambda args: 1024})(wide("tuned_guess")))
derived = own(wide("derived"))
plain = wide("plain")
shared = wide("shared")
shared_with_all = triton.autotune([SPILLING, CLEAN], key=[])(shared)
warmed = triton.autotune([SPILLING, CLEAN], key=[])(wide("warmed"))


@triton.autotune([triton.Config({"STAGES": 9, "TILE": 128}), triton.Config({"STAGES": 1, "TILE": 32})], key=[])
@triton.jit
def product(x_ptr, y_ptr, n, TILE: tl.constexpr, STAGES: tl.constexpr):
    offsets = tl.arange(0, TILE)[:, None] * TILE + tl.arange(0, TILE)[None, :]
    total = tl.zeros((TILE, TILE), tl.float32)
    for step in tl.range(0, n, num_stages=STAGES):
        a = tl.load(x_ptr + offsets + step * TILE * TILE)
        total += tl.dot(a, a)
    tl.store(y_ptr + offsets, total)


caught, caught_alone = wide("caught"), wide("caught_alone")


def fall_back(function, x, y, *warps):
    """Launch with the first number of warps that the card takes."""
    for number in warps:
        try:
            return function[(1,)](x, y, 1024, BLOCK=1024, num_warps=number)
        except OutOfResources:
            pass


LAUNCHES = {
    "tuned": lambda x, y: [tuned[(1,)](x, y, n, BLOCK=1024) for n in (1024, 1023)],
    "hopeless": lambda x, y: hopeless[(1,)](x, y, 1024, BLOCK=1024),
    "pruned": lambda x, y: pruned[(1,)](x, y, 1024, BLOCK=1024),
    "guessed": lambda x, y: guessed[(1,)](x, y, 1024),
    "tuned_guess": lambda x, y: tuned_guess[(1,)](x, y, 1024),
    "derived": lambda x, y: derived[(1,)](x, y, 1024, BLOCK=1024),
    "plain": lambda x, y: plain[(1,)](x, y, 1024, BLOCK=1024, num_warps=1, maxnreg=REGISTERS),
    "shared": lambda x, y: (
        shared_with_all[(1,)](x, y, 1024, BLOCK=1024),
        shared[(1,)](x, y, 1024, BLOCK=1024, num_warps=1, maxnreg=REGISTERS),
    ),
    "warmed": lambda x, y: warmed.warmup(x, y, 1024, BLOCK=1024, grid=(1,)),
    "caught": lambda x, y: fall_back(caught, x, y, 64, 16),
    "caught_alone": lambda x, y: fall_back(caught_alone, x, y, 64),
    "product": lambda x, y: product[(1,)](x.half(), y, 8),
}


@triton.testing.perf_report(triton.testing.Benchmark(["N"], [1024], "provider", list(LAUNCHES), list(LAUNCHES), "wide", {}))
def benchmark(N, provider):
    x, y = torch.randn(512 * N, device="cuda"), torch.empty(512 * N, device="cuda")
    return triton.testing.do_bench(lambda: LAUNCHES[provider](x, y))
