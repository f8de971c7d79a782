/* What matrix instructions share: how elements lie in registers. */
#ifndef MATRIX_H
#define MATRIX_H

#include "numbers.h"

enum element { E_F32, E_F16, E_BF16, E_XF32, E_I8, E_F64, E_FP8, E_I4 };
static const u32 bits_of_element[] = {[E_F32] = 32, [E_F16] = 16, [E_BF16] = 16, [E_XF32] = 32, [E_I8] = 8, [E_F64] = 64, [E_FP8] = 8, [E_I4] = 4};
extern float eight_bits[4][256]; /* the value of each code of each format of 8-bit floats */

static inline double byte_value(u32 byte, int is_signed) { return is_signed ? (double)(i8)byte : (double)(byte & 0xff); }
static inline double nibble_value(u32 nibble, int is_signed) { return (double)((i32)(nibble & 15) - (is_signed && nibble & 8 ? 16 : 0)); }

/* Element `n` of lane `l`, of those that begin in register `row`. */
static inline double element_of(struct wave *w, u32 row, u32 l, u32 n, int element, int format, int is_signed) {
    u32 bits = bits_of_element[element], word = w->v[row + n * bits / 32][l] >> n * bits % 32;
    switch (element) {
    case E_F16: return half_to_float(word);
    case E_BF16: return bf16_to_float(word & 0xffff);
    case E_I8: return byte_value(word, is_signed);
    case E_FP8: return eight_bits[format][word & 0xff];
    case E_I4: return nibble_value(word, is_signed);
    default: return as_f32(word);
    }
}

/* A of a sparse product has two of each four neighbours in k, and two bits for each that say which: the element of B that belongs to it. */
static inline u32 partner(u32 n, u32 indices) { return n / 2 * 4 + (indices >> 2 * n & 3); }

#endif
