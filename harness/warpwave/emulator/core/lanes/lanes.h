/* How an operation on lanes is written: its name, what it writes, what it reads, and an expression for one lane.
 *
 *     LANES2(v_add_f32, F32, F32, F32, a + b)
 *
 * `a`, `b`, `c` are the sources, `m` a mask's bit, `l` the lane, `ieee` MODE's bit of that name. */
#ifndef LANES_H
#define LANES_H

#include "numbers.h"

#define PAIR(p) ((p)[l] | (u64)(p)[l + LANES] << 32)
#define IN_NONE(p) 0
#define IN_B32(p) ((p)[l])
#define IN_I32(p) ((i32)(p)[l])
#define IN_F32(p) as_f32((p)[l])
#define IN_B16(p) ((u32)(u16)(p)[l])
#define IN_I16(p) ((i32)(i16)(p)[l])
#define IN_F16(p) half_to_float((p)[l])
#define IN_BF16(p) bf16_to_float((p)[l])
#define IN_B64(p) PAIR(p)
#define IN_I64(p) ((i64)PAIR(p))
#define IN_F64(p) as_f64(PAIR(p))
#define IN_MASK(p) ((p)[l])
#define IN_PKH(p) ((p)[l])
#define IN_PKI(p) ((p)[l])
#define IN_PKF(p) PAIR(p)
#define IN_MIX(p) as_f32((p)[l])

typedef int lane_NONE; typedef u32 lane_B32; typedef i32 lane_I32; typedef float lane_F32; typedef u32 lane_B16; typedef i32 lane_I16;
typedef float lane_F16; typedef float lane_BF16; typedef u64 lane_B64; typedef i64 lane_I64; typedef double lane_F64; typedef u32 lane_MASK;
typedef u32 lane_PKH; typedef u32 lane_PKI; typedef u64 lane_PKF; typedef float lane_MIX;

#define OUT_WIDE(x) { u64 bits_ = (x); d[l] = (u32)bits_; d[l + LANES] = (u32)(bits_ >> 32); }
#define OUT_B32(x) d[l] = (u32)(x)
#define OUT_I32(x) d[l] = (u32)(x)
#define OUT_F32(x) d[l] = bits_of(x)
#define OUT_B16(x) d[l] = (u16)(x)
#define OUT_I16(x) d[l] = (u16)(x)
#define OUT_F16(x) d[l] = float_to_half(x)
#define OUT_BF16(x) d[l] = float_to_bf16(x)
#define OUT_B64(x) OUT_WIDE(x)
#define OUT_I64(x) OUT_WIDE((u64)(x))
#define OUT_F64(x) OUT_WIDE(bits_of64(x))
#define OUT_PKF(x) OUT_WIDE(x)
#define OUT_PKH(x) d[l] = (x)
#define OUT_PKI(x) d[l] = (x)
#define OUT_MASK(x) d[l] = (x) ? 1 : 0

#define DEFINE(name, D, E, A, B, C, M, before, x)                                                               \
    static void lanes_##name(u32 *d, u32 *e, const u32 *pa, const u32 *pb, const u32 *pc, const u32 *pm) {      \
        const u32 ieee = ieee_mode;                                                                             \
        (void)e, (void)pa, (void)pb, (void)pc, (void)pm, (void)ieee;                                            \
        EACH_LANE {                                                                                             \
            lane_##A a = IN_##A(pa);                                                                            \
            lane_##B b = IN_##B(pb);                                                                            \
            lane_##C c = IN_##C(pc);                                                                            \
            lane_##M m = IN_##M(pm);                                                                            \
            (void)a, (void)b, (void)c, (void)m;                                                                 \
            before;                                                                                             \
            OUT_##D(x);                                                                                         \
        }                                                                                                       \
    }                                                                                                           \
    static const struct operation op_##name TABLE = {#name, run_lanes, lanes_##name, D, E, {A, B, C, M}, 0, {0}};

#define LANES1(name, D, A, x) DEFINE(name, D, NONE, A, NONE, NONE, NONE, , x)
#define LANES2(name, D, A, B, x) DEFINE(name, D, NONE, A, B, NONE, NONE, , x)
#define LANES3(name, D, A, B, C, x) DEFINE(name, D, NONE, A, B, C, NONE, , x)
/* With a second result, a mask in `e`, which `before` sets. */
#define CARRY(name, D, A, B, C, before, x) DEFINE(name, D, MASK, A, B, C, NONE, before, x)

#endif
