/* MODE: how floats round, and whether their denormals stay. Four bits each: two for float, then two for half and double.
 *
 * Operations round to nearest as they are written. In another direction, those of float and double run with the processor's own rounding set;
 * those of half are computed in double, in that direction, and rounded in it once more, which gives what one rounding gives. Results that the
 * hardware approximates, or that are exact, do not depend on the direction. Whatever else rounds is refused. */
#include "numbers.h"
#include <fenv.h>

_Thread_local u32 ieee_mode;

static int is_half(const char *name) { return strstr(name, "_f16") != 0; }

/* What a result is to MODE: an operation may write a half as plain bits. */
int kind_of_result(const struct operation *op) {
    if (op->d == B16 && is_half(op->name)) return F16;
    if (op->d == B32 && (!strcmp(op->name, "v_cvt_pk_f16_f32") || !strcmp(op->name, "v_cvt_pkrtz_f16_f32"))) return PKH;
    return op->d;
}

static int is_float(int kind) { return kind == F32 || kind == PKF || kind == MIX; }
static int is_half_or_double(int kind) { return kind == F16 || kind == PKH || kind == F64; }

static u32 flushed_half(u32 bits) { return bits & 0x7c00 ? bits : bits & ~0x3ffu; }

static void flush(u32 *to, const u32 *from, int kind) {
    switch (kind) {
    case F16: EACH_LANE to[l] = flushed_half(from[l]); return;
    case PKH: EACH_LANE to[l] = (flushed_half(from[l] & 0xffff)) | flushed_half(from[l] >> 16) << 16; return;
    case F64: EACH_LANE {
        u32 high = from[l + LANES], is_normal = high & 0x7ff00000;
        to[l] = is_normal ? from[l] : 0;
        to[l + LANES] = is_normal ? high : high & 0x80000000;
    } return;
    default: for (int r = 0; r < (kind == PKF ? 2 : 1); r++) EACH_LANE to[r * LANES + l] = flushed_bits(from[r * LANES + l]);
    }
}

/* An operand whose denormals MODE flushes; its copy is in `room`. The class of a number is asked for before. */
const u32 *without_denormals(const struct wave *w, const struct operation *op, int n, const u32 *from, u32 *room) {
    int kind = op->s[n], keeps = is_float(kind) ? KEEPS_DENORMAL_SOURCES : is_half_or_double(kind) ? KEEPS_NARROW_OR_WIDE_SOURCES : 0;
    if (!keeps || w->mode & (u32)keeps || strstr(op->name, "_class_")) return from;
    flush(room, from, kind);
    return room;
}

int flushes_result(const struct wave *w, const struct operation *op) {
    int kind = kind_of_result(op);
    return (is_float(kind) && !(w->mode & KEEPS_DENORMAL_RESULTS)) || (is_half_or_double(kind) && !(w->mode & KEEPS_NARROW_OR_WIDE_RESULTS));
}

void flush_result(const struct operation *op, u32 *d) { flush(d, d, kind_of_result(op)); }

enum direction { NEAREST, UP, DOWN, TO_ZERO };

static u32 half_in_direction(double x, enum direction to) {
    u32 sign = signbit(x) ? 0x8000 : 0;
    double a = fabs(x);
    if (x != x || a == INFINITY || a == 0) return float_to_half((float)x);
    int exponent = ilogb(a) < -14 ? -14 : ilogb(a);
    double units = ldexp(a, 10 - exponent), whole = floor(units);
    if (units != whole && ((to == UP && !sign) || (to == DOWN && sign))) whole += 1;
    u32 code = (u32)whole + ((u32)(exponent + 14) << 10);
    int away = (to == UP && !sign) || (to == DOWN && sign);
    return sign | (exponent > 15 || code > 0x7bff ? (away ? 0x7c00 : 0x7bff) : code);
}

enum how { ADD, SUB, SUBREV, MUL, FMA, CONVERT };
static const struct { const char *name; enum how how; } half_operations[] = {
    {"v_add_f16", ADD}, {"v_sub_f16", SUB}, {"v_subrev_f16", SUBREV}, {"v_mul_f16", MUL}, {"v_fma_f16", FMA}, {"v_fmac_f16", FMA},
    {"v_fmamk_f16", FMA}, {"v_fmaak_f16", FMA}, {"v_pk_add_f16", ADD}, {"v_pk_mul_f16", MUL}, {"v_pk_fma_f16", FMA}, {"v_pk_fmac_f16", FMA},
    {"v_fma_mixlo_f16", FMA}, {"v_fma_mixhi_f16", FMA}, {"v_cvt_f16_f32", CONVERT}, {"v_cvt_f16_u16", CONVERT}, {"v_cvt_f16_i16", CONVERT},
    {"v_cvt_pk_f16_f32", CONVERT},
};
static const char *const by_processor[] = {
    "v_add_f", "v_sub_f", "v_subrev_f", "v_mul_f", "v_mul_legacy_f", "v_fma_f", "v_fmac_f", "v_fmamk_f", "v_fmaak_f", "v_pk_add_f32", "v_pk_mul_f32",
    "v_pk_fma_f32", "v_fma_mix_f32", "v_cvt_f32_i32", "v_cvt_f32_u32", "v_cvt_f32_f64", "v_ldexp_f", "v_div_fmas_f", "v_div_scale_f",
};
static const char *const unaffected[] = {
    "v_max", "v_min", "v_med3", "v_pk_max", "v_pk_min", "v_floor", "v_ceil", "v_trunc", "v_rndne", "v_fract", "v_frexp", "v_rcp", "v_rsq", "v_sqrt",
    "v_exp", "v_log", "v_sin", "v_cos", "v_cvt_f32_f16", "v_cvt_f32_bf16", "v_cvt_f64", "v_cvt_f32_ubyte", "v_cvt_pkrtz", "v_div_fixup", "v_cvt_f32_fp8",
    "v_cvt_f32_bf8", "v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8",
};

static int starts_with(const char *name, const char *const *with, size_t count) {
    for (size_t n = 0; n < count; n++) if (!strncmp(name, with[n], strlen(with[n]))) return 1;
    return 0;
}

static double half_operand(const u32 *from, int kind, int l, int top) {
    if (kind == PKH) return half_to_float(from[l] >> 16 * top);
    if (kind == F16) return half_to_float(from[l]);
    if (kind == I16) return (i16)from[l];
    return kind == B16 ? (double)(from[l] & 0xffff) : as_f32(from[l]);
}

static u32 half_rounded(const struct operation *op, enum how how, const u32 *a, const u32 *b, const u32 *c, int l, int top, enum direction to) {
    volatile double x = half_operand(a, op->s[0], l, top), y = how == CONVERT ? 0 : half_operand(b, op->s[1], l, top), r;
    switch (how) {
    case ADD: r = x + y; break;
    case SUB: r = x - y; break;
    case SUBREV: r = y - x; break;
    case MUL: r = x * y; break;
    case FMA: r = x * y, r = r + half_operand(c, op->s[2], l, top); break;
    default: r = x;
    }
    return half_in_direction(r, to);
}

static const int by_direction[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};

static int is_for_nearest_only(const char *name) {
    static const char *const parts[] = {"dot2", "cvt_pk_bf16", "cvt_pk_fp8", "cvt_pk_bf8", "cvt_sr", "scalef32"};
    for (size_t n = 0; n < sizeof parts / sizeof *parts; n++) if (strstr(name, parts[n])) return 1;
    return 0;
}

/* A half that is not a number or infinite, of an operand of any kind; `top` is the half that the result has it in. */
static int is_finite(const u32 *from, int kind, int l, int top) {
    if (kind == PKH) return (from[l] >> 16 * top & 0x7c00) != 0x7c00;
    if (kind == F16) return (from[l] & 0x7c00) != 0x7c00;
    if (is_float(kind)) return (from[l] & 0x7f800000) != 0x7f800000;
    return 1;
}

/* MODE.FP16_OVFL, for halves (LLVM, "User Guide for AMDGPU Backend"): what an overflow would make infinite is the largest number. What an
 * infinite operand or a division by zero makes infinite stays. */
void clamp_overflow(const struct operation *op, u32 *d, const u32 *a, const u32 *b, const u32 *c) {
    static const char *const divide[] = {"v_rcp", "v_rsq", "v_log", "v_div_fixup"};
    int kind = kind_of_result(op), divides = starts_with(op->name, divide, sizeof divide / sizeof *divide), pair = op->s[0] == F32 && kind == PKH;
    if (kind != F16 && kind != PKH) return;
    for (int top = 0; top < (kind == PKH ? 2 : 1); top++) EACH_LANE {
        u32 half = d[l] >> 16 * top & 0xffff;
        int first = pair && top ? 1 : is_finite(a, op->s[0], l, top), second = pair && !top ? 1 : is_finite(b, op->s[1], l, top);
        int by_zero = divides && (op->name[2] == 'd' || !(a[l] & 0x7fff));
        if ((half & 0x7fff) == 0x7c00 && first && second && is_finite(c, op->s[2], l, top) && !by_zero) d[l] -= 1u << 16 * top;
    }
}

/* Run an operation on lanes in the direction that MODE has for its result. */
void compute(struct wave *w, const struct operation *op, u32 *d, u32 *e, const u32 *a, const u32 *b, const u32 *c, const u32 *m) {
    int kind = w->mode & DIRECTIONS ? kind_of_result(op) : NONE, rounds = is_float(kind) || is_half_or_double(kind);
    enum direction to = is_float(kind) ? w->mode & 3 : w->mode >> 2 & 3;
    if (w->mode & DIRECTIONS && is_for_nearest_only(op->name)) stop(w, UNIMPLEMENTED);
    if (!rounds || to == NEAREST || starts_with(op->name, unaffected, sizeof unaffected / sizeof *unaffected)) {
        op->lanes(d, e, a, b, c, m);
        return;
    }
    if (!is_half(op->name) && starts_with(op->name, by_processor, sizeof by_processor / sizeof *by_processor)) {
        fesetround(by_direction[to]);
        op->lanes(d, e, a, b, c, m);
        fesetround(FE_TONEAREST);
        return;
    }
    size_t n = 0, count = sizeof half_operations / sizeof *half_operations;
    while (n < count && strcmp(op->name, half_operations[n].name)) n++;
    if (n == count) stop(w, UNIMPLEMENTED);
    int two_sources = !strcmp(op->name, "v_cvt_pk_f16_f32");
    fesetround(by_direction[to]);
    EACH_LANE {
        u32 low = half_rounded(op, half_operations[n].how, a, b, c, l, 0, to);
        d[l] = kind == PKH ? low | half_rounded(op, half_operations[n].how, two_sources ? b : a, b, c, l, 1, to) << 16 : low;
    }
    fesetround(FE_TONEAREST);
}
