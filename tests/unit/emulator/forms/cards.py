"""Which instruction forms compiled kernels use on each card, and shapes of instructions as LLVM's assembly text has them.

`cards/GFX.txt` has what the bundled kernels and `tests/idioms` compile to: one instruction for each shape. `cards/unused/` has the rest
of what the emulator's core executes, an instruction for each form: on all CDNA or all RDNA cards, or on one.

warpwave run cpu --stage compile --kernels kernels       # and tests/idioms; with TRITON_CACHE_DIR=CACHE, and all five cards
python tests/unit/emulator/forms/cards.py CACHE           # writes cards/, from all assembly in that folder
python tests/unit/emulator/forms/cards.py                 # prints what cards/ holds, and which test states each form (-v)
"""

# ruff: noqa: T201 - a script

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

WAVES = {"gfx90a": 64, "gfx942": 64, "gfx950": 64, "gfx1100": 32, "gfx1201": 32}
CARDS = Path(__file__).parent / "cards"
PRODUCTS = ("v_mfma", "v_smfmac", "v_wmma", "v_swmmac")
CONTROL = (
    "s_cbranch", "s_branch", "s_endpgm", "s_wait", "s_barrier", "s_setreg", "s_sendmsg", "s_getreg", "s_round_mode", "s_denorm_mode",
    "s_getpc", "s_setpc", "s_swappc", "s_call", "s_mem", "s_trap", "s_wakeup", "s_prefetch", "s_dcache", "s_icache", "s_version",
)  # fmt: skip


def used(arch: str) -> dict[str, str]:
    return by_shape(CARDS / f"{arch}.txt")


def unused(arch: str) -> dict[str, str]:
    family = "cdna" if WAVES[arch] == 64 else "rdna"
    return by_shape(CARDS / "unused" / f"{family}.txt") | by_shape(CARDS / "unused" / f"{arch}.txt")


def by_shape(path: Path) -> dict[str, str]:
    return {shape(line): line for line in path.read_text().splitlines()}


# Shapes: mnemonic with encoding, kinds of operands, and modifiers. Registers are written by kind and width (`v`, `v2`, `s4`, `a16`),
# literals as `lit`, small whole numbers as `int`, offsets without their number: `v_fma_f32 v5, -v1, s2, 1.0` has the shape
# `v_fma_f32 v, -v, s, 1.0`. A form is the mnemonic alone.

ARCHITECTURE = re.compile(r"\.amdgcn_target \"[^\"]*(gfx\w+)\"")
_REGISTER = re.compile(r"\b([vsa]|ttmp)(?:(\d+)|\[(\d+):(\d+)\])")
_NUMBER = re.compile(r"-?(?:0x[0-9a-f]+|\d+)$")
_FLOAT = re.compile(r"-?\d+\.\d+$|-?0\.15915494\d*$")
_COUNTED = re.compile(r"\b(offset\d?|abid|index_key|byte_sel):(?:0x[0-9a-f]+|-?\d+)$")
# What has no operands worth telling apart: where a branch goes, what is waited for, hints.
_BY_NAME = re.compile(
    r"s_(waitcnt|wait_|cbranch|branch|delay_alu|nop|clause|sleep|sendmsg|setprio|barrier|endpgm|inst_prefetch|set_inst|code_end|trap|icache|dcache|ttrace|sethalt|version|round|denorm|sched)"
)


def instructions(assembly: str) -> Iterator[str]:
    """Yield the instructions of a kernel's assembly, without comments."""
    for line in assembly.split(".Lfunc_end0")[0].splitlines():
        text = line.split(";")[0].split("//")[0].strip()
        if re.match(r"[a-z]\w*_\w+(\s|$)", text):
            yield text


def shape(text: str) -> str:
    if " :: " in text:
        return " :: ".join(shape(half) for half in text.split(" :: "))
    mnemonic, _, rest = text.partition(" ")
    if _BY_NAME.match(mnemonic) or not rest.strip():
        return mnemonic
    operands, modifiers = split(rest.strip())
    return " ".join([mnemonic, ", ".join(map(kind, operands)), *(_COUNTED.sub(r"\1", one) for one in modifiers)]).strip()


def split(rest: str) -> tuple[list[str], list[str]]:
    """Return operands and modifiers: commas part the one, spaces the other, neither in brackets."""
    operands, depth, at = [], 0, 0
    for n, letter in enumerate(rest):
        depth += letter in "[(" or -(letter in "])")
        if letter == "," and depth == 0:
            operands.append(rest[at:n].strip())
            at = n + 1
    last, *modifiers = re.findall(r"(?:\[[^\]]*\]|\([^)]*\)|\S)+", rest[at:].strip()) or [""]
    return [*operands, last], modifiers


def kind(operand: str) -> str:
    if _REGISTER.search(operand):
        return _REGISTER.sub(lambda found: found[1] + ("" if found[2] else str(int(found[4]) - int(found[3]) + 1)), operand)
    if _FLOAT.match(operand):
        return operand
    if _NUMBER.match(operand):
        return "int" if -16 <= int(operand, 0) <= 64 else "lit"
    return operand


def flags_of(shape: str) -> dict[str, str]:
    """Return the modifiers of a shape by name."""
    return dict(one.split(":", 1) if ":" in one else (one, "") for one in split(shape.partition(" ")[2])[1])


def literals_of(example: str) -> list[str]:
    """Return the operands of an instruction as they are written."""
    return split(example.partition(" ")[2])[0]


def collect(folder: Path) -> dict[str, dict[str, str]]:
    """Return for each card an instruction for each shape in the assembly of a folder."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for path in sorted(folder.rglob("*.amdgcn")):
        text = path.read_text(errors="replace")
        if card := ARCHITECTURE.search(text):
            for one in instructions(text):
                found[card[1]].setdefault(shape(one), one.replace("\t", " "))
    return found


def stated_by(form: str) -> str:
    if form.startswith(PRODUCTS):
        return "test_every_product_is_one"
    return "test_control.py" if form.startswith(CONTROL) else "test_every_form_does_what_is_stated"


def forms(part: str) -> list[str]:
    return [half.split()[0] for half in part.split(" :: ")]


def main() -> None:
    if len(sys.argv) > 1:
        for arch, shapes in collect(Path(sys.argv[1])).items():
            (CARDS / f"{arch}.txt").write_text("".join(f"{one}\n" for one in sorted(shapes.values())))
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
