/* LDS: reads and writes of all widths, two at a time, transposing reads, and atomics. s[0] is the address, s[1] and s[2] data. */
#include "accesses.h"
#include "checks.h"
#include "numbers.h"

static void read_lds(struct wave *w, const struct instruction *i) {
    int bytes = i->op->parameters[0], kind = i->op->parameters[1];
    u32 row = i->d.index, words = bytes < 4 ? 1 : (u32)bytes / 4;
    u32 into[4][LANES];
    struct addresses all;
    if (locate_lds(w, w->v[i->s[0].index], (u32)i->imm, (u32)bytes, &all)) {
        if (bytes < 4) load_parts(w, row, &all, bytes, kind);
        else load_rows(w, row, &all, words);
        return;
    }
    EACH_ACTIVE(w) {
        u32 value[4] = {0};
        memcpy(value, touch_lds(w, w->v[i->s[0].index][l] + (u32)i->imm, (u32)bytes, l, 0), (size_t)bytes);
        if (bytes < 4) {
            u32 old = w->v[row][l], x = value[0];
            if (kind == SIGNED || kind == LOW_SIGNED || kind == HIGH_SIGNED) x = bytes == 1 ? (u32)(i8)x : (u32)(i16)x;
            if (kind == LOW_HALF || kind == LOW_SIGNED) x = (old & 0xffff0000) | (x & 0xffff);
            if (kind == HIGH_HALF || kind == HIGH_SIGNED) x = (old & 0xffff) | x << 16;
            value[0] = x;
        }
        for (u32 n = 0; n < words; n++) into[n][l] = value[n];
    }
    for (u32 n = 0; n < words; n++) EACH_ACTIVE(w) w->v[row + n][l] = into[n][l];
}
static void write_lds(struct wave *w, const struct instruction *i) {
    int bytes = i->op->parameters[0], high = i->op->parameters[1];
    u32 row = i->s[1].index, words = bytes < 4 ? 1 : (u32)bytes / 4;
    struct addresses all;
    if (locate_lds(w, w->v[i->s[0].index], (u32)i->imm, (u32)bytes, &all)) {
        if (bytes < 4) store_parts(w, row, &all, bytes, high);
        else store_rows(w, row, &all, words);
        return;
    }
    EACH_ACTIVE(w) {
        u32 value[4];
        for (u32 n = 0; n < words; n++) value[n] = w->v[row + n][l];
        if (high) value[0] >>= 16;
        memcpy(touch_lds(w, w->v[i->s[0].index][l] + (u32)i->imm, (u32)bytes, l, 1), value, (size_t)bytes);
    }
}
/* Two of them, at two offsets in units of their size, or of 64 of it. */
static u32 pair_offset(const struct instruction *i, int which) {
    return ((u32)i->imm >> which * 8 & 0xff) * (u32)i->op->parameters[0] * (u32)i->op->parameters[1];
}
static void read_pair(struct wave *w, const struct instruction *i) {
    u32 bytes = (u32)i->op->parameters[0], words = bytes / 4, into[4][LANES];
    const u32 *addresses = w->v[i->s[0].index];
    struct addresses first, second;
    if (locate_lds(w, addresses, pair_offset(i, 0), bytes, &first) && locate_lds(w, addresses, pair_offset(i, 1), bytes, &second)) {
        load_rows(w, i->d.index, &first, words);
        load_rows(w, i->d.index + words, &second, words);
        return;
    }
    EACH_ACTIVE(w) for (int which = 0; which < 2; which++) {
        u32 value[2];
        memcpy(value, touch_lds(w, w->v[i->s[0].index][l] + pair_offset(i, which), bytes, l, 0), bytes);
        for (u32 n = 0; n < words; n++) into[(u32)which * words + n][l] = value[n];
    }
    for (u32 n = 0; n < 2 * words; n++) EACH_ACTIVE(w) w->v[i->d.index + n][l] = into[n][l];
}
static void write_pair(struct wave *w, const struct instruction *i) {
    u32 bytes = (u32)i->op->parameters[0], words = bytes / 4;
    const u32 *addresses = w->v[i->s[0].index];
    struct addresses first, second;
    if (locate_lds(w, addresses, pair_offset(i, 0), bytes, &first) && locate_lds(w, addresses, pair_offset(i, 1), bytes, &second)) {
        store_rows(w, i->s[1].index, &first, words);
        store_rows(w, i->s[2].index, &second, words);
        return;
    }
    EACH_ACTIVE(w) for (int which = 0; which < 2; which++) {
        u32 value[2];
        for (u32 n = 0; n < words; n++) value[n] = w->v[i->s[1 + which].index + n][l];
        memcpy(touch_lds(w, w->v[i->s[0].index][l] + pair_offset(i, which), bytes, l, 1), value, bytes);
    }
}

/* Transposing reads: 16 lanes read a tile of 16 rows; each gets a column. Parameters: bytes a lane, bits of an element. */
static void read_transposed(struct wave *w, const struct instruction *i) {
    u32 bytes = (u32)i->op->parameters[0], bits = (u32)i->op->parameters[1], words = bytes / 4, per_lane = bytes * 8 / bits;
    u8 tile[LANES][16];
    u32 into[4][LANES] = {0};
    if (exec_of(w) != (mask)~(mask)0) stop(w, UNIMPLEMENTED);
    for (int l = 0; l < LANES; l++) memcpy(tile[l], touch_lds(w, w->v[i->s[0].index][l] + (u32)i->imm, bytes, l, 0), bytes);
    for (u32 l = 0; l < LANES; l++) for (u32 n = 0; n < per_lane; n++) {
        /* Lanes in blocks of 16. Element n of lane l is element (l mod per_lane) of lane n * (16 / per_lane) + l / per_lane. */
        u32 block = l & ~15u, at = l & 15, other = block + n * (16 / per_lane) + at / per_lane, element = at % per_lane;
        u32 value = 0;
        memcpy(&value, &tile[other][element * bits / 8], bits == 16 ? 2 : 1);
        if (bits == 4) value = value >> (element & 1) * 4 & 15;
        into[n * bits / 32][l] |= value << (n * bits & 31);
    }
    for (u32 n = 0; n < words; n++) for (u32 l = 0; l < LANES; l++) w->v[i->d.index + n][l] = into[n][l];
}

#define WORDS(bytes) (REGS + ((bytes) + 3) / 4)
#define READ(name, bytes, kind) static const struct operation op_##name TABLE = {#name, read_lds, 0, WORDS(bytes), NONE, {B32}, 0, {bytes, kind}};
#define WRITE(name, bytes, high) static const struct operation op_##name TABLE = {#name, write_lds, 0, NONE, NONE, {B32, WORDS(bytes)}, 0, {bytes, high}};
READ(ds_read_u8, 1, UNSIGNED) READ(ds_read_i8, 1, SIGNED) READ(ds_read_u16, 2, UNSIGNED) READ(ds_read_i16, 2, SIGNED)
READ(ds_read_u8_d16, 1, LOW_HALF) READ(ds_read_u8_d16_hi, 1, HIGH_HALF) READ(ds_read_i8_d16, 1, LOW_SIGNED) READ(ds_read_i8_d16_hi, 1, HIGH_SIGNED)
READ(ds_read_u16_d16, 2, LOW_HALF) READ(ds_read_u16_d16_hi, 2, HIGH_HALF) READ(ds_read_b32, 4, UNSIGNED) READ(ds_read_b64, 8, UNSIGNED)
READ(ds_read_b96, 12, UNSIGNED) READ(ds_read_b128, 16, UNSIGNED)
WRITE(ds_write_b8, 1, 0) WRITE(ds_write_b8_d16_hi, 1, 1) WRITE(ds_write_b16, 2, 0) WRITE(ds_write_b16_d16_hi, 2, 1) WRITE(ds_write_b32, 4, 0)
WRITE(ds_write_b64, 8, 0) WRITE(ds_write_b96, 12, 0) WRITE(ds_write_b128, 16, 0)
#define PAIRS(suffix, bytes, unit) \
    static const struct operation op_ds_read##suffix TABLE = {"ds_read" #suffix, read_pair, 0, WORDS(2 * bytes), NONE, {B32}, 0, {bytes, unit}}; \
    static const struct operation op_ds_write##suffix TABLE = {"ds_write" #suffix, write_pair, 0, NONE, NONE, {B32, WORDS(bytes), WORDS(bytes)}, 0, {bytes, unit}};
PAIRS(2_b32, 4, 1) PAIRS(2_b64, 8, 1) PAIRS(2st64_b32, 4, 64) PAIRS(2st64_b64, 8, 64)
#define TRANSPOSED(name, bytes, bits) static const struct operation op_##name TABLE = {#name, read_transposed, 0, WORDS(bytes), NONE, {B32}, 0, {bytes, bits}};
TRANSPOSED(ds_read_b64_tr_b16, 8, 16) TRANSPOSED(ds_read_b64_tr_b8, 8, 8) TRANSPOSED(ds_read_b64_tr_b4, 8, 4)

/* Atomics. */
static void atomic_lds(struct wave *w, const struct instruction *i) {
    u32 bytes = (u32)i->op->parameters[0], words = bytes / 4, back[2][LANES];
    int operation = i->op->parameters[1], swapped = i->op->parameters[3];
    /* MODE rules denormals of float sums. It does not rule the rounding, nor sums of doubles. */
    int is_float = operation == ADD_F && bytes == 4, of_sources = !(w->mode & KEEPS_DENORMAL_SOURCES), of_result = !(w->mode & KEEPS_DENORMAL_RESULTS);
    EACH_ACTIVE(w) {
        u64 data = w->v[i->s[1].index][l], second = 0, old = 0, result;
        if (words == 2) data |= (u64)w->v[i->s[1].index + 1][l] << 32;
        if (operation == CMPSWAP) {
            second = w->v[i->s[2].index][l];
            if (words == 2) second |= (u64)w->v[i->s[2].index + 1][l] << 32;
        }
        u8 *at = touch_lds(w, w->v[i->s[0].index][l] + (u32)i->imm, bytes, l, UPDATES);
        memcpy(&old, at, bytes);
        /* CDNA: the expected value is the first operand. RDNA3 and later: the second. */
        if (is_float) result = sum_without_denormals((u32)old, (u32)data, of_sources, of_result);
        else result = swapped ? atomic_result(operation, old, data, second, (int)bytes) : atomic_result(operation, old, operation == CMPSWAP ? second : data, data, (int)bytes);
        memcpy(at, &result, bytes);
        back[0][l] = (u32)old, back[1][l] = (u32)(old >> 32);
    }
    if (i->op->parameters[2]) for (u32 n = 0; n < words; n++) EACH_ACTIVE(w) w->v[i->d.index + n][l] = back[n][l];
}
#define ATOMIC(name, bytes, what, returns, swapped) \
    static const struct operation op_##name TABLE = {#name, atomic_lds, 0, (returns) ? WORDS(bytes) : NONE, NONE, \
        {B32, WORDS(bytes), (what) == CMPSWAP ? WORDS(bytes) : NONE}, 0, {bytes, what, returns, swapped}};
#define ATOMICS(name, type, bytes, what) ATOMIC(ds_##name##_##type, bytes, what, 0, 0) ATOMIC(ds_##name##_rtn_##type, bytes, what, 1, 0)
ATOMICS(add, u32, 4, ADD) ATOMICS(sub, u32, 4, SUB) ATOMICS(rsub, u32, 4, RSUB) ATOMICS(inc, u32, 4, INC) ATOMICS(dec, u32, 4, DEC)
ATOMICS(min, i32, 4, SMIN) ATOMICS(max, i32, 4, SMAX) ATOMICS(min, u32, 4, UMIN) ATOMICS(max, u32, 4, UMAX) ATOMICS(and, b32, 4, AND)
ATOMICS(or, b32, 4, OR) ATOMICS(xor, b32, 4, XOR) ATOMICS(min, f32, 4, MIN_F) ATOMICS(max, f32, 4, MAX_F) ATOMICS(add, f32, 4, ADD_F)
ATOMICS(add, u64, 8, ADD) ATOMICS(sub, u64, 8, SUB) ATOMICS(rsub, u64, 8, RSUB) ATOMICS(inc, u64, 8, INC) ATOMICS(dec, u64, 8, DEC)
ATOMICS(min, i64, 8, SMIN) ATOMICS(max, i64, 8, SMAX) ATOMICS(min, u64, 8, UMIN) ATOMICS(max, u64, 8, UMAX) ATOMICS(and, b64, 8, AND)
ATOMICS(or, b64, 8, OR) ATOMICS(xor, b64, 8, XOR) ATOMICS(min, f64, 8, MIN_F) ATOMICS(max, f64, 8, MAX_F) ATOMICS(add, f64, 8, ADD_F)
ATOMICS(pk_add, f16, 4, PK_F16) ATOMICS(pk_add, bf16, 4, PK_BF16) ATOMICS(cmpst, b32, 4, CMPSWAP) ATOMICS(cmpst, b64, 8, CMPSWAP)
ATOMIC(ds_cmpstore_b32, 4, CMPSWAP, 0, 1) ATOMIC(ds_cmpstore_rtn_b32, 4, CMPSWAP, 1, 1) ATOMIC(ds_cmpstore_b64, 8, CMPSWAP, 0, 1)
ATOMIC(ds_cmpstore_rtn_b64, 8, CMPSWAP, 1, 1)
ATOMIC(ds_wrxchg_rtn_b32, 4, SWAP, 1, 0) ATOMIC(ds_wrxchg_rtn_b64, 8, SWAP, 1, 0)
