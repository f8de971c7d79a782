/* Matrix instructions of CDNA: D = A B + C over all 64 lanes, whatever EXEC says.
 *
 * A is M by K, B is K by N, and there may be several blocks of them. Lane l holds K / (64 / M / blocks) neighbouring values of k of row
 * (column) l mod M. D's rows come in groups of four. All products of an instruction and C are summed in double, and rounded once;
 * the order and the width inside of the hardware are its own, so the last bits may differ. */
#include "matrix.h"

#if LANES == 64

/* Eight doubles at once. A product of two numbers of 24 bits is exact in a double, so that it makes no difference whether it is fused. */
typedef double eight_doubles __attribute__((vector_size(64)));
#if defined __AVX512F__
#include <immintrin.h>
static inline eight_doubles add_product(double a, eight_doubles b, eight_doubles c) { return _mm512_fmadd_pd(_mm512_set1_pd(a), b, c); }
#else
static inline eight_doubles add_product(double a, eight_doubles b, eight_doubles c) { return a * b + c; }
#endif

/* `sum` += the product of m by k (held by columns) and k by m, as many rows at a time as have their sums in registers. */
static inline __attribute__((always_inline)) void add_products(double *sum, const double *a, const double *b, const u32 m, const u32 k) {
    if (m < 8) {
        for (u32 row = 0; row < m; row++) for (u32 depth = 0; depth < k; depth++)
            for (u32 column = 0; column < m; column++) sum[row * m + column] = __builtin_fma(a[depth * m + row], b[depth * m + column], sum[row * m + column]);
        return;
    }
    const u32 several = m == 16 ? 8 : 4;
    for (u32 row = 0; row < m; row += several) {
        eight_doubles kept[8][4];
        _Pragma("GCC unroll 8") for (u32 r = 0; r < several; r++) _Pragma("GCC unroll 4") for (u32 c = 0; c < m / 8; c++)
            memcpy(&kept[r][c], &sum[(row + r) * m + 8 * c], sizeof kept[r][c]);
        for (u32 depth = 0; depth < k; depth++) {
            const double *left = &a[depth * m + row], *right = &b[depth * m];
            _Pragma("GCC unroll 4") for (u32 c = 0; c < m / 8; c++) {
                eight_doubles from;
                memcpy(&from, &right[8 * c], sizeof from);
                _Pragma("GCC unroll 8") for (u32 r = 0; r < several; r++) kept[r][c] = add_product(left[r], from, kept[r][c]);
            }
        }
        _Pragma("GCC unroll 8") for (u32 r = 0; r < several; r++) _Pragma("GCC unroll 4") for (u32 c = 0; c < m / 8; c++)
            memcpy(&sum[(row + r) * m + 8 * c], &kept[r][c], sizeof kept[r][c]);
    }
}

/* xf32: a float of 10 fraction bits. The other 13 are cut off, also those of a NaN, which may become an infinity (triton-lang/triton#11783). */
static float shortened(float f) { return as_f32(bits_of(f) & ~0x1fffu); }


static inline __attribute__((always_inline)) float element_at(struct wave *w, u32 row, u32 l, u32 n, int element, int format) {
    switch (element) {
    case E_F16: return half_to_float(w->v[row + n / 2][l] >> (n & 1) * 16);
    case E_BF16: return bf16_to_float(w->v[row + n / 2][l] >> (n & 1) * 16);
    case E_I8: return (float)(i8)(w->v[row + n / 4][l] >> (n & 3) * 8);
    case E_FP8: return eight_bits[format][w->v[row + n / 4][l] >> (n & 3) * 8 & 0xff];
    case E_XF32: return shortened(as_f32(w->v[row + n][l]));
    default: return as_f32(w->v[row + n][l]);
    }
}

/* Row of the result that register `n` of lane `l` holds. */
static u32 row_of(u32 m, u32 n, u32 l) {
    if (m == 32) return (n / 4) * 8 + l / 32 * 4 + n % 4;
    if (m == 16) return l / 16 * 4 + n % 4;
    return n;
}

static u32 start_value(struct wave *w, const struct operand *from, u32 n, u32 l) {
    if (from->kind == OPERAND_ROW) return w->v[from->index + n][l];
    return (u32)from->value;
}

/* The 16-bit ones of gfx90a flush denormals of A, B, C and D (PyTorch, "Numerical accuracy", on MI200). */
static void flush_small(double *from, u32 count, double least) {
    for (u32 n = 0; n < count; n++) from[n] = fabs(from[n]) < least ? copysign(0, from[n]) : from[n];
}

/* M = N, K, blocks, elements, formats of A and of B, integer result. `shuffle` holds cbsz, abid and blgp.
 * Inlined into each instruction, so that all of these are constants there. */
static inline __attribute__((always_inline)) void multiply(struct wave *w, const struct instruction *i, const u32 m, const u32 k,
                                                           const u32 blocks, const int element, const int x, const int y, const int integer) {
    const u32 per_lane = k * m * blocks / 64, registers = m * m * blocks / 64;
    u32 spread = i->shuffle & 7, chosen = i->shuffle >> 3 & 15, pattern = i->shuffle >> 7 & 7;
    const u32 parts = 64 / m, held = registers / blocks; /* lanes in groups of m; registers of one block, where blocks do not lie in lanes */
    /* As doubles: what is read often is converted once. The inner loops go along lanes, so that they vectorise. */
    double a[m * k * blocks] __attribute__((aligned(64))), b[m * k * blocks] __attribute__((aligned(64)));
    double sum[m * m * blocks] __attribute__((aligned(64)));
    if (pattern) stop(w, UNIMPLEMENTED);
    for (u32 n = 0; n < per_lane; n++) for (u32 part = 0; part < parts; part++) {
        u32 block = part / (k / per_lane), depth = part % (k / per_lane) * per_lane + n;
        double *left = &a[(block * k + depth) * m];
        double *right = &b[(block * k + depth) * m];
        _Pragma("GCC ivdep") for (u32 at = 0; at < m; at++) left[at] = element_at(w, i->s[0].index, part * m + at, n, element, x);
        _Pragma("GCC ivdep") for (u32 at = 0; at < m; at++) right[at] = element_at(w, i->s[1].index, part * m + at, n, element, y);
    }
    for (u32 n = 0; n < registers; n++) for (u32 part = 0; part < parts; part++) {
        u32 block = m == 4 ? part : n / held, row = row_of(m, m == 4 ? n : n % held, part * m);
        double *to = &sum[(block * m + row) * m];
        const u32 *from = &w->v[i->s[2].index][0] + n * LANES + part * m;
        if (integer) memset(to, 0, m * sizeof *to);
        else if (i->s[2].kind != OPERAND_ROW) for (u32 at = 0; at < m; at++) to[at] = as_f32((u32)i->s[2].value);
        else _Pragma("GCC ivdep") for (u32 at = 0; at < m; at++) to[at] = as_f32(from[at]);
    }
    if (i->flags & FLUSHES) {
        double least = element == E_F16 ? 0x1p-14 : 0x1p-126;
        flush_small(a, m * k * blocks, least), flush_small(b, m * k * blocks, least), flush_small(sum, m * m * blocks, 0x1p-126);
    }
    for (u32 block = 0; block < blocks; block++) {
        u32 from = spread ? (block >> spread << spread) + chosen : block; /* cbsz: blocks share one block of A */
        add_products(&sum[block * m * m], &a[from * k * m], &b[block * k * m], m, k);
    }
    if (i->flags & FLUSHES) flush_small(sum, m * m * blocks, 0x1p-126);
    for (u32 n = 0; n < registers; n++) for (u32 part = 0; part < parts; part++) {
        u32 block = m == 4 ? part : n / held, row = row_of(m, m == 4 ? n : n % held, part * m);
        const double *from = &sum[(block * m + row) * m];
        u32 *to = &w->v[i->d.index][0] + n * LANES + part * m;
        /* Sums of products of bytes stay below 2^24: exact in a float. */
        if (integer) for (u32 at = 0; at < m; at++) to[at] = start_value(w, &i->s[2], n, part * m + at) + (u32)(i32)from[at];
        else _Pragma("GCC ivdep") for (u32 at = 0; at < m; at++) to[at] = bits_of((float)from[at]);
    }
}

static void multiply_double(struct wave *w, const struct instruction *i) {
    u32 m = (u32)i->op->parameters[0], registers = m == 16 ? 4 : 1;
    double a[64], b[64], result[4][64];
    if (i->shuffle >> 7 || i->shuffle & 7) stop(w, UNIMPLEMENTED);
    EACH_LANE a[l] = as_f64(w->v[i->s[0].index][l] | (u64)w->v[i->s[0].index + 1][l] << 32);
    EACH_LANE b[l] = as_f64(w->v[i->s[1].index][l] | (u64)w->v[i->s[1].index + 1][l] << 32);
    for (u32 n = 0; n < registers; n++) {
        const u32 *low = &w->v[i->s[2].index][0] + 2 * n * LANES;
        if (i->s[2].kind == OPERAND_ROW) EACH_LANE result[n][l] = as_f64(low[l] | (u64)low[l + LANES] << 32);
        else EACH_LANE result[n][l] = as_f64(i->s[2].value);
    }
    /* 16x16x4: k is l / 16; rows come one by one. 4x4x4, 4 blocks: block is l / 4 mod 4, k of A and B is l / 16. */
    if (m == 16) for (u32 n = 0; n < registers; n++) for (u32 part = 0; part < 4; part++) for (u32 depth = 0; depth < 4; depth++) {
        double *to = &result[n][part * 16], factor = a[depth * 16 + n * 4 + part];
        const double *right = &b[depth * 16];
        _Pragma("GCC ivdep") for (u32 column = 0; column < 16; column++) to[column] = __builtin_fma(factor, right[column], to[column]);
    }
    else for (u32 l = 0; l < 64; l++) for (u32 depth = 0; depth < 4; depth++) {
        u32 base = depth * 16 + l / 4 % 4 * 4;
        result[0][l] = __builtin_fma(a[base + l / 16], b[base + l % 4], result[0][l]);
    }
    for (u32 n = 0; n < registers; n++) EACH_LANE {
        u64 bits = bits_of64(result[n][l]);
        w->v[i->d.index + 2 * n][l] = (u32)bits;
        w->v[i->d.index + 2 * n + 1][l] = (u32)(bits >> 32);
    }
}

#define WORDS(m, k, blocks, bits) (REGS + (m) * (k) * (blocks) / 64 * (bits) / 32)
#define MATRIX(name, m, k, blocks, element, bits, x, y, integer) \
    static void name(struct wave *w, const struct instruction *i) { multiply(w, i, m, k, blocks, element, x, y, integer); } \
    static const struct operation op_##name TABLE = {#name, name, 0, REGS + (m) * (m) * (blocks) / 64, NONE, \
        {WORDS(m, k, blocks, bits), WORDS(m, k, blocks, bits), REGS + (m) * (m) * (blocks) / 64}, 0, {m, k, blocks, element, x, y, integer}};
#define FLOATS(shape, m, k, blocks, name, element, bits) MATRIX(v_mfma_f32_##shape##_##name, m, k, blocks, element, bits, 0, 0, 0)
FLOATS(32x32x1_2b, 32, 1, 2, f32, E_F32, 32) FLOATS(16x16x1_4b, 16, 1, 4, f32, E_F32, 32) FLOATS(4x4x1_16b, 4, 1, 16, f32, E_F32, 32)
FLOATS(32x32x2, 32, 2, 1, f32, E_F32, 32) FLOATS(16x16x4, 16, 4, 1, f32, E_F32, 32)
FLOATS(16x16x8, 16, 8, 1, xf32, E_XF32, 32) FLOATS(32x32x4, 32, 4, 1, xf32, E_XF32, 32)
#define HALVES(name, element) \
    FLOATS(32x32x4_2b, 32, 4, 2, name, element, 16) FLOATS(16x16x4_4b, 16, 4, 4, name, element, 16) FLOATS(4x4x4_16b, 4, 4, 16, name, element, 16) \
    FLOATS(32x32x8, 32, 8, 1, name, element, 16) FLOATS(16x16x16, 16, 16, 1, name, element, 16) \
    FLOATS(16x16x32, 16, 32, 1, name, element, 16) FLOATS(32x32x16, 32, 16, 1, name, element, 16)
HALVES(f16, E_F16) HALVES(bf16, E_BF16)
/* The first ones of bf16 take half as many values of k: of gfx90a alone. */
FLOATS(32x32x2_2b, 32, 2, 2, bf16, E_BF16, 16) FLOATS(16x16x2_4b, 16, 2, 4, bf16, E_BF16, 16) FLOATS(4x4x2_16b, 4, 2, 16, bf16, E_BF16, 16)
FLOATS(32x32x4, 32, 4, 1, bf16, E_BF16, 16) FLOATS(16x16x8, 16, 8, 1, bf16, E_BF16, 16)
#define INTEGERS(shape, m, k, blocks) MATRIX(v_mfma_i32_##shape##_i8, m, k, blocks, E_I8, 8, 0, 0, 1)
INTEGERS(32x32x4_2b, 32, 4, 2) INTEGERS(16x16x4_4b, 16, 4, 4) INTEGERS(4x4x4_16b, 4, 4, 16) INTEGERS(32x32x16, 32, 16, 1)
INTEGERS(16x16x32, 16, 32, 1) INTEGERS(32x32x8, 32, 8, 1) INTEGERS(16x16x16, 16, 16, 1) INTEGERS(16x16x64, 16, 64, 1) INTEGERS(32x32x32, 32, 32, 1)
#define EIGHTS(shape, m, k, suffix, F, B) \
    MATRIX(v_mfma_f32_##shape##_fp8_fp8_##suffix, m, k, 1, E_FP8, 8, F, F, 0) MATRIX(v_mfma_f32_##shape##_fp8_bf8_##suffix, m, k, 1, E_FP8, 8, F, B, 0) \
    MATRIX(v_mfma_f32_##shape##_bf8_fp8_##suffix, m, k, 1, E_FP8, 8, B, F, 0) MATRIX(v_mfma_f32_##shape##_bf8_bf8_##suffix, m, k, 1, E_FP8, 8, B, B, 0)
EIGHTS(16x16x32, 16, 32, fnuz, FP8_FNUZ, BF8_FNUZ) EIGHTS(32x32x16, 32, 16, fnuz, FP8_FNUZ, BF8_FNUZ)
EIGHTS(16x16x32, 16, 32, ocp, FP8_OCP, BF8_OCP) EIGHTS(32x32x16, 32, 16, ocp, FP8_OCP, BF8_OCP)
#define DOUBLES(shape, m, blocks, words) \
    static const struct operation op_f64_##shape TABLE = {"v_mfma_f64_" #shape "_f64", multiply_double, 0, REGS + words, NONE, \
        {F64, F64, REGS + words}, 0, {m, 4, blocks, E_F64, 0, 0, 0}};
DOUBLES(16x16x4, 16, 1, 8) DOUBLES(4x4x4_4b, 4, 4, 2)

#endif
