/* Lanes that are on: a mask's bits as a row of words, and back; and results in these lanes only. */
#ifndef MASKS_H
#define MASKS_H

#include "machine.h"

#ifdef __AVX512F__
#include <immintrin.h>
static inline void expand(mask from, u32 *to, u32 on) {
    for (int l = 0; l < LANES; l += 16) _mm512_storeu_si512(to + l, _mm512_maskz_set1_epi32((__mmask16)(from >> l), (int)on));
}

static inline mask collect(const u32 *from) {
    mask all = 0;
    for (int l = 0; l < LANES; l += 16) all |= (mask)_mm512_test_epi32_mask(_mm512_loadu_si512(from + l), _mm512_set1_epi32(1)) << l;
    return all;
}
#else
static inline void expand(mask from, u32 *to, u32 on) {
    for (int l = 0; l < LANES; l++) to[l] = from >> l & 1 ? on : 0;
}

static inline mask collect(const u32 *from) {
    mask all = 0;
    for (int l = 0; l < LANES; l++) all |= (mask)(from[l] & 1) << l;
    return all;
}
#endif

static inline void blend(u32 *to, const u32 *from, const u32 *on) {
    EACH_LANE to[l] = (from[l] & on[l]) | (to[l] & ~on[l]);
}

#endif
