"""Compile a kernel that some releases of Triton get wrong on AMD only, with one of these releases.

Usage: python compiled.py NAME ARCHITECTURE FILE   with the Triton to ask on PYTHONPATH
Writes the code object to FILE, the assembly to FILE.s, and what a launch needs beside it to FILE.json.
"""

import json
import sys
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import kernels

WAVES = {"gfx90a": 64, "gfx942": 64, "gfx950": 64, "gfx1100": 32, "gfx1201": 32}
# Alignment, and that all of a tensor is in reach of 32 bits, as the JIT finds out of its arguments. A length has no alignment.
HINTS = {"*": [["tt.divisibility", 16], ["tt.pointer_range", 32]]}


def kernels_by_name():
    """Return each kernel by its name: function, types of its arguments, constants, options."""
    found = kernels.KERNELS
    try:
        import gluon_kernels
    except ImportError:  # not in every release
        return found
    return {**found, **gluon_kernels.KERNELS}


def source_of(function, types, constants):
    names = function.arg_names
    signature = {name: types.get(name, "constexpr") for name in names}
    aligned = {(n,): HINTS["*"] for n, name in enumerate(names) if types.get(name, "").startswith("*")}
    source = ASTSource
    if type(function).__name__ == "GluonJITFunction":
        from triton.experimental.gluon import _runtime

        source = _runtime.GluonASTSource
    return source(function, signature, {(names.index(key),): value for key, value in constants.items()}, aligned)


def main():
    name, architecture, file = sys.argv[1:]
    function, types, constants, options = kernels_by_name()[name]
    made = triton.compile(
        source_of(function, types, constants), target=GPUTarget("hip", architecture, WAVES[architecture]), options=options
    )
    Path(file).write_bytes(made.asm["hsaco"])
    Path(file + ".s").write_text(made.asm["amdgcn"])
    needed = {"lds": made.metadata.shared, "threads": made.metadata.num_warps * WAVES[architecture], "triton": triton.__version__}
    Path(file + ".json").write_text(json.dumps(needed))


if __name__ == "__main__":
    main()
