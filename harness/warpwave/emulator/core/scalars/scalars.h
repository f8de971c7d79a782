/* How an operation on scalars is written: its name, what it writes, what it reads, and its statements. */
#ifndef SCALARS_H
#define SCALARS_H

#include "numbers.h"

#define READ_B32(w, o) scalar32(w, o)
#define READ_I32(w, o) ((i32)scalar32(w, o))
#define READ_B64(w, o) scalar64(w, o)
#define READ_I64(w, o) ((i64)scalar64(w, o))
/* Floats lose their denormals where MODE says so. */
static inline float float_source(const struct wave *w, const struct operand *o) {
    u32 bits = scalar32(w, o);
    return as_f32(w->mode & KEEPS_DENORMAL_SOURCES ? bits : flushed_bits(bits));
}
#define READ_F32(w, o) float_source(w, o)
static inline float half_in_mode(const struct wave *w, u32 bits) {
    return half_to_float(w->mode & KEEPS_NARROW_OR_WIDE_SOURCES || bits & 0x7c00 ? bits : bits & ~0x3ffu);
}
static inline float half_source(const struct wave *w, const struct operand *o) { return half_in_mode(w, scalar32(w, o)); }
#define READ_F16(w, o) half_source(w, o)
#define BITS_B32(x) ((u32)(x))
#define BITS_I32(x) ((u32)(x))
#define BITS_B64(x) ((u64)(x))
#define BITS_I64(x) ((u64)(x))
#define BITS_F32(x) (w->mode & KEEPS_DENORMAL_RESULTS ? bits_of(x) : flushed_bits(bits_of(x)))
static inline u32 half_result(const struct wave *w, u32 bits) { return w->mode & KEEPS_NARROW_OR_WIDE_RESULTS || bits & 0x7c00 ? bits : bits & ~0x3ffu; }
#define BITS_F16(x) half_result(w, float_to_half(x))
/* Floats of the scalar unit round to nearest only. */
#define CHECK_DIRECTION(D) do { if (((D) == F32 || (D) == F16) && w->mode & DIRECTIONS) stop(w, UNIMPLEMENTED); } while (0)
typedef u32 value_B32; typedef i32 value_I32; typedef u64 value_B64; typedef i64 value_I64; typedef float value_F32; typedef float value_F16;
#define WORDS(type) ((type) == B64 || (type) == I64 ? 2 : 1)

/* `r` is the result, `scc` the condition code, before and after. */
#define SCALAR(name, D, A, B, body)                                                                             \
    static void name(struct wave *w, const struct instruction *i) {                                             \
        value_##A a = READ_##A(w, &i->s[0]);                                                                    \
        value_##B b = READ_##B(w, &i->s[1]);                                                                    \
        value_##D r;                                                                                            \
        u32 scc = w->scc;                                                                                       \
        (void)a, (void)b;                                                                                       \
        CHECK_DIRECTION(D);                                                                                     \
        body;                                                                                                   \
        set_scalar(w, &i->d, BITS_##D(r), WORDS(D));                                                            \
        w->scc = scc;                                                                                           \
    }                                                                                                           \
    static const struct operation op_##name TABLE = {#name, name, 0, D, NONE, {A, B}, 0, {0}};
/* One source: the second operand is not there. */
#define SCALAR1(name, D, A, body)                                                                               \
    static void name(struct wave *w, const struct instruction *i) {                                             \
        value_##A a = READ_##A(w, &i->s[0]);                                                                    \
        value_##D r;                                                                                            \
        u32 scc = w->scc;                                                                                       \
        (void)a;                                                                                                \
        CHECK_DIRECTION(D);                                                                                     \
        body;                                                                                                   \
        set_scalar(w, &i->d, BITS_##D(r), WORDS(D));                                                            \
        w->scc = scc;                                                                                           \
    }                                                                                                           \
    static const struct operation op_##name TABLE = {#name, name, 0, D, NONE, {A}, 0, {0}};
#define COMPARE(name, A, test)                                                                                  \
    static void name(struct wave *w, const struct instruction *i) {                                             \
        value_##A a = READ_##A(w, &i->s[0]), b = READ_##A(w, &i->s[1]);                                         \
        w->scc = (test) != 0;                                                                                   \
    }                                                                                                           \
    static const struct operation op_##name TABLE = {#name, name, 0, NONE, NONE, {A, A}, 0, {0}};

#endif
