"""Print which instruction forms compiled kernels use on each card, and which test states each; or make the lists in `cards/` anew.

warpwave run cpu --stage compile --kernels kernels          # and tests/idioms; with TRITON_CACHE_DIR=CACHE, and all five cards
python tests/unit/emulator/forms/inventory.py CACHE          # writes cards/, from all assembly in that folder
python tests/unit/emulator/forms/inventory.py                # prints what cards/ holds
"""

# ruff: noqa: T201 - a script

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path

from shapes import ARCHITECTURE, instructions, shape

HERE = Path(__file__).parent


def collect(folder: Path) -> dict[str, dict[str, str]]:
    """Return for each card an instruction for each shape in the assembly of a folder."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for path in sorted(folder.rglob("*.amdgcn")):
        text = path.read_text(errors="replace")
        if card := ARCHITECTURE.search(text):
            for one in instructions(text):
                found[card[1]].setdefault(shape(one), one.replace("\t", " "))
    return found


def forms(part: str) -> list[str]:
    return [half.split()[0] for half in part.split(" :: ")]


def main() -> None:
    if len(sys.argv) > 1:
        for arch, shapes in collect(Path(sys.argv[1])).items():
            (HERE / "cards" / f"{arch}.txt").write_text("".join(f"{one}\n" for one in sorted(shapes.values())))
    sys.path[:0] = [str(HERE.parent), str(HERE.parents[1]), str(HERE.parents[3])]
    from held import WAVES, used
    from test_control import stated_by

    for arch in WAVES:
        shapes = used(arch)
        by = {form: stated_by(form) for one in shapes for form in forms(one)}
        print(
            f"{arch}: {len(by)} forms in {len(shapes)} shapes: "
            + ", ".join(f"{n} in {test}" for test, n in sorted(Counter(by.values()).items()))
        )
        if "-v" in sys.argv:
            print("\n".join(f"  {form:40} {test}" for form, test in sorted(by.items())))


if __name__ == "__main__":
    main()
