/* Global memory: races between workgroups of a launch. A shadow has the last writer and two readers of each unit.
 *
 * Workgroups are ordered by atomics only. An atomic of one workgroup on an address that another one's atomic had touched orders all that
 * anybody did before that: if the other one was released, and this one gives back a value and the workgroup then empties its caches, as
 * one that acquires does. This may hide a race, and blames no lock and no counter. A store that changes nothing is no conflict.
 * A program that stored there itself reads its own value, whoever stored the same one first: `storer` is the last one that did. */
#include "checks.h"

static u32 number_of(const struct wave *w) {
    const struct machine *m = w->machine;
    const u32 *id = w->group->id;
    return id[0] + m->grid[0] * (id[1] + m->grid[1] * id[2]) + 1;
}

static void name_group(const struct machine *m, u32 number, u32 *id) {
    number--;
    id[0] = number % m->grid[0], id[1] = number / m->grid[0] % m->grid[1], id[2] = number / m->grid[0] / m->grid[1];
}

static struct cell *cell_at(struct wave *w, u64 address) {
    struct machine *m = w->machine;
    struct cell *cells = m->checks->cells[m->last_range];
    return cells ? &cells[(address - m->ranges[m->last_range].start) / m->checks->global_unit] : 0;
}

/* The earlier access of a race. */
struct before { u32 by, index, wave, access, step, seen; };

static u32 horizon(const struct wave *w) { return w->group->wave[0].checks->horizon; }
static void later(u32 *time, u32 other) { if (other > *time) *time = other; }
static void see(struct wave *w, u32 released, u32 updated) {
    struct wave_checks *c = w->group->wave[0].checks;
    later(&c->seen, released), later(&c->linked, updated);
}
void acquired(struct wave *w) { w->group->wave[0].checks->horizon = w->group->wave[0].checks->seen; }

static void conflict(struct wave *w, struct before o, u64 address, u32 size, int lane, int access) {
    struct pair now = {.address = address, .first_step = o.step, .second_step = w->steps, .first_index = o.index, .second_index = w->pc - 1,
        .first_wave = o.wave, .second_wave = w->number, .first_access = o.access, .second_access = (u32)access, .lane = (u32)lane, .size = size, .in_flight = o.seen};
    name_group(w->machine, o.by, now.first_group);
    memcpy(now.second_group, w->group->id, sizeof now.second_group);
    add_pair(w->machine, now);
    struct finding *f = find(w, FOUND_GLOBAL_RACE, o.index, address, size, lane, access);
    if (!f) return;
    f->other_access = o.access, f->other_wave = o.wave;
    memcpy(f->other_group, now.first_group, sizeof now.first_group);
}

static struct before writer_of(const struct wave *w, const struct cell *at) {
    u32 access = at->written_by >> 31 ? UPDATES : WRITES, seen = access == WRITES && at->written_at < w->group->wave[0].checks->linked;
    return (struct before){at->writer, at->written_by & 0x7fffffff, at->written_wave, access, at->written_step, seen};
}

static int is_volatile(const struct wave *w) { return w->machine->code[w->pc - 1].flags & VOLATILE; }

void saw_global(struct wave *w, u64 address, u32 size, int lane, int access) {
    struct checks *c = w->machine->checks;
    struct cell *at = cell_at(w, address);
    if (access != READS) {
        c->stores[c->count_stores].address = address, c->stores[c->count_stores].size = size, c->stores[c->count_stores].lane = (u32)lane;
        c->stores[c->count_stores].access = (u32)access, c->stores[c->count_stores].is_lds = 0;
        memcpy(c->stores[c->count_stores++].old, (const void *)(uintptr_t)address, size);
        if (access == UPDATES) note_atomic(w);
        return;
    }
    note_loaded(w->machine);
    if (w->machine->code[w->pc - 1].flags & COMPARED) return; /* if another value is there by then, the swap tries again */
    waves_loaded(w, address, size, lane);
    if (!at) return;
    u32 me = number_of(w), units = (u32)((address + size - 1) / c->global_unit - address / c->global_unit + 1);
    for (u32 n = 0; n < units; n++, at++) {
        if (is_volatile(w)) {
            w->machine->decides = 1;
            see(w, at->released > at->written_at + 1 ? at->released : at->written_at + 1, at->updated);
            acquired(w);
            continue; /* how kernels wait for others */
        }
        if (at->writer && at->writer != me && at->storer != me && at->written_at >= horizon(w))
            conflict(w, writer_of(w, at), address, size, lane, READS);
        if (at->reader && at->reader != me) {
            at->other_reader = at->reader, at->other_read_at = at->read_at, at->other_read_by = at->read_by;
            at->other_read_step = at->read_step, at->other_read_wave = at->read_wave;
        }
        at->reader = me, at->read_at = c->time, at->read_by = w->pc - 1, at->read_step = (u32)w->steps, at->read_wave = (u8)w->number;
    }
}

/* Up to when the atomic that this instruction is hands on what was stored. A store in flight, or in a cache, comes later. */
static u32 handed_on(const struct wave *w) {
    const struct instruction *i = &w->machine->code[w->pc - 1];
    if (!(i->flags & RELEASES)) return w->group->wave[0].checks->flushed;
    u32 before = w->checks->issued[COUNT_STORES] - (i->event == EVENT_STORE);
    return w->checks->done[COUNT_STORES] < before ? 0 : w->machine->checks->time;
}

void global_stored(struct wave *w, u64 address, u32 size, int lane, int access, int changed) {
    struct checks *c = w->machine->checks;
    for (u32 n = 0; n < w->machine->count_ranges; n++) /* one instruction may store to several buffers */
        if (address >= w->machine->ranges[n].start && address < w->machine->ranges[n].end) w->machine->last_range = n;
    waves_stored(w, address, size, lane, access, changed);
    struct cell *at = cell_at(w, address);
    if (!at) return;
    u32 me = number_of(w), units = (u32)((address + size - 1) / c->global_unit - address / c->global_unit + 1);
    if (access == UPDATES) c->time++;
    for (u32 n = 0; n < units; n++, at++) {
        int atomic = at->written_by >> 31;
        if (changed || !at->writer) {
            if (changed && at->writer && at->writer != me && at->written_at >= horizon(w) && !(atomic && access == UPDATES))
                conflict(w, writer_of(w, at), address, size, lane, access);
            int last = at->reader != me;
            u32 reader = last ? at->reader : at->other_reader, read_at = last ? at->read_at : at->other_read_at;
            if (changed && reader && reader != me && read_at >= horizon(w))
                conflict(w, last ? (struct before){reader, at->read_by, at->read_wave, READS, at->read_step, 0}
                    : (struct before){reader, at->other_read_by, at->other_read_wave, READS, at->other_read_step, 0}, address, size, lane, access);
            if (access == WRITES || atomic || at->writer != me) { /* a program's atomic behind its own store makes no atomic of the store */
                at->writer = me, at->written_at = access == UPDATES ? c->time - 1 : c->time, at->written_by = (w->pc - 1) | (access == UPDATES ? 1u << 31 : 0);
                at->written_step = (u32)w->steps, at->written_wave = (u8)w->number;
            }
        }
        if (access == WRITES || changed) at->storer = access == WRITES ? me : 0;
        /* Only now: what it sees orders what comes behind it, and not itself. */
        if (access == UPDATES && w->machine->code[w->pc - 1].flags & RETURNS) see(w, at->released, at->updated);
        if (access == UPDATES) later(&at->released, handed_on(w)), at->updated = c->time;
    }
}
