/* 8-bit floats: tables to read them, and rounding to write them. gfx942 has FNUZ (no -0, no infinity), gfx950 and RDNA4 OCP. */
#include "lanes.h"
#include "matrix.h"

struct format { int fraction, bias, largest, infinity, nan, has_minus_zero; };
static const struct format formats[] = {
    [FP8_FNUZ] = {3, 8, 0x7f, -1, 0x80, 0},
    [BF8_FNUZ] = {2, 16, 0x7f, -1, 0x80, 0},
    [FP8_OCP] = {3, 7, 0x7e, -1, 0x7f, 1},
    [BF8_OCP] = {2, 15, 0x7b, 0x7c, 0x7e, 1},
};

float fp8_to_float(u32 code, int format) {
    const struct format *f = &formats[format];
    int magnitude = code & 0x7f, exponent = magnitude >> f->fraction, fraction = magnitude & ((1 << f->fraction) - 1);
    float sign = code & 0x80 ? -1 : 1;
    if (!f->has_minus_zero && (code & 0xff) == 0x80) return NAN;
    if (magnitude == f->infinity) return sign * INFINITY;
    if (magnitude > f->largest) return NAN;
    if (exponent == 0) return sign * ldexpf((float)fraction, 1 - f->bias - f->fraction);
    return sign * ldexpf((float)(fraction | 1 << f->fraction), exponent - f->bias - f->fraction);
}

float eight_bits[4][256];
static void __attribute__((constructor)) fill_tables(void) {
    for (int format = 0; format < 4; format++) for (u32 code = 0; code < 256; code++) eight_bits[format][code] = fp8_to_float(code, format);
}

_Thread_local int overflow_clamps;

/* `bias` of the rounding: half an ulp for nearest, a random part of one otherwise; in units of 2^-32 of the last place. */
static u32 rounded(float value, int format, int nearest, u32 random, int saturate) {
    const struct format *f = &formats[format];
    u32 sign = bits_of(value) >> 24 & 0x80, code;
    float a = fabsf(value);
    if (value != value) return f->has_minus_zero ? sign | (u32)(f->nan == 0x7f ? 0x7f : 0x7f) : (u32)f->nan;
    int clamps_infinity = saturate || (overflow_clamps && LANES == 64); /* RDNA4 keeps infinity: Triton's tests of clamping leave it out there */
    saturate |= overflow_clamps;
    if (isinf(a)) {
        if (f->infinity >= 0) return clamps_infinity ? sign | (u32)f->largest : sign | (u32)f->infinity;
        return clamps_infinity ? sign | (u32)f->largest : f->has_minus_zero ? sign | 0x7f : (u32)f->nan;
    }
    int exponent = a == 0 ? -200 : (int)(bits_of(a) >> 23) - 127;
    if (exponent < 1 - f->bias) exponent = 1 - f->bias;
    double steps = ldexp((double)a, f->fraction - exponent), whole = floor(steps), rest = steps - whole;
    u64 count = (u64)whole;
    if (nearest) count += rest > 0.5 || (rest == 0.5 && count & 1);
    else count += rest + random * 0x1p-32 >= 1;
    /* `count` is in units of the last place at `exponent`; a carry into the next binade is right as it is. */
    code = (u32)((i64)count + ((i64)(exponent + f->bias - 1) << f->fraction));
    if (code > (u32)f->largest) {
        if (saturate) code = (u32)f->largest;
        else if (f->infinity >= 0) code = (u32)f->infinity;
        else return f->has_minus_zero ? sign | 0x7f : (u32)f->nan;
    }
    return code == 0 && !f->has_minus_zero ? 0 : sign | code;
}

u32 float_to_fp8(float f, int format, int saturate) { return rounded(f, format, 1, 0, saturate); }
u32 float_to_fp8_random(float f, int format, u32 random, int saturate) { return rounded(f, format, 0, random, saturate); }

/* The decoder appends the format of the architecture to the mnemonic. A half of the source, or of the destination, is op_sel's. */
#define FORMAT(suffix, F, B)                                                                                    \
    LANES1(v_cvt_f32_fp8_##suffix, F32, B32, fp8_to_float(a & 0xff, F)) LANES1(v_cvt_f32_bf8_##suffix, F32, B32, fp8_to_float(a & 0xff, B)) \
    LANES1(v_cvt_pk_f32_fp8_##suffix, B64, B16, bits_of(fp8_to_float(a & 0xff, F)) | (u64)bits_of(fp8_to_float(a >> 8 & 0xff, F)) << 32)     \
    LANES1(v_cvt_pk_f32_bf8_##suffix, B64, B16, bits_of(fp8_to_float(a & 0xff, B)) | (u64)bits_of(fp8_to_float(a >> 8 & 0xff, B)) << 32)     \
    LANES2(v_cvt_pk_fp8_f32_##suffix, B16, F32, F32, float_to_fp8(a, F, 0) | float_to_fp8(b, F, 0) << 8)       \
    LANES2(v_cvt_pk_bf8_f32_##suffix, B16, F32, F32, float_to_fp8(a, B, 0) | float_to_fp8(b, B, 0) << 8)

/* With a scale: the exponent of a float, as E8M0 has it, where 255 is NaN. Writing divides by it, reading multiplies. */
static inline float power_of(float scale) {
    u32 exponent = bits_of(scale) >> 23 & 0xff;
    return exponent == 0xff ? NAN : ldexpf(1, (int)exponent - 127);
}
#define WRITE_SCALED(eight, F) \
    LANES3(v_cvt_scalef32_pk_##eight##_f32_ocp, B16, F32, F32, F32, \
           float_to_fp8(a / power_of(c), F, 0) | float_to_fp8(b / power_of(c), F, 0) << 8) \
    LANES2(v_cvt_scalef32_pk_##eight##_f16_ocp, B16, B32, F32, \
           float_to_fp8(half_to_float(a) / power_of(b), F, 0) | float_to_fp8(half_to_float(a >> 16) / power_of(b), F, 0) << 8) \
    LANES2(v_cvt_scalef32_pk_##eight##_bf16_ocp, B16, B32, F32, \
           float_to_fp8(as_f32(a << 16) / power_of(b), F, 0) | float_to_fp8(as_f32(a & 0xffff0000) / power_of(b), F, 0) << 8)
#define READ_SCALED(eight, F) \
    LANES2(v_cvt_scalef32_pk_f32_##eight##_ocp, B64, B16, F32, \
           bits_of(fp8_to_float(a & 0xff, F) * power_of(b)) | (u64)bits_of(fp8_to_float(a >> 8 & 0xff, F) * power_of(b)) << 32) \
    LANES2(v_cvt_scalef32_pk_f16_##eight##_ocp, B32, B16, F32, \
           float_to_half(fp8_to_float(a & 0xff, F) * power_of(b)) | float_to_half(fp8_to_float(a >> 8 & 0xff, F) * power_of(b)) << 16) \
    LANES2(v_cvt_scalef32_pk_bf16_##eight##_ocp, B32, B16, F32, \
           float_to_bf16(fp8_to_float(a & 0xff, F) * power_of(b)) | float_to_bf16(fp8_to_float(a >> 8 & 0xff, F) * power_of(b)) << 16)
WRITE_SCALED(fp8, FP8_OCP) WRITE_SCALED(bf8, BF8_OCP) READ_SCALED(fp8, FP8_OCP) READ_SCALED(bf8, BF8_OCP)

/* 4-bit floats, two in a byte of the source, which the decoder appends. */
static inline float fp4_to_float(u32 code) {
    static const float values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return code & 8 ? -values[code & 7] : values[code & 7];
}
#define READ_FOURS(n) \
    LANES2(v_cvt_scalef32_pk_f32_fp4_byte##n, B64, B32, F32, u64_of(fp4_to_float(a >> n * 8) * power_of(b), fp4_to_float(a >> (n * 8 + 4)) * power_of(b))) \
    LANES2(v_cvt_scalef32_pk_f16_fp4_byte##n, B32, B32, F32, \
           float_to_half(fp4_to_float(a >> n * 8) * power_of(b)) | float_to_half(fp4_to_float(a >> (n * 8 + 4)) * power_of(b)) << 16) \
    LANES2(v_cvt_scalef32_pk_bf16_fp4_byte##n, B32, B32, F32, \
           float_to_bf16(fp4_to_float(a >> n * 8) * power_of(b)) | float_to_bf16(fp4_to_float(a >> (n * 8 + 4)) * power_of(b)) << 16)
static inline u64 u64_of(float low, float high) { return bits_of(low) | (u64)bits_of(high) << 32; }
READ_FOURS(0) READ_FOURS(1) READ_FOURS(2) READ_FOURS(3)

FORMAT(fnuz, FP8_FNUZ, BF8_FNUZ)
FORMAT(ocp, FP8_OCP, BF8_OCP)
