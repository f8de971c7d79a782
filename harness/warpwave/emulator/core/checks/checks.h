/* What an execution is checked for, beside its result: races in LDS and in global memory, what is used before it is there, and what
 * nobody wrote. Off, it costs one test of a pointer an access. */
#ifndef CHECKS_H
#define CHECKS_H

#include "machine.h"

/* What a memory instruction is to the counters that a wave waits for; the decoder says it (`event` of an instruction). */
enum event { NO_EVENT, EVENT_LDS, EVENT_SCALAR, EVENT_LOAD, EVENT_STORE, EVENT_FLAT, EVENT_LOAD_TO_LDS, EVENT_WAIT, EVENT_BOTH_STORE };
/* Global loads (and stores, where they share it), LDS, stores, scalar loads where they have their own. */
enum counter { COUNT_LOADS, COUNT_LDS, COUNT_STORES, COUNT_SCALARS, COUNTERS };
enum { NO_WAIT = 127 };
enum found { FOUND_LDS_RACE = 1, FOUND_GLOBAL_RACE, FOUND_LDS_UNWRITTEN, FOUND_REGISTER_UNWRITTEN, FOUND_USED_EARLY, FOUND_LDS_USED_EARLY, FOUND_OUT_OF_RANGE };
/* How an access touches memory. */
enum access { READS, WRITES, UPDATES };
/* What a store did to memory; ROUNDED: the number is nearly the same. */
enum change { UNCHANGED, CHANGED, ROUNDED };

/* One defect of a pair of instructions, with its first example; `access` is `enum access`. Python reads it as `_Found`. */
struct finding {
    u64 address;
    u32 kind, index, other, access, other_access, wave, other_wave, lane, size, times, in_flight;
    u32 group[3], other_group[3];
};

/* One instruction of a wave that touched LDS. `until` counts the barriers that its wave had signalled when it was known to be done. */
struct lds_access { u32 index, until; u16 wave; u8 access, counter; };
struct lds_shadow {
    struct lds_access *done;
    u32 count, room;
    u32 *writer, *reader, *other_reader; /* by unit of LDS: the last write, the last read, and the last one of another wave; 0: none */
    struct global_access *accesses; /* of this workgroup, since `generation` began; numbers count from 1 */
    u32 count_accesses, room_accesses, generation;
};

/* One instruction of a wave that touched global memory. `signalled` counts the barriers that its wave had come to, `serial` its stores. */
struct global_access { u64 step; u32 index, signalled, serial; u16 wave, access; };
struct wave_cell { u32 generation, writer, reader, other_reader; };
/* Two accesses of different waves that nothing orders. Python reads it as `_Pair`. */
struct pair {
    u64 address, first_step, second_step;
    u32 first_index, second_index, first_wave, second_wave, first_access, second_access, lane, size, in_flight, latest;
    u32 first_group[3], second_group[3];
};
/* What is to come in the other order: Python gives it as `_Reversal`. `kept` is a wave whose store is held. */
enum reversal_state { BEFORE, HELD, REVERSED };
struct reversal {
    u64 first_step, second_step, kept;
    u32 first_index, second_index, first_wave, second_wave, in_flight, first_group[3], second_group[3], state;
};

enum { QUEUE = 1024, DRAINED = 4 };
struct wave_checks {
    u32 passed, signalled;
    u32 drained[DRAINED]; /* the stores that were done at the last barriers that it signalled */
    u32 issued[COUNTERS], done[COUNTERS];
    u32 scalars; /* scalar loads since the last wait for all of them have this number */
    struct { u32 serial, access; } queue[COUNTERS][QUEUE];
    u32 first[COUNTERS], last[COUNTERS];
    u32 current; /* the access that this instruction is, once it has touched LDS */
    u8 counter_of_row[ROWS], counter_of_scalar[SGPRS];
    u32 serial_of_row[ROWS], serial_of_scalar[SGPRS];
    mask written[ROWS];
    /* Times of global accesses. Those before the horizon are ordered before this workgroup's; those before `seen` will be, once it acquires.
     * Those before `linked` had an atomic behind them that it saw, and those before `flushed` were written back by it. */
    u32 horizon, seen, linked, flushed;
};

struct cell {
    u32 writer, written_at, written_by, reader, read_at, read_by, other_reader, other_read_at, other_read_by, released, updated, storer;
    u32 written_step, read_step, other_read_step;
    u8 written_wave, read_wave, other_read_wave;
};
struct checks {
    u32 lds_unit, global_unit, room, count;
    struct finding *findings;
    struct cell **cells; /* by range; null: too large to watch */
    struct wave_cell **wave_cells;
    u32 time, generations;
    struct { u64 address; u32 size, lane, access, is_lds; u8 old[16]; } stores[4 * LANES];
    u32 count_stores;
};

struct checks *begin_checks(struct machine *m);
void end_checks(struct machine *m);
void begin_group_checks(struct machine *m, struct group *g);
void end_group_checks(struct group *g);
void begin_wave_checks(struct wave *w);
void before_instruction(struct wave *w, const struct instruction *i);
void after_instruction(struct wave *w, const struct instruction *i);
void saw_lds(struct wave *w, u32 address, u32 size, int lane, int access);
void saw_global(struct wave *w, u64 address, u32 size, int lane, int access);
void saw_out_of_range(struct wave *w, u64 address, u32 offset, u32 size, int lane, int access);
void signalled(struct wave *w);
void passed(struct wave *w);
struct finding *find(struct wave *w, u32 kind, u32 other, u64 address, u32 size, int lane, int access);
void lds_stored(struct wave *w, u32 address, u32 size, int lane, int access, int changed);
void acquired(struct wave *w);
void global_stored(struct wave *w, u64 address, u32 size, int lane, int access, int changed);
void complete(struct wave *w, int counter, u32 left);
u32 current_lds_access(struct wave *w, int access);

/* waves.c */
void waves_loaded(struct wave *w, u64 address, u32 size, int lane);
void waves_stored(struct wave *w, u64 address, u32 size, int lane, int access, int changed);
void waves_met(struct wave *w);
void waves_anew(struct machine *m, struct group *g);
void note_atomic(struct wave *w);
void note_loaded(struct machine *m);
void add_pair(struct machine *m, struct pair now);
u64 until_reversed(struct machine *m, struct wave *w, u64 left);
void end_reversal(struct machine *m);

#endif
