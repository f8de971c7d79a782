/* Matrix instructions of RDNA over the 32 lanes of a wave: D = A B + C (WMMA), and D += A B with a sparse A (SWMMAC).
 *
 * Before RDNA4, both halves of the wave hold all of A and B, and rows of the result alternate between them. Since then each half holds
 * half of k, and eight neighbouring rows. Sums are as in mfma.c: in double, rounded once. A half's elements of A and B belong together in
 * order, so that which k they are makes no difference. A sparse A is as in sparse.c; op_sel chooses its half of the indices. */
#include "matrix.h"

#if LANES == 32

/* Bits of `shuffle`, as the decoder sets them. */
enum { SIGNED_A = 1, SIGNED_B = 2, HIGH_HALF = 4, SATURATES = 8, NEGATES = 16 };
enum { INDEX_SET = 10 };

/* Source modifiers of 16-bit floats: bits 0 to 2 of `by` negate A, B and C, 3 to 5 the other half of A and B, and make C absolute. */
static double negated(double value, u32 by, u32 operand, u32 n) { return by >> (operand + 3 * (n & 1)) & 1 ? -value : value; }
static double start_of(double c, u32 by) { return by >> 2 & 1 ? -(by >> 5 & 1 ? fabs(c) : c) : by >> 5 & 1 ? fabs(c) : c; }

/* What a lane holds of A and of B, and to which element of B each of A belongs. */
struct held { double a[32][32], b[32][32]; u8 partner[32][32]; u32 count, halves; };

/* Parameters: 3 or 4 for the generation, element, formats of A and of B, elements of B in a lane, sparse. */
static void gather(struct wave *w, const struct instruction *i, struct held *h) {
    const i32 *p = i->op->parameters;
    u32 most = (u32)p[4], by = p[1] == E_F16 || p[1] == E_BF16 ? i->shuffle >> 4 & 63 : 0, set = most == 32 ? 0 : i->shuffle >> INDEX_SET & 1;
    h->count = p[5] ? most / 2 : most, h->halves = p[0] == 4 ? 2 : 1;
    for (u32 l = 0; l < 16 * h->halves; l++) {
        u32 indices = p[5] ? w->v[i->s[2].index][l] >> set * 16 : 0;
        for (u32 n = 0; n < h->count; n++) {
            h->a[l][n] = negated(element_of(w, i->s[0].index, l, n, p[1], p[2], i->shuffle & SIGNED_A), by, 0, n);
            h->partner[l][n] = (u8)(p[5] ? partner(n, indices) : n);
        }
        for (u32 n = 0; n < most; n++) h->b[l][n] = negated(element_of(w, i->s[1].index, l, n, p[1], p[3], i->shuffle & SIGNED_B), by, 1, n);
    }
}

static double product(const struct held *h, u32 row, u32 column, double sum) {
    for (u32 half = 0; half < h->halves; half++) for (u32 n = 0; n < h->count; n++) {
        u32 left = half * 16 + row, right = half * 16 + column;
        sum = __builtin_fma(h->a[left][n], h->b[right][h->partner[left][n]], sum);
    }
    return sum;
}

static u32 row_of(const i32 *p, u32 n, u32 l) { return p[0] == 4 ? n + 8 * (l / 16) : 2 * n + l / 16; }

static void multiply(struct wave *w, const struct instruction *i) {
    const i32 *p = i->op->parameters;
    int integer = p[1] == E_I8 || p[1] == E_I4;
    const struct operand *c = p[5] ? &i->d : &i->s[2];
    struct held h;
    u32 result[8][32];
    gather(w, i, &h);
    for (u32 n = 0; n < 8; n++) EACH_LANE {
        u32 start = c->kind == OPERAND_ROW ? w->v[c->index + n][l] : (u32)c->value, row = row_of(p, n, (u32)l);
        double sum = product(&h, row, (u32)l % 16, integer ? 0 : start_of(as_f32(start), i->shuffle >> 4 & 63));
        double whole = sum + (double)(i32)start;
        u32 fitted = whole > INT32_MAX ? INT32_MAX : whole < INT32_MIN ? (u32)INT32_MIN : (u32)(i32)whole;
        result[n][l] = !integer ? bits_of((float)sum) : i->shuffle & SATURATES ? fitted : start + (u32)(i32)sum;
    }
    memcpy(w->v[i->d.index], result, sizeof result);
}

/* The same with a result in 16 bits, and C like it. Before RDNA4 a half of each register, op_sel's; since then two rows a register. */
static void multiply_narrow(struct wave *w, const struct instruction *i) {
    const i32 *p = i->op->parameters;
    int split = p[0] == 4, brain = p[1] == E_BF16;
    const struct operand *c = p[5] ? &i->d : &i->s[2];
    struct held h;
    u32 result[8][32];
    gather(w, i, &h);
    for (u32 n = 0; n < 8; n++) EACH_LANE {
        u32 shift = (split ? n & 1 : i->shuffle & HIGH_HALF ? 1 : 0) * 16;
        u32 start = c->kind == OPERAND_ROW ? w->v[c->index + (split ? n / 2 : n)][l] >> shift & 0xffff : (u32)c->value;
        double sum = start_of(brain ? bf16_to_float(start) : half_to_float(start), i->shuffle >> 4 & 63);
        sum = product(&h, row_of(p, n, (u32)l), (u32)l % 16, sum);
        result[n][l] = brain ? float_to_bf16((float)sum) : float_to_half((float)sum);
    }
    for (u32 n = 0; n < 8; n++) EACH_LANE {
        u32 *to = &w->v[i->d.index + (split ? n / 2 : n)][l], shift = (split ? n & 1 : i->shuffle & HIGH_HALF ? 1 : 0) * 16;
        *to = (*to & ~(0xffffu << shift)) | result[n][l] << shift;
    }
}

/* `words` are registers of A and of B, `count` the elements of B in a lane. */
#define OPERATION(name, run, generation, a, b, c, words, element, x, y, count, sparse) \
    static const struct operation op_##name TABLE = {#name, run, 0, REGS + words, NONE, {REGS + a, REGS + b, c}, 0, {generation, element, x, y, count, sparse}};
#define DENSE(name, generation, words, element, x, y, count) \
    OPERATION(v_wmma_##name##_r##generation, multiply, generation, words, words, REGS + 8, 8, element, x, y, count, 0)
DENSE(f32_16x16x16_f16, 3, 8, E_F16, 0, 0, 16) DENSE(f32_16x16x16_bf16, 3, 8, E_BF16, 0, 0, 16)
DENSE(i32_16x16x16_iu8, 3, 4, E_I8, 0, 0, 16) DENSE(i32_16x16x16_iu4, 3, 2, E_I4, 0, 0, 16)
DENSE(f32_16x16x16_f16, 4, 4, E_F16, 0, 0, 8) DENSE(f32_16x16x16_bf16, 4, 4, E_BF16, 0, 0, 8)
DENSE(i32_16x16x16_iu8, 4, 2, E_I8, 0, 0, 8) DENSE(i32_16x16x16_iu4, 4, 1, E_I4, 0, 0, 8) DENSE(i32_16x16x32_iu4, 4, 2, E_I4, 0, 0, 16)
#define SPARSE(name, words, element, x, y, count) \
    OPERATION(v_swmmac_##name##_r4, multiply, 4, words, 2 * words, B32, 8, element, x, y, count, 1)
SPARSE(f32_16x16x32_f16, 4, E_F16, 0, 0, 16) SPARSE(f32_16x16x32_bf16, 4, E_BF16, 0, 0, 16) SPARSE(i32_16x16x32_iu8, 2, E_I8, 0, 0, 16)
SPARSE(i32_16x16x32_iu4, 1, E_I4, 0, 0, 16) SPARSE(i32_16x16x64_iu4, 2, E_I4, 0, 0, 32)
#define EIGHTS(x, X, y, Y) DENSE(f32_16x16x16_##x##_##y, 4, 2, E_FP8, X, Y, 8) SPARSE(f32_16x16x32_##x##_##y, 2, E_FP8, X, Y, 16)
EIGHTS(fp8, FP8_OCP, fp8, FP8_OCP) EIGHTS(fp8, FP8_OCP, bf8, BF8_OCP) EIGHTS(bf8, BF8_OCP, fp8, FP8_OCP) EIGHTS(bf8, BF8_OCP, bf8, BF8_OCP)
#define NARROW(name, generation, words, rows, element, count) \
    OPERATION(v_wmma_##name##_r##generation, multiply_narrow, generation, words, words, REGS + rows, rows, element, 0, 0, count, 0)
NARROW(f16_16x16x16_f16, 3, 8, 8, E_F16, 16) NARROW(bf16_16x16x16_bf16, 3, 8, 8, E_BF16, 16)
NARROW(f16_16x16x16_f16, 4, 4, 4, E_F16, 8) NARROW(bf16_16x16x16_bf16, 4, 4, 4, E_BF16, 8)
OPERATION(v_swmmac_f16_16x16x32_f16_r4, multiply_narrow, 4, 4, 8, B32, 4, E_F16, 0, 0, 16, 1)
OPERATION(v_swmmac_bf16_16x16x32_bf16_r4, multiply_narrow, 4, 4, 8, B32, 4, E_BF16, 0, 0, 16, 1)

#endif
