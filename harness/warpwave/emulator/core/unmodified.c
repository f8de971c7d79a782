/* Instructions on lanes without modifiers, which are most: no question is asked about them that their words have answered. */
#include "masks.h"

/* Most instructions have no modifiers: rows as they are, scalars and constants in all lanes. */
static inline __attribute__((always_inline)) const u32 *plain(struct wave *w, const struct operand *from, int type, u32 *room) {
    return type == NONE ? room : from->kind == OPERAND_ROW ? w->v[from->index] : fetch(w, from, type, room);
}

static void run_plain(struct wave *w, const struct instruction *i) {
    const struct operation *op = i->op;
    if (!is_usual(w)) {
        run_lanes(w, i);
        return;
    }
    u32 room[4][2 * LANES] __attribute__((aligned(64))), d[2 * LANES] __attribute__((aligned(64)));
    const u32 *a = plain(w, &i->s[0], op->s[0], room[0]), *b = plain(w, &i->s[1], op->s[1], room[1]);
    const u32 *c = plain(w, &i->s[2], op->s[2], room[2]), *m = plain(w, &i->s[3], op->s[3], room[3]);
    u32 *to = w->v[i->d.index];
    if (exec_of(w) == (mask)~(mask)0) {
        op->lanes(to, d, a, b, c, m);
        return;
    }
    op->lanes(d, d, a, b, c, m);
    const u32 *lanes_on = writable(w);
    blend(to, d, lanes_on);
    if (op->d == B64 || op->d == I64 || op->d == F64 || op->d == PKF) blend(to + LANES, d + LANES, lanes_on);
}

static void run_comparison(struct wave *w, const struct instruction *i) {
    const struct operation *op = i->op;
    if (!is_usual(w)) {
        run_lanes(w, i);
        return;
    }
    u32 room[2][2 * LANES] __attribute__((aligned(64))), d[LANES] __attribute__((aligned(64)));
    op->lanes(d, d, plain(w, &i->s[0], op->s[0], room[0]), plain(w, &i->s[1], op->s[1], room[1]), d, d);
    mask result = collect(d) & exec_of(w);
    if (i->d.kind != OPERAND_NONE) set_mask(w, &i->d, result);
    if (i->e.kind != OPERAND_NONE) set_mask(w, &i->e, result);
}

whole *quickest(const struct instruction *i) {
    const struct operation *op = i->op;
    if (op->run != run_lanes || op->e != NONE || i->scale || i->d.flags & HIGH) return op->run;
    if (i->flags & (CLAMP | LANE_SHUFFLE | SUBWORD | KEEP_OTHER_HALF)) return op->run;
    for (int n = 0; n < 4; n++)
        if (op->s[n] != NONE && (i->s[n].select != 6 || is_modified(&i->s[n], op->s[n]))) return op->run;
    if (op->d != MASK) return run_plain;
    return op->s[2] == NONE && op->s[3] == NONE ? run_comparison : op->run;
}
