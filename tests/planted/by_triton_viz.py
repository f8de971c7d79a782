"""Run each planted fault under triton-viz' sanitizer: `python by_triton_viz.py FILE`. FILE gets the outcomes as JSON.

It needs triton-viz, and a Triton that this runs with: 3.0 runs with 3.6. It expects functions of the interpreter that 3.9 no longer has.
"""

# ruff: noqa: T201 - a program of its own, which patches what the faults import
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
import torch
import triton
import triton_viz
from triton_viz.clients import Sanitizer

HERE = Path(__file__).parent
plain_jit = triton.jit


def traced(function=None, **options):
    """Stand in for `triton.jit`, as the program `triton-sanitizer` does it."""
    if function is None:
        return lambda inner: traced(inner, **options)
    return triton_viz.trace(client=Sanitizer(abort_on_error=True))(plain_jit(function, **options))


def on_the_cpu(original):
    """Take `device="cuda"` for the CPU: the tests are written for a card."""
    return lambda *arguments, **options: original(*arguments, **{key: value for key, value in options.items() if key != "device"})


def ended(test, fault):
    """Run one test in a forked process; return whether the sanitizer reports something, and what ended the test if not.

    It computes no results, so the test's own comparison fails behind it. A kernel that waits for another program is stopped after 30 s.
    """
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            signal.alarm(30)
            try:
                test(fault)
            except BaseException as error:
                print(type(error).__name__, str(error)[:200])
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        output.seek(0)
        text = output.read()
    last = text.strip().splitlines()[-1][:160] if text.strip() else ""
    return "IMA Diagnostic Report" in text, "" if "IMA Diagnostic Report" in text else last


def main():
    for name in ("empty", "zeros", "ones", "full", "randn", "rand", "randint", "arange", "tensor", "empty_strided", "randperm"):
        setattr(torch, name, on_the_cpu(getattr(torch, name)))
    triton.jit = traced
    sys.path.insert(0, str(HERE))
    import table

    found = {}
    for key in table.faults():
        file, _, name = key.partition("::")
        test = getattr(sys.modules[file.removesuffix(".py")], name)
        found[key] = {kind: ended(test, kind == "fault") for kind in ("fault", "twin")}
        print(key, found[key], flush=True)
        Path(sys.argv[1]).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
