/* All lanes of an access at once: addresses first, one check of bounds for all of them, then moves without any further question.
 *
 * Used where nothing but the result is checked. Whoever finds that the lanes are not all in one buffer goes lane by lane instead, and
 * meets the fault, with its lane, there. Lanes take turns in the order of their numbers. */
#include "accesses.h"

#define EACH_OF(mask_) for (mask on_ = (mask_); on_; on_ &= on_ - 1) for (int l = LANES == 64 ? __builtin_ctzll((u64)on_) : __builtin_ctz((u32)on_), once_ = 1; once_; once_ = 0)
#define ALL ((mask)~(mask)0)

static void extremes(const struct addresses *a, u64 *low, u64 *high) {
    u64 least = ~(u64)0, most = 0;
    if (a->valid == ALL) for (int l = 0; l < LANES; l++) {
        least = a->at[l] < least ? a->at[l] : least;
        most = a->at[l] > most ? a->at[l] : most;
    } else for (int l = 0; l < LANES; l++) {
        u64 on = a->valid >> l & 1, least_of = on ? a->at[l] : ~(u64)0, most_of = on ? a->at[l] : 0;
        least = least_of < least ? least_of : least;
        most = most_of > most ? most_of : most;
    }
    *low = least, *high = most;
}

/* Whether all lanes are in one buffer of the launch. */
static int in_one_buffer(struct machine *m, const struct addresses *a, u32 size) {
    u64 low, high;
    if (!a->valid) return 1;
    extremes(a, &low, &high);
    if (high + size < high || !m->count_ranges) return 0;
    const struct range *last = &m->ranges[m->last_range];
    if (low >= last->start && high + size <= last->end) return 1;
    u32 first = 0, behind = m->count_ranges;
    while (behind - first > 1) {
        u32 middle = (first + behind) / 2;
        if (m->ranges[middle].start <= low) first = middle;
        else behind = middle;
    }
    if (low < m->ranges[first].start || high + size > m->ranges[first].end) return 0;
    m->last_range = first;
    return 1;
}

int locate_all(struct wave *w, const struct instruction *i, int form, u32 size, struct addresses *a) {
    const struct operand *address = &i->s[0], *base = &i->s[2];
    a->on = a->valid = exec_of(w);
    if (w->machine->checks || i->flags & (TO_LDS | INDEX_LANE)) return 0;
    const u32 *low = w->v[address->index], *high = w->v[(address->index + 1) % ROWS];
    if (form == BUFFER) {
        const u32 *resource = &w->s[base->index];
        u64 start = resource[0] | (u64)(resource[1] & 0xffff) << 32, most = resource[2];
        u32 fixed = (u32)i->imm + scalar32(w, &i->s[3]);
        if (!is_linear(resource) || range_check(resource, 0) != BYTES) return 0;
        if (!(i->flags & OFFSET_LANE)) {
            EACH_LANE a->at[l] = start + fixed;
            if ((u64)fixed + size > most) a->valid = 0;
        } else {
            u64 outside = 0;
            EACH_LANE a->at[l] = start + (u32)(low[l] + fixed);
            EACH_LANE outside |= (u64)((u64)(u32)(low[l] + fixed) + size > most) << (l % 64);
            a->valid &= (mask)~outside;
        }
    } else if (form == SCRATCH) {
        u32 bytes = w->machine->scratch_bytes, fixed = (u32)i->imm + (base->kind == OPERAND_SGPR ? scalar32(w, base) : 0), most = 0;
        u64 start = (u64)(uintptr_t)w->scratch;
        if (size > bytes) return 0;
        for (u32 l = 0; l < LANES; l++) {
            u32 at = fixed + (address->kind == OPERAND_ROW ? low[l] : 0);
            if (a->on >> l & 1 && at > most) most = at;
            a->at[l] = start + (u64)l * bytes + at;
        }
        return most <= bytes - size;
    } else if (base->kind == OPERAND_SGPR) {
        u64 fixed = scalar64(w, base) + (u64)(i64)i->imm;
        EACH_LANE a->at[l] = fixed + low[l];
    } else {
        u64 fixed = (u64)(i64)i->imm;
        EACH_LANE a->at[l] = fixed + (low[l] | (u64)high[l] << 32);
    }
    return in_one_buffer(w->machine, a, size);
}

int locate_lds(struct wave *w, const u32 *addresses, u32 offset, u32 size, struct addresses *a) {
    u64 start = (u64)(uintptr_t)w->group->lds;
    u32 most = 0;
    a->on = a->valid = exec_of(w);
    if (w->machine->checks || size > w->machine->lds_bytes) return 0;
    const u32 *counted = writable(w);
    for (int l = 0; l < LANES; l++) {
        u32 at = (addresses[l] + offset) & counted[l];
        most = at > most ? at : most;
    }
    EACH_LANE a->at[l] = start + (addresses[l] + offset);
    return most <= w->machine->lds_bytes - size;
}

static int neighbours(const struct addresses *a, u32 size) {
    u64 wrong = 0;
    if (a->valid != ALL) return 0;
    for (u32 l = 0; l < LANES; l++) wrong |= a->at[l] ^ (a->at[0] + l * size);
    return !wrong;
}

#define WORD(address, n) (((const u32 *)(uintptr_t)(address))[n])
static inline __attribute__((always_inline)) void load_words(u32 (*to)[LANES], const struct addresses *a, const u32 words) {
    if (neighbours(a, words * 4)) {
        const u32 *from = (const u32 *)(uintptr_t)a->at[0];
        EACH_LANE for (u32 n = 0; n < words; n++) to[n][l] = from[(u32)l * words + n];
    } else if (a->valid == ALL) {
        for (int l = 0; l < LANES; l++) for (u32 n = 0; n < words; n++) to[n][l] = WORD(a->at[l], n);
    } else {
        for (u32 n = 0; n < words && a->valid != a->on; n++) EACH_OF(a->on & ~a->valid) to[n][l] = 0;
        EACH_OF(a->valid) for (u32 n = 0; n < words; n++) to[n][l] = WORD(a->at[l], n);
    }
}

static inline __attribute__((always_inline)) void store_words(const u32 (*from)[LANES], const struct addresses *a, const u32 words) {
    if (neighbours(a, words * 4)) {
        u32 *to = (u32 *)(uintptr_t)a->at[0];
        EACH_LANE for (u32 n = 0; n < words; n++) to[(u32)l * words + n] = from[n][l];
    } else {
        EACH_OF(a->valid) for (u32 n = 0; n < words; n++) ((u32 *)(uintptr_t)a->at[l])[n] = from[n][l];
    }
}

void load_rows(struct wave *w, u32 row, const struct addresses *a, u32 words) {
    u32 (*to)[LANES] = &w->v[row];
    switch (words) {
    case 1: load_words(to, a, 1); break;
    case 2: load_words(to, a, 2); break;
    case 3: load_words(to, a, 3); break;
    default: load_words(to, a, 4);
    }
}

void store_rows(struct wave *w, u32 row, const struct addresses *a, u32 words) {
    const u32 (*from)[LANES] = (const u32 (*)[LANES])&w->v[row];
    switch (words) {
    case 1: store_words(from, a, 1); break;
    case 2: store_words(from, a, 2); break;
    case 3: store_words(from, a, 3); break;
    default: store_words(from, a, 4);
    }
}

/* A byte or two a lane. */
void load_parts(struct wave *w, u32 row, const struct addresses *a, int bytes, int kind) {
    u32 value[LANES] = {0}, *to = w->v[row];
    if (bytes == 2) EACH_OF(a->valid) value[l] = *(const u16 *)(uintptr_t)a->at[l];
    else EACH_OF(a->valid) value[l] = *(const u8 *)(uintptr_t)a->at[l];
    if (kind == SIGNED || kind == LOW_SIGNED || kind == HIGH_SIGNED) {
        int shift = bytes == 1 ? 24 : 16;
        EACH_LANE value[l] = (u32)((i32)(value[l] << shift) >> shift);
    }
    if (kind == LOW_HALF || kind == LOW_SIGNED) EACH_LANE value[l] = (to[l] & 0xffff0000) | (value[l] & 0xffff);
    if (kind == HIGH_HALF || kind == HIGH_SIGNED) EACH_LANE value[l] = (to[l] & 0xffff) | value[l] << 16;
    const u32 *lanes_on = writable(w);
    EACH_LANE to[l] = (value[l] & lanes_on[l]) | (to[l] & ~lanes_on[l]);
}

void store_parts(struct wave *w, u32 row, const struct addresses *a, int bytes, int high) {
    const u32 *from = w->v[row];
    int shift = high ? 16 : 0;
    if (bytes == 2) EACH_OF(a->valid) *(u16 *)(uintptr_t)a->at[l] = (u16)(from[l] >> shift);
    else EACH_OF(a->valid) *(u8 *)(uintptr_t)a->at[l] = (u8)(from[l] >> shift);
}
