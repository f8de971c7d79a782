/* Where operands come from and where results go: scalars, rows, constants, source modifiers, DPP, SDWA, clamping, and the lanes that
 * are on. Operations on lanes know nothing of this. */
#include "masks.h"
#include "numbers.h"

enum { ALL_ROWS = 0xf };

static u32 word_of(const struct wave *w, const struct operand *from) {
    switch (from->kind) {
    case OPERAND_SGPR: return from->index == NULL_REGISTER ? 0 : w->s[from->index];
    case OPERAND_CONSTANT: return (u32)from->value;
    case OPERAND_VCCZ: return vcc_of(w) == 0;
    case OPERAND_EXECZ: return exec_of(w) == 0;
    case OPERAND_SCC: return w->scc;
    default: return 0;
    }
}

u32 scalar32(const struct wave *w, const struct operand *from) { return word_of(w, from); }

u64 scalar64(const struct wave *w, const struct operand *from) {
    if (from->kind == OPERAND_SGPR && from->index != NULL_REGISTER)
        return w->s[from->index] | (u64)w->s[from->index + 1] << 32;
    return from->kind == OPERAND_CONSTANT ? from->value : word_of(w, from);
}

void set_scalar(struct wave *w, const struct operand *to, u64 value, int words) {
    if (to->kind != OPERAND_SGPR || to->index == NULL_REGISTER) return;
    w->s[to->index] = (u32)value;
    if (words == 2) w->s[to->index + 1] = (u32)(value >> 32);
}

mask mask_operand(const struct wave *w, const struct operand *from) {
    return (mask)(sizeof(mask) == 8 ? scalar64(w, from) : scalar32(w, from));
}

void set_mask(struct wave *w, const struct operand *to, mask value) { set_scalar(w, to, value, sizeof(mask) / 4); }


/* All ones in the lanes that are on, zero elsewhere; remembered until EXEC changes. */
const u32 *writable(struct wave *w) {
    mask on = exec_of(w);
    if (on != w->write_mask_of) {
        expand(on, w->write_mask, ~0u);
        w->write_mask_of = on;
    }
    return w->write_mask;
}

/* Source modifiers, by what the operand holds. */
static const u32 *modified(const u32 *from, const struct operand *by, int type, u32 *room) {
    int flags = by->flags;
    u32 keep = flags & ABSOLUTE ? ~0u : 0, flip = flags & NEGATE ? ~0u : 0;
    switch (type) {
    case F32: case B32: case I32: case MASK:
        EACH_LANE room[l] = (from[l] & ~(keep & 0x80000000)) ^ (flip & 0x80000000);
        return room;
    case F16: case B16: case I16: case BF16:
        EACH_LANE {
            u32 half = flags & HIGH ? from[l] >> 16 : from[l] & 0xffff;
            room[l] = (half & ~(keep & 0x8000)) ^ (flip & 0x8000);
        }
        return room;
    case F64: case B64: case I64:
        EACH_LANE {
            u32 high = (from[l + LANES] & ~(keep & 0x80000000)) ^ (flip & 0x80000000);
            room[l] = from[l];
            room[l + LANES] = high;
        }
        return room;
    case PKH: case PKI:
        EACH_LANE {
            u32 low = flags & LOW_FROM_HIGH ? from[l] >> 16 : from[l] & 0xffff;
            u32 high = flags & HIGH_FROM_HIGH ? from[l] >> 16 : from[l] & 0xffff;
            room[l] = (low ^ (flip & 0x8000)) | (high ^ (flags & NEGATE_HIGH ? 0x8000 : 0)) << 16;
        }
        return room;
    case PKF:
        EACH_LANE {
            u32 low = from[flags & LOW_FROM_HIGH ? l + LANES : l], high = from[flags & HIGH_FROM_HIGH ? l + LANES : l];
            room[l] = low ^ (flip & 0x80000000);
            room[l + LANES] = high ^ (flags & NEGATE_HIGH ? 0x80000000 : 0);
        }
        return room;
    case MIX: /* op_sel_hi: a half, chosen by op_sel; else a float */
        EACH_LANE {
            u32 half = flags & LOW_FROM_HIGH ? from[l] >> 16 : from[l] & 0xffff;
            u32 value = flags & HIGH_FROM_HIGH ? bits_of(half_to_float(half)) : from[l];
            room[l] = (value & ~(flags & NEGATE_HIGH ? 0x80000000 : 0)) ^ (flip & 0x80000000);
        }
        return room;
    default:
        return from;
    }
}

int is_modified(const struct operand *by, int type) {
    if (type == PKH || type == PKI || type == PKF) return by->flags != HIGH_FROM_HIGH;
    if (type == MIX) return by->flags != 0;
    return (by->flags & (NEGATE | ABSOLUTE | HIGH)) != 0;
}

/* SDWA: a byte or word of each lane, extended. */
static const u32 *part_of(const u32 *from, const struct operand *by, u32 *room) {
    int wide = by->select >= 4, shift = wide ? (by->select & 1) * 16 : by->select * 8, bits = wide ? 16 : 8;
    EACH_LANE {
        u32 part = from[l] >> shift << (32 - bits);
        room[l] = by->flags & SIGN_EXTEND ? (u32)((i32)part >> (32 - bits)) : part >> (32 - bits);
    }
    return room;
}

static int is_wide(int type) { return type == B64 || type == I64 || type == F64 || type == PKF; }

/* The lanes of one operand: a pointer to its rows where they can be read as they are, else a copy in `room` (two rows). */
const u32 *fetch(struct wave *w, const struct operand *from, int type, u32 *room) {
    int wide = is_wide(type);
    const u32 *rows = room;
    if (type == NONE) return room;
    if (type == MASK) {
        expand(mask_operand(w, from), room, 1);
        return room;
    }
    if (from->kind == OPERAND_ROW) {
        rows = w->v[from->index];
    } else if (wide) {
        u64 value = scalar64(w, from);
        EACH_LANE room[l] = (u32)value;
        EACH_LANE room[l + LANES] = (u32)(value >> 32);
    } else {
        u32 value = word_of(w, from);
        EACH_LANE room[l] = value;
    }
    if (from->select != 6 && !wide) rows = part_of(rows, from, room);
    return is_modified(from, type) ? modified(rows, from, type, room) : rows;
}

/* DPP: from which lane does lane `l` read? -1 for none. */
static int neighbour(int l, u32 control) {
    int row = l & ~15, at = l & 15, n = control & 15;
    if (control <= 0xff) return (l & ~3) | (control >> (l & 3) * 2 & 3);
    if (control >= 0x101 && control <= 0x10f) return at + n < 16 ? l + n : -1;
    if (control >= 0x111 && control <= 0x11f) return at >= n ? l - n : -1;
    if (control >= 0x121 && control <= 0x12f) return row | ((at - n) & 15);
    if (control == 0x130) return l + 1 < LANES ? l + 1 : -1;
    if (control == 0x134) return (l + 1) % LANES;
    if (control == 0x138) return l - 1;
    if (control == 0x13c) return (l + LANES - 1) % LANES;
    if (control == 0x140) return row | (15 - at);
    if (control == 0x141) return (l & ~7) | (7 - (l & 7));
    if (control == 0x142) return row ? row - 1 : -1;
    if (control == 0x143) return l >= 32 ? 31 : -1;
    if (control >= 0x150 && control <= 0x15f) return row | n;
    return row | (at ^ n); /* 0x160 to 0x16f: row_xmask */
}

/* Move source 0 between lanes; return the lanes that may be written. A lane reads nothing from a lane that is off. */
static mask shuffled(struct wave *w, const struct instruction *i, const u32 **source, u32 *room, mask on, int wide) {
    mask write = 0;
    u32 from[2 * LANES];
    memcpy(from, *source, wide ? sizeof from : sizeof from / 2);
    for (int l = 0; l < LANES; l++) {
        int other = i->shuffle >= 0x1000 ? (l & ~7) | (int)((u32)i->imm >> (l & 7) * 3 & 7) : neighbour(l, i->shuffle);
        int valid = other >= 0 && ((on >> other & 1) || i->flags & FETCH_INACTIVE);
        int banked = (i->write_rows >> (l / 16 & 3) & 1) && (i->write_banks >> ((l & 15) / 4) & 1);
        room[l] = valid ? from[other] : 0;
        if (wide) room[l + LANES] = valid ? from[other + LANES] : 0;
        if (banked && (valid || i->flags & BOUND_ZERO)) write |= (mask)1 << l;
    }
    (void)w;
    *source = room;
    return write & on;
}

/* Output modifiers: first the scale, then the clamp. NaN clamps to 0 (DX10_CLAMP, which Triton sets). A scale makes +0 of -0. */
static void finish(u32 *d, int clamp, int scale, int type) {
    static const float scales[] = {1, 2, 4, 0.5f};
    float by = scales[scale], zero = scale ? 0.0f : -0.0f;
    if (type == F32) EACH_LANE {
        float f = as_f32(d[l]) * by + zero;
        d[l] = bits_of(clamp ? (f > 0 ? (f < 1 ? f : 1) : 0) : f);
    }
    if (type == F16) EACH_LANE {
        float f = half_to_float(d[l]) * by + zero;
        d[l] = float_to_half(clamp ? (f > 0 ? (f < 1 ? f : 1) : 0) : f);
    }
    if (type == F64) EACH_LANE {
        double f = as_f64(d[l] | (u64)d[l + LANES] << 32) * by + zero;
        u64 bits = bits_of64(clamp ? (f > 0 ? (f < 1 ? f : 1) : 0) : f);
        d[l] = (u32)bits;
        d[l + LANES] = (u32)(bits >> 32);
    }
    if (type == PKF && clamp) for (int r = 0; r < 2; r++) EACH_LANE {
        float f = as_f32(d[l + r * LANES]);
        d[l + r * LANES] = bits_of(f > 0 ? (f < 1 ? f : 1) : 0);
    }
    if (type == PKH && clamp) EACH_LANE {
        float low = half_to_float(d[l]), high = half_to_float(d[l] >> 16);
        d[l] = float_to_half(low > 0 ? (low < 1 ? low : 1) : 0) | float_to_half(high > 0 ? (high < 1 ? high : 1) : 0) << 16;
    }
}

/* A scale is ignored where MODE.IEEE is on, or where denormal results stay (ISA guides, "Output modifiers"). */
static int scale_in_mode(const struct wave *w, const struct instruction *i) {
    u32 keeps = i->op->d == F32 ? KEEPS_DENORMAL_RESULTS : KEEPS_NARROW_OR_WIDE_RESULTS;
    return w->mode & (IEEE | keeps) ? 0 : i->scale;
}

/* A part of a word: SDWA's, or one half of a register. */
static void place(u32 *result, const u32 *old, const struct instruction *i, int half) {
    int select = i->flags & SUBWORD ? i->d.select : i->d.flags & HIGH ? 5 : half ? 4 : 6;
    int keep = i->flags & SUBWORD ? i->keep : i->flags & KEEP_OTHER_HALF || i->d.flags & HIGH ? 2 : 0;
    if (select == 6) return;
    int wide = select >= 4, shift = wide ? (select & 1) * 16 : select * 8;
    u32 ones = wide ? 0xffff : 0xff;
    EACH_LANE {
        u32 part = (result[l] & ones) << shift, rest = 0;
        if (keep == 2) rest = old[l] & ~(ones << shift);
        if (keep == 1) rest = (result[l] >> (wide ? 15 : 7) & 1 ? ~0u : 0) << shift & ~(ones << shift);
        result[l] = part | rest;
    }
}

/* Run one operation on lanes: fetch, compute, store. */
void run_lanes(struct wave *w, const struct instruction *i) {
    const struct operation *op = i->op;
    u32 room[4][2 * LANES] __attribute__((aligned(64))), d[2 * LANES] __attribute__((aligned(64))), e[LANES] __attribute__((aligned(64)));
    u32 mapped[LANES];
    mask on = exec_of(w), full = (mask)~(mask)0;
    const u32 *a = fetch(w, &i->s[0], op->s[0], room[0]), *b = fetch(w, &i->s[1], op->s[1], room[1]);
    const u32 *c = fetch(w, &i->s[2], op->s[2], room[2]), *m = fetch(w, &i->s[3], op->s[3], room[3]);
    if (i->flags & LANE_SHUFFLE) on = shuffled(w, i, &a, room[0], on, is_wide(op->s[0]));
    if ((w->mode & DENORMALS) != DENORMALS) {
        a = without_denormals(w, op, 0, a, room[0]), b = without_denormals(w, op, 1, b, room[1]);
        c = without_denormals(w, op, 2, c, room[2]);
    }
    int flushes = (w->mode & DENORMALS) != DENORMALS && flushes_result(w, op);
    int half = op->d == F16 || op->d == B16 || op->d == I16 || op->d == BF16;
    int clamps = (w->mode & CLAMPS_OVERFLOW) != 0;
    if (half) overflow_clamps = clamps;
    int wide = is_wide(op->d);
    int scale = scale_in_mode(w, i);
    int plain = !flushes && !clamps && !(i->flags & (CLAMP | SUBWORD | KEEP_OTHER_HALF)) && !scale && !(i->d.flags & HIGH);

    if (op->d == MASK) { /* a comparison: one bit a lane, zero where a lane is off */
        compute(w, op, d, e, a, b, c, m);
        mask result = collect(d) & on;
        if (i->d.kind != OPERAND_NONE) set_mask(w, &i->d, result);
        if (i->e.kind != OPERAND_NONE) set_mask(w, &i->e, result);
        return;
    }
    u32 *to = w->v[i->d.index];
    if (plain && on == full && op->e == NONE) {
        compute(w, op, to, e, a, b, c, m);
        return;
    }
    compute(w, op, d, e, a, b, c, m);
    if (clamps) clamp_overflow(op, d, a, b, c);
    if (flushes) flush_result(op, d);
    if (i->flags & CLAMP || scale) finish(d, i->flags & CLAMP, scale, kind_of_result(op));
    if (flushes && scale) flush_result(op, d);
    if (half || i->flags & SUBWORD) place(d, to, i, half);
    const u32 *lanes_on = writable(w);
    if (i->flags & LANE_SHUFFLE) {
        expand(on, mapped, ~0u);
        lanes_on = mapped;
    }
    blend(to, d, lanes_on);
    if (wide) blend(to + LANES, d + LANES, lanes_on);
    if (op->e == MASK) set_mask(w, &i->e, collect(e) & on);
}
