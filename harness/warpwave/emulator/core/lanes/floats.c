/* Floating-point arithmetic on lanes: float, double, half, packed, and conversions. Rounding is to nearest, ties to even.
 *
 * Functions that the hardware approximates (rcp, rsq, sqrt, exp, log, sin, cos) are computed in double and rounded once: at least as
 * accurate as the hardware, and possibly different in the last bit. Those of float but sin and cos flush denormals, whatever MODE says: ISA
 * guides ("denormals are flushed"), and what LLVM and Triton scale where denormals must stay (triton-lang/triton#3816, #5422). */
#include "lanes.h"
#include <fenv.h>

/* float */
LANES2(v_add_f32, F32, F32, F32, a + b) LANES2(v_sub_f32, F32, F32, F32, a - b) LANES2(v_subrev_f32, F32, F32, F32, b - a)
LANES2(v_mul_f32, F32, F32, F32, a * b)
LANES2(v_mul_legacy_f32, F32, F32, F32, a == 0 || b == 0 ? 0 : a * b)
LANES3(v_fma_f32, F32, F32, F32, F32, __builtin_fmaf(a, b, c)) LANES3(v_fmac_f32, F32, F32, F32, F32, __builtin_fmaf(a, b, c))
LANES3(v_fmamk_f32, F32, F32, F32, F32, __builtin_fmaf(a, b, c)) LANES3(v_fmaak_f32, F32, F32, F32, F32, __builtin_fmaf(a, b, c))
LANES2(v_max_f32, F32, F32, F32, max_number(a, b, ieee)) LANES2(v_min_f32, F32, F32, F32, min_number(a, b, ieee))
LANES3(v_max3_f32, F32, F32, F32, F32, max_number(max_number(a, b, ieee), c, ieee))
LANES3(v_min3_f32, F32, F32, F32, F32, min_number(min_number(a, b, ieee), c, ieee))
LANES3(v_med3_f32, F32, F32, F32, F32, median(a, b, c, ieee))
LANES3(v_minmax_f32, F32, F32, F32, F32, max_number(min_number(a, b, ieee), c, ieee))
LANES3(v_maxmin_f32, F32, F32, F32, F32, min_number(max_number(a, b, ieee), c, ieee))
LANES2(v_maximum_f32, F32, F32, F32, maximum_of(a, b)) LANES2(v_minimum_f32, F32, F32, F32, minimum_of(a, b))
LANES3(v_maximum3_f32, F32, F32, F32, F32, maximum_of(maximum_of(a, b), c))
LANES3(v_minimum3_f32, F32, F32, F32, F32, minimum_of(minimum_of(a, b), c))
LANES3(v_maximumminimum_f32, F32, F32, F32, F32, minimum_of(maximum_of(a, b), c))
LANES3(v_minimummaximum_f32, F32, F32, F32, F32, maximum_of(minimum_of(a, b), c))
LANES1(v_trunc_f32, F32, F32, truncf(a)) LANES1(v_ceil_f32, F32, F32, ceilf(a)) LANES1(v_floor_f32, F32, F32, floorf(a))
LANES1(v_rndne_f32, F32, F32, __builtin_rintf(a))
static inline float fraction(float a) {
    float f = a - floorf(a);
    return f >= 1 ? 0x1.fffffep-1f : f;
}
LANES1(v_fract_f32, F32, F32, fraction(a))
LANES1(v_rcp_f32, F32, F32, flushed(1 / flushed(a))) LANES1(v_rcp_iflag_f32, F32, F32, flushed(1 / flushed(a)))
LANES1(v_sqrt_f32, F32, F32, __builtin_sqrtf(flushed(a)))
LANES1(v_rsq_f32, F32, F32, (float)(1 / __builtin_sqrt((double)flushed(a))))
LANES1(v_exp_f32, F32, F32, flushed((float)exp2((double)a))) LANES1(v_log_f32, F32, F32, (float)log2((double)flushed(a)))
/* The argument is in turns. What is left after whole quarters is exact: so are zeros, and what is near them. The sine of -0 is -0. */
static inline float turned(float a, int cosine) {
    if (!(fabsf(a) < INFINITY)) return NAN;
    if (a == 0) return cosine ? 1 : a;
    double nearest = rint((double)a * 4), rest = ((double)a - nearest / 4) * 6.283185307179586;
    int quarter = (int)(nearest - floor(nearest / 4) * 4) + cosine;
    double result = quarter & 1 ? cos(rest) : sin(rest);
    return (float)(quarter & 2 ? 0 - result : 0 + result); /* no zero but that of -0 is negative */
}
LANES1(v_sin_f32, F32, F32, turned(a, 0)) LANES1(v_cos_f32, F32, F32, turned(a, 1))
static inline int clipped(i32 n) { return n > 4096 ? 4096 : n < -4096 ? -4096 : n; }
LANES2(v_ldexp_f32, F32, F32, I32, ldexpf(a, clipped(b)))
static inline float mantissa(float a) { int n; return a == 0 || !(fabsf(a) < INFINITY) ? a : frexpf(a, &n); }
static inline i32 exponent(double a) { int n = 0; if (a == 0 || !(fabs(a) < INFINITY)) return 0; (void)frexp(a, &n); return n; }
LANES1(v_frexp_mant_f32, F32, F32, mantissa(a)) LANES1(v_frexp_exp_i32_f32, I32, F32, exponent(a))

/* Division: scale, iterate, repair. */
static inline int exponent_of(float a) { return bits_of(a) >> 23 & 0xff; }
/* s1 is the denominator, s2 the numerator, s0 the one of them to scale. `scaled`: v_div_fmas scales back. What the hardware takes for a
 * denormal quotient goes by exponents: it may be one. Recorded on RDNA3: so of 2**-126 / 1; and `scaled` where one of the two is 0. */
static inline float divided_scale(float s0, float s1, float s2, u32 *scaled) {
    int gap = exponent_of(s2) - exponent_of(s1), is_denominator = bits_of(s0) == bits_of(s1), is_numerator = bits_of(s0) == bits_of(s2);
    int tiny_inverse = 1 / s1 != 0 && exponent_of(1 / s1) == 0, tiny_ratio = gap <= -126 || exponent_of(s2 / s1) == 0;
    *scaled = s2 == 0 || s1 == 0 || gap >= 96;
    if (s2 == 0 || s1 == 0) return NAN;
    if (gap >= 96) return is_denominator ? s0 * 0x1p64f : s0;
    if (exponent_of(s1) == 0) return s0 * 0x1p64f;
    *scaled = tiny_ratio;
    /* AMD's pseudocode has 64 here, as above; but v_div_fmas divides by 2**64, and 2**126 * 2**64 is infinite. */
    if (tiny_inverse && tiny_ratio) return is_denominator ? s0 * 0x1p-64f : s0;
    if (tiny_inverse) return s0 * 0x1p-64f;
    if (tiny_ratio) return is_numerator ? s0 * 0x1p64f : s0;
    return exponent_of(s2) <= 23 ? s0 * 0x1p64f : s0;
}
CARRY(v_div_scale_f32, F32, F32, F32, F32, u32 scaled; float r = divided_scale(a, b, c, &scaled); e[l] = scaled, r)
/* Round once: the sum in double is rounded to odd, then scaled exactly, then made a float. */
static inline float scaled_fma(float a, float b, float c, double scale) {
    double p = (double)a * b, s = p + c, t = s - p, rest = (p - (s - t)) + (c - t);
    if (!isfinite(s) || isinf((float)s)) return __builtin_fmaf(a, b, c); // overflow comes before the scale
    u64 bits;
    memcpy(&bits, &s, 8);
    if (rest != 0 && !(bits & 1)) bits += (rest > 0) == (s > 0) ? 1 : -1;
    memcpy(&s, &bits, 8);
    return (float)(s * scale);
}
DEFINE(v_div_fmas_f32, F32, NONE, F32, F32, F32, MASK, float r = __builtin_fmaf(a, b, c), m ? scaled_fma(a, b, c, exponent_of(c) > 127 ? 0x1p64 : 0x1p-64) : r)
static inline float repaired(float s0, float s1, float s2) {
    float sign = copysignf(1, s1) * copysignf(1, s2);
    if (s2 != s2) return s2 + s2;
    if (s1 != s1) return s1 + s1;
    if (s1 == 0 && s2 == 0) return as_f32(0xffc00000);
    if (isinf(s1) && isinf(s2)) return as_f32(0xffc00000);
    if (s1 == 0 || isinf(s2)) return sign * INFINITY;
    if (isinf(s1) || s2 == 0) return sign * 0.0f;
    int gap = exponent_of(s2) - exponent_of(s1);
    if (gap < -150) return sign * 0x1p-149f * 0.25f;
    /* Recorded on RDNA3: where the iteration has met infinities on its way, its NaN is an overflow. */
    return s0 != s0 ? sign * INFINITY : copysignf(s0, sign);
}
LANES3(v_div_fixup_f32, F32, F32, F32, F32, repaired(a, b, c))

/* double */
LANES2(v_add_f64, F64, F64, F64, a + b) LANES2(v_mul_f64, F64, F64, F64, a * b)
LANES3(v_fma_f64, F64, F64, F64, F64, __builtin_fma(a, b, c)) LANES3(v_fmac_f64, F64, F64, F64, F64, __builtin_fma(a, b, c))
LANES2(v_max_f64, F64, F64, F64, max_number64(a, b, ieee)) LANES2(v_min_f64, F64, F64, F64, min_number64(a, b, ieee))
LANES2(v_maximum_f64, F64, F64, F64, maximum_of64(a, b))
LANES2(v_minimum_f64, F64, F64, F64, minimum_of64(a, b))
LANES1(v_trunc_f64, F64, F64, trunc(a)) LANES1(v_ceil_f64, F64, F64, ceil(a)) LANES1(v_floor_f64, F64, F64, floor(a))
LANES1(v_rndne_f64, F64, F64, rint(a)) LANES1(v_rcp_f64, F64, F64, 1 / a) LANES1(v_sqrt_f64, F64, F64, sqrt(a))
LANES1(v_rsq_f64, F64, F64, 1 / sqrt(a))
static inline double fraction64(double a) {
    double f = a - floor(a);
    return f >= 1 ? 0x1.fffffffffffffp-1 : f;
}
LANES1(v_fract_f64, F64, F64, fraction64(a)) LANES2(v_ldexp_f64, F64, F64, I32, ldexp(a, clipped(b)))
static inline double mantissa64(double a) { int n; return a == 0 || !(fabs(a) < INFINITY) ? a : frexp(a, &n); }
LANES1(v_frexp_mant_f64, F64, F64, mantissa64(a)) LANES1(v_frexp_exp_i32_f64, I32, F64, exponent(a))
static inline int exponent_of64(double a) { return bits_of64(a) >> 52 & 0x7ff; }
static inline double divided_scale64(double s0, double s1, double s2, u32 *scaled) {
    int gap = exponent_of64(s2) - exponent_of64(s1), is_denominator = bits_of64(s0) == bits_of64(s1), is_numerator = bits_of64(s0) == bits_of64(s2);
    int tiny_inverse = 1 / s1 != 0 && exponent_of64(1 / s1) == 0, tiny_ratio = gap <= -1022 || exponent_of64(s2 / s1) == 0;
    *scaled = s2 == 0 || s1 == 0 || gap >= 768;
    if (s2 == 0 || s1 == 0) return NAN;
    if (gap >= 768) return is_denominator ? s0 * 0x1p128 : s0;
    if (exponent_of64(s1) == 0) return s0 * 0x1p128;
    *scaled = tiny_ratio;
    if (tiny_inverse && tiny_ratio) return is_denominator ? s0 * 0x1p-128 : s0;
    if (tiny_inverse) return s0 * 0x1p-128;
    if (tiny_ratio) return is_numerator ? s0 * 0x1p128 : s0;
    return exponent_of64(s2) <= 53 ? s0 * 0x1p128 : s0;
}
CARRY(v_div_scale_f64, F64, F64, F64, F64, u32 scaled; double r = divided_scale64(a, b, c, &scaled); e[l] = scaled, r)
/* Round once: where the scaled sum lies between two denormals, in the middle, what the sum lost decides. */
static inline double scaled_fma64(double a, double b, double c) {
    double sum = __builtin_fma(a, b, c);
    if (exponent_of64(c) > 1023) return sum * 0x1p128;
    double result = sum * 0x1p-128, rest = sum - result * 0x1p128;
    if (fabs(rest) != 0x1p-947 || fegetround() != FE_TONEAREST) return result;
    double product = a * b, t = product + c, part = t - product, lost = (product - (t - part)) + (c - part);
    lost = ((t - sum) + lost) + __builtin_fma(a, b, -product);
    return lost != 0 && (lost > 0) == (rest > 0) ? result + copysign(0x1p-1074, rest) : result;
}
DEFINE(v_div_fmas_f64, F64, NONE, F64, F64, F64, MASK, , m ? scaled_fma64(a, b, c) : __builtin_fma(a, b, c))
static inline double repaired64(double s0, double s1, double s2) {
    double sign = copysign(1, s1) * copysign(1, s2);
    if (s2 != s2) return s2 + s2;
    if (s1 != s1) return s1 + s1;
    if ((s1 == 0 && s2 == 0) || (isinf(s1) && isinf(s2))) return as_f64((u64)0xfff8 << 48);
    if (s1 == 0 || isinf(s2)) return sign * INFINITY;
    if (isinf(s1) || s2 == 0) return sign * 0.0;
    if (exponent_of64(s2) - exponent_of64(s1) < -1075) return sign * 0x1p-1074 * 0.25;
    return s0 != s0 ? sign * INFINITY : copysign(s0, sign);
}
LANES3(v_div_fixup_f64, F64, F64, F64, F64, repaired64(a, b, c))

/* half: computed in float, rounded once more; innocuous for + - * / and sqrt, exact by construction for fma. */
LANES2(v_add_f16, F16, F16, F16, a + b) LANES2(v_sub_f16, F16, F16, F16, a - b) LANES2(v_subrev_f16, F16, F16, F16, b - a)
LANES2(v_mul_f16, F16, F16, F16, a * b) LANES2(v_max_f16, F16, F16, F16, max_number(a, b, ieee)) LANES2(v_min_f16, F16, F16, F16, min_number(a, b, ieee))
LANES2(v_maximum_f16, F16, F16, F16, maximum_of(a, b)) LANES2(v_minimum_f16, F16, F16, F16, minimum_of(a, b))
#define HALF_FMA(name) DEFINE(name, B16, NONE, F16, F16, F16, NONE, , fma_half(a, b, c))
HALF_FMA(v_fma_f16) HALF_FMA(v_fmac_f16) HALF_FMA(v_fmamk_f16) HALF_FMA(v_fmaak_f16)
LANES3(v_mad_f16, F16, F16, F16, F16, half_to_float(float_to_half(a * b)) + c)
LANES3(v_mac_f16, F16, F16, F16, F16, half_to_float(float_to_half(a * b)) + c)
LANES3(v_max3_f16, F16, F16, F16, F16, max_number(max_number(a, b, ieee), c, ieee))
LANES3(v_min3_f16, F16, F16, F16, F16, min_number(min_number(a, b, ieee), c, ieee))
LANES3(v_med3_f16, F16, F16, F16, F16, median(a, b, c, ieee))
LANES1(v_rcp_f16, F16, F16, 1 / a) LANES1(v_sqrt_f16, F16, F16, __builtin_sqrtf(a)) LANES1(v_rsq_f16, F16, F16, (float)(1 / __builtin_sqrt((double)a)))
LANES1(v_exp_f16, F16, F16, (float)exp2((double)a)) LANES1(v_log_f16, F16, F16, (float)log2((double)a))
LANES1(v_sin_f16, F16, F16, turned(a, 0)) LANES1(v_cos_f16, F16, F16, turned(a, 1))
LANES1(v_floor_f16, F16, F16, floorf(a)) LANES1(v_ceil_f16, F16, F16, ceilf(a)) LANES1(v_trunc_f16, F16, F16, truncf(a))
LANES1(v_rndne_f16, F16, F16, __builtin_rintf(a))
static inline float fraction16(float a) { float f = a - floorf(a); return f > 0x1.ffcp-1f ? 0x1.ffcp-1f : f; }
LANES1(v_fract_f16, F16, F16, fraction16(a)) LANES2(v_ldexp_f16, F16, F16, I16, ldexpf(a, clipped(b)))
/* A NaN stays as it is, also a signalling one. */
LANES1(v_frexp_mant_f16, B16, F16, a != a ? (bits_of(a) >> 16 & 0x8000) | 0x7c00 | (bits_of(a) >> 13 & 0x3ff) : float_to_half(mantissa(a))) LANES1(v_frexp_exp_i16_f16, I16, F16, exponent(a))
LANES3(v_minmax_f16, F16, F16, F16, F16, max_number(min_number(a, b, ieee), c, ieee)) LANES3(v_maxmin_f16, F16, F16, F16, F16, min_number(max_number(a, b, ieee), c, ieee))
LANES3(v_maximum3_f16, F16, F16, F16, F16, maximum_of(maximum_of(a, b), c)) LANES3(v_minimum3_f16, F16, F16, F16, F16, minimum_of(minimum_of(a, b), c))
LANES3(v_maximumminimum_f16, F16, F16, F16, F16, minimum_of(maximum_of(a, b), c))
LANES3(v_minimummaximum_f16, F16, F16, F16, F16, maximum_of(minimum_of(a, b), c))
LANES3(v_div_fixup_f16, F16, F16, F16, F16, repaired(a, b, c))

/* Two halves, and two floats, at once. */
#define HALVES(low, top) (float_to_half(low) | float_to_half(top) << 16)
#define L(x) half_to_float(x)
#define T(x) half_to_float((x) >> 16)
LANES2(v_pk_add_f16, PKH, PKH, PKH, HALVES(L(a) + L(b), T(a) + T(b))) LANES2(v_pk_mul_f16, PKH, PKH, PKH, HALVES(L(a) * L(b), T(a) * T(b)))
LANES2(v_pk_max_f16, PKH, PKH, PKH, HALVES(max_number(L(a), L(b), ieee), max_number(T(a), T(b), ieee)))
LANES2(v_pk_min_f16, PKH, PKH, PKH, HALVES(min_number(L(a), L(b), ieee), min_number(T(a), T(b), ieee)))
LANES2(v_pk_maximum_f16, PKH, PKH, PKH, HALVES(maximum_of(L(a), L(b)), maximum_of(T(a), T(b))))
LANES2(v_pk_minimum_f16, PKH, PKH, PKH, HALVES(minimum_of(L(a), L(b)), minimum_of(T(a), T(b))))
LANES3(v_pk_maximum3_f16, PKH, PKH, PKH, PKH,
       HALVES(maximum_of(maximum_of(L(a), L(b)), L(c)), maximum_of(maximum_of(T(a), T(b)), T(c))))
LANES3(v_pk_minimum3_f16, PKH, PKH, PKH, PKH,
       HALVES(minimum_of(minimum_of(L(a), L(b)), L(c)), minimum_of(minimum_of(T(a), T(b)), T(c))))
LANES3(v_pk_fma_f16, PKH, PKH, PKH, PKH, fma_half(L(a), L(b), L(c)) | fma_half(T(a), T(b), T(c)) << 16)
LANES3(v_pk_fmac_f16, PKH, PKH, PKH, PKH, fma_half(L(a), L(b), L(c)) | fma_half(T(a), T(b), T(c)) << 16)
#define FLOATS(low, top) (bits_of(low) | (u64)bits_of(top) << 32)
#define FL(x) as_f32((u32)(x))
#define FT(x) as_f32((u32)((x) >> 32))
LANES2(v_pk_add_f32, PKF, PKF, PKF, FLOATS(FL(a) + FL(b), FT(a) + FT(b))) LANES2(v_pk_mul_f32, PKF, PKF, PKF, FLOATS(FL(a) * FL(b), FT(a) * FT(b)))
LANES3(v_pk_fma_f32, PKF, PKF, PKF, PKF, FLOATS(__builtin_fmaf(FL(a), FL(b), FL(c)), __builtin_fmaf(FT(a), FT(b), FT(c))))
LANES3(v_fma_mix_f32, F32, MIX, MIX, MIX, __builtin_fmaf(a, b, c)) LANES3(v_fma_mixlo_f16, F16, MIX, MIX, MIX, __builtin_fmaf(a, b, c))
LANES3(v_fma_mixhi_f16, F16, MIX, MIX, MIX, __builtin_fmaf(a, b, c))
LANES3(v_dot2_f32_f16, F32, PKH, PKH, F32, __builtin_fmaf(T(a), T(b), __builtin_fmaf(L(a), L(b), c)))
LANES3(v_dot2c_f32_f16, F32, PKH, PKH, F32, __builtin_fmaf(T(a), T(b), __builtin_fmaf(L(a), L(b), c)))
/* CDNA adds the third number last; RDNA adds the products to it. Products are exact, or overflow before they are added. */
#define BF_T(x) as_f32((x) & 0xffff0000)
#define BF_L(x) as_f32((x) << 16)
LANES3(v_dot2_f32_bf16, F32, PKI, PKI, F32, LANES == 64 ? BF_L(a) * BF_L(b) + BF_T(a) * BF_T(b) + c : c + BF_L(a) * BF_L(b) + BF_T(a) * BF_T(b))
/* Summed as floats, and cut off to 16 bits without rounding: so measured on a gfx1200 (triton-lang/triton#11217). */
LANES3(v_dot2_bf16_bf16, B16, PKI, PKI, BF16,
       bits_of(__builtin_fmaf(as_f32(a & 0xffff0000), as_f32(b & 0xffff0000), __builtin_fmaf(as_f32(a << 16), as_f32(b << 16), c))) >> 16)
LANES3(v_dot2c_f32_bf16, F32, PKI, PKI, F32, c + BF_L(a) * BF_L(b) + BF_T(a) * BF_T(b))

/* Classes of numbers: one bit each of a signalling NaN, quiet NaN, -inf, -normal, -denormal, -0, +0, +denormal, +normal, +inf. */
static inline u32 class_of(u64 bits, int width, int fraction) {
    u64 magnitude = bits & (((u64)1 << (width - 1)) - 1), infinity = (((u64)1 << (width - 1 - fraction)) - 1) << fraction;
    u32 minus = bits >> (width - 1) & 1;
    if (magnitude > infinity) return magnitude >> (fraction - 1) & 1 ? 2 : 1;
    if (magnitude == infinity) return minus ? 4 : 512;
    if (magnitude == 0) return minus ? 32 : 64;
    return magnitude >> fraction ? (minus ? 8 : 256) : (minus ? 16 : 128);
}
#define CLASSES(cmp) \
    LANES2(cmp##_class_f32, MASK, F32, B32, class_of(bits_of(a), 32, 23) & b) LANES2(cmp##_class_f64, MASK, F64, B32, class_of(bits_of64(a), 64, 52) & b) \
    LANES2(cmp##_class_f16, MASK, B16, B16, class_of(a, 16, 10) & b) /* its bits: a float would have no signalling NaN of it */
CLASSES(v_cmp) CLASSES(v_cmpx)

/* Conversions. */
LANES1(v_cvt_f32_i32, F32, I32, (float)a) LANES1(v_cvt_f32_u32, F32, B32, (float)a)
LANES1(v_cvt_i32_f32, I32, F32, f32_to_i32(a)) LANES1(v_cvt_u32_f32, B32, F32, f32_to_u32(a))
LANES1(v_cvt_f16_f32, F16, F32, a) LANES1(v_cvt_f32_f16, F32, F16, a != a ? quiet(a) : a) LANES1(v_cvt_f32_bf16, F32, BF16, a)
LANES1(v_cvt_f32_f64, F32, F64, (float)a) LANES1(v_cvt_f64_f32, F64, F32, a)
LANES1(v_cvt_f64_i32, F64, I32, a) LANES1(v_cvt_f64_u32, F64, B32, a) LANES1(v_cvt_i32_f64, I32, F64, to_i32(a)) LANES1(v_cvt_u32_f64, B32, F64, to_u32(a))
LANES1(v_cvt_f16_u16, F16, B16, (float)a) LANES1(v_cvt_f16_i16, F16, I16, (float)a)
LANES1(v_cvt_u16_f16, B16, F16, a != a || a <= 0 ? 0 : a >= 65535 ? 65535 : (u32)a)
LANES1(v_cvt_i16_f16, I16, F16, a != a ? 0 : a >= 32767 ? 32767 : a <= -32768 ? -32768 : (i32)a)
LANES1(v_cvt_rpi_i32_f32, I32, F32, f32_to_i32(floorf(a + 0.5f))) LANES1(v_cvt_flr_i32_f32, I32, F32, f32_to_i32(floorf(a)))
LANES1(v_cvt_f32_ubyte0, F32, B32, (float)(a & 0xff)) LANES1(v_cvt_f32_ubyte1, F32, B32, (float)(a >> 8 & 0xff))
LANES1(v_cvt_f32_ubyte2, F32, B32, (float)(a >> 16 & 0xff)) LANES1(v_cvt_f32_ubyte3, F32, B32, (float)(a >> 24))
LANES2(v_cvt_pkrtz_f16_f32, B32, F32, F32, float_to_half_rtz(a) | float_to_half_rtz(b) << 16)
LANES2(v_cvt_pk_f16_f32, B32, F32, F32, float_to_half(a) | float_to_half(b) << 16)
LANES2(v_cvt_pk_bf16_f32, B32, F32, F32, float_to_bf16(a) | float_to_bf16(b) << 16)
static inline u32 whole16(float f) { return (u16)(f != f ? 0 : f >= 32767 ? 32767 : f <= -32768 ? -32768 : (i32)f); }
static inline u32 count16(float f) { return f != f || f <= 0 ? 0 : f >= 65535 ? 65535 : (u32)f; }
LANES2(v_cvt_pk_i16_f32, B32, F32, F32, whole16(a) | whole16(b) << 16) LANES2(v_cvt_pk_u16_f32, B32, F32, F32, count16(a) | count16(b) << 16)
