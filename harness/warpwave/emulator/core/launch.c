/* One launch: workgroups in order, their waves in turn.
 *
 * A wave runs until a barrier, its end, or its slice of instructions is over. A workgroup whose slice is over stays resident while the
 * next ones start, so that programs that wait for each other go on. Registers and LDS hold a NaN pattern before each workgroup. */
#include "checks.h"
#include "counts.h"
#include "numbers.h"
#include <stdlib.h>
#include <time.h>

enum { POISON = 0xffedffedu };
/* In a random order: instructions of a wave in a turn, turns of a workgroup, and one of how many chances of the next one to start beside it. */
enum { SHORT_SLICE = 500, FEW_TURNS = 16, RARELY = 8 };
/* Behind an atomic: turns of its workgroup that may be over sooner, instructions of a wave in one, of how many chances the workgroup goes
 * on, and up to how many workgroups the next one starts sooner. */
enum { NEAR = 32, SHORTEST_SLICE = 12, GOES_ON = 4, LONGEST = 7, FEW_GROUPS = 8, OFTEN = 2 };

/* Registers as the hardware sets them up, and poison in all others. */
static void begin_wave(struct machine *m, struct group *g, u32 number) {
    struct wave *w = &g->wave[number];
    w->machine = m, w->group = g, w->number = number;
    w->pc = m->entry, w->steps = 0, w->state = RUNNING, w->scc = 0, w->mode = m->mode, w->barrier_signalled = 0;
    for (u32 row = 0; row < m->rows; row++) for (int l = 0; l < LANES; l++) w->v[row][l] = POISON;
    for (u32 row = ACC; row < ACC + m->accumulators; row++) for (int l = 0; l < LANES; l++) w->v[row][l] = POISON;
    for (u32 n = 0; n < SGPRS; n++) w->s[n] = POISON;
    u32 first = number * LANES, count = m->threads - first < LANES ? m->threads - first : LANES;
    for (u32 l = 0; l < LANES; l++) w->v[0][l] = first + l; /* x in the low ten bits; y and z are 0 */
    if (!m->packed_ids) for (u32 l = 0; l < LANES; l++) w->v[1][l] = w->v[2][l] = 0;
    set_exec(w, count == LANES ? (mask)~(mask)0 : ((mask)1 << count) - 1);
    w->write_mask_of = 0;
    memset(w->write_mask, 0, sizeof w->write_mask);
    if (LANES == 32) w->s[EXEC + 1] = 0;
    memcpy(&w->s[m->packet_at], &m->packet, 8);
    memcpy(&w->s[m->kernarg_at], &m->kernarg, 8);
    if (m->private_at != ~0u) memcpy(&w->s[m->private_at], (u32[]){0, 1u << 31, m->scratch_bytes * LANES, 1u << 23}, 16);
    if (m->preload_words) memcpy(&w->s[m->preload_at], (const void *)(uintptr_t)m->kernarg, m->preload_words * 4);
    if (m->ids_in_ttmp) {
        w->s[TTMP + 9] = g->id[0];
        w->s[TTMP + 7] = (g->id[1] & 0xffff) | g->id[2] << 16;
        w->s[TTMP + 8] = number << 25;
        w->s[TTMP + 6] = 0;
    } else {
        for (int axis = 0; axis < 3; axis++) if (m->sgpr_ids[axis] != ~0u) w->s[m->sgpr_ids[axis]] = g->id[axis];
    }
    if (m->checks) begin_wave_checks(w);
}

static void begin_group(struct machine *m, struct group *g, u64 index) {
    g->id[0] = (u32)(index % m->grid[0]);
    g->id[1] = (u32)(index / m->grid[0] % m->grid[1]);
    g->id[2] = (u32)(index / m->grid[0] / m->grid[1]);
    g->near = g->held = 0;
    g->waves = g->live = (m->threads + LANES - 1) / LANES;
    if (!g->wave) {
        g->wave = aligned_alloc(64, (sizeof(struct wave) * g->waves + 63) / 64 * 64);
        memset(g->wave, 0, sizeof(struct wave) * g->waves); /* so that a fault of this file is the same at each run */
        g->lds = aligned_alloc(64, (m->lds_bytes + 127) / 64 * 64);
        for (u32 n = 0; n < g->waves; n++) g->wave[n].scratch = malloc((size_t)m->scratch_bytes * LANES + 1);
    }
    for (u32 n = 0; n < m->lds_bytes / 4; n++) ((u32 *)g->lds)[n] = POISON;
    if (m->checks) begin_group_checks(m, g);
    for (u32 n = 0; n < g->waves; n++) begin_wave(m, g, n);
    m->waves += g->waves;
}

static void end_group(struct group *g) {
    end_group_checks(g);
    for (u32 n = 0; g->wave && n < g->waves; n++) free(g->wave[n].scratch);
    free(g->wave);
    free(g->lds);
    g->wave = 0, g->lds = 0;
}

/* A function of its own: inlined, it would take registers from the loops below, which then take a sixth longer. */
static __attribute__((noinline)) u64 run_counted(struct machine *m, struct wave *w, u64 left) {
    for (; left && w->state == RUNNING; left--) {
        const struct instruction *i = &m->code[w->pc++];
        count(w, i);
        if (m->checks) before_instruction(w, i);
        i->run(w, i);
        if (m->checks) after_instruction(w, i);
        m->executed++;
    }
    return left;
}

static void run_wave(struct machine *m, struct wave *w, u64 slice) {
    u64 left = slice;
    ieee_mode = w->mode & IEEE;
    if (m->counting && !(left = run_counted(m, w, left))) return;
    while (m->checks && left && w->state == RUNNING) {
        const struct instruction *i = &m->code[w->pc++];
        left--;
        w->steps++;
        before_instruction(w, i);
        i->run(w, i);
        after_instruction(w, i);
        m->executed++;
    }
    if (m->reversal && !(left = until_reversed(m, w, left))) return;
    while (left-- && w->state == RUNNING) {
        const struct instruction *i = &m->code[w->pc++];
        i->run(w, i);
        m->executed++;
    }
}

static int is_late(const struct machine *m) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (u64)now.tv_sec * 1000000000 + (u64)now.tv_nsec >= m->until;
}

/* A number below `count`, of a generator whose state is `random` (splitmix64, by Sebastiano Vigna). */
static u64 draw(struct machine *m, u64 count) {
    u64 z = m->random += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (z ^ z >> 31) % count;
}

/* An order of `count` things: number n comes at (first + n * step) mod count. In order, unless there is a seed. */
struct order { u64 first, step, count; };
static struct order ordered(struct machine *m, u64 count) {
    struct order o = {0, 1, count};
    if (!m->random || count < 2) return o;
    o.first = draw(m, count);
    for (u64 a = count, b; a != 1;) { /* until it has no divisor in common with `count` */
        o.step = 1 + draw(m, count - 1);
        for (a = count, b = o.step; b;) { u64 rest = a % b; a = b; b = rest; }
    }
    return o;
}
static u64 nth(const struct order *o, u64 n) { return (u64)((o->first + (unsigned __int128)n * o->step) % o->count); }

/* How a turn of a workgroup ended. */
enum turn { GOES, ENDS, SWITCHES };

/* Run each wave of a workgroup once, or until one switches. */
static enum turn run_group(struct machine *m, struct group *g) {
    u32 waiting = 0, live = 0;
    struct order waves = ordered(m, g->waves);
    for (u32 n = 0; n < g->waves; n++) {
        struct wave *w = &g->wave[nth(&waves, n)];
        int is_near = g->near && m->switches < m->most_switches;
        if (w->state == RUNNING) run_wave(m, w, m->random ? 1 + draw(m, is_near ? SHORTEST_SLICE : SHORT_SLICE) : m->slice);
        if ((m->limit && m->executed >= m->limit) || (m->until && is_late(m))) {
            m->fault = LIMIT;
            longjmp(m->out, 1);
        }
        if (w->state == SWITCHING) w->state = RUNNING, g->near = NEAR;
        if (g->near && w->state == RUNNING && m->switches < m->most_switches && draw(m, GOES_ON)) {
            g->near--, g->held = (u32)draw(m, 1u << draw(m, LONGEST));
            m->switches++, m->last_switch = w->pc - 1;
            return SWITCHES;
        }
        waiting += w->state == AT_BARRIER;
        live += w->state != ENDED;
    }
    if (live && waiting == live) for (u32 n = 0; n < g->waves; n++) {
        if (g->wave[n].state != AT_BARRIER) continue;
        g->wave[n].state = RUNNING;
        if (m->checks) passed(&g->wave[n]);
    }
    return live ? GOES : ENDS;
}

/* Execute the launch; return the fault, 0 if it ended well. */
u32 execute_launch(struct machine *m) {
    u64 next = 0, groups = (u64)m->grid[0] * m->grid[1] * m->grid[2];
    u32 used = 0; /* places, the free ones between them included */
    struct group *resident = calloc(m->resident, sizeof *resident);
    u8 *busy = calloc(m->resident, 1);
    volatile u32 fault;
    struct order order = ordered(m, groups);
    enum turn turn = GOES;
    m->fault = FINE;
    m->checks = m->findings ? begin_checks(m) : 0;
    if (!setjmp(m->out)) {
        for (u64 running = 0; next < groups || running;) {
            int waited = 0;
            while (used && !busy[used - 1]) used--;
            struct order places = ordered(m, m->random && used < m->resident ? used + 1 : m->resident);
            for (u32 k = 0; k < places.count; k++) {
                u32 n = (u32)nth(&places, k);
                if (!busy[n]) {
                    /* A new workgroup only if all others used up a turn: one after the other, as long as they end. */
                    if (next >= groups) continue;
                    if (running && (m->random ? draw(m, turn == SWITCHES && running < FEW_GROUPS ? OFTEN : RARELY) : (u64)!waited)) continue;
                    begin_group(m, &resident[n], nth(&order, next++));
                    busy[n] = 1, running++;
                    if (n >= used) used = n + 1;
                }
                if (resident[n].held && resident[n].held--) continue;
                u64 turns = m->random ? 1 + draw(m, FEW_TURNS) : 64; /* barriers of a workgroup before the next has its turn */
                u64 before = m->executed;
                do turn = run_group(m, &resident[n]); while (turn == GOES && --turns && m->executed - before < m->slice * 4);
                if (turn == ENDS) busy[n] = 0, running--;
                else waited = 1;
                if (!running) break; /* the next workgroup takes the first place, whose memory is in the caches */
            }
        }
    }
    fault = m->fault;
    for (u32 n = 0; n < m->resident; n++) end_group(&resident[n]);
    if (m->checks) end_checks(m);
    if (m->reversal) end_reversal(m);
    free(resident);
    free(busy);
    return fault;
}

/* Turn the numbers of operations into their addresses, and choose how each instruction is executed. */
void prepare_code(struct instruction *code, u32 count) {
    for (u32 n = 0; n < count; n++) {
        code[n].op = &__start_operations[(uintptr_t)code[n].op];
        code[n].run = code[n].op->lanes ? quickest(&code[n]) : code[n].op->run;
    }
}

/* What the decoder and the caller need to know. */
u32 count_operations(void) { return (u32)(__stop_operations - __start_operations); }
const struct operation *operations(void) { return __start_operations; }
u32 size_of(int what) {
    const u32 sizes[] = {sizeof(struct operation), sizeof(struct instruction), sizeof(struct operand), sizeof(struct machine), LANES};
    return sizes[what];
}
