/* The list of findings of a launch: one a pair of instructions. */
#include "checks.h"

/* A new finding, or null if this pair of instructions has one: then it is counted. */
struct finding *find(struct wave *w, u32 kind, u32 other, u64 address, u32 size, int lane, int access) {
    struct checks *c = w->machine->checks;
    u32 index = w->pc - 1;
    for (u32 n = 0; n < c->count; n++) if (c->findings[n].kind == kind && c->findings[n].index == index && c->findings[n].other == other) {
        c->findings[n].times++;
        return 0;
    }
    if (c->count == c->room) return 0;
    struct finding *f = &c->findings[c->count++];
    *f = (struct finding){.address = address, .kind = kind, .index = index, .other = other, .access = (u32)access, .wave = w->number,
        .other_wave = w->number, .lane = (u32)lane, .size = size, .times = 1};
    memcpy(f->group, w->group->id, sizeof f->group);
    memcpy(f->other_group, w->group->id, sizeof f->group);
    return f;
}

/* A buffer access beyond the resource's range, which a card leaves out. Triton switches a lane off by an offset of 2^31. */
void saw_out_of_range(struct wave *w, u64 address, u32 offset, u32 size, int lane, int access) {
    const u32 off = 1u << 31, near = 1u << 16; /* a constant or scalar offset may have been added to it */
    if (offset - off + near >= 2 * near) find(w, FOUND_OUT_OF_RANGE, 0, address, size, lane, access);
}
