/* Comparisons on lanes: one bit a lane. v_cmpx also changes EXEC; the decoder names EXEC as its second destination. */
#include "lanes.h"

#define FLOAT_TESTS(type, T)                                                                                    \
    BOTH(lt, type, T, a < b) BOTH(eq, type, T, a == b) BOTH(le, type, T, a <= b) BOTH(gt, type, T, a > b)       \
    BOTH(lg, type, T, a < b || a > b) BOTH(ge, type, T, a >= b) BOTH(o, type, T, a == a && b == b)              \
    BOTH(u, type, T, a != a || b != b) BOTH(nge, type, T, !(a >= b)) BOTH(nlg, type, T, !(a < b || a > b))      \
    BOTH(ngt, type, T, !(a > b)) BOTH(nle, type, T, !(a <= b)) BOTH(neq, type, T, a != b) BOTH(nlt, type, T, !(a < b)) \
    BOTH(f, type, T, 0) BOTH(tru, type, T, 1)
#define INTEGER_TESTS(type, T)                                                                                  \
    BOTH(lt, type, T, a < b) BOTH(eq, type, T, a == b) BOTH(le, type, T, a <= b) BOTH(gt, type, T, a > b)       \
    BOTH(ne, type, T, a != b) BOTH(ge, type, T, a >= b) BOTH(f, type, T, 0) BOTH(t, type, T, 1)
#define BOTH(test, type, T, x) LANES2(v_cmp_##test##_##type, MASK, T, T, x) LANES2(v_cmpx_##test##_##type, MASK, T, T, x)
FLOAT_TESTS(f32, F32)
FLOAT_TESTS(f64, F64)
FLOAT_TESTS(f16, F16)
INTEGER_TESTS(i32, I32)
INTEGER_TESTS(u32, B32)
INTEGER_TESTS(i64, I64)
INTEGER_TESTS(u64, B64)
INTEGER_TESTS(i16, I16)
INTEGER_TESTS(u16, B16)
