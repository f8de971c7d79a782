/* Registers: results that are used before their wave has waited for them, and addresses and stored values that nobody wrote. */
#include "checks.h"

static int is_row(const struct operand *o) { return o->kind == OPERAND_ROW; }
static int is_scalar(const struct operand *o) { return o->kind == OPERAND_SGPR && o->index != NULL_REGISTER; }

/* Loads return in order; scalar loads that share a counter with LDS are there when nothing is in flight. */
static int is_pending(const struct wave_checks *c, u32 counter, u32 serial) {
    return serial && (counter == COUNT_SCALARS ? serial == c->scalars : counter < COUNTERS && serial > c->done[counter]);
}

static void used(struct wave *w, const struct operand *o, int again, int counter) {
    struct wave_checks *c = w->checks;
    for (u32 n = 0; n < o->words; n++) {
        u32 at = o->index + n, by, serial;
        if (is_row(o)) by = c->counter_of_row[at], serial = c->serial_of_row[at];
        else if (is_scalar(o) && at < SGPRS) by = c->counter_of_scalar[at], serial = c->serial_of_scalar[at];
        else return;
        if (!is_pending(c, by, serial) || (again && (int)by == counter)) continue; /* a second load into it comes after the first */
        find(w, FOUND_USED_EARLY, at, is_row(o) ? at : ROWS + at, 4, 0, again ? WRITES : READS);
        return;
    }
}

static void written(struct wave *w, const struct operand *o, mask lanes, int counter, u32 serial) {
    struct wave_checks *c = w->checks;
    for (u32 n = 0; n < o->words; n++) {
        u32 at = o->index + n;
        if (is_row(o)) c->written[at] |= lanes, c->counter_of_row[at] = (u8)counter, c->serial_of_row[at] = serial;
        else if (is_scalar(o) && at < SGPRS) c->counter_of_scalar[at] = (u8)counter, c->serial_of_scalar[at] = serial;
    }
}

/* An address, or what goes to memory: all lanes that are on must have been written. */
static void must_be_written(struct wave *w, const struct operand *o) {
    mask on = exec_of(w);
    if (is_row(o)) for (u32 n = 0; n < o->words; n++) {
        mask lacking = on & ~w->checks->written[o->index + n];
        if (!lacking) continue;
        int lane = LANES == 64 ? __builtin_ctzll((u64)lacking) : __builtin_ctz((u32)lacking);
        find(w, FOUND_REGISTER_UNWRITTEN, o->index + n, o->index + n, 4, lane, READS);
        return;
    }
}

/* A counter has 6 bits, that of LDS on CDNA 4. An instruction that would count further is not issued before an older one is done, and
 * LLVM relies on it: of 64 loads, it uses the first behind `s_waitcnt vmcnt(63)`, which waits for nothing. */
static void wait_for_room(struct wave *w) {
    complete(w, COUNT_LOADS, 63);
    complete(w, COUNT_STORES, 63);
    complete(w, COUNT_LDS, LANES == 64 ? 15 : 63);
}

static void wait_for(struct wave *w, const struct instruction *i) {
    u32 loads = i->imm & 127, lds = i->imm >> 8 & 127, stores = i->imm >> 16 & 127, scalars = i->imm >> 24 & 127;
    complete(w, COUNT_LOADS, loads);
    complete(w, COUNT_LDS, lds);
    complete(w, COUNT_STORES, stores);
    if (scalars == 0) w->checks->scalars++; /* all that were in flight */
}

void before_instruction(struct wave *w, const struct instruction *i) {
    struct wave_checks *c = w->checks;
    int event = i->event, counter = COUNTERS;
    c->current = 0;
    if (event == EVENT_WAIT) {
        wait_for(w, i);
        return;
    }
    if (i->flags & ACQUIRES) acquired(w);
    if (i->flags & RELEASES && event == NO_EVENT) w->group->wave[0].checks->flushed = w->machine->checks->time + 1;
    u32 serial = 0;
    switch (event) {
    case EVENT_LDS: counter = COUNT_LDS, serial = ++c->issued[COUNT_LDS]; break;
    case EVENT_LOAD: case EVENT_LOAD_TO_LDS: counter = COUNT_LOADS, serial = ++c->issued[COUNT_LOADS]; break;
    case EVENT_STORE: ++c->issued[COUNT_STORES]; break;
    case EVENT_BOTH_STORE: ++c->issued[COUNT_LOADS]; break;
    case EVENT_FLAT: counter = COUNT_LOADS, serial = ++c->issued[COUNT_LOADS], ++c->issued[COUNT_LDS]; break;
    case EVENT_SCALAR: counter = COUNT_SCALARS, serial = c->scalars; break;
    }
    if (event != NO_EVENT) wait_for_room(w);
    for (int n = 0; n < 4; n++) used(w, &i->s[n], 0, counter);
    used(w, &i->d, 1, counter);
    used(w, &i->e, 1, counter);
    if (event != NO_EVENT && event != EVENT_SCALAR) {
        must_be_written(w, &i->s[0]);
        if (i->s[1].kind == OPERAND_ROW) must_be_written(w, &i->s[1]);
    }
    int whole = i->op->lanes == 0 && event == NO_EVENT; /* matrices, exchanges between lanes: who is written is theirs */
    mask lanes = whole ? ~(mask)0 : exec_of(w);
    written(w, &i->d, lanes, counter, serial);
    written(w, &i->e, lanes, counter, serial);
    if (whole && is_row(&i->d)) written(w, &i->s[0], 0, COUNTERS, 0); /* swaps */
}

void signalled(struct wave *w) {
    struct wave_checks *c = w->checks;
    c->drained[c->signalled++ % DRAINED] = c->done[COUNT_STORES];
}
void passed(struct wave *w) {
    w->checks->passed++;
    waves_met(w);
}
