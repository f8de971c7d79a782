/* Matrix instructions of RDNA: D = A B + C, 16 by 16 by 16, over the 32 lanes of a wave.
 *
 * Before RDNA4, both halves of the wave hold all of A and B, and rows of the result alternate between them. Since then each half holds
 * half of k, and eight neighbouring rows. Sums are as in matrix.c: in double, rounded once. */
#include "numbers.h"

#if LANES == 32

enum element { E_F16, E_BF16, E_I8, E_FP8 };
static float eight[4][256];
static void __attribute__((constructor)) fill_tables(void) {
    for (int format = 0; format < 4; format++) for (u32 code = 0; code < 256; code++) eight[format][code] = fp8_to_float(code, format);
}

static double element_at(struct wave *w, u32 row, u32 l, u32 n, int element, int format, int is_signed) {
    u32 byte = w->v[row + n / 4][l] >> (n & 3) * 8 & 0xff;
    switch (element) {
    case E_F16: return half_to_float(w->v[row + n / 2][l] >> (n & 1) * 16);
    case E_BF16: return bf16_to_float(w->v[row + n / 2][l] >> (n & 1) * 16);
    case E_I8: return is_signed ? (double)(i8)byte : (double)byte;
    default: return eight[format][byte];
    }
}

/* Parameters: 3 or 4 for the generation, element, formats of A and B. `shuffle`: which of A and B are signed bytes. */
static void multiply(struct wave *w, const struct instruction *i) {
    const i32 *p = i->op->parameters;
    int split = p[0] == 4;
    double a[16][16], b[16][16];
    u32 result[8][32];
    for (u32 l = 0; l < (split ? 32u : 16u); l++) for (u32 n = 0; n < (split ? 8u : 16u); n++) {
        u32 k = split ? l / 16 * 8 + n : n;
        a[l % 16][k] = element_at(w, i->s[0].index, l, n, p[1], p[2], i->shuffle & 1);
        b[k][l % 16] = element_at(w, i->s[1].index, l, n, p[1], p[3], i->shuffle >> 1 & 1);
    }
    for (u32 l = 0; l < 32; l++) for (u32 n = 0; n < 8; n++) {
        u32 row = split ? n + 8 * (l / 16) : 2 * n + l / 16;
        u32 start = i->s[2].kind == OPERAND_ROW ? w->v[i->s[2].index + n][l] : (u32)i->s[2].value;
        double sum = p[1] == E_I8 ? 0 : as_f32(start);
        for (u32 k = 0; k < 16; k++) sum = __builtin_fma(a[row][k], b[k][l % 16], sum);
        result[n][l] = p[1] == E_I8 ? start + (u32)(i32)sum : bits_of((float)sum);
    }
    memcpy(w->v[i->d.index], result, sizeof result);
}

/* The same with a result in 16 bits, and C like it. Before RDNA4 a half of each register, op_sel's; since then two rows a register. */
static void multiply_narrow(struct wave *w, const struct instruction *i) {
    const i32 *p = i->op->parameters;
    int split = p[0] == 4, brain = p[1] == E_BF16, high = i->shuffle >> 2 & 1;
    float a[16][16], b[16][16];
    u32 result[8][32];
    for (u32 l = 0; l < (split ? 32u : 16u); l++) for (u32 n = 0; n < (split ? 8u : 16u); n++) {
        u32 k = split ? l / 16 * 8 + n : n;
        a[l % 16][k] = (float)element_at(w, i->s[0].index, l, n, p[1], 0, 0);
        b[k][l % 16] = (float)element_at(w, i->s[1].index, l, n, p[1], 0, 0);
    }
    for (u32 l = 0; l < 32; l++) for (u32 n = 0; n < 8; n++) {
        u32 row = split ? n + 8 * (l / 16) : 2 * n + l / 16, shift = (split ? n & 1 : (u32)high) * 16;
        u32 start = i->s[2].kind == OPERAND_ROW ? w->v[i->s[2].index + (split ? n / 2 : n)][l] >> shift : (u32)i->s[2].value;
        double sum = brain ? bf16_to_float(start) : half_to_float(start);
        for (u32 k = 0; k < 16; k++) sum = __builtin_fma(a[row][k], b[k][l % 16], sum);
        result[n][l] = brain ? float_to_bf16((float)sum) : float_to_half((float)sum);
    }
    for (u32 l = 0; l < 32; l++) for (u32 n = 0; n < 8; n++) {
        u32 *to = &w->v[i->d.index + (split ? n / 2 : n)][l], shift = (split ? n & 1 : (u32)high) * 16;
        *to = (*to & ~(0xffffu << shift)) | result[n][l] << shift;
    }
}

#define WAVE_MATRIX(name, generation, words, element, x, y) \
    static const struct operation op_##name TABLE = {#name, multiply, 0, REGS + 8, NONE, {REGS + words, REGS + words, REGS + 8}, 0, {generation, element, x, y}};
WAVE_MATRIX(v_wmma_f32_16x16x16_f16_r3, 3, 8, E_F16, 0, 0) WAVE_MATRIX(v_wmma_f32_16x16x16_bf16_r3, 3, 8, E_BF16, 0, 0)
WAVE_MATRIX(v_wmma_i32_16x16x16_iu8_r3, 3, 4, E_I8, 0, 0) WAVE_MATRIX(v_wmma_f32_16x16x16_f16_r4, 4, 4, E_F16, 0, 0)
WAVE_MATRIX(v_wmma_f32_16x16x16_bf16_r4, 4, 4, E_BF16, 0, 0) WAVE_MATRIX(v_wmma_i32_16x16x16_iu8_r4, 4, 2, E_I8, 0, 0)
WAVE_MATRIX(v_wmma_f32_16x16x16_fp8_fp8_r4, 4, 2, E_FP8, FP8_OCP, FP8_OCP) WAVE_MATRIX(v_wmma_f32_16x16x16_fp8_bf8_r4, 4, 2, E_FP8, FP8_OCP, BF8_OCP)
WAVE_MATRIX(v_wmma_f32_16x16x16_bf8_fp8_r4, 4, 2, E_FP8, BF8_OCP, FP8_OCP) WAVE_MATRIX(v_wmma_f32_16x16x16_bf8_bf8_r4, 4, 2, E_FP8, BF8_OCP, BF8_OCP)
#define NARROW(name, generation, words, rows, element) \
    static const struct operation op_##name TABLE = {#name, multiply_narrow, 0, REGS + rows, NONE, {REGS + words, REGS + words, REGS + rows}, 0, {generation, element}};
NARROW(v_wmma_f16_16x16x16_f16_r3, 3, 8, 8, E_F16) NARROW(v_wmma_bf16_16x16x16_bf16_r3, 3, 8, 8, E_BF16)
NARROW(v_wmma_f16_16x16x16_f16_r4, 4, 4, 4, E_F16) NARROW(v_wmma_bf16_16x16x16_bf16_r4, 4, 4, 4, E_BF16)

#endif
