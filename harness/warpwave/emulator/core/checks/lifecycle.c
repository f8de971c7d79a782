/* Checks of one launch: their memory, what they found, and what happens around each instruction. */
#include "checks.h"
#include <math.h>
#include <stdlib.h>

enum { MOST_WATCHED = 64 << 20 }; /* bytes of a buffer that is watched for races between workgroups */

struct checks *begin_checks(struct machine *m) {
    struct checks *c = calloc(1, sizeof *c);
    c->findings = (struct finding *)(uintptr_t)m->findings, c->room = m->most_findings;
    c->lds_unit = m->lds_unit, c->global_unit = m->global_unit, c->time = 1;
    c->cells = calloc(m->count_ranges + 1, sizeof *c->cells);
    c->wave_cells = calloc(m->count_ranges + 1, sizeof *c->wave_cells);
    u64 groups = (u64)m->grid[0] * m->grid[1] * m->grid[2];
    for (u32 n = 0; n < m->count_ranges; n++) { /* touched pages alone exist */
        u64 size = m->ranges[n].end - m->ranges[n].start;
        if (size > MOST_WATCHED) continue;
        if (groups > 1 && groups < ~0u) c->cells[n] = calloc(size / c->global_unit + 2, sizeof(struct cell));
        if (m->threads > LANES) c->wave_cells[n] = calloc(size / c->global_unit + 2, sizeof(struct wave_cell));
    }
    return c;
}

void end_checks(struct machine *m) {
    for (u32 n = 0; n < m->count_ranges; n++) free(m->checks->cells[n]), free(m->checks->wave_cells[n]);
    m->count_findings = m->checks->count;
    free(m->checks->cells);
    free(m->checks->wave_cells);
    free(m->checks);
    m->checks = 0;
}

void begin_group_checks(struct machine *m, struct group *g) {
    u32 units = m->lds_bytes / m->checks->lds_unit + 1;
    if (!g->shadow) {
        g->shadow = calloc(1, sizeof *g->shadow);
        g->shadow->writer = malloc(units * 3 * sizeof(u32));
        g->shadow->reader = g->shadow->writer + units, g->shadow->other_reader = g->shadow->reader + units;
        for (u32 n = 0; n < g->waves; n++) g->wave[n].checks = malloc(sizeof(struct wave_checks));
    }
    memset(g->shadow->writer, 0, units * 3 * sizeof(u32));
    g->shadow->count = 1;
    waves_anew(m, g);
}

void end_group_checks(struct group *g) {
    if (!g->shadow) return;
    for (u32 n = 0; n < g->waves; n++) free(g->wave[n].checks);
    free(g->shadow->writer);
    free(g->shadow->done);
    free(g->shadow->accesses);
    free(g->shadow);
    g->shadow = 0;
}

/* What the hardware sets up counts as written. */
void begin_wave_checks(struct wave *w) {
    struct wave_checks *c = w->checks;
    memset(c, 0, sizeof *c);
    c->written[0] = ~(mask)0;
    if (!w->machine->packed_ids) c->written[1] = c->written[2] = ~(mask)0;
    c->scalars = 1;
}

/* Lanes and waves often hold copies of one sum, added up in different orders: in LDS, 2% are rounding; fewer where a result is stored. Whole
 * numbers have the bits of denormal floats, which are no rounding. */
#define OF_COPIES 0.02f
#define OF_A_SUM 1e-4f
static int is_rounding(const u8 *one, const u8 *other, u32 size, float share) {
    for (u32 at = 0; at + 4 <= size; at += 4) {
        float a, b;
        memcpy(&a, one + at, 4), memcpy(&b, other + at, 4);
        if (memcmp(one + at, other + at, 4) && !(isnormal(a) && isnormal(b) && fabsf(a - b) <= share * fmaxf(fabsf(a), fabsf(b)))) return 0;
    }
    return size >= 4;
}

/* Two lanes of one store with one address and two values: which one stays is the card's choice. What was there before the later lane is
 * what the earlier one stored. */
static void lanes_disagree(struct wave *w, u32 later, const void *now) {
    struct checks *c = w->machine->checks;
    if (is_rounding(c->stores[later].old, now, c->stores[later].size, c->stores[later].is_lds ? OF_COPIES : OF_A_SUM)) return;
    for (u32 n = 0; n < later; n++) {
        if (c->stores[n].address != c->stores[later].address || c->stores[n].lane == c->stores[later].lane) continue;
        u32 kind = c->stores[later].is_lds ? FOUND_LDS_RACE : FOUND_GLOBAL_RACE;
        struct finding *f = find(w, kind, w->pc - 1, c->stores[later].address, c->stores[later].size, (int)c->stores[later].lane, WRITES);
        if (f) f->other_access = WRITES;
        return;
    }
}

/* Stores are judged when the instruction is over: what they did not change is no conflict. */
void after_instruction(struct wave *w, const struct instruction *i) {
    struct checks *c = w->machine->checks;
    (void)i;
    for (u32 n = 0; n < c->count_stores; n++) {
        u64 address = c->stores[n].address;
        u32 size = c->stores[n].size;
        const void *now = c->stores[n].is_lds ? (const void *)(w->group->lds + address) : (const void *)(uintptr_t)address;
        int changed = memcmp(now, c->stores[n].old, size) == 0 ? UNCHANGED : is_rounding(c->stores[n].old, now, size, OF_COPIES) ? ROUNDED : CHANGED;
        if (changed && n && c->stores[n].access == WRITES && c->stores[n].is_lds == c->stores[0].is_lds) lanes_disagree(w, n, now);
        if (c->stores[n].is_lds) lds_stored(w, (u32)address, size, (int)c->stores[n].lane, (int)c->stores[n].access, changed);
        else global_stored(w, address, size, (int)c->stores[n].lane, (int)c->stores[n].access, changed);
    }
    c->count_stores = 0;
    if (w->state == ENDED) for (int counter = 0; counter < COUNTERS; counter++) complete(w, counter, 0);
}
