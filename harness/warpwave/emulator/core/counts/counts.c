/* Counts what instructions ask of memory and of LDS: lines of memory that a wave touches, and cycles of the banks of LDS.
 *
 * Nothing here depends on where the host puts a tensor: lines are counted from the start of its buffer, which a card aligns to more. */
#include "counts.h"
#include "accesses.h"
#include "checks.h"

enum { PIECE = 5, SLOTS = 512 }; /* pieces of 2^5 bytes; more slots than lanes touch lines */
enum { WAS_READ = 1, WAS_WRITTEN = 2 };

/* A set of numbers, cleared in one step: a slot belongs to it if it has the set's own stamp. */
struct set { u64 value[SLOTS]; u32 stamp[SLOTS], now; };

static u32 added(struct set *s, u64 value) {
    u32 at = (u32)((value * 0x9e3779b97f4a7c15) >> 55);
    while (s->stamp[at] == s->now) {
        if (s->value[at] == value) return 0;
        at = (at + 1) % SLOTS;
    }
    s->stamp[at] = s->now, s->value[at] = value;
    return 1;
}

/* The range that an address is in, or null: such an access ends the launch. */
static const struct range *range_of(const struct machine *m, u64 address) {
    const struct range *one = &m->ranges[m->last_range];
    if (m->count_ranges && one->start <= address && address < one->end) return one;
    for (u32 n = 0; n < m->count_ranges; n++)
        if (m->ranges[n].start <= address && address < m->ranges[n].end) return &m->ranges[n];
    return 0;
}

static void see(struct counting *c, u64 piece, int access) {
    u8 *seen = &c->seen[piece];
    if (access != WRITES && !*seen) c->read++, *seen |= WAS_READ;
    if (access != READS && !(*seen & WAS_WRITTEN)) c->written++, *seen |= WAS_WRITTEN;
}

/* Where the last pattern of addresses of an instruction of this wave is kept, and what was counted for it: loops repeat patterns, and those
 * of another workgroup often differ by whole lines. */
enum { PATTERNS = 512 };
static u32 slot(const struct wave *w, const struct instruction *i, u32 which) {
    return (((u32)(i - w->machine->code) * 16 + w->number) * 2 + which) * 2654435761u >> 23;
}

struct pattern { u64 at[LANES]; u32 lanes, size, lines64, lines128, distinct; };

/* `at` is where each lane is, counted from the start of its buffer, with the number of the buffer on top. */
static void find_lines(struct pattern *p) {
    static _Thread_local struct set lines, places;
    u64 last = ~(u64)0, last_wide = ~(u64)0;
    int is_rising = 1;
    for (u32 n = 1; n < p->lanes; n++) is_rising &= p->at[n] >= p->at[n - 1] + p->size;
    p->lines64 = p->lines128 = p->distinct = 0;
    lines.now++, places.now++;
    for (u32 n = 0; n < p->lanes; n++) {
        p->distinct += is_rising || added(&places, p->at[n]) ? p->size : 0;
        for (u64 line = p->at[n] / 64; line <= (p->at[n] + p->size - 1) / 64; line++) {
            if (line == last) continue;
            p->lines64 += is_rising || added(&lines, line);
            if (line / 2 != last_wide) p->lines128 += is_rising || added(&lines, line / 2 + ((u64)1 << 63));
            last = line, last_wide = line / 2;
        }
    }
}

static void count_lines(struct wave *w, const struct instruction *i, struct count *of, u64 *at, u32 lanes) {
    static _Thread_local struct pattern table[PATTERNS];
    struct pattern *p = &table[slot(w, i, 0)];
    u64 first = lanes ? at[0] / 128 * 128 : 0, differs = p->lanes ^ lanes | p->size ^ of->size;
    /* Relative to the first lane, and more than 0 for a lane before it. */
    for (u32 n = 0; n < lanes; n++) at[n] += ((u64)1 << 62) - first, differs |= at[n] ^ p->at[n];
    if (differs) {
        memcpy(p->at, at, lanes * sizeof *at);
        p->lanes = lanes, p->size = of->size;
        find_lines(p);
    }
    of->bytes += (u64)lanes * of->size;
    of->lines64 += p->lines64, of->least64 += (p->distinct + 63) / 64;
    of->lines128 += p->lines128, of->least128 += (p->distinct + 127) / 128;
}

/* Where all lanes point to, as an unchecked execution finds it; what is left out there ends the launch, or has an index. */
static int find_all(struct wave *w, const struct instruction *i, u32 size, struct addresses *a) {
    struct checks *checks = w->machine->checks;
    struct instruction plain = *i;
    if (i->flags & INDEX_LANE) return 0;
    plain.flags &= (u16)~TO_LDS;
    w->machine->checks = 0;
    locate_all(w, &plain, i->op->parameters[0], size, a);
    w->machine->checks = checks;
    return 1;
}

static void count_global(struct wave *w, const struct instruction *i, struct counting *c, struct count *of) {
    struct machine *m = w->machine;
    struct addresses all;
    u64 key[LANES], last = ~(u64)0;
    u32 lanes = 0;
    const struct range *in = 0;
    if (!find_all(w, i, of->size, &all)) return;
    for (mask on = all.valid; on; on &= on - 1) {
        u64 at = all.at[LANES == 64 ? __builtin_ctzll(on) : __builtin_ctz((u32)on)];
        if (!in || at < in->start || at >= in->end) in = range_of(m, at);
        if (!in) continue; /* LDS or scratch, of a flat address */
        u64 number = (u64)(in - m->ranges), from = at - in->start, first = c->first[number];
        key[lanes++] = number << 48 | from;
        for (u64 piece = first + (from >> PIECE); piece <= first + ((from + of->size - 1) >> PIECE); piece++) {
            if (piece != last) see(c, piece, (int)of->access);
            last = piece;
        }
    }
    count_lines(w, i, of, key, lanes);
}

/* Cycles of the banks for one address a lane: lanes go in phases, as many as fill all banks once. In a phase, a bank gives one word a
 * cycle, to all lanes that ask for it; a phase whose lanes are off takes a cycle, too. Where phases of ds_read_b128 are `crossed`, quads of
 * lanes go together that are not neighbours. */
static u32 bank_cycles(const u32 *at, mask on, const struct counting *c, const struct count *of, u32 *least) {
    static const u8 quads[2][4][4] = {{{0, 5}, {1, 4}, {2, 7}, {3, 6}}, {{0, 3, 5, 6}, {1, 2, 4, 7}}}; /* of 32 lanes; 32 and 64 banks */
    u32 words = of->size < 4 ? 1 : of->size / 4, banks = c->banks, lanes = banks / (words == 3 ? 4 : words), cycles = 0;
    int crossed = c->crossed && words == 4 && of->access == READS;
    lanes = lanes > LANES ? LANES : lanes;
    for (u32 phase = 0; phase < LANES / lanes; phase++) {
        static _Thread_local u32 held[64][64], count[64];
        u32 most = 1;
        u64 used = 0; /* banks: `count` holds nothing of the others */
        for (u32 n = 0; n < lanes; n++) {
            u32 l = phase * lanes + n;
            if (crossed) l = l / 32 * 32 + quads[banks == 64][phase % (32 / lanes)][n / 4] * 4 + n % 4;
            if (!(on >> l & 1)) continue;
            for (u32 word = at[l] / 4, end = word + words; word < end; word++) {
                u32 bank = word & (banks - 1), k = 0;
                if (!(used >> bank & 1)) used |= (u64)1 << bank, count[bank] = 0;
                while (k < count[bank] && held[bank][k] != word) k++;
                if (k == count[bank]) held[bank][count[bank]++] = word;
                most = count[bank] > most ? count[bank] : most;
            }
        }
        cycles += most, ++*least;
    }
    return cycles;
}

/* The same, but addresses that an instruction of this wave had before, up to a whole row of banks, are known. */
static void count_banks(struct wave *w, const struct instruction *i, u32 offset, u32 which, const struct counting *c, struct count *of) {
    static _Thread_local struct known { mask on; u32 kind, at[LANES], cycles, least; } table[PATTERNS];
    const u32 *given = w->v[i->s[0].index];
    mask on = exec_of(w);
    u32 at[LANES], kind = of->size | of->access << 8 | c->banks << 16 | c->crossed << 24, row = c->banks * 4;
    u32 first = on & 1 ? (given[0] + offset) / row * row : 0;
    for (u32 l = 0; l < LANES; l++) at[l] = given[l] + offset - first;
    struct known *known = &table[slot(w, i, which)];
    if (known->kind != kind || known->on != on || memcmp(known->at, at, sizeof at)) {
        known->kind = kind, known->on = on, known->least = 0;
        memcpy(known->at, at, sizeof at);
        known->cycles = bank_cycles(at, on, c, of, &known->least);
    }
    of->cycles += known->cycles, of->least_cycles += known->least;
}

void count(struct wave *w, const struct instruction *i) {
    struct machine *m = w->machine;
    struct counting *c = (struct counting *)(uintptr_t)m->counting;
    struct count *of = &c->of[i - m->code];
    mask on = exec_of(w);
    u32 lanes = (u32)(LANES == 64 ? __builtin_popcountll(on) : __builtin_popcount((u32)on));
    of->times++, of->lanes += lanes;
    if (of->kind == COUNT_GLOBAL && i->op->parameters[0] == BUFFER && is_scratch(&w->s[i->s[2].index])) of->kind = COUNT_SCRATCH;
    if (of->kind == COUNT_ONLY || !lanes) return;
    if (of->kind == COUNT_GLOBAL) {
        count_global(w, i, c, of);
        return;
    }
    of->bytes += (u64)lanes * of->size * (of->kind == COUNT_PAIR ? 2 : 1);
    if (of->kind == COUNT_SCRATCH) return;
    for (u32 which = 0; which < (of->kind == COUNT_PAIR ? 2 : 1); which++) {
        u32 offset = (u32)i->imm;
        if (of->kind == COUNT_PAIR) offset = (offset >> which * 8 & 0xff) * (u32)(i->op->parameters[0] * i->op->parameters[1]);
        count_banks(w, i, offset, which, c, of);
    }
}
