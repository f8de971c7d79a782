"""`nox -s emulator`: hold the emulator's operations against AMD's pseudocode, and against cases that were recorded on cards.

    python tests/emulator_reference/session.py [--operands 256] [--seed 1] [--cards gfx942,gfx1100] [--only v_max] [--recorded FOLDER]

Prints what differs, and what is not covered with the reason. Exit code 1 if anything differs.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "unit" / "emulator"), str(Path(__file__).parent)]

from comparison import CORRECTED, Compared, compare
from machine_code import WAVES
from recorded import run_recorded

from warpwave.emulator.library import core

# Operations of the core that no opcode has by itself.
VARIANTS = (
    (r".*_clamp$", "integers that saturate, which a modifier asks for: tests/unit/emulator/forms"),
    (r".*", "no opcode of a card with pseudocode has it (gfx90a's own are held by tests/unit/emulator/forms)"),
)


def not_covered(compared: list[Compared]) -> dict[str, list[str]]:
    """Return every vector and scalar operation of the core that was not compared on any card, by the reason."""
    reasons: dict[str, set[str]] = {}
    done = {name for one in compared for name in one.operations}
    left = {name: why for one in compared for why, names in one.left_out.items() for name in names}
    have = {
        name
        for wave in set(WAVES.values())
        for name in core(wave).operations
        if re.match(r"[vs]_(?!load|buffer|store|atomic|dcache)", name)
    }
    for name in have - done:
        why = left.get(name) or next(why for pattern, why in VARIANTS if re.fullmatch(pattern, name))
        reasons.setdefault(why, set()).add(name)
    return {why: sorted(names) for why, names in sorted(reasons.items())}


def main(arguments: list[str]) -> int:
    """Compare, print, and fail where anything differs."""
    parser = argparse.ArgumentParser(prog="nox -s emulator --")
    parser.add_argument("--operands", type=int, default=256, help="sets of operands for each operation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cards", default="gfx942,gfx950,gfx1100,gfx1201")
    parser.add_argument("--only", default="", help="operations whose mnemonic begins so")
    parser.add_argument("--recorded", type=Path, help="a source archive or clone of tinygrad, for the cases in test/amd/hw")
    asked = parser.parse_args(arguments)
    compared, differ = [], 0
    for arch in asked.cards.split(","):
        one = compare(arch, asked.operands, asked.seed, asked.only)
        compared.append(one)
        differ += len(one.differ)
        print(f"{arch}: {len(one.agreed)} operations agree, {len(one.differ)} differ ({asked.operands} sets of operands each)", flush=True)
        for name, what in one.differ:
            print(f"  {name}: {what}")
    if not asked.only:
        print("\nPseudocode that was put right first:")
        for pattern, _, why in CORRECTED:
            print(f"  {pattern}: {why}")
        print("\nNot covered:")
        for why, names in not_covered(compared).items():
            print(f"  {why}: {', '.join(names)}")
    if asked.recorded:
        ran, wrong, refused = run_recorded(asked.recorded)
        differ += len(wrong)
        print(f"\nRecorded on cards: {ran} cases, {ran - len(wrong) - len(refused)} the same, {len(wrong)} differ, {len(refused)} refused")
        for name, what in wrong:
            print(f"  {name}: {what}")
        for name, what in refused:
            print(f"  refused {name}: {what.split(' (kernel')[0]}")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
