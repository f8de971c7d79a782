"""`nvidia-smi` and `rocm-smi` as programs: they print what packages ask of the pretended card, and refuse the rest by name.

Run as a file of its own by the programs that `vendor_tools.py` writes: `python smi.py PROGRAM ANSWERS ARGUMENT…`. It imports nothing else.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def nvidia_smi(known: dict[str, str], options: dict[str, str]) -> str:
    """Return `--query-gpu=FIELD,FIELD --format=csv,noheader,nounits`, the list of cards (`-L`) or the overview ("")."""
    style, fields = options.pop("--format", "csv"), options.pop("--query-gpu", "")
    for ignored in ("-i", "--id"):
        options.pop(ignored, None)
    if not fields:
        return known["-L" if options.pop("--list-gpus", None) is not None else next(iter(options), "")]
    for option in options:
        raise KeyError(option)
    asked = [field.strip() for field in fields.split(",")]
    values = [known[field] for field in asked]
    if "nounits" in style:
        values = [value.removesuffix(" MiB").removesuffix(" MHz") for value in values]
    return "\n".join([] if "noheader" in style else [", ".join(asked)]) + ("" if "noheader" in style else "\n") + ", ".join(values)


def rocm_smi(known: dict[str, dict[str, str]], options: dict[str, str]) -> str:
    """Return all that is known for `--showproductname`, `--showmeminfo vram` and their kin, as text or as JSON."""
    as_json = options.pop("--json", None) is not None
    for ignored in ("-d", "--device", "--csv"):
        options.pop(ignored, None)
    found = {name: value for option in options or {"--showproductname": ""} for name, value in known[option].items()}
    return json.dumps({"card0": found}) if as_json else "\n".join(f"GPU[0]\t\t: {name}: \t\t{value}" for name, value in found.items())


def main(program: str, known: dict[str, Any], words: list[str]) -> int:
    """Print the answer; an exit code of 1 if there is none. Options have values as `--name=value` or `--name value`."""
    options: dict[str, str] = {}
    last = ""
    for word in words:
        if word.startswith("-"):
            last, _, options[last] = word.partition("=")
        else:
            options[last] = word
    try:
        print((nvidia_smi if program.startswith("nvidia") else rocm_smi)(known, options))
    except KeyError as error:
        print(f"{program}: {error.args[0]} of a card is not pretended by warpwave", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]))
