"""`nvidia-smi` and `rocm-smi` as programs: they print what packages ask of the pretended card, and refuse the rest by name.

Run as a file of its own by the programs that `vendor_tools.py` writes: `python smi.py PROGRAM FACTS ARGUMENT…`. It imports nothing else.
"""

from __future__ import annotations

import json
import sys
from typing import Any

_MIB = 1 << 20


def query(facts: dict[str, Any], fields: str, style: str) -> str:
    """Return `--query-gpu=FIELD,FIELD --format=csv,noheader,nounits`, as nvidia-smi prints it.

    Raises:
        KeyError: a field is not pretended; the exception names it.
    """
    total, used = facts["total_memory"] // _MIB, facts["used_memory"] // _MIB
    known = {
        **dict.fromkeys(("name", "gpu_name"), facts["name"]),
        **dict.fromkeys(("index", "minor_number"), "0"),
        "count": "1",
        **dict.fromkeys(("uuid", "gpu_uuid"), facts["uuid"]),
        "driver_version": facts["driver"],
        **dict.fromkeys(("compute_cap", "compute_capability"), ".".join(map(str, facts["capability"]))),
        **dict.fromkeys(("pci.bus_id", "gpu_bus_id"), facts["bus"]),
        "memory.total": f"{total} MiB",
        "memory.used": f"{used} MiB",
        "memory.free": f"{total - used} MiB",
        "memory.reserved": "0 MiB",
        "clocks.max.sm": f"{facts['sm_mhz']} MHz",
        **dict.fromkeys(("clocks.max.mem", "clocks.max.memory"), f"{facts['memory_mhz']} MHz"),
    }
    asked = [field.strip() for field in fields.split(",")]
    values = [known[field] for field in asked]
    if "nounits" in style:
        values = [value.removesuffix(" MiB").removesuffix(" MHz") for value in values]
    lines = [] if "noheader" in style else [", ".join(asked)]
    return "\n".join([*lines, ", ".join(values)])


def nvml_tool(facts: dict[str, Any], words: list[str]) -> str:
    """Return what `nvidia-smi` prints.

    Raises:
        KeyError: an option is not pretended; the exception names it.
    """
    options = _options(words)
    for ignored in ("-i", "--id"):
        options.pop(ignored, None)
    style = options.pop("--format", "csv")
    if fields := options.pop("--query-gpu", ""):
        _refuse_rest(options)
        return query(facts, fields, style)
    if "-L" in options or "--list-gpus" in options:
        return f"GPU 0: {facts['name']} (UUID: {facts['uuid']})"
    _refuse_rest(options)
    total, used = facts["total_memory"] // _MIB, facts["used_memory"] // _MIB
    return (
        f"| NVIDIA-SMI {facts['driver']}   Driver Version: {facts['driver']}   CUDA Version: {facts['runtime']} |\n"
        f"|   0  {facts['name']}  |  {facts['bus']}  |  {used}MiB / {total}MiB  |"
    )


def rocm_tool(facts: dict[str, Any], words: list[str]) -> str:
    """Return what `rocm-smi` prints: all that is known for `--showproductname`, `--showmeminfo vram` and their kin.

    Raises:
        KeyError: an option is not pretended; the exception names it.
    """
    options = _options(words)
    as_json = options.pop("--json", None) is not None
    for ignored in ("-d", "--device", "--csv"):
        options.pop(ignored, None)
    product = {"Card Series": facts["name"], "Card Model": facts["name"], "Card Vendor": "Advanced Micro Devices, Inc. [AMD/ATI]"}
    shown = {
        "--showproductname": {**product, "GFX Version": facts["architecture"]},
        "--showmeminfo": {
            "VRAM Total Memory (B)": str(facts["total_memory"]),
            "VRAM Total Used Memory (B)": str(facts["used_memory"]),
        },
        "--showid": {"Device Name": facts["name"]},
        "--showuniqueid": {"Unique ID": facts["uuid"]},
        "--showbus": {"PCI Bus": facts["bus"]},
        "--showdriverversion": {"Driver version": facts["driver"]},
    }
    found: dict[str, str] = {}
    for option in options or {"--showproductname": ""}:
        found.update(shown[option])
    if as_json:
        return json.dumps({"card0": found})
    return "\n".join(f"GPU[0]\t\t: {name}: \t\t{value}" for name, value in found.items())


def _options(words: list[str]) -> dict[str, str]:
    """Return options with their values: `--name=value` or `--name value`."""
    found: dict[str, str] = {}
    last = ""
    for word in words:
        if word.startswith("-"):
            last, _, value = word.partition("=")
            found[last] = value
        else:
            found[last] = word
    return found


def _refuse_rest(options: dict[str, str]) -> None:
    if options:
        raise KeyError(next(iter(options)))


def main(program: str, facts: dict[str, Any], words: list[str]) -> int:
    """Print the answer; an exit code of 1 if there is none."""
    try:
        print((nvml_tool if program.startswith("nvidia") else rocm_tool)(facts, words))
    except KeyError as error:
        print(f"{program}: {error.args[0]} of a card is not pretended by warpwave", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]))
