/* Matrix instructions of CDNA4 over 8-, 6- and 4-bit floats, with a scale for each 32 values of k, or without.
 *
 * A lane holds 32 values of a row of A (a column of B). 4- and 6-bit ones are neighbours in k. Of 8-bit ones, the first sixteen are from the
 * first half of k and the others from the second. The scale that a lane holds is that of 32 neighbours in k: a power of two, 2^(e - 127). */
#include "matrix.h"

#if LANES == 64

enum { E4M3, E5M2, E2M3, E3M2, E2M1 };
static const float fours[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

/* Value `n` of a lane's 6-bit floats, which lie side by side in six registers: 3 bits of fraction and a bias of 1, or 2 and 3. */
static double six_bits(struct wave *w, u32 row, u32 l, u32 n, int format) {
    u32 at = n * 6 % 32, code = w->v[row + n * 6 / 32][l] >> at;
    if (at > 26) code |= w->v[row + n * 6 / 32 + 1][l] << (32 - at);
    int width = format == E2M3 ? 3 : 2, bias = format == E2M3 ? 1 : 3, exponent = (int)(code & 31) >> width;
    double fraction = ldexp((double)(code & ((1u << width) - 1)), -width);
    double value = exponent ? ldexp(1 + fraction, exponent - bias) : ldexp(fraction, 1 - bias);
    return code & 32 ? -value : value;
}

static double scale_of(struct wave *w, const struct operand *from, u32 lane, u32 byte) {
    u32 word = from->kind == OPERAND_ROW ? w->v[from->index][lane] : scalar32(w, from), code = word >> byte * 8 & 0xff;
    return code == 255 ? (double)NAN : ldexp(1, (int)code - 127);
}

/* Rows of A, or columns of B, as values times their scales: `to[row][k]`. `scale` is null if there is none. */
static void gather(struct wave *w, u32 row, int format, u32 m, u32 k, const struct operand *scale, u32 byte, double *to) {
    u32 groups = 64 / m;
    for (u32 l = 0; l < 64; l++) for (u32 n = 0; n < 32; n++) {
        u32 group = l / m, at;
        double value;
        if (format == E2M1) {
            at = group * 32 + n;
            value = fours[w->v[row + n / 8][l] >> (n & 7) * 4 & 15];
        } else if (format == E2M3 || format == E3M2) {
            at = group * 32 + n;
            value = six_bits(w, row, l, n, format);
        } else {
            at = n / 16 * (k / 2) + group * 16 + n % 16;
            value = eight_bits[format == E4M3 ? FP8_OCP : BF8_OCP][w->v[row + n / 4][l] >> (n & 3) * 8 & 0xff];
        }
        if (scale) value *= scale_of(w, scale, at / 32 % groups * m + l % m, byte);
        to[l % m * k + at] = value;
    }
}

/* `shuffle` holds cbsz and blgp, the formats of A and B; `imm` the bytes of the scales, and 16 if there are any. */
static void multiply(struct wave *w, const struct instruction *i) {
    u32 m = (u32)i->op->parameters[0], k = (u32)i->op->parameters[1], registers = m * m / 64;
    static _Thread_local double a[32 * 128], b[32 * 128];
    int scaled = i->imm & 16;
    gather(w, i->s[0].index, i->shuffle & 7, m, k, scaled ? &i->e : 0, (u32)i->imm & 3, a);
    gather(w, i->s[1].index, i->shuffle >> 7 & 7, m, k, scaled ? &i->s[3] : 0, (u32)i->imm >> 2 & 3, b);
    u32 result[16][64];
    for (u32 l = 0; l < 64; l++) for (u32 n = 0; n < registers; n++) {
        u32 row = m == 32 ? (n / 4) * 8 + l / 32 * 4 + n % 4 : l / 16 * 4 + n % 4, column = l % m;
        double sum = i->s[2].kind == OPERAND_ROW ? as_f32(w->v[i->s[2].index + n][l]) : as_f32((u32)i->s[2].value);
        for (u32 depth = 0; depth < k; depth++) sum = __builtin_fma(a[row * k + depth], b[column * k + depth], sum);
        result[n][l] = bits_of((float)sum);
    }
    memcpy(w->v[i->d.index], result, registers * sizeof result[0]);
}

#define MATRIX(name, m, k) static const struct operation op_##name TABLE = {#name, multiply, 0, REGS + (m) * (m) / 64, NONE, \
    {REGS + 8, REGS + 8, REGS + (m) * (m) / 64, B32}, 0, {m, k}};
MATRIX(v_mfma_f32_16x16x128_f8f6f4, 16, 128) MATRIX(v_mfma_f32_32x32x64_f8f6f4, 32, 64)

#endif
