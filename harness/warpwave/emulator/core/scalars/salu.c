/* Scalar operations: arithmetic, logic, comparisons, branches, and the registers of the machine. */
#include "scalars.h"

/* Arithmetic. */
SCALAR(s_add_u32, B32, B32, B32, r = a + b; scc = r < a)
SCALAR(s_sub_u32, B32, B32, B32, r = a - b; scc = b > a)
SCALAR(s_add_i32, B32, B32, B32, r = a + b; scc = (~(a ^ b) & (a ^ r)) >> 31)
SCALAR(s_sub_i32, B32, B32, B32, r = a - b; scc = ((a ^ b) & (a ^ r)) >> 31)
SCALAR(s_addc_u32, B32, B32, B32, u64 sum = (u64)a + b + scc; r = (u32)sum; scc = sum >> 32 != 0)
SCALAR(s_subb_u32, B32, B32, B32, u64 taken = (u64)b + scc; r = a - (u32)taken; scc = taken > a)
SCALAR(s_add_u64, B64, B64, B64, r = a + b)
SCALAR(s_sub_u64, B64, B64, B64, r = a - b)
SCALAR(s_mul_u64, B64, B64, B64, r = a * b)
SCALAR(s_mul_i32, B32, B32, B32, r = a * b)
SCALAR(s_mul_hi_u32, B32, B32, B32, r = (u32)((u64)a * b >> 32))
SCALAR(s_mul_hi_i32, B32, I32, I32, r = (u32)((i64)a * b >> 32))
SCALAR(s_min_i32, I32, I32, I32, r = a < b ? a : b; scc = a < b)
SCALAR(s_max_i32, I32, I32, I32, r = a >= b ? a : b; scc = a >= b)
SCALAR(s_min_u32, B32, B32, B32, r = a < b ? a : b; scc = a < b)
SCALAR(s_max_u32, B32, B32, B32, r = a >= b ? a : b; scc = a >= b)
SCALAR(s_absdiff_i32, B32, I32, I32, r = (u32)a - (u32)b; r = (i32)r < 0 ? 0 - r : r; scc = r != 0)
SCALAR(s_lshl1_add_u32, B32, B32, B32, u64 sum = ((u64)a << 1) + b; r = (u32)sum; scc = sum >> 32 != 0)
SCALAR(s_lshl2_add_u32, B32, B32, B32, u64 sum = ((u64)a << 2) + b; r = (u32)sum; scc = sum >> 32 != 0)
SCALAR(s_lshl3_add_u32, B32, B32, B32, u64 sum = ((u64)a << 3) + b; r = (u32)sum; scc = sum >> 32 != 0)
SCALAR(s_lshl4_add_u32, B32, B32, B32, u64 sum = ((u64)a << 4) + b; r = (u32)sum; scc = sum >> 32 != 0)
SCALAR1(s_abs_i32, B32, I32, r = a < 0 ? 0 - (u32)a : (u32)a; scc = r != 0)

/* Logic: the condition code says whether the result is not zero. */
SCALAR(s_and_b32, B32, B32, B32, r = a & b; scc = r != 0)
SCALAR(s_and_b64, B64, B64, B64, r = a & b; scc = r != 0)
SCALAR(s_or_b32, B32, B32, B32, r = a | b; scc = r != 0)
SCALAR(s_or_b64, B64, B64, B64, r = a | b; scc = r != 0)
SCALAR(s_xor_b32, B32, B32, B32, r = a ^ b; scc = r != 0)
SCALAR(s_xor_b64, B64, B64, B64, r = a ^ b; scc = r != 0)
SCALAR(s_andn2_b32, B32, B32, B32, r = a & ~b; scc = r != 0)
SCALAR(s_andn2_b64, B64, B64, B64, r = a & ~b; scc = r != 0)
SCALAR(s_orn2_b32, B32, B32, B32, r = a | ~b; scc = r != 0)
SCALAR(s_orn2_b64, B64, B64, B64, r = a | ~b; scc = r != 0)
SCALAR(s_nand_b32, B32, B32, B32, r = ~(a & b); scc = r != 0)
SCALAR(s_nand_b64, B64, B64, B64, r = ~(a & b); scc = r != 0)
SCALAR(s_nor_b32, B32, B32, B32, r = ~(a | b); scc = r != 0)
SCALAR(s_nor_b64, B64, B64, B64, r = ~(a | b); scc = r != 0)
SCALAR(s_xnor_b32, B32, B32, B32, r = ~(a ^ b); scc = r != 0)
SCALAR(s_xnor_b64, B64, B64, B64, r = ~(a ^ b); scc = r != 0)
SCALAR1(s_not_b32, B32, B32, r = ~a; scc = r != 0)
SCALAR1(s_not_b64, B64, B64, r = ~a; scc = r != 0)

/* Shifts and fields. */
SCALAR(s_lshl_b32, B32, B32, B32, r = a << (b & 31); scc = r != 0)
SCALAR(s_lshl_b64, B64, B64, B32, r = a << (b & 63); scc = r != 0)
SCALAR(s_lshr_b32, B32, B32, B32, r = a >> (b & 31); scc = r != 0)
SCALAR(s_lshr_b64, B64, B64, B32, r = a >> (b & 63); scc = r != 0)
SCALAR(s_ashr_i32, I32, I32, B32, r = a >> (b & 31); scc = r != 0)
SCALAR(s_ashr_i64, I64, I64, B32, r = a >> (b & 63); scc = r != 0)
SCALAR(s_bfm_b32, B32, B32, B32, r = ((1u << (a & 31)) - 1) << (b & 31))
SCALAR(s_bfm_b64, B64, B32, B32, r = (((u64)1 << (a & 63)) - 1) << (b & 63))
static inline u64 field(u64 a, u32 b, int bits, int sign) {
    u32 from = b & (bits - 1), width = b >> 16 & 0x7f;
    if (width == 0) return 0;
    u64 shifted = sign && bits == 32 ? (u64)((i64)(i32)a >> from) : sign ? (u64)((i64)a >> from) : a >> from;
    if (width >= 64) return shifted;
    u64 part = shifted & (((u64)1 << width) - 1);
    return sign && part >> (width - 1) & 1 ? part | ~(((u64)1 << width) - 1) : part;
}
SCALAR(s_bfe_u32, B32, B32, B32, r = (u32)field(a, b, 32, 0); scc = r != 0)
SCALAR(s_bfe_i32, B32, B32, B32, r = (u32)field(a, b, 32, 1); scc = r != 0)
SCALAR(s_bfe_u64, B64, B64, B32, r = field(a, b, 64, 0); scc = r != 0)
SCALAR(s_bfe_i64, B64, B64, B32, r = field(a, b, 64, 1); scc = r != 0)
SCALAR(s_pack_ll_b32_b16, B32, B32, B32, r = (a & 0xffff) | b << 16)
SCALAR(s_pack_lh_b32_b16, B32, B32, B32, r = (a & 0xffff) | (b & 0xffff0000))
SCALAR(s_pack_hh_b32_b16, B32, B32, B32, r = a >> 16 | (b & 0xffff0000))
SCALAR(s_pack_hl_b32_b16, B32, B32, B32, r = a >> 16 | b << 16)
SCALAR1(s_brev_b32, B32, B32, r = 0; for (int n = 0; n < 32; n++) r |= (a >> n & 1) << (31 - n))
SCALAR1(s_brev_b64, B64, B64, r = 0; for (int n = 0; n < 64; n++) r |= (a >> n & 1) << (63 - n))
SCALAR1(s_bcnt0_i32_b32, B32, B32, r = (u32)__builtin_popcount(~a); scc = r != 0)
SCALAR1(s_bcnt0_i32_b64, B32, B64, r = (u32)__builtin_popcountll(~a); scc = r != 0)
SCALAR1(s_bcnt1_i32_b32, B32, B32, r = (u32)__builtin_popcount(a); scc = r != 0)
SCALAR1(s_bcnt1_i32_b64, B32, B64, r = (u32)__builtin_popcountll(a); scc = r != 0)
SCALAR1(s_ff0_i32_b32, B32, B32, r = ~a ? (u32)__builtin_ctz(~a) : ~0u)
SCALAR1(s_ff0_i32_b64, B32, B64, r = ~a ? (u32)__builtin_ctzll(~a) : ~0u)
SCALAR1(s_ff1_i32_b32, B32, B32, r = a ? (u32)__builtin_ctz(a) : ~0u)
SCALAR1(s_ff1_i32_b64, B32, B64, r = a ? (u32)__builtin_ctzll(a) : ~0u)
SCALAR1(s_flbit_i32_b32, B32, B32, r = a ? (u32)__builtin_clz(a) : ~0u)
SCALAR1(s_flbit_i32_b64, B32, B64, r = a ? (u32)__builtin_clzll(a) : ~0u)
SCALAR1(s_flbit_i32, B32, I32, r = a == 0 || a == -1 ? ~0u : (u32)__builtin_clz((u32)(a < 0 ? ~a : a)))
SCALAR1(s_flbit_i32_i64, B32, I64, r = a == 0 || a == -1 ? ~0u : (u32)__builtin_clzll((u64)(a < 0 ? ~a : a)))
SCALAR1(s_sext_i32_i8, I32, B32, r = (i8)a)
SCALAR1(s_sext_i32_i16, I32, B32, r = (i16)a)

/* Moves and selections. */
SCALAR1(s_mov_b32, B32, B32, r = a)
SCALAR1(s_mov_b64, B64, B64, r = a)
SCALAR(s_cselect_b32, B32, B32, B32, r = scc ? a : b)
SCALAR(s_cselect_b64, B64, B64, B64, r = scc ? a : b)
#define CHANGE(name, D, A, body)                                                                                \
    static void name(struct wave *w, const struct instruction *i) {                                             \
        value_##A a = READ_##A(w, &i->s[0]);                                                                    \
        value_##D r = READ_##D(w, &i->d);                                                                       \
        body;                                                                                                   \
        set_scalar(w, &i->d, r, WORDS(D));                                                                      \
    }                                                                                                           \
    static const struct operation op_##name TABLE = {#name, name, 0, D, NONE, {A}, 0, {0}};
CHANGE(s_cmov_b32, B32, B32, if (w->scc) r = a)
CHANGE(s_cmov_b64, B64, B64, if (w->scc) r = a)
CHANGE(s_bitset0_b32, B32, B32, r &= ~(1u << (a & 31)))
CHANGE(s_bitset1_b32, B32, B32, r |= 1u << (a & 31))
CHANGE(s_bitset0_b64, B64, B32, r &= ~((u64)1 << (a & 63)))
CHANGE(s_bitset1_b64, B64, B32, r |= (u64)1 << (a & 63))
CHANGE(s_movk_i32, B32, B32, r = a)
CHANGE(s_cmovk_i32, B32, B32, if (w->scc) r = a)
CHANGE(s_addk_i32, B32, B32, u32 sum = r + a; w->scc = (~(r ^ a) & (r ^ sum)) >> 31; r = sum)
CHANGE(s_mulk_i32, B32, B32, r *= a)

/* Comparisons. */
COMPARE(s_cmp_eq_i32, I32, a == b) COMPARE(s_cmp_lg_i32, I32, a != b) COMPARE(s_cmp_gt_i32, I32, a > b)
COMPARE(s_cmp_ge_i32, I32, a >= b) COMPARE(s_cmp_lt_i32, I32, a < b) COMPARE(s_cmp_le_i32, I32, a <= b)
COMPARE(s_cmp_eq_u32, B32, a == b) COMPARE(s_cmp_lg_u32, B32, a != b) COMPARE(s_cmp_gt_u32, B32, a > b)
COMPARE(s_cmp_ge_u32, B32, a >= b) COMPARE(s_cmp_lt_u32, B32, a < b) COMPARE(s_cmp_le_u32, B32, a <= b)
COMPARE(s_cmpk_eq_i32, I32, a == b) COMPARE(s_cmpk_lg_i32, I32, a != b) COMPARE(s_cmpk_gt_i32, I32, a > b)
COMPARE(s_cmpk_ge_i32, I32, a >= b) COMPARE(s_cmpk_lt_i32, I32, a < b) COMPARE(s_cmpk_le_i32, I32, a <= b)
COMPARE(s_cmpk_eq_u32, B32, a == b) COMPARE(s_cmpk_lg_u32, B32, a != b) COMPARE(s_cmpk_gt_u32, B32, a > b)
COMPARE(s_cmpk_ge_u32, B32, a >= b) COMPARE(s_cmpk_lt_u32, B32, a < b) COMPARE(s_cmpk_le_u32, B32, a <= b)
COMPARE(s_cmp_eq_u64, B64, a == b) COMPARE(s_cmp_lg_u64, B64, a != b)
COMPARE(s_bitcmp0_b32, B32, !(a >> (b & 31) & 1)) COMPARE(s_bitcmp1_b32, B32, a >> (b & 31) & 1)
#define BIT(name, test)                                                                                         \
    static void name(struct wave *w, const struct instruction *i) {                                             \
        u64 a = scalar64(w, &i->s[0]);                                                                          \
        u32 b = scalar32(w, &i->s[1]);                                                                          \
        w->scc = test;                                                                                          \
    }                                                                                                           \
    static const struct operation op_##name TABLE = {#name, name, 0, NONE, NONE, {B64, B32}, 0, {0}};
BIT(s_bitcmp0_b64, !(a >> (b & 63) & 1))
BIT(s_bitcmp1_b64, a >> (b & 63) & 1)

/* Masks: save EXEC, then change it. */
#define SAVE_EXEC(name, size, D, result)                                                                        \
    static void name(struct wave *w, const struct instruction *i) {                                             \
        u##size a = scalar##size(w, &i->s[0]), x, r;                                                            \
        memcpy(&x, &w->s[EXEC], sizeof x);                                                                      \
        r = result;                                                                                             \
        set_scalar(w, &i->d, x, WORDS(D));                                                                      \
        memcpy(&w->s[EXEC], &r, sizeof r);                                                                      \
        w->scc = r != 0;                                                                                        \
    }                                                                                                           \
    static const struct operation op_##name TABLE = {#name, name, 0, D, NONE, {D}, 0, {0}};
#define SAVE_EXECS(name, result) SAVE_EXEC(s_##name##_saveexec_b64, 64, B64, result) SAVE_EXEC(s_##name##_saveexec_b32, 32, B32, result)
SAVE_EXECS(and, a & x) SAVE_EXECS(or, a | x) SAVE_EXECS(xor, a ^ x) SAVE_EXECS(andn2, a & ~x) SAVE_EXECS(orn2, a | ~x)
SAVE_EXECS(nand, ~(a & x)) SAVE_EXECS(nor, ~(a | x)) SAVE_EXECS(xnor, ~(a ^ x)) SAVE_EXECS(andn1, ~a & x) SAVE_EXECS(orn1, ~a | x)
