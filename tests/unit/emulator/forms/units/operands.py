"""Operands as they are written, and what each holds in each lane: registers, scalars, constants, halves, and lanes that DPP picks."""

from __future__ import annotations

import re

import numpy as np
from shapes import split
from statements.exact import WIDE, signed
from units.cases import COUNT, Machine


class Operand:
    """An operand of a case: how it is written, and what it holds in each lane."""

    def __init__(
        self, machine: Machine, text: str, n: int, kind: str, literal: str | None = None, high: int = 0, shared: bool = False
    ) -> None:
        self.setup: list[str] = []
        inner = re.sub(r"neg\(|abs\(|sext\(|[-|)]", "", text) if not re.match(r"-\d", text) else text
        negative, absolute = text.startswith(("-v", "-s", "-|", "neg(")), "|" in text
        extended = text.startswith("sext")
        row = machine.rows[n] >> np.uint64(32 * high)  # the second of two instructions reads the upper words: other registers, other banks
        low = np.uint64(0xFFFFFFFF)
        wide = kind in WIDE
        self.is_mask = kind in ("m", "vcc")
        if self.is_mask:
            name = {"s2": "s[30:31]", "s": "s30"}.get(inner, inner)
            source, room = machine.mask_row(), "vcc" if machine.cdna else "vcc_lo"
            self.setup = [f"v_lshrrev_b32 v9, 5, v{10 + 2 * 3}", "v_and_b32 v9, 1, v9", f"v_cmp_eq_u32 {room}, 1, v9"]
            self.setup += [] if name == room else [f"s_mov_b{machine.wave} {name}, {room}"]
            self.text, self.raw, self.negative, self.absolute = name, source, False, False
            return
        half = re.fullmatch(r"v\.([lh])", inner)
        if re.fullmatch(r"v\d?|v\.[lh]|a", inner):
            register = 10 + 2 * n + high
            self.raw = row if wide or kind.startswith("2") else row & low
            if half:
                self.raw = self.raw >> np.uint64(16 if half[1] == "h" else 0) & np.uint64(0xFFFF)
            name = f"v{register}" + (f".{half[1]}" if half else "") if inner != "v2" else f"v[{register}:{register + 1}]"
            if inner == "a":
                name, self.setup = f"a{register}", [f"v_accvgpr_write_b32 a{register}, v{register}"]
        elif re.fullmatch(r"s\d?|vcc|vcc_lo|vcc_hi|m0", inner):
            register = 16 + 2 * n + high
            both = inner in ("s2", "vcc")
            if shared:  # a second scalar would be one too many beside a literal
                n, high, register, row = 0, 0, 16, machine.rows[0]
            self.raw = machine.first(row if both or wide else row & low)
            if wide and not both:  # 32 bits of a scalar where 64 are read: constants only
                raise KeyError(f"{text} as {kind}")
            name = f"s[{register}:{register + 1}]" if inner == "s2" else f"s{register}" if inner == "s" else inner
            self.setup = [f"v_readfirstlane_b32 s{16 + 2 * n + word}, v{10 + 2 * n + word}" for word in range(2)]
            self.setup += (
                []
                if inner[0] == "s"
                else [f"s_mov_b{64 if both else 32} {name}, {f's[{register}:{register + 1}]' if both else f's{register}'}"]
            )
        elif inner in ("exec_lo", "exec_hi", "exec"):
            self.raw, name = np.full(COUNT, 2**64 - 1 if inner == "exec" else 2**32 - 1, np.uint64), inner
        elif inner == "ttmp":
            name, self.raw = "ttmp9", np.arange(COUNT, dtype=np.uint64) // np.uint64(machine.wave)
        elif inner == "null":
            name, self.raw = inner, np.zeros(COUNT, np.uint64)
        else:
            name, self.raw = self._constant(inner, kind, literal, f"{n} {text} {literal}")
        self.negative, self.absolute = negative, absolute
        self.is_constant = not re.match(r"v|s|a|exec|ttmp|m0|null", inner)
        if absolute or negative:
            name = f"|{name}|" if absolute else name
            name = f"neg({name})" if negative and not name.startswith(("v", "s", "|")) else f"-{name}" if negative else name
        self.extended = extended
        self.text = f"sext({name})" if extended else name
        self.wave_wide = not inner.startswith(("v", "a"))

    @staticmethod
    def _constant(inner: str, kind: str, literal: str | None, seed: str) -> tuple[str, np.ndarray]:
        real = re.fullmatch(r"-?\d+\.\d+", inner)
        if real or (kind.lstrip("2").startswith("f") and inner == "0.15915494"):
            value = float(inner)
            dtype = {"16": np.float16, "64": np.float64}.get(kind[-2:] if kind != "2bf16" else "", np.float32)
            bits = int(np.array([value], dtype).view(f"u{dtype().itemsize}")[0])
            return inner, np.full(COUNT, bits | bits << 32 if kind == "2f32" else bits | bits << 16 if kind == "2f16" else bits, np.uint64)
        number = int(literal, 0) if literal else int(inner, 0)
        bits = number & (2**64 - 1 if kind in ("u64", "i64", "f64") and -16 <= number <= 64 else 2**32 - 1)
        if kind == "i64":  # a literal is extended with its sign, one of u64 with zeros
            bits = signed(number, 32) & 2**64 - 1
        if kind == "f64" and not -16 <= number <= 64:
            bits = number << 32
        if kind in ("2f32", "2u32"):
            bits |= bits << 32
        return str(number), np.full(COUNT, bits, np.uint64)


def selected(operand: Operand, kind: str, flags: dict, n: int, machine: Machine, key: str) -> np.ndarray:
    """Return an operand behind SDWA and, for the first one, DPP."""
    raw = operand.raw
    if (select := flags.get(key)) and select != "DWORD" and not operand.is_mask:
        width = 8 if "BYTE" in select else 16
        raw = raw >> np.uint64(width * int(select[-1])) & np.uint64(2**width - 1)
        if operand.extended:
            raw = np.where(raw >> np.uint64(width - 1) & np.uint64(1), raw | np.uint64(2**32 - 2**width), raw)
    sign = np.uint64(1 << {"16": 15, "64": 63}.get(kind[-2:], 31))
    if kind != "mix" and not kind.startswith("2"):
        raw = raw & ~sign if operand.absolute else raw
        raw = raw ^ sign if operand.negative else raw
    if n == 0 and (pattern := lane_pattern(flags, machine)) is not None:
        rows = raw.reshape(-1, machine.wave)
        raw = np.where(pattern < 0, 0, rows[:, pattern]).astype(np.uint64).reshape(-1)
    return raw


def lane_pattern(flags: dict, machine: Machine) -> np.ndarray | None:
    """Return for each lane the lane that DPP takes the first operand from, -1 if there is none; None: no DPP."""
    lane = np.arange(machine.wave)
    row, at = lane // 16 * 16, lane % 16
    for name, value in flags.items():
        if name == "quad_perm":
            return lane // 4 * 4 + np.array([int(one) for one in value.strip("[]").split(",")])[lane % 4]
        if name == "dpp8":
            return lane // 8 * 8 + np.array([int(one) for one in value.strip("[]").split(",")])[lane % 8]
        n = int(value, 0) if re.fullmatch(r"0x[0-9a-f]+|\d+", value) else 0
        found = {
            "row_shl": np.where(at + n < 16, lane + n, -1), "row_shr": np.where(at >= n, lane - n, -1), "row_ror": row + (at - n) % 16,
            "row_mirror": row + 15 - at, "row_half_mirror": lane // 8 * 8 + 7 - lane % 8, "row_share": row + n, "row_xmask": row + (at ^ n),
            "row_newbcast": row + n, "wave_shr": lane - 1, "wave_shl": np.where(lane + 1 < machine.wave, lane + 1, -1),
            "wave_ror": (lane - 1) % machine.wave, "wave_rol": (lane + 1) % machine.wave,
            "row_bcast": np.where(lane >= n + 1, (lane // (n + 1)) * (n + 1) - 1, -1),
        }.get(name)  # fmt: skip
        if found is not None:
            return found
    return None


def numbered(modifiers: list[str], example: str) -> list[str]:
    """Return modifiers with their numbers, which a shape leaves out."""
    real = dict(one.split(":", 1) for one in split(example.partition(" ")[2])[1] if ":" in one)
    return [f"{one}:{real[one]}" if one in real and ":" not in one else one for one in modifiers]


def bits_of(text: str, count: int, default: int) -> list[int]:
    return [int(one) for one in text.strip("[]").split(",")] if text else [default] * count


def flags_of(shape: str) -> dict[str, str]:
    """Return the modifiers of a shape by name."""
    return dict(one.split(":", 1) if ":" in one else (one, "") for one in split(shape.partition(" ")[2])[1])


def literals_of(example: str) -> list[str]:
    """Return the operands of an instruction as they are written."""
    return split(example.partition(" ")[2])[0]
