/* Global memory: accesses of two waves of one workgroup that no barrier orders, and an execution in which a pair comes the other way.
 *
 * A shadow has the last writer and two readers of each unit. A barrier orders what its wave did before it; a store that has a counter of
 * its own (RDNA) only if the wave had waited for it. Where other stores are in flight at a barrier (CDNA), the memory model orders them.
 * Atomics order nothing here: what a lock orders cannot come the other way, and executing shows that. */
#include "accesses.h"
#include "checks.h"
#include <stdlib.h>

enum { UNCHANGING = 1u << 31 }; /* of a writer: what it stored was there */
enum { MOST_ACCESSES = 1 << 22 }; /* of a workgroup between two barriers: then it forgets them */
enum { EXAMPLES = 5 }; /* of one pair of instructions, each of other waves; and the latest one */

static struct wave_cell *cell_at(struct wave *w, u64 address) {
    struct machine *m = w->machine;
    struct wave_cell *cells = m->checks->wave_cells[m->last_range];
    return cells ? &cells[(address - m->ranges[m->last_range].start) / m->checks->global_unit] : 0;
}

/* The number of what this instruction of this wave is, since the last barrier that ordered everything. */
static u32 this_access(struct wave *w, int access) {
    struct lds_shadow *s = w->group->shadow;
    struct wave_checks *c = w->checks;
    struct global_access *last = s->count_accesses ? &s->accesses[s->count_accesses - 1] : 0;
    if (last && last->wave == w->number && last->step == w->steps) return s->count_accesses;
    if (s->count_accesses == MOST_ACCESSES) waves_anew(w->machine, w->group);
    if (s->count_accesses == s->room_accesses) {
        s->room_accesses = s->room_accesses ? s->room_accesses * 2 : 1024;
        s->accesses = realloc(s->accesses, s->room_accesses * sizeof *s->accesses);
    }
    u32 serial = access != READS && w->machine->code[w->pc - 1].event == EVENT_STORE ? c->issued[COUNT_STORES] : 0;
    s->accesses[s->count_accesses] = (struct global_access){w->steps, w->pc - 1, c->signalled, serial, (u16)w->number, (u16)access};
    return ++s->count_accesses;
}

static int in_flight(const struct wave *w, const struct global_access *before) {
    const struct wave_checks *of = w->group->wave[before->wave].checks;
    u32 passed = w->checks->passed;
    return passed > before->signalled && passed <= of->signalled && of->drained[(passed - 1) % DRAINED] < before->serial;
}

static void unordered(struct wave *w, u32 number, u64 address, u32 size, int lane, int access) {
    struct machine *m = w->machine;
    const struct global_access *before = &w->group->shadow->accesses[(number & ~UNCHANGING) - 1];
    if (before->wave == w->number || (before->access == UPDATES && access == UPDATES)) return;
    int flies = in_flight(w, before);
    if (w->checks->passed > before->signalled && !flies) return;
    struct pair now = {.address = address, .first_step = before->step, .second_step = w->steps, .first_index = before->index,
        .second_index = w->pc - 1, .first_wave = before->wave, .second_wave = w->number, .first_access = before->access,
        .second_access = (u32)access, .lane = (u32)lane, .size = size, .in_flight = (u32)flies};
    memcpy(now.first_group, w->group->id, sizeof now.first_group);
    memcpy(now.second_group, w->group->id, sizeof now.second_group);
    add_pair(m, now);
}

/* Examples of the same two instructions: some of different waves, and the latest one. */
void add_pair(struct machine *m, struct pair now) {
    struct pair *pairs = (struct pair *)(uintptr_t)m->pairs, *latest = 0;
    u32 examples = 0, same_waves = 0;
    for (u32 n = 0; n < m->count_pairs; n++) {
        struct pair *p = &pairs[n];
        if (p->first_index != now.first_index || p->second_index != now.second_index) continue;
        int same = p->first_wave == now.first_wave && p->second_wave == now.second_wave && !memcmp(p->first_group, now.first_group, sizeof now.first_group + sizeof now.second_group);
        if (same && p->first_step == now.first_step && p->second_step == now.second_step) return; /* another lane */
        same_waves |= (u32)same;
        if (p->latest) latest = p;
        else examples++;
    }
    now.latest = same_waves || examples == EXAMPLES;
    if (now.latest && latest) *latest = now;
    else if (m->count_pairs < m->most_pairs) pairs[m->count_pairs++] = now;
}

static struct wave_cell *mine(struct wave *w, struct wave_cell *at) {
    u32 generation = w->group->shadow->generation;
    if (at->generation != generation) *at = (struct wave_cell){generation, 0, 0, 0};
    return at;
}

void waves_loaded(struct wave *w, u64 address, u32 size, int lane) {
    struct wave_cell *at = cell_at(w, address);
    if (!at) return;
    u32 unit = w->machine->checks->global_unit, units = (u32)((address + size - 1) / unit - address / unit + 1), number = this_access(w, READS);
    const struct global_access *done = w->group->shadow->accesses;
    for (u32 n = 0; n < units; n++, at++) {
        mine(w, at);
        if (at->writer && !(at->writer & UNCHANGING)) unordered(w, at->writer, address, size, lane, READS);
        if (at->reader == number) continue;
        if (at->reader && done[at->reader - 1].wave != w->number) at->other_reader = at->reader;
        at->reader = number;
    }
}

void waves_stored(struct wave *w, u64 address, u32 size, int lane, int access, int changed) {
    struct wave_cell *at = cell_at(w, address);
    if (!at) return;
    u32 unit = w->machine->checks->global_unit, units = (u32)((address + size - 1) / unit - address / unit + 1), number = this_access(w, access);
    for (u32 n = 0; n < units; n++, at++) {
        mine(w, at);
        if (changed) {
            if (at->writer) unordered(w, at->writer, address, size, lane, access);
            if (at->reader) unordered(w, at->reader, address, size, lane, access);
            if (at->other_reader) unordered(w, at->other_reader, address, size, lane, access);
        }
        if (changed || !at->writer) at->writer = number | (changed ? 0 : UNCHANGING);
    }
}

/* A barrier of all waves behind which nothing is in flight orders all that was before it: the shadow starts anew. */
void waves_met(struct wave *w) {
    struct group *g = w->group;
    for (u32 n = 0; n < g->waves; n++) {
        const struct wave_checks *c = g->wave[n].checks;
        if (g->wave[n].state == ENDED) continue;
        if (c->passed != c->signalled || c->passed != w->checks->passed || c->drained[(c->passed - 1) % DRAINED] < c->issued[COUNT_STORES]) return;
    }
    waves_anew(w->machine, g);
}

void waves_anew(struct machine *m, struct group *g) {
    g->shadow->generation = ++m->checks->generations;
    g->shadow->count_accesses = 0;
}

/* Sums of floats, and what kernels make sums and locks of: the order of atomics may round results. Where they only add, and nothing loads
 * the sums, they round nothing else. What an atomic gives back may decide which program adds up. */
void note_atomic(struct wave *w) {
    struct machine *m = w->machine;
    const struct instruction *i = &m->code[w->pc - 1];
    int operation = i->op->parameters[2], returns = (i->flags & RETURNS) != 0;
    int adds = operation == ADD_F || operation == PK_F16 || operation == PK_BF16;
    if (adds && !returns && m->last_range < 64) m->added |= 1ull << m->last_range;
    else if (adds || operation == CMPSWAP || operation == SWAP) m->rounds = 1;
    if (returns) m->decides = 1;
}

void note_loaded(struct machine *m) {
    if (m->last_range < 64 && m->added >> m->last_range & 1) m->rounds = 1;
}

static int is_group(const struct wave *w, const u32 *id) { return !memcmp(w->group->id, id, sizeof w->group->id); }

static void impossible(struct machine *m) {
    m->fault = LIMIT;
    longjmp(m->out, 1);
}

/* Run a wave of a launch in which one access of one wave is to come behind one of another: hold the first wave there, or, if only its
 * store is in flight, that store. Return what is left of the wave's turn. */
u64 until_reversed(struct machine *m, struct wave *w, u64 left) {
    struct reversal *r = (struct reversal *)(uintptr_t)m->reversal;
    if (r->state == REVERSED) return left;
    int one_group = !memcmp(r->first_group, r->second_group, sizeof r->first_group);
    int first = w->number == r->first_wave && is_group(w, r->first_group), second = w->number == r->second_wave && is_group(w, r->second_group);
    if (r->state == HELD && !r->in_flight && (one_group ? !second && is_group(w, r->first_group) : first)) return 0;
    if (!first && !second) return left;
    for (; left && w->state == RUNNING; left--) {
        const struct instruction *i = &m->code[w->pc];
        w->steps++;
        if (first && r->state == BEFORE && w->steps == r->first_step) {
            if (w->pc != r->first_index) impossible(m);
            r->state = HELD;
            if (!r->in_flight) {
                w->steps--;
                return 0;
            }
            struct wave *kept = aligned_alloc(64, (sizeof *w + 63) / 64 * 64);
            *kept = *w, kept->pc++, w->pc++;
            r->kept = (u64)(uintptr_t)kept;
            continue;
        }
        int there = second && r->state == HELD && w->steps == r->second_step;
        if (there && w->pc != r->second_index) impossible(m);
        w->pc++;
        i->run(w, i);
        m->executed++;
        if (!there) continue;
        r->state = REVERSED;
        if (r->kept) {
            i = &m->code[r->first_index];
            i->run((struct wave *)(uintptr_t)r->kept, i);
        }
        return left - 1;
    }
    /* It waits for the first one, or has gone another way. */
    if (second && r->state == HELD && (w->state == ENDED || (w->state == AT_BARRIER && one_group && !r->in_flight))) impossible(m);
    return w->state == RUNNING ? left : 0;
}

void end_reversal(struct machine *m) {
    free((void *)(uintptr_t)((struct reversal *)(uintptr_t)m->reversal)->kept);
}
