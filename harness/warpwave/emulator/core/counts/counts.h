/* What each instruction did, counted before it is executed. */
#ifndef COUNTS_H
#define COUNTS_H

#include "machine.h"

enum kind { COUNT_ONLY, COUNT_GLOBAL, COUNT_SCRATCH, COUNT_SHARED, COUNT_PAIR };

/* One instruction: `kind`, `size` in bytes a lane and `access` (enum access of checks.h) are given. Python reads it as `_Count`. */
struct count {
    u32 kind, size, access, unused;
    u64 times, lanes, bytes, lines64, least64, lines128, least128, cycles, least_cycles;
};

/* `seen` has a byte for each piece of memory of 32 bytes, those of range n from `first[n]` on: whether it was read, and written. LDS has
 * `banks`, and serves lanes of ds_read_b128 in the order that bank_cycles calls `crossed`, or in their own. */
struct counting {
    struct count *of;
    u64 *first;
    u8 *seen;
    u32 banks, crossed;
    u64 read, written; /* pieces: those that were read before they were written, and those that were written */
};

void count(struct wave *w, const struct instruction *i);

#endif
