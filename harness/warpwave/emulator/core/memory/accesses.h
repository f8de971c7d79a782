/* What accesses of memory and of LDS share. */
#ifndef ACCESSES_H
#define ACCESSES_H

#include "machine.h"

/* How a load of less than a word fills its register. */
enum part { UNSIGNED, SIGNED, LOW_HALF, HIGH_HALF, LOW_SIGNED, HIGH_SIGNED };
enum atomic { SWAP, CMPSWAP, ADD, SUB, RSUB, SMIN, UMIN, SMAX, UMAX, AND, OR, XOR, INC, DEC, ADD_F, MIN_F, MAX_F, PK_F16, PK_BF16, CLAMP_SUB };

/* Where each form of instruction points to. */
enum form { GLOBAL, FLAT, SCRATCH, BUFFER };

/* What a buffer's range is checked for: index and offset in a record, the index, whether there is anything, or bytes. RDNA has it in the
 * resource, as OOB_SELECT. CDNA counts records if there is an index and a stride. */
enum check { RECORDS, INDEX, EMPTY, BYTES };
static inline u32 range_check(const u32 *resource, int has_index) {
    if (LANES == 32) return resource[3] >> 28 & 3;
    return has_index && resource[1] >> 16 & 0x3fff ? RECORDS : BYTES;
}
/* Neither swizzled (RDNA3: two bits) nor with lane ids added. */
static inline int is_linear(const u32 *resource) { return !(resource[1] >> (LANES == 32 ? 30 : 31) || resource[3] >> 23 & 1); }

/* Private memory of lanes: swizzled, with lane ids added, as begin_wave makes it. Where it begins is the wave's own matter. */
static inline int is_scratch(const u32 *resource) { return LANES == 64 && resource[1] >> 31 && resource[3] >> 23 & 1; }

/* Of one access: the lanes that are on, those of them that touch memory (a buffer's range bounds them), and where. */
struct addresses { u64 at[LANES]; mask on, valid; };

/* whole_wave.c: whether all lanes may be moved at once; then where from or to, and the moves, of words or of less than one. */
int locate_all(struct wave *w, const struct instruction *i, int form, u32 size, struct addresses *a);
int locate_lds(struct wave *w, const u32 *addresses, u32 offset, u32 size, struct addresses *a);
void load_rows(struct wave *w, u32 row, const struct addresses *a, u32 words);
void store_rows(struct wave *w, u32 row, const struct addresses *a, u32 words);
void load_parts(struct wave *w, u32 row, const struct addresses *a, int bytes, int kind);
void store_parts(struct wave *w, u32 row, const struct addresses *a, int bytes, int high);

u8 *touch_lds(struct wave *w, u32 address, u32 size, int lane, int store);
u64 atomic_result(int operation, u64 old, u64 data, u64 expected, int bytes);
u32 sum_without_denormals(u32 old, u32 data, int of_sources, int of_result);

#endif
