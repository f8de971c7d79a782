"""Compile one kernel with Triton alone, from a request on standard input: the control of a row that the compile stage calls failed.

Print `ok`, or what Triton said. Nothing of the harness is imported.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MOST_THREADS = 1024  # of a block, on every card here


def module_with(root: Path, function: str, source: str) -> Any:
    """Import the file that defines a jitted function, by its dotted name in a package. Several may: `source` says which."""
    named = root / source.rpartition(":")[0]
    for path in [named] if named.is_file() else sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        if f"def {function}(" not in text or not any(
            isinstance(node, ast.FunctionDef) and node.name == function for node in ast.walk(ast.parse(text))
        ):
            continue
        base = path.parent
        while (base / "__init__.py").exists():
            base = base.parent
        sys.path[:0] = [str(base), str(root)]
        return importlib.import_module(".".join(path.relative_to(base).with_suffix("").parts))
    raise LookupError(f"no file of the package defines {function}")


def target_of(name: str) -> Any:
    """Return Triton's target for sm_90 or gfx942."""
    from triton.backends.compiler import GPUTarget

    if name.startswith("sm_"):
        return GPUTarget("cuda", int(name.removeprefix("sm_")), 32)
    return GPUTarget("hip", name, 64 if name.startswith("gfx9") else 32)


def compile_row(row: dict[str, Any], root: Path) -> str:
    """Return what Triton says, or nothing."""
    import triton
    from triton.compiler import ASTSource

    pretend(target_of(row["architecture"]))
    function = getattr(module_with(root, row["function"], row["source"]), row["function"])
    while not isinstance(function, triton.JITFunction):
        function = function.fn
    names = function.arg_names
    signature = {name: row["signature"].get(name, "constexpr") for name in names}
    constants = {(names.index(name),): dtype_or(value) for name, value in row["constants"].items()}
    attributes = {
        (names.index(name),): [[key, int(value)] for key, _, value in (word.partition("=") for word in told.split(","))]
        for name, told in row["attributes"].items()
    }
    source_type = ASTSource
    if getattr(function, "is_gluon", bool)():
        from triton.experimental.gluon._runtime import GluonASTSource

        source_type = GluonASTSource
    source = source_type(function, signature, constexprs=constants, attrs=attributes)
    options = {name: row[name] for name in ("num_warps", "num_stages") if row[name] is not None} | row["options"]
    target = target_of(row["architecture"])
    try:
        compiled = triton.compile(source, target=target, options=options)
    except Exception as error:
        last = (str(error).strip().splitlines() or [""])[-1]  # the lines before it quote the kernel
        return f"{type(error).__name__}: {last}"
    if any(exceeds(each, row, compiled, target) for each in row["reason"].split("; ")):
        return str(row["reason"])
    return str(row["reason"]) if "explicit_precision" in row["reason"] and precision_is_left(function, compiled) else ""


def dtype_or(value: Any) -> Any:
    """Return Triton's type for a constant that a row names as `fp32`, and a layout for its text."""
    import triton.language as tl

    if isinstance(value, str) and re.fullmatch(r"\w+Layout\(.*\)", value):  # of a Gluon kernel: its text is what makes it
        from triton.experimental.gluon import language

        return eval(value, vars(language))
    types = (tl.float16, tl.bfloat16, tl.float32, tl.float64, tl.int8, tl.int16, tl.int32, tl.int64)
    return next((each for each in types if value == each.name), value) if isinstance(value, str) else value


def precision_is_left(function: Any, compiled: Any) -> bool:
    """Return whether a product of fp32 operands names no precision: one is in Triton's IR, and a call in the source has no option."""
    if not re.search(r"tt\.dot .*xf32> \* tensor<[\dx]*f32>", compiled.asm["ttir"]):
        return False
    calls = [node for node in ast.walk(ast.parse(textwrap.dedent(function.src))) if isinstance(node, ast.Call)]
    products = [call for call in calls if getattr(call.func, "attr", getattr(call.func, "id", "")) == "dot"]
    return any(
        len(call.args) < 4 and not {"input_precision", "allow_tf32"} & {keyword.arg for keyword in call.keywords} for call in products
    )


def exceeds(reason: str, row: dict[str, Any], compiled: Any, target: Any) -> bool:
    """Return whether what Triton made has the figure that the row complains of. The launcher, on the card, refuses the first two."""
    if reason.startswith("needs "):
        return bool(compiled.metadata.shared == row["shared_bytes"])
    if " can be launched" in reason:
        return bool(compiled.metadata.num_warps * target.warp_size > MOST_THREADS)
    if reason.startswith("spills"):
        return spills(compiled, target)
    if reason.startswith("release_waits"):
        return publishes_early(compiled.asm["amdgcn"])
    return False


def publishes_early(assembly: str) -> bool:
    """Return whether an atomic or a store follows the write-back of a cache without a wait between them."""
    return any(
        re.match(r"(global|flat|buffer)_(atomic|store)", line)
        for after in re.split(r"\bbuffer_wbl2\b.*\n", assembly)[1:]
        for line in re.split(r"s_waitcnt [^\n]*vmcnt\(0\)|s_endpgm", after)[0].replace("\t", "").splitlines()
    )


def spills(compiled: Any, target: Any) -> bool:
    """Return whether registers are kept in memory: a stack in the binary says so of one vendor, the assembly of the other."""
    if target.backend == "hip":
        return any(int(number) for number in re.findall(r"_spill_count:\s*(\d+)", compiled.asm["amdgcn"]))
    from triton.backends.nvidia.compiler import get_ptxas

    with tempfile.NamedTemporaryFile("wb", suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [str(Path(get_ptxas(target.arch).path).with_name("cuobjdump")), "--dump-resource-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return any(int(number) for number in re.findall(r"STACK:(\d+)", said))


def pretend(target: Any) -> None:
    """Answer what packages ask while they are imported: nothing is launched here."""
    import torch
    import triton

    capability = divmod(target.arch, 10) if target.backend == "cuda" else (9, 4)
    driver = SimpleNamespace(
        get_current_target=lambda: target,
        get_active_torch_device=lambda: torch.device("cuda", 0),
        get_current_device=lambda: 0,
        get_benchmarker=lambda: None,
        get_device_interface=lambda: torch.cuda,
        get_empty_cache_for_benchmark=lambda: None,
        clear_cache=lambda cache: None,
        get_device_capability=lambda device=0: capability,
    )
    driver.utils = SimpleNamespace(
        get_device_properties=lambda device: {"multiprocessor_count": 132, "max_shared_mem": 65536, "warpSize": 32}
    )
    triton.runtime.driver.set_active(driver)
    properties = SimpleNamespace(name="", multi_processor_count=132, gcnArchName=str(target.arch), major=capability[0], minor=capability[1])
    torch.version.cuda = torch.version.cuda or ("12.8" if target.backend == "cuda" else None)
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_capability = lambda device=None: capability
    torch.cuda.get_device_properties = lambda device=None: properties
    torch.cuda.get_device_name = lambda device=None: ""


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    sys.path[:0] = request["paths"]
    try:
        said = compile_row(request["row"], Path(request["root"]))
    except Exception as error:
        said = f"cannot be compiled alone: {type(error).__name__}: {error}"
    print("ok", " ".join(said.split()))


if __name__ == "__main__":
    main()
