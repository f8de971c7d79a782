/* LDS: races between waves, and reads of what nobody wrote.
 *
 * An access is ordered before another wave's if its wave knew that it was done (it waited for its counter) before it signalled a barrier
 * that the other wave has passed. A barrier alone completes nothing: what is in flight there is unordered until its wave has waited
 * and met another barrier. */
#include "checks.h"
#include <stdlib.h>

enum { IN_FLIGHT = ~0u };

static struct lds_access *access_of(struct wave *w, u32 number) { return &w->group->shadow->done[number]; }

u32 current_lds_access(struct wave *w, int access) {
    struct wave_checks *c = w->checks;
    struct lds_shadow *s = w->group->shadow;
    if (c->current) return c->current;
    if (s->count + 1 >= s->room) {
        s->room = s->room ? s->room * 2 : 4096;
        s->done = realloc(s->done, s->room * sizeof *s->done);
    }
    int event = w->machine->code[w->pc - 1].event, counter = event == EVENT_LOAD_TO_LDS ? COUNT_LOADS : COUNT_LDS;
    s->done[s->count] = (struct lds_access){w->pc - 1, IN_FLIGHT, (u16)w->number, (u8)access, (u8)counter};
    u32 *last = &c->last[counter];
    if (*last - c->first[counter] == QUEUE) access_of(w, c->queue[counter][c->first[counter]++ % QUEUE].access)->until = c->signalled;
    c->queue[counter][*last % QUEUE].serial = c->issued[counter];
    c->queue[counter][(*last)++ % QUEUE].access = s->count;
    return c->current = s->count++;
}

/* A wait: at most `left` of a counter are still in flight. */
void complete(struct wave *w, int counter, u32 left) {
    struct wave_checks *c = w->checks;
    if (left >= NO_WAIT) return;
    u32 outstanding = c->issued[counter] - c->done[counter];
    if (outstanding > left) c->done[counter] = c->issued[counter] - left;
    while (c->first[counter] != c->last[counter] && c->queue[counter][c->first[counter] % QUEUE].serial <= c->done[counter])
        access_of(w, c->queue[counter][c->first[counter]++ % QUEUE].access)->until = c->signalled;
}

static int ordered(struct wave *w, const struct lds_access *before) {
    if (before->wave != w->number) return before->until != IN_FLIGHT && w->checks->passed > before->until;
    /* A wave's own accesses are in order, but for a load that goes straight to LDS. */
    int by_loads = w->machine->code[w->pc - 1].event == EVENT_LOAD_TO_LDS;
    return before->until != IN_FLIGHT || before->counter == COUNT_LDS || by_loads;
}

static void conflict(struct wave *w, u32 number, u32 address, u32 size, int lane, int access) {
    const struct lds_access *before = access_of(w, number);
    u32 kind = before->wave == w->number ? FOUND_LDS_USED_EARLY : FOUND_LDS_RACE;
    if (before->wave == w->number && access != READS) return;
    struct finding *f = find(w, kind, before->index, address, size, lane, access);
    if (f) f->other_wave = before->wave, f->other_access = before->access, f->in_flight = before->until == IN_FLIGHT;
}

void saw_lds(struct wave *w, u32 address, u32 size, int lane, int access) {
    struct checks *c = w->machine->checks;
    struct lds_shadow *s = w->group->shadow;
    if (access != READS) {
        c->stores[c->count_stores].address = address, c->stores[c->count_stores].size = size, c->stores[c->count_stores].lane = (u32)lane;
        c->stores[c->count_stores].access = (u32)access, c->stores[c->count_stores].is_lds = 1;
        memcpy(c->stores[c->count_stores++].old, w->group->lds + address, size);
        return;
    }
    u32 number = current_lds_access(w, READS), unit = c->lds_unit, last = (address + size - 1) / unit;
    for (u32 at = address / unit; at <= last; at++) {
        u32 writer = s->writer[at], reader = s->reader[at];
        if (!writer) find(w, FOUND_LDS_UNWRITTEN, 0, address, size, lane, READS);
        else if (!ordered(w, access_of(w, writer))) conflict(w, writer, address, size, lane, READS);
        if (reader != number) {
            if (reader && access_of(w, reader)->wave != w->number) s->other_reader[at] = reader;
            s->reader[at] = number;
        }
    }
}

void lds_stored(struct wave *w, u32 address, u32 size, int lane, int access, int changed) {
    struct lds_shadow *s = w->group->shadow;
    u32 number = current_lds_access(w, access), unit = w->machine->checks->lds_unit, last = (address + size - 1) / unit;
    for (u32 at = address / unit; at <= last; at++) {
        u32 writer = s->writer[at], readers[] = {s->reader[at], s->other_reader[at]};
        if (!changed && writer) continue;
        s->writer[at] = number;
        if (writer && changed == ROUNDED && access == WRITES && access_of(w, writer)->index == w->pc - 1) writer = 0; /* copies */
        if (writer && !(access == UPDATES && access_of(w, writer)->access == UPDATES) && !ordered(w, access_of(w, writer)))
            conflict(w, writer, address, size, lane, access);
        for (int n = 0; n < 2; n++)
            if (readers[n] && !ordered(w, access_of(w, readers[n]))) conflict(w, readers[n], address, size, lane, access);
    }
}
