/* Memory: scalar loads, and global, flat, scratch and buffer accesses of lanes. Device memory is this process's memory: `touch` alone
 * turns an address into a pointer, after it has found it in one of the launch's buffers. */
#include "accesses.h"
#include "checks.h"
#include "numbers.h"

static void fault_at(struct wave *w, u64 address, u32 size, int lane, int store, int fault) {
    struct machine *m = w->machine;
    m->fault_address = address, m->fault_size = size, m->fault_lane = (u32)lane, m->fault_store = (u32)store;
    stop(w, fault);
}

/* The last range that starts at or below `address`, or the first one. */
static u32 range_below(const struct machine *m, u64 address) {
    u32 low = 0, high = m->count_ranges;
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        if (m->ranges[middle].start <= address) low = middle;
        else high = middle;
    }
    return low;
}

void *touch(struct wave *w, u64 address, u32 size, int lane, int store) {
    struct machine *m = w->machine;
    const struct range *last = &m->ranges[m->last_range];
    if (address >= last->start && address + size <= last->end && address + size > address) {
        if (m->checks) saw_global(w, address, size, lane, store);
        return (void *)(uintptr_t)address;
    }
    u32 low = range_below(m, address);
    const struct range *found = &m->ranges[low];
    if (m->count_ranges == 0 || address < found->start || address + size > found->end || address + size < address)
        fault_at(w, address, size, lane, store, OUT_OF_BOUNDS);
    m->last_range = low;
    if (m->checks) saw_global(w, address, size, lane, store);
    return (void *)(uintptr_t)address;
}

/* The word around an atomic of less than a word: what of it is in a buffer is checked. */
static u8 *touch_around(struct wave *w, u64 address, int lane, int store) {
    const struct machine *m = w->machine;
    u64 start = address, end = address + 4;
    if (m->count_ranges && !(address & 3) && end > address) {
        const struct range *found = &m->ranges[range_below(m, end - 1)];
        if (start < found->start && found->start < end) start = found->start;
        if (start < found->end && found->end < end) end = found->end;
    }
    touch(w, start, (u32)(end - start), lane, store);
    return (u8 *)(uintptr_t)address;
}

u8 *touch_lds(struct wave *w, u32 address, u32 size, int lane, int store) {
    if ((u64)address + size > w->machine->lds_bytes) fault_at(w, address, size, lane, store, OUT_OF_LDS);
    if (w->machine->checks) saw_lds(w, address, size, lane, store);
    return w->group->lds + address;
}

static u8 *touch_scratch(struct wave *w, u32 address, u32 size, int lane, int store) {
    u32 bytes = w->machine->scratch_bytes;
    if ((u64)address + size > bytes) fault_at(w, address, size, lane, store, OUT_OF_BOUNDS);
    return w->scratch + (u64)lane * bytes + address;
}

/* Where an instruction points to, for one lane; null where a buffer instruction is out of range. */
static u8 *locate(struct wave *w, const struct instruction *i, int form, u32 size, int l, int store) {
    const struct operand *address = &i->s[0], *base = &i->s[2];
    if (form == SCRATCH) {
        u32 at = (u32)i->imm;
        if (address->kind == OPERAND_ROW) at += w->v[address->index][l];
        if (base->kind == OPERAND_SGPR) at += scalar32(w, base);
        return touch_scratch(w, at, size, l, store);
    }
    if (form == BUFFER) { /* s[2] is the resource, s[3] the scalar offset */
        const u32 *resource = &w->s[base->index];
        u64 start = resource[0] | (u64)(resource[1] & 0xffff) << 32;
        u32 stride = resource[1] >> 16 & 0x3fff, records = resource[2], row = address->index;
        u32 index = i->flags & INDEX_LANE ? w->v[row][l] : 0;
        u32 offset = i->flags & OFFSET_LANE ? w->v[row + (i->flags & INDEX_LANE ? 1 : 0)][l] : 0;
        u32 scalar = scalar32(w, &i->s[3]), check = range_check(resource, i->flags & INDEX_LANE);
        if (is_scratch(resource)) return touch_scratch(w, offset + (u32)i->imm + scalar, size, l, store);
        if (!is_linear(resource)) stop(w, UNIMPLEMENTED);
        /* RDNA: where an index leads if bytes are checked is left open by AMD's documents. */
        if (LANES == 32 && i->flags & INDEX_LANE && check == BYTES) stop(w, UNIMPLEMENTED);
        /* A sum of 32 bits: a scalar offset may carry an offset that was to be out of range back into it (triton-lang/triton#10673). */
        u32 within = offset + (u32)i->imm, whole = within + scalar;
        if (check == RECORDS || check == INDEX) {
            if (index >= records || (check == RECORDS && within >= stride)) return 0;
            /* Across the end of a record: RDNA checks each word, and what CDNA does is left open. */
            if (check == RECORDS && (u64)within + size > stride) stop(w, UNIMPLEMENTED);
        } else if (check == EMPTY) {
            if (!records) return 0;
        } else if ((u64)whole + size > records) {
            if (w->machine->checks) saw_out_of_range(w, start + (u64)(i64)(i32)whole, whole, size, l, store);
            return 0;
        }
        start += (u64)index * stride + whole;
        return i->flags & WIDENED ? touch_around(w, start, l, store) : touch(w, start, size, l, store);
    }
    u64 at = (u64)(i64)i->imm;
    if (base->kind == OPERAND_SGPR) at += scalar64(w, base) + w->v[address->index][l];
    else at += w->v[address->index][l] | (u64)w->v[address->index + 1][l] << 32;
    if (form == FLAT && at >> 48 == 1) return touch_lds(w, (u32)at, size, l, store);
    if (form == FLAT && at >> 48 == 2) return touch_scratch(w, (u32)at, size, l, store);
    return i->flags & WIDENED ? touch_around(w, at, l, store) : touch(w, at, size, l, store);
}

/* Parameters: form, bytes, kind. */
static void place_part(u32 *to, u32 value, int bytes, int kind) {
    u32 extended = kind == SIGNED || kind == LOW_SIGNED || kind == HIGH_SIGNED ? (bytes == 1 ? (u32)(i8)value : (u32)(i16)value) : value;
    if (kind == LOW_HALF || kind == LOW_SIGNED) *to = (*to & 0xffff0000) | (extended & 0xffff);
    else if (kind == HIGH_HALF || kind == HIGH_SIGNED) *to = (*to & 0xffff) | extended << 16;
    else *to = extended;
}

static void load(struct wave *w, const struct instruction *i) {
    int form = i->op->parameters[0], bytes = i->op->parameters[1], kind = i->op->parameters[2];
    u32 row = i->d.index, words = bytes < 4 ? 1 : (u32)bytes / 4;
    u32 into[4][LANES];
    u32 base = 0;
    struct addresses all;
    if (i->flags & VOLATILE) may_switch(w, 1);
    if (locate_all(w, i, form, (u32)bytes, &all)) {
        if (bytes < 4) load_parts(w, row, &all, bytes, kind);
        else load_rows(w, row, &all, words);
        return;
    }
    if (i->flags & TO_LDS) base = (w->s[M0] & (w->machine->lds_bytes > 65536 ? 0x3ffff : 0xffff)) + (u32)i->imm;
    EACH_ACTIVE(w) {
        u32 value[4] = {0};
        const u8 *from = locate(w, i, form, (u32)bytes, l, 0);
        if (from) memcpy(value, from, (size_t)bytes);
        if (i->flags & TO_LDS) { /* lanes lie one after the other, from m0 on */
            u32 unit = bytes < 4 ? 4 : (u32)bytes, at = base + (u32)l * unit;
            memcpy(touch_lds(w, at, unit, l, 1), value, unit);
            continue;
        }
        if (bytes < 4) {
            into[0][l] = w->v[row][l];
            place_part(&into[0][l], value[0], bytes, kind);
        } else {
            for (u32 n = 0; n < words; n++) into[n][l] = value[n];
        }
    }
    if (i->flags & TO_LDS) return;
    /* Only now: the address may be in the rows that are written. */
    for (u32 n = 0; n < words; n++) EACH_ACTIVE(w) w->v[row + n][l] = into[n][l];
}

static void store(struct wave *w, const struct instruction *i) {
    int form = i->op->parameters[0], bytes = i->op->parameters[1], high = i->op->parameters[2];
    u32 row = i->s[1].index, words = bytes < 4 ? 1 : (u32)bytes / 4;
    struct addresses all;
    if (locate_all(w, i, form, (u32)bytes, &all)) {
        if (bytes < 4) store_parts(w, row, &all, bytes, high);
        else store_rows(w, row, &all, words);
        return;
    }
    EACH_ACTIVE(w) {
        u32 value[4];
        for (u32 n = 0; n < words; n++) value[n] = w->v[row + n][l];
        if (high) value[0] >>= 16;
        u8 *to = locate(w, i, form, (u32)bytes, l, 1);
        if (to) memcpy(to, value, (size_t)bytes);
    }
}

#define FORMS(MOVE, name, bytes, kind) \
    MOVE(global_##name, GLOBAL, bytes, kind) MOVE(flat_##name, FLAT, bytes, kind) \
    MOVE(scratch_##name, SCRATCH, bytes, kind) MOVE(buffer_##name, BUFFER, bytes, kind)
#define WORDS(bytes) (REGS + ((bytes) + 3) / 4)
#define LOAD(name, form, bytes, kind) \
    static const struct operation op_##name TABLE = {#name, load, 0, WORDS(bytes), NONE, {0}, 0, {form, bytes, kind}};
#define STORE(name, form, bytes, kind) \
    static const struct operation op_##name TABLE = {#name, store, 0, NONE, NONE, {0, WORDS(bytes)}, 0, {form, bytes, kind}};
FORMS(LOAD, load_ubyte, 1, UNSIGNED) FORMS(LOAD, load_sbyte, 1, SIGNED) FORMS(LOAD, load_ushort, 2, UNSIGNED) FORMS(LOAD, load_sshort, 2, SIGNED)
FORMS(LOAD, load_ubyte_d16, 1, LOW_HALF) FORMS(LOAD, load_ubyte_d16_hi, 1, HIGH_HALF) FORMS(LOAD, load_sbyte_d16, 1, LOW_SIGNED)
FORMS(LOAD, load_sbyte_d16_hi, 1, HIGH_SIGNED) FORMS(LOAD, load_short_d16, 2, LOW_HALF) FORMS(LOAD, load_short_d16_hi, 2, HIGH_HALF)
FORMS(LOAD, load_dword, 4, UNSIGNED) FORMS(LOAD, load_dwordx2, 8, UNSIGNED) FORMS(LOAD, load_dwordx3, 12, UNSIGNED) FORMS(LOAD, load_dwordx4, 16, UNSIGNED)
#define LOAD_TO_LDS(name, form, bytes) static const struct operation op_##name TABLE = {#name, load, 0, NONE, NONE, {0}, 0, {form, bytes, UNSIGNED}};
LOAD_TO_LDS(global_load_lds_dword, GLOBAL, 4) LOAD_TO_LDS(global_load_lds_dwordx3, GLOBAL, 12) LOAD_TO_LDS(global_load_lds_dwordx4, GLOBAL, 16)
FORMS(STORE, store_byte, 1, 0) FORMS(STORE, store_byte_d16_hi, 1, 1) FORMS(STORE, store_short, 2, 0) FORMS(STORE, store_short_d16_hi, 2, 1)
FORMS(STORE, store_dword, 4, 0) FORMS(STORE, store_dwordx2, 8, 0) FORMS(STORE, store_dwordx3, 12, 0) FORMS(STORE, store_dwordx4, 16, 0)

/* Atomics. Lanes take turns in the order of their numbers. */
#define F(x) as_f32((u32)(x))
#define D(x) as_f64(x)
static u32 halves(u32 a, u32 b, int brain) {
    if (brain) return float_to_bf16(bf16_to_float(a) + bf16_to_float(b)) | float_to_bf16(as_f32(a & 0xffff0000) + as_f32(b & 0xffff0000)) << 16;
    return float_to_half(half_to_float(a) + half_to_float(b)) | float_to_half(half_to_float(a >> 16) + half_to_float(b >> 16)) << 16;
}
u64 atomic_result(int operation, u64 old, u64 data, u64 expected, int bytes) {
    int wide = bytes == 8;
    switch (operation) {
    case SWAP: return data;
    case CMPSWAP: return old == expected ? data : old;
    case ADD: return old + data;
    case SUB: return old - data;
    case RSUB: return data - old;
    case SMIN: return wide ? ((i64)old < (i64)data ? old : data) : ((i32)old < (i32)data ? old : data);
    case SMAX: return wide ? ((i64)old > (i64)data ? old : data) : ((i32)old > (i32)data ? old : data);
    case UMIN: return old < data ? old : data;
    case UMAX: return old > data ? old : data;
    case AND: return old & data;
    case OR: return old | data;
    case XOR: return old ^ data;
    case INC: return old >= data ? 0 : old + 1;
    case DEC: return old == 0 || old > data ? data : old - 1;
    case ADD_F: return wide ? bits_of64(D(old) + D(data)) : bits_of(F(old) + F(data));
    case MIN_F: return wide ? bits_of64(min_number64(D(old), D(data), 0)) : bits_of(min_number(F(old), F(data), 0));
    case MAX_F: return wide ? bits_of64(max_number64(D(old), D(data), 0)) : bits_of(max_number(F(old), F(data), 0));
    case PK_F16: return halves((u32)old, (u32)data, 0);
    case PK_BF16: return halves((u32)old, (u32)data, 1);
    case CLAMP_SUB: return old > data ? old - data : 0;
    default: return old;
    }
}
u32 sum_without_denormals(u32 old, u32 data, int of_sources, int of_result) {
    u32 sum = of_sources ? bits_of(flushed(as_f32(old)) + flushed(as_f32(data))) : bits_of(as_f32(old) + as_f32(data));
    return of_result ? flushed_bits(sum) : sum;
}

static void atomic(struct wave *w, const struct instruction *i) {
    int form = i->op->parameters[0], bytes = i->op->parameters[1], operation = i->op->parameters[2];
    u32 row = i->s[1].index, words = (u32)bytes / 4;
    u32 back[2][LANES] = {0};
    EACH_ACTIVE(w) {
        u64 data = w->v[row][l], expected = 0, old = 0, result;
        if (words == 2) data |= (u64)w->v[row + 1][l] << 32;
        if (operation == CMPSWAP) { /* the new value comes first, then the expected one */
            expected = w->v[row + words][l];
            if (words == 2) expected |= (u64)w->v[row + 3][l] << 32;
        }
        u8 *at = locate(w, i, form, (u32)bytes, l, UPDATES);
        if (!at) continue;
        memcpy(&old, at, (size_t)bytes);
        if (i->flags & FLUSHES) result = sum_without_denormals((u32)old, (u32)data, 1, 1);
        else result = atomic_result(operation, old, data, expected, bytes);
        memcpy(at, &result, (size_t)bytes);
        back[0][l] = (u32)old, back[1][l] = (u32)(old >> 32);
    }
    if (i->flags & RETURNS)
        for (u32 n = 0; n < words; n++) EACH_ACTIVE(w) w->v[i->d.index + n][l] = back[n][l];
    may_switch(w, i->flags & RETURNS);
}

#define ATOMIC(name, form, bytes, what) \
    static const struct operation op_##name TABLE = {#name, atomic, 0, WORDS(bytes), NONE, \
        {0, WORDS((what) == CMPSWAP ? 2 * (bytes) : (bytes))}, 0, {form, bytes, what}};
#define ATOMIC_FORMS(name, bytes, what) \
    ATOMIC(global_##name, GLOBAL, bytes, what) ATOMIC(flat_##name, FLAT, bytes, what) ATOMIC(buffer_##name, BUFFER, bytes, what)
#define ATOMICS(name, what) ATOMIC_FORMS(atomic_##name, 4, what) ATOMIC_FORMS(atomic_##name##_x2, 8, what)
ATOMICS(swap, SWAP) ATOMICS(cmpswap, CMPSWAP) ATOMICS(add, ADD) ATOMICS(sub, SUB) ATOMICS(smin, SMIN) ATOMICS(umin, UMIN)
ATOMICS(smax, SMAX) ATOMICS(umax, UMAX) ATOMICS(and, AND) ATOMICS(or, OR) ATOMICS(xor, XOR) ATOMICS(inc, INC) ATOMICS(dec, DEC)
ATOMIC_FORMS(atomic_add_f32, 4, ADD_F) ATOMIC_FORMS(atomic_min_f32, 4, MIN_F) ATOMIC_FORMS(atomic_max_f32, 4, MAX_F)
ATOMIC_FORMS(atomic_add_f64, 8, ADD_F) ATOMIC_FORMS(atomic_min_f64, 8, MIN_F) ATOMIC_FORMS(atomic_max_f64, 8, MAX_F)
ATOMIC_FORMS(atomic_pk_add_f16, 4, PK_F16) ATOMIC_FORMS(atomic_pk_add_bf16, 4, PK_BF16) ATOMIC_FORMS(atomic_csub, 4, CLAMP_SUB)

/* Scalar loads. s[0] is the base, s[1] an offset in a register, `imm` one in the instruction; the last two address bits are ignored. */
static void scalar_load(struct wave *w, const struct instruction *i) {
    u32 words = (u32)i->op->parameters[0];
    u64 address = (scalar64(w, &i->s[0]) + (u64)(i64)i->imm + (i->s[1].kind == OPERAND_NONE ? 0 : scalar32(w, &i->s[1]))) & ~(u64)3;
    u32 value[16];
    memcpy(value, i->flags & WIDENED ? touch_around(w, address, 0, 0) : touch(w, address, words * 4, 0, 0), words * 4);
    for (u32 n = 0; n < words; n++) w->s[i->d.index + n] = value[n];
}
static void scalar_buffer_load(struct wave *w, const struct instruction *i) {
    u32 words = (u32)i->op->parameters[0];
    const u32 *resource = &w->s[i->s[0].index];
    u64 start = resource[0] | (u64)(resource[1] & 0xffff) << 32, offset = (u64)(u32)i->imm + (i->s[1].kind == OPERAND_NONE ? 0 : scalar32(w, &i->s[1]));
    u64 stride = resource[1] >> 16 & 0x3fff, end = (stride ? stride : 1) * resource[2]; /* with a stride, records are counted: not bytes */
    u32 value[16];
    for (u32 n = 0; n < words; n++) {
        u64 at = (offset & ~(u64)3) + n * 4;
        value[n] = 0;
        if (at + 4 <= end) memcpy(&value[n], touch(w, start + at, 4, 0, 0), 4);
    }
    for (u32 n = 0; n < words; n++) w->s[i->d.index + n] = value[n];
}
static void scalar_load_part(struct wave *w, const struct instruction *i) {
    u32 bytes = (u32)i->op->parameters[0], value = 0;
    u64 address = scalar64(w, &i->s[0]) + (u64)(i64)i->imm + (i->s[1].kind == OPERAND_NONE ? 0 : scalar32(w, &i->s[1]));
    memcpy(&value, touch(w, address, bytes, 0, 0), bytes);
    place_part(&w->s[i->d.index], value, (int)bytes, i->op->parameters[1]);
}
#define SCALAR_PART(name, bytes, kind) static const struct operation op_##name TABLE = {#name, scalar_load_part, 0, REGS + 1, NONE, {B64, B32}, 0, {bytes, kind}};
SCALAR_PART(s_load_ubyte, 1, UNSIGNED) SCALAR_PART(s_load_sbyte, 1, SIGNED) SCALAR_PART(s_load_ushort, 2, UNSIGNED) SCALAR_PART(s_load_sshort, 2, SIGNED)
#define SCALAR_LOAD(name, run, words) static const struct operation op_##name TABLE = {#name, run, 0, REGS + words, NONE, {B64, B32}, 0, {words}};
SCALAR_LOAD(s_load_dword, scalar_load, 1) SCALAR_LOAD(s_load_dwordx2, scalar_load, 2) SCALAR_LOAD(s_load_dwordx3, scalar_load, 3)
SCALAR_LOAD(s_load_dwordx4, scalar_load, 4) SCALAR_LOAD(s_load_dwordx8, scalar_load, 8) SCALAR_LOAD(s_load_dwordx16, scalar_load, 16)
SCALAR_LOAD(s_buffer_load_dword, scalar_buffer_load, 1) SCALAR_LOAD(s_buffer_load_dwordx2, scalar_buffer_load, 2)
SCALAR_LOAD(s_buffer_load_dwordx3, scalar_buffer_load, 3) SCALAR_LOAD(s_buffer_load_dwordx4, scalar_buffer_load, 4)
SCALAR_LOAD(s_buffer_load_dwordx8, scalar_buffer_load, 8) SCALAR_LOAD(s_buffer_load_dwordx16, scalar_buffer_load, 16)
