/* Numbers as bits, and the conversions between them. Branches are selections, so that loops over lanes vectorise. */
#ifndef NUMBERS_H
#define NUMBERS_H

#include "machine.h"
#include <math.h>

static inline float as_f32(u32 bits) { float f; memcpy(&f, &bits, 4); return f; }
static inline u32 bits_of(float f) { u32 bits; memcpy(&bits, &f, 4); return bits; }
static inline double as_f64(u64 bits) { double f; memcpy(&f, &bits, 8); return f; }
static inline u64 bits_of64(double f) { u64 bits; memcpy(&bits, &f, 8); return bits; }

/* A denormal becomes the zero of its sign. */
static inline u32 flushed_bits(u32 bits) { return bits & 0x7f800000 ? bits : bits & 0x80000000; }
static inline float flushed(float f) { return as_f32(flushed_bits(bits_of(f))); }

static inline float half_to_float(u32 half) {
    u32 magnitude = half & 0x7fff, sign = (half & 0x8000) << 16;
    u32 finite = bits_of(as_f32(magnitude << 13) * 0x1p112f);
    return as_f32(sign | (magnitude >= 0x7c00 ? magnitude << 13 | 0x7f800000 : finite));
}

/* To nearest, ties to even. */
static inline u32 float_to_half(float f) {
    u32 bits = bits_of(f), sign = bits >> 16 & 0x8000, a = bits & 0x7fffffff;
    u32 normal = (a - (112u << 23) + 0xfff + (a >> 13 & 1)) >> 13;
    u32 small = bits_of(as_f32(a < 0x38800000 ? a : 0) + 0.5f) - 0x3f000000;
    u32 half = a < 0x38800000 ? small : normal;
    half = a >= 0x477ff000 ? 0x7c00 : half;
    return sign | (a > 0x7f800000 ? 0x7e00 | (a >> 13 & 0x3ff) : half);
}

/* Towards zero: what is too large stays finite. */
static inline u32 float_to_half_rtz(float f) {
    u32 bits = bits_of(f), sign = bits >> 16 & 0x8000, a = bits & 0x7fffffff;
    u32 small = (u32)(as_f32(a < 0x38800000 ? a : 0) * 0x1p24f);
    u32 half = a < 0x38800000 ? small : (a - (112u << 23)) >> 13;
    half = a >= 0x47800000 ? 0x7bff : half;
    half = a == 0x7f800000 ? 0x7c00 : half;
    return sign | (a > 0x7f800000 ? 0x7e00 | (a >> 13 & 0x3ff) : half);
}

static inline float bf16_to_float(u32 bits) { return as_f32(bits << 16); }
static inline u32 float_to_bf16(float f) {
    u32 bits = bits_of(f), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded;
}

/* The double nearest to a + b, moved to the neighbour with an odd last bit if inexact: rounding it once more is then right. */
static inline double add_to_odd(double a, double b) {
    double sum = a + b, part = sum - a, lost = (a - (sum - part)) + (b - part);
    u64 bits = bits_of64(sum);
    if (lost == 0 || !(fabs(sum) < INFINITY) || bits & 1) return sum;
    return as_f64((lost > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

static inline u32 fma_half(float a, float b, float c) {
    double exact = add_to_odd((double)a * b, c);
    /* 53 bits to 24 to 11: the first step keeps the odd last bit, too. */
    float near = (float)exact;
    double left = exact - near;
    u32 bits = bits_of(near);
    if (left != 0 && fabsf(near) < INFINITY && near != 0 && !(bits & 1)) near = as_f32((left > 0) == (near > 0) ? bits + 1 : bits - 1);
    return float_to_half(near);
}

/* Minimum and maximum as AMD's pseudocode has them: a NaN gives way to a number, and -0 is below +0. With MODE.IEEE (`ieee` is not 0) a
 * signalling NaN does not give way: it is the result, made quiet. Two quiet NaNs give the second on CDNA, the first on RDNA. */
enum { IEEE = 1 << 9, KEEPS_SECOND_NAN = LANES == 64 };
extern _Thread_local u32 ieee_mode; /* as MODE of the wave that runs says */
static inline u32 is_signalling(float f) { u32 bits = bits_of(f); return (bits & 0x7fffffff) > 0x7f800000 && !(bits & 0x400000); }
static inline float quiet(float f) { return as_f32(bits_of(f) | 0x400000); }
static inline float chosen(float a, float b, float ordered, u32 ieee) {
    float first = KEEPS_SECOND_NAN ? b : a;
    ordered = a != a ? b : ordered;
    ordered = b != b ? a : ordered;
    ordered = a != a && b != b ? quiet(first) : ordered;
    ordered = ieee && is_signalling(b) ? quiet(b) : ordered;
    return ieee && is_signalling(a) ? quiet(a) : ordered;
}
static inline float max_number(float a, float b, u32 ieee) { return chosen(a, b, a == b ? as_f32(bits_of(a) & bits_of(b)) : a > b ? a : b, ieee); }
static inline float min_number(float a, float b, u32 ieee) { return chosen(a, b, a == b ? as_f32(bits_of(a) | bits_of(b)) : a < b ? a : b, ieee); }
static inline int is_signalling64(double f) { u64 bits = bits_of64(f); return f != f && !(bits >> 51 & 1); }
static inline double quiet64(double f) { return as_f64(bits_of64(f) | (u64)1 << 51); }
static inline double chosen64(double a, double b, double ordered, u32 ieee) {
    if (ieee && is_signalling64(a)) return quiet64(a);
    if (ieee && is_signalling64(b)) return quiet64(b);
    if (a != a && b != b) return quiet64(KEEPS_SECOND_NAN ? b : a);
    return a != a ? b : b != b ? a : ordered;
}
static inline double max_number64(double a, double b, u32 ieee) {
    return chosen64(a, b, a == b ? as_f64(bits_of64(a) & bits_of64(b)) : a > b ? a : b, ieee);
}
static inline double min_number64(double a, double b, u32 ieee) {
    return chosen64(a, b, a == b ? as_f64(bits_of64(a) | bits_of64(b)) : a < b ? a : b, ieee);
}
/* IEEE 754-2019 maximum and minimum: a NaN wins, a signalling one before a quiet one. */
static inline int wins(float a, float b) { return a != a && (is_signalling(a) || !is_signalling(b)); }
static inline float maximum_of(float a, float b) { return wins(a, b) ? quiet(a) : b != b ? quiet(b) : max_number(a, b, 0); }
static inline float minimum_of(float a, float b) { return wins(a, b) ? quiet(a) : b != b ? quiet(b) : min_number(a, b, 0); }
static inline int wins64(double a, double b) { return a != a && (is_signalling64(a) || !is_signalling64(b)); }
static inline double maximum_of64(double a, double b) { return wins64(a, b) ? quiet64(a) : b != b ? quiet64(b) : max_number64(a, b, 0); }
static inline double minimum_of64(double a, double b) { return wins64(a, b) ? quiet64(a) : b != b ? quiet64(b) : min_number64(a, b, 0); }
static inline float median(float a, float b, float c, u32 ieee) {
    if (a != a || b != b || c != c) return min_number(min_number(a, b, ieee), c, ieee);
    float most = max_number(max_number(a, b, ieee), c, ieee);
    return most == a ? max_number(b, c, ieee) : most == b ? max_number(a, c, ieee) : max_number(a, b, ieee);
}

/* Saturating conversions; a NaN gives 0. */
static inline i32 to_i32(double f) { return f != f ? 0 : f >= 2147483647.0 ? INT32_MAX : f <= -2147483648.0 ? INT32_MIN : (i32)f; }
static inline u32 to_u32(double f) { return f != f || f <= 0 ? 0 : f >= 4294967295.0 ? UINT32_MAX : (u32)f; }
static inline i32 f32_to_i32(float f) { return f != f ? 0 : f >= 0x1p31f ? INT32_MAX : f < -0x1p31f ? INT32_MIN : (i32)f; }
static inline u32 f32_to_u32(float f) { return f != f || f <= 0 ? 0 : f >= 0x1p32f ? UINT32_MAX : (u32)f; }

/* 8-bit floats: with an unsigned zero (FNUZ) or as the Open Compute Project has them (OCP). */
enum { FP8_FNUZ, BF8_FNUZ, FP8_OCP, BF8_OCP };
float fp8_to_float(u32 bits, int format);
extern _Thread_local int overflow_clamps; /* as MODE of the wave that converts says */
u32 float_to_fp8(float f, int format, int saturate);
u32 float_to_fp8_random(float f, int format, u32 random, int saturate);

#endif
