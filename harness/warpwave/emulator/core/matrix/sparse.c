/* Sparse matrix instructions of CDNA3 and CDNA4: D += A B, where A has two of each four neighbours in k.
 *
 * A lane holds as many values of A as half of those of B, and in source 2 two bits for each that say which of four it is. Where they need a
 * half or a quarter of that register, `abid` says which, unless `cbsz` is set. Where elements lie is as in AMD's matrix instruction
 * calculator; products with the values that A lacks are not made, so that an infinity in B does not become a NaN. */
#include "matrix.h"

#if LANES == 64

static void multiply(struct wave *w, const struct instruction *i) {
    const i32 *p = i->op->parameters;
    u32 m = (u32)p[0], k = (u32)p[1], kept = k * m / 128, groups = 64 / m, registers = m * m / 64, sets = 32 / (2 * kept);
    int element = p[2], integer = element == E_I8;
    u32 cbsz = i->shuffle & 7, abid = i->shuffle >> 3 & 15, from = cbsz ? 0 : abid % sets;
    double a[64][16], b[64][32];
    u32 result[16][64];
    for (u32 l = 0; l < 64; l++) {
        for (u32 n = 0; n < kept; n++) a[l][n] = element_of(w, i->s[0].index, l, n, element, p[3], 1);
        for (u32 n = 0; n < 2 * kept; n++) b[l][n] = element_of(w, i->s[1].index, l, n, element, p[4], 1);
    }
    for (u32 n = 0; n < registers; n++) EACH_LANE {
        u32 row = m == 32 ? n / 4 * 8 + (u32)l / 32 * 4 + n % 4 : (u32)l / 16 * 4 + n, column = (u32)l % m, start = w->v[i->d.index + n][l];
        double sum = integer ? 0 : as_f32(start);
        for (u32 group = 0; group < groups; group++) {
            u32 left = group * m + row, right = group * m + column, indices = w->v[i->s[2].index][left] >> from * 2 * kept;
            for (u32 e = 0; e < kept; e++) sum = __builtin_fma(a[left][e], b[right][partner(e, indices)], sum);
        }
        result[n][l] = integer ? start + (u32)(i32)sum : bits_of((float)sum);
    }
    memcpy(w->v[i->d.index], result, registers * sizeof result[0]);
}

#define SPARSE(name, m, k, element, bits, x, y) static const struct operation op_##name TABLE = {#name, multiply, 0, REGS + (m) * (m) / 64, NONE, \
    {REGS + (m) * (k) * (bits) / 4096, REGS + (m) * (k) * (bits) / 2048, B32}, 0, {m, k, element, x, y}};
#define SHAPES(k16, k32, name, element, bits) \
    SPARSE(v_smfmac_f32_16x16x##k16##_##name, 16, k16, element, bits, 0, 0) SPARSE(v_smfmac_f32_32x32x##k32##_##name, 32, k32, element, bits, 0, 0)
SHAPES(32, 16, f16, E_F16, 16) SHAPES(64, 32, f16, E_F16, 16) SHAPES(32, 16, bf16, E_BF16, 16) SHAPES(64, 32, bf16, E_BF16, 16)
SPARSE(v_smfmac_i32_16x16x64_i8, 16, 64, E_I8, 8, 0, 0) SPARSE(v_smfmac_i32_32x32x32_i8, 32, 32, E_I8, 8, 0, 0)
SPARSE(v_smfmac_i32_16x16x128_i8, 16, 128, E_I8, 8, 0, 0) SPARSE(v_smfmac_i32_32x32x64_i8, 32, 64, E_I8, 8, 0, 0)
#define EIGHTS(shape, m, k, suffix, F, B) \
    SPARSE(v_smfmac_f32_##shape##_fp8_fp8_##suffix, m, k, E_FP8, 8, F, F) SPARSE(v_smfmac_f32_##shape##_fp8_bf8_##suffix, m, k, E_FP8, 8, F, B) \
    SPARSE(v_smfmac_f32_##shape##_bf8_fp8_##suffix, m, k, E_FP8, 8, B, F) SPARSE(v_smfmac_f32_##shape##_bf8_bf8_##suffix, m, k, E_FP8, 8, B, B)
EIGHTS(16x16x64, 16, 64, fnuz, FP8_FNUZ, BF8_FNUZ) EIGHTS(32x32x32, 32, 32, fnuz, FP8_FNUZ, BF8_FNUZ)
EIGHTS(16x16x64, 16, 64, ocp, FP8_OCP, BF8_OCP) EIGHTS(32x32x32, 32, 32, ocp, FP8_OCP, BF8_OCP)
EIGHTS(16x16x128, 16, 128, ocp, FP8_OCP, BF8_OCP) EIGHTS(32x32x64, 32, 64, ocp, FP8_OCP, BF8_OCP)

#endif
