"""Arguments by argparse, a loop over sizes, two measurements in it, and one in a helper."""

import argparse
import sys

import torch
import triton
from my_ops.relu import measured, relu, tuned


def main(args):
    dtype = getattr(torch, args.dtype)
    for n in [1024, 4096]:
        x = torch.randn(n, device="cuda", dtype=dtype)
        tuned(x)  # its autotuner measures, and that is no point
        ours = triton.testing.do_bench(lambda: relu(x), return_mode="median")
        theirs = triton.testing.do_bench(lambda: torch.relu(x), quantiles=[0.5, 0.2, 0.8])
        tagged = measured(lambda: tuned(x), tag="helper")
        print(f"n={n} ours={ours} theirs={theirs} tagged={tagged} name={__name__} argv={sys.argv[1:]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="float32")
    main(parser.parse_args())
