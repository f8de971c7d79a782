/* What accesses of memory and of LDS share. */
#ifndef MEMORY_H
#define MEMORY_H

#include "machine.h"

/* How a load of less than a word fills its register. */
enum part { UNSIGNED, SIGNED, LOW_HALF, HIGH_HALF, LOW_SIGNED, HIGH_SIGNED };
enum atomic { SWAP, CMPSWAP, ADD, SUB, RSUB, SMIN, UMIN, SMAX, UMAX, AND, OR, XOR, INC, DEC, ADD_F, MIN_F, MAX_F, PK_F16, PK_BF16, CLAMP_SUB };

u8 *touch_lds(struct wave *w, u32 address, u32 size, int lane, int store);
u64 atomic_result(int operation, u64 old, u64 data, u64 expected, int bytes);

#endif
