/* Integer arithmetic, logic, shifts and fields on lanes. */
#include "lanes.h"

LANES1(v_mov_b32, B32, B32, a) LANES1(v_mov_b64, B64, B64, a) LANES1(v_mov_b16, B16, B16, a)
LANES1(v_accvgpr_mov_b32, B32, B32, a) LANES1(v_accvgpr_read_b32, B32, B32, a) LANES1(v_accvgpr_write_b32, B32, B32, a)
LANES3(v_cndmask_b32, B32, B32, B32, MASK, c ? b : a) LANES3(v_cndmask_b16, B16, B16, B16, MASK, c ? b : a)

/* Sums and products. */
LANES2(v_add_u32, B32, B32, B32, a + b) LANES2(v_sub_u32, B32, B32, B32, a - b) LANES2(v_subrev_u32, B32, B32, B32, b - a)
LANES2(v_add_i32, B32, B32, B32, a + b) LANES2(v_sub_i32, B32, B32, B32, a - b)
CARRY(v_add_co_u32, B32, B32, B32, NONE, u64 sum = (u64)a + b; e[l] = sum >> 32 != 0, (u32)sum)
CARRY(v_sub_co_u32, B32, B32, B32, NONE, e[l] = b > a, a - b)
CARRY(v_subrev_co_u32, B32, B32, B32, NONE, e[l] = a > b, b - a)
CARRY(v_addc_co_u32, B32, B32, B32, MASK, u64 sum = (u64)a + b + c; e[l] = sum >> 32 != 0, (u32)sum)
CARRY(v_subb_co_u32, B32, B32, B32, MASK, u64 taken = (u64)b + c; e[l] = taken > a, a - (u32)taken)
CARRY(v_subbrev_co_u32, B32, B32, B32, MASK, u64 taken = (u64)a + c; e[l] = taken > b, b - (u32)taken)
LANES3(v_add3_u32, B32, B32, B32, B32, a + b + c) LANES3(v_lshl_add_u32, B32, B32, B32, B32, (a << (b & 31)) + c)
LANES3(v_add_lshl_u32, B32, B32, B32, B32, (a + b) << (c & 31)) LANES3(v_lshl_add_u64, B64, B64, B32, B64, (a << (b & 7)) + c)
LANES3(v_xad_u32, B32, B32, B32, B32, (a ^ b) + c)
LANES2(v_mul_lo_u32, B32, B32, B32, a * b)
LANES2(v_mul_hi_u32, B32, B32, B32, (u32)((u64)a * b >> 32)) LANES2(v_mul_hi_i32, B32, I32, I32, (u32)((i64)a * b >> 32))
static inline i32 signed24(u32 a) { return (i32)(a << 8) >> 8; }
LANES2(v_mul_u32_u24, B32, B32, B32, (a & 0xffffff) * (b & 0xffffff))
LANES2(v_mul_i32_i24, B32, B32, B32, (u32)((i64)signed24(a) * signed24(b)))
LANES2(v_mul_hi_u32_u24, B32, B32, B32, (u32)((u64)(a & 0xffffff) * (b & 0xffffff) >> 32))
LANES2(v_mul_hi_i32_i24, B32, B32, B32, (u32)((i64)signed24(a) * signed24(b) >> 32))
LANES3(v_mad_u32_u24, B32, B32, B32, B32, (a & 0xffffff) * (b & 0xffffff) + c)
LANES3(v_mad_i32_i24, B32, B32, B32, B32, (u32)((i64)signed24(a) * signed24(b)) + c)
LANES3(v_mad_u32_u16, B32, B16, B16, B32, a * b + c) LANES3(v_mad_i32_i16, B32, I16, I16, B32, (u32)(a * b) + c)
CARRY(v_mad_u64_u32, B64, B32, B32, B64, u64 product = (u64)a * b; e[l] = product + c < c, product + c)
/* Bit 64 of the exact sum: its sign. */
static inline u32 negative_sum(i64 a, i64 b, i64 *sum) {
    int overflows = __builtin_add_overflow(a, b, sum);
    return (*sum < 0) ^ overflows;
}
CARRY(v_mad_i64_i32, I64, I32, I32, I64, i64 sum; e[l] = negative_sum((i64)a * b, c, &sum), sum)
LANES3(v_sad_u32, B32, B32, B32, B32, (a > b ? a - b : b - a) + c)
LANES3(v_sad_u16, B32, B32, B32, B32,
       (u32)__builtin_abs((i32)(a & 0xffff) - (i32)(b & 0xffff)) + (u32)__builtin_abs((i32)(a >> 16) - (i32)(b >> 16)) + c)

/* With a clamp, the decoder asks for these: results that do not fit become the nearest that does. */
static inline i64 fitted(i64 x, i64 least, i64 most) { return x < least ? least : x > most ? most : x; }
#define FIT_U32(x) (u32)fitted(x, 0, UINT32_MAX)
#define FIT_I32(x) (i32)fitted(x, INT32_MIN, INT32_MAX)
LANES2(v_add_u32_clamp, B32, B32, B32, FIT_U32((i64)a + b)) LANES2(v_sub_u32_clamp, B32, B32, B32, FIT_U32((i64)a - b))
LANES2(v_subrev_u32_clamp, B32, B32, B32, FIT_U32((i64)b - a)) LANES2(v_add_i32_clamp, I32, I32, I32, FIT_I32((i64)a + b))
LANES2(v_sub_i32_clamp, I32, I32, I32, FIT_I32((i64)a - b)) LANES2(v_add_u16_clamp, B16, B16, B16, fitted((i64)a + b, 0, 65535))
LANES2(v_sub_u16_clamp, B16, B16, B16, fitted((i64)a - b, 0, 65535)) LANES2(v_add_i16_clamp, I16, I16, I16, fitted(a + b, -32768, 32767))
LANES2(v_sub_i16_clamp, I16, I16, I16, fitted(a - b, -32768, 32767))
LANES2(v_subrev_u16_clamp, B16, B16, B16, fitted((i64)b - a, 0, 65535))
CARRY(v_add_co_u32_clamp, B32, B32, B32, NONE, u64 sum = (u64)a + b; e[l] = sum >> 32 != 0, FIT_U32((i64)sum))
CARRY(v_sub_co_u32_clamp, B32, B32, B32, NONE, e[l] = b > a, FIT_U32((i64)a - b))
CARRY(v_subrev_co_u32_clamp, B32, B32, B32, NONE, e[l] = a > b, FIT_U32((i64)b - a))
CARRY(v_addc_co_u32_clamp, B32, B32, B32, MASK, u64 sum = (u64)a + b + c; e[l] = sum >> 32 != 0, FIT_U32((i64)sum))
CARRY(v_subb_co_u32_clamp, B32, B32, B32, MASK, i64 left = (i64)a - b - c; e[l] = left < 0, FIT_U32(left))
CARRY(v_subbrev_co_u32_clamp, B32, B32, B32, MASK, i64 left = (i64)b - a - c; e[l] = left < 0, FIT_U32(left))
LANES3(v_mad_u32_u24_clamp, B32, B32, B32, B32, FIT_U32((i64)(a & 0xffffff) * (b & 0xffffff) + c))
LANES3(v_mad_i32_i24_clamp, B32, B32, B32, I32, FIT_I32((i64)signed24(a) * signed24(b) + c))
LANES3(v_mad_u32_u16_clamp, B32, B16, B16, B32, FIT_U32((i64)a * b + c)) LANES3(v_mad_i32_i16_clamp, I32, I16, I16, I32, FIT_I32((i64)a * b + c))
LANES3(v_mad_u16_clamp, B16, B16, B16, B16, fitted((i64)a * b + c, 0, 65535)) LANES3(v_mad_i16_clamp, I16, I16, I16, I16, fitted((i64)a * b + c, -32768, 32767))
CARRY(v_mad_u64_u32_clamp, B64, B32, B32, B64, u64 product = (u64)a * b; e[l] = product + c < c, product + c < c ? UINT64_MAX : product + c)
static inline i64 fitted_sum(i64 a, i64 b) {
    i64 sum;
    return !__builtin_add_overflow(a, b, &sum) ? sum : a < 0 ? INT64_MIN : INT64_MAX;
}
CARRY(v_mad_i64_i32_clamp, I64, I32, I32, I64, i64 sum; e[l] = negative_sum((i64)a * b, c, &sum), fitted_sum((i64)a * b, c))
LANES3(v_sad_u32_clamp, B32, B32, B32, B32, FIT_U32((i64)(a > b ? a - b : b - a) + c))
LANES3(v_sad_u16_clamp, B32, B32, B32, B32, FIT_U32((i64)__builtin_abs((i32)(a & 0xffff) - (i32)(b & 0xffff)) + __builtin_abs((i32)(a >> 16) - (i32)(b >> 16)) + c))

/* Orders. */
LANES2(v_min_i32, I32, I32, I32, a < b ? a : b) LANES2(v_max_i32, I32, I32, I32, a > b ? a : b)
LANES2(v_min_u32, B32, B32, B32, a < b ? a : b) LANES2(v_max_u32, B32, B32, B32, a > b ? a : b)
#define LEAST(a, b) ((a) < (b) ? (a) : (b))
#define MOST(a, b) ((a) > (b) ? (a) : (b))
#define MIDDLE(a, b, c) MOST(LEAST(a, b), LEAST(MOST(a, b), c))
LANES3(v_min3_i32, I32, I32, I32, I32, LEAST(LEAST(a, b), c)) LANES3(v_min3_u32, B32, B32, B32, B32, LEAST(LEAST(a, b), c))
LANES3(v_max3_i32, I32, I32, I32, I32, MOST(MOST(a, b), c)) LANES3(v_max3_u32, B32, B32, B32, B32, MOST(MOST(a, b), c))
LANES3(v_med3_i32, I32, I32, I32, I32, MIDDLE(a, b, c)) LANES3(v_med3_u32, B32, B32, B32, B32, MIDDLE(a, b, c))
LANES3(v_minmax_i32, I32, I32, I32, I32, MOST(LEAST(a, b), c)) LANES3(v_maxmin_i32, I32, I32, I32, I32, LEAST(MOST(a, b), c))
LANES3(v_minmax_u32, B32, B32, B32, B32, MOST(LEAST(a, b), c)) LANES3(v_maxmin_u32, B32, B32, B32, B32, LEAST(MOST(a, b), c))

/* Logic. */
LANES1(v_not_b32, B32, B32, ~a) LANES2(v_and_b32, B32, B32, B32, a & b) LANES2(v_or_b32, B32, B32, B32, a | b)
LANES2(v_xor_b32, B32, B32, B32, a ^ b) LANES2(v_xnor_b32, B32, B32, B32, ~(a ^ b))
LANES3(v_and_or_b32, B32, B32, B32, B32, (a & b) | c) LANES3(v_or3_b32, B32, B32, B32, B32, a | b | c)
LANES3(v_xor3_b32, B32, B32, B32, B32, a ^ b ^ c) LANES3(v_lshl_or_b32, B32, B32, B32, B32, a << (b & 31) | c)
/* Any function of three bits; `m` is its truth table. */
static inline u32 by_table(u32 a, u32 b, u32 c, u32 table) {
    u32 r = 0;
    for (int n = 0; n < 8; n++) r |= table >> n & 1 ? (n & 4 ? a : ~a) & (n & 2 ? b : ~b) & (n & 1 ? c : ~c) : 0;
    return r;
}
DEFINE(v_bitop3_b32, B32, NONE, B32, B32, B32, B32, , by_table(a, b, c, m)) DEFINE(v_bitop3_b16, B16, NONE, B16, B16, B16, B32, , by_table(a, b, c, m))
LANES3(v_bfi_b32, B32, B32, B32, B32, (a & b) | (~a & c))

/* Shifts and fields. The first source of a reversed shift is the amount. */
LANES2(v_lshlrev_b32, B32, B32, B32, b << (a & 31)) LANES2(v_lshrrev_b32, B32, B32, B32, b >> (a & 31))
LANES2(v_ashrrev_i32, I32, B32, I32, b >> (a & 31)) LANES2(v_lshlrev_b64, B64, B32, B64, b << (a & 63))
LANES2(v_lshrrev_b64, B64, B32, B64, b >> (a & 63)) LANES2(v_ashrrev_i64, I64, B32, I64, b >> (a & 63))
LANES2(v_bfm_b32, B32, B32, B32, ((1u << (a & 31)) - 1) << (b & 31))
LANES3(v_bfe_u32, B32, B32, B32, B32, (a >> (b & 31)) & (((u32)1 << (c & 31)) - 1))
static inline i32 signed_field(i32 a, u32 from, u32 width) {
    u32 top = 32 - width;
    return width == 0 ? 0 : (i32)((u32)(a >> from) << top) >> top;
}
LANES3(v_bfe_i32, I32, I32, B32, B32, signed_field(a, b & 31, c & 31))
LANES3(v_alignbit_b32, B32, B32, B32, B32, (u32)(((u64)a << 32 | b) >> (c & 31)))
LANES3(v_alignbyte_b32, B32, B32, B32, B32, (u32)(((u64)a << 32 | b) >> (c & 3) * 8))
static inline u32 permuted(u32 high, u32 low, u32 selectors) {
    u64 bytes = (u64)high << 32 | low;
    u32 result = 0;
    for (int n = 0; n < 4; n++) {
        u32 s = selectors >> n * 8 & 0xff;
        u32 sign = s == 8 ? low >> 15 : s == 9 ? low >> 31 : s == 10 ? high >> 15 : high >> 31;
        u32 byte = s < 8 ? (u32)(bytes >> (s & 7) * 8) & 0xff : s < 12 ? (sign & 1 ? 0xff : 0) : s == 12 ? 0 : 0xff;
        result |= byte << n * 8;
    }
    return result;
}
LANES3(v_perm_b32, B32, B32, B32, B32, permuted(a, b, c))
static inline u32 reversed(u32 a) {
    a = (a >> 1 & 0x55555555) | (a & 0x55555555) << 1;
    a = (a >> 2 & 0x33333333) | (a & 0x33333333) << 2;
    a = (a >> 4 & 0x0f0f0f0f) | (a & 0x0f0f0f0f) << 4;
    return __builtin_bswap32(a);
}
LANES1(v_bfrev_b32, B32, B32, reversed(a))
LANES1(v_ffbh_u32, B32, B32, a ? (u32)__builtin_clz(a) : ~0u) LANES1(v_ffbl_b32, B32, B32, a ? (u32)__builtin_ctz(a) : ~0u)
LANES1(v_ffbh_i32, B32, I32, a == 0 || a == -1 ? ~0u : (u32)__builtin_clz((u32)(a < 0 ? ~a : a)))
LANES2(v_bcnt_u32_b32, B32, B32, B32, (u32)__builtin_popcount(a) + b)
/* Bits of the mask below this lane. */
LANES2(v_mbcnt_lo_u32_b32, B32, B32, B32, (u32)__builtin_popcount(a & (l < 32 ? (1u << l) - 1 : ~0u)) + b)
LANES2(v_mbcnt_hi_u32_b32, B32, B32, B32, (u32)__builtin_popcount(a & (l < 32 ? 0 : (1u << (l - 32)) - 1)) + b)
LANES2(v_cvt_pk_u16_u32, B32, B32, B32, (a > 0xffff ? 0xffff : a) | (b > 0xffff ? 0xffff : b) << 16)
static inline u32 saturated16(i32 a) { return (u16)(a > 32767 ? 32767 : a < -32768 ? -32768 : a); }
LANES2(v_cvt_pk_i16_i32, B32, I32, I32, saturated16(a) | saturated16(b) << 16)

/* 16 bits. */
LANES2(v_add_u16, B16, B16, B16, a + b) LANES2(v_sub_u16, B16, B16, B16, a - b) LANES2(v_subrev_u16, B16, B16, B16, b - a)
LANES2(v_add_i16, B16, B16, B16, a + b) LANES2(v_sub_i16, B16, B16, B16, a - b) LANES2(v_mul_lo_u16, B16, B16, B16, a * b)
LANES2(v_lshlrev_b16, B16, B16, B16, b << (a & 15)) LANES2(v_lshrrev_b16, B16, B16, B16, b >> (a & 15))
LANES2(v_ashrrev_i16, I16, B16, I16, b >> (a & 15))
LANES2(v_max_u16, B16, B16, B16, MOST(a, b)) LANES2(v_min_u16, B16, B16, B16, LEAST(a, b))
LANES2(v_max_i16, I16, I16, I16, MOST(a, b)) LANES2(v_min_i16, I16, I16, I16, LEAST(a, b))
LANES3(v_mad_u16, B16, B16, B16, B16, a * b + c) LANES3(v_mad_i16, B16, B16, B16, B16, a * b + c)
LANES3(v_min3_i16, I16, I16, I16, I16, LEAST(LEAST(a, b), c)) LANES3(v_min3_u16, B16, B16, B16, B16, LEAST(LEAST(a, b), c))
LANES3(v_max3_i16, I16, I16, I16, I16, MOST(MOST(a, b), c)) LANES3(v_max3_u16, B16, B16, B16, B16, MOST(MOST(a, b), c))
LANES3(v_med3_i16, I16, I16, I16, I16, MIDDLE(a, b, c)) LANES3(v_med3_u16, B16, B16, B16, B16, MIDDLE(a, b, c))
LANES2(v_and_b16, B16, B16, B16, a & b) LANES2(v_or_b16, B16, B16, B16, a | b) LANES2(v_xor_b16, B16, B16, B16, a ^ b)
LANES1(v_not_b16, B16, B16, ~a)
LANES1(v_cvt_i32_i16, I32, I16, a) LANES1(v_cvt_u32_u16, B32, B16, a)

/* Two halves at once. */
#define LOW(x) ((x) & 0xffff)
#define TOP(x) ((x) >> 16)
#define SLOW(x) ((i32)(i16)(x))
#define STOP(x) ((i32)(x) >> 16)
#define BOTH(low, top) (LOW((u32)(low)) | (u32)(top) << 16)
LANES2(v_pk_add_u16, PKI, PKI, PKI, BOTH(a + b, TOP(a) + TOP(b))) LANES2(v_pk_add_i16, PKI, PKI, PKI, BOTH(a + b, TOP(a) + TOP(b)))
LANES2(v_pk_sub_u16, PKI, PKI, PKI, BOTH(a - b, TOP(a) - TOP(b))) LANES2(v_pk_sub_i16, PKI, PKI, PKI, BOTH(a - b, TOP(a) - TOP(b)))
LANES2(v_pk_mul_lo_u16, PKI, PKI, PKI, BOTH(a * b, TOP(a) * TOP(b)))
LANES3(v_pk_mad_u16, PKI, PKI, PKI, PKI, BOTH(a * b + c, TOP(a) * TOP(b) + TOP(c)))
LANES3(v_pk_mad_i16, PKI, PKI, PKI, PKI, BOTH(a * b + c, TOP(a) * TOP(b) + TOP(c)))
LANES2(v_pk_lshlrev_b16, PKI, PKI, PKI, BOTH(LOW(b) << (a & 15), TOP(b) << (TOP(a) & 15)))
LANES2(v_pk_lshrrev_b16, PKI, PKI, PKI, BOTH(LOW(b) >> (a & 15), TOP(b) >> (TOP(a) & 15)))
LANES2(v_pk_ashrrev_i16, PKI, PKI, PKI, BOTH(SLOW(b) >> (a & 15), STOP(b) >> (TOP(a) & 15)))
LANES2(v_pk_max_u16, PKI, PKI, PKI, BOTH(MOST(LOW(a), LOW(b)), MOST(TOP(a), TOP(b))))
LANES2(v_pk_min_u16, PKI, PKI, PKI, BOTH(LEAST(LOW(a), LOW(b)), LEAST(TOP(a), TOP(b))))
LANES2(v_pk_max_i16, PKI, PKI, PKI, BOTH(MOST(SLOW(a), SLOW(b)), MOST(STOP(a), STOP(b))))
LANES2(v_pk_min_i16, PKI, PKI, PKI, BOTH(LEAST(SLOW(a), SLOW(b)), LEAST(STOP(a), STOP(b))))
#define FIT_BOTH(low, top, least, most) BOTH(fitted(low, least, most), fitted(top, least, most))
LANES2(v_pk_add_u16_clamp, PKI, PKI, PKI, FIT_BOTH((i64)LOW(a) + LOW(b), (i64)TOP(a) + TOP(b), 0, 65535))
LANES2(v_pk_sub_u16_clamp, PKI, PKI, PKI, FIT_BOTH((i64)LOW(a) - LOW(b), (i64)TOP(a) - TOP(b), 0, 65535))
LANES2(v_pk_add_i16_clamp, PKI, PKI, PKI, FIT_BOTH(SLOW(a) + SLOW(b), STOP(a) + STOP(b), -32768, 32767))
LANES2(v_pk_sub_i16_clamp, PKI, PKI, PKI, FIT_BOTH(SLOW(a) - SLOW(b), STOP(a) - STOP(b), -32768, 32767))
LANES3(v_pk_mad_u16_clamp, PKI, PKI, PKI, PKI, FIT_BOTH((i64)LOW(a) * LOW(b) + LOW(c), (i64)TOP(a) * TOP(b) + TOP(c), 0, 65535))
LANES3(v_pk_mad_i16_clamp, PKI, PKI, PKI, PKI, FIT_BOTH((i64)SLOW(a) * SLOW(b) + SLOW(c), (i64)STOP(a) * STOP(b) + STOP(c), -32768, 32767))
LANES2(v_pack_b32_f16, B32, B16, B16, a | b << 16)
LANES2(v_pk_mov_b32, PKF, PKF, PKF, (a & 0xffffffff) | b >> 32 << 32)

/* Sums of products. */
#define BYTE(x, n) ((i32)(i8)((x) >> (n) * 8))
#define UBYTE(x, n) ((x) >> (n) * 8 & 0xff)
#define NIBBLE(x, n) ((i32)((x) << (28 - (n) * 4)) >> 28)
#define UNIBBLE(x, n) ((x) >> (n) * 4 & 15)
#define WORD(x, n) ((n) ? STOP(x) : SLOW(x))
#define UWORD(x, n) ((n) ? TOP(x) : LOW(x))
#define P(A, B, n) ((i64)A(a, n) * (i64)B(b, n))
#define SUM2(A, B) (P(A, B, 0) + P(A, B, 1))
#define SUM4(A, B) (SUM2(A, B) + P(A, B, 2) + P(A, B, 3))
#define SUM8(A, B) (SUM4(A, B) + P(A, B, 4) + P(A, B, 5) + P(A, B, 6) + P(A, B, 7))
#define SIGNED_DOT_OF(type, name, sum) LANES3(name, B32, type, type, I32, (u32)(sum + c)) LANES3(name##_clamp, B32, type, type, I32, FIT_I32(sum + c))
#define UNSIGNED_DOT_OF(type, name, sum) LANES3(name, B32, type, type, B32, (u32)(sum + c)) LANES3(name##_clamp, B32, type, type, B32, FIT_U32(sum + c))
#define SIGNED_DOT(name, sum) SIGNED_DOT_OF(B32, name, sum)
#define UNSIGNED_DOT(name, sum) UNSIGNED_DOT_OF(B32, name, sum)
SIGNED_DOT(v_dot4_i32_i8, SUM4(BYTE, BYTE)) SIGNED_DOT(v_dot4c_i32_i8, SUM4(BYTE, BYTE)) UNSIGNED_DOT(v_dot4_u32_u8, SUM4(UBYTE, UBYTE))
SIGNED_DOT(v_dot8_i32_i4, SUM8(NIBBLE, NIBBLE)) SIGNED_DOT(v_dot8c_i32_i4, SUM8(NIBBLE, NIBBLE)) UNSIGNED_DOT(v_dot8_u32_u4, SUM8(UNIBBLE, UNIBBLE))
/* Of halves: op_sel says which. */
SIGNED_DOT_OF(PKI, v_dot2_i32_i16, SUM2(WORD, WORD)) SIGNED_DOT(v_dot2c_i32_i16, SUM2(WORD, WORD)) UNSIGNED_DOT_OF(PKI, v_dot2_u32_u16, SUM2(UWORD, UWORD))
/* Since RDNA3 the instruction says which of the two are signed; the decoder appends it. */
#define EITHER(suffix, A, B, C, D) SIGNED_DOT(v_dot4_i32_iu8_##suffix, SUM4(A, B)) SIGNED_DOT(v_dot8_i32_iu4_##suffix, SUM8(C, D))
EITHER(uu, UBYTE, UBYTE, UNIBBLE, UNIBBLE) EITHER(iu, BYTE, UBYTE, NIBBLE, UNIBBLE) EITHER(ui, UBYTE, BYTE, UNIBBLE, NIBBLE) EITHER(ii, BYTE, BYTE, NIBBLE, NIBBLE)
