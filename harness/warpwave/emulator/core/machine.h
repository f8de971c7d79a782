/* The machine: a wave's registers, a decoded instruction, and the table of operations.
 *
 * A vector register is a row of LANES words; a 64-bit operand is two neighbouring rows. An operation on lanes reads rows and writes
 * rows; where its operands come from, and which lanes it may write, is decided once for all operations, in operands.c. */
#ifndef MACHINE_H
#define MACHINE_H

#include <setjmp.h>
#include <stdint.h>
#include <string.h>

#ifndef LANES
#error "LANES is 64 or 32: the lanes of a wave"
#endif

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;
#if LANES == 64
typedef u64 mask;
#else
typedef u32 mask;
#endif

/* Scalar registers by number: 0 to 105, and these. */
enum { VCC = 106, TTMP = 108, NULL_REGISTER = 124, M0 = 125, EXEC = 126, SGPRS = 128 };
/* Rows: 0 to 255 are VGPRs, 256 to 511 accumulation VGPRs. */
enum { ROWS = 512, ACC = 256 };

/* What an operand holds; REGS + n is n whole registers. The decoder reads this from the table, and turns inline constants into bits. */
enum type { NONE, B16, I16, F16, B32, I32, F32, B64, I64, F64, MASK, PKH, PKI, PKF, MIX, BF16, REGS = 32 };

enum operand_kind { OPERAND_NONE, OPERAND_SGPR, OPERAND_ROW, OPERAND_CONSTANT, OPERAND_VCCZ, OPERAND_EXECZ, OPERAND_SCC };
enum operand_flag { NEGATE = 1, ABSOLUTE = 2, HIGH = 4, NEGATE_HIGH = 8, LOW_FROM_HIGH = 16, HIGH_FROM_HIGH = 32, SIGN_EXTEND = 64 };

struct operand {
    u16 index;  /* of the first scalar register or row */
    u8 kind;
    u8 flags;
    u8 select;  /* SDWA: byte 0 to 3, word 4 and 5, dword 6 */
    u8 words;   /* registers */
    u8 unused[2];
    u64 value;  /* of a constant */
};

enum instruction_flag {
    CLAMP = 1,       /* the result is clamped */
    LANE_SHUFFLE = 2, /* source 0 goes through DPP */
    SUBWORD = 4,     /* SDWA: operands and result are parts of words */
    BOUND_ZERO = 8,  /* DPP: a lane without a source reads 0 instead of staying as it is */
    RETURNS = 16,    /* an atomic gives back the old value */
    TO_LDS = 32,     /* a load writes to LDS instead of registers */
    OFFSET_LANE = 64, INDEX_LANE = 128, /* buffer: the address has an offset, an index */
    KEEP_OTHER_HALF = 256, /* a 16-bit result leaves the other half of the register as it is */
    FETCH_INACTIVE = 512,
    VOLATILE = 1024, /* a load that goes past all caches */
    FLUSHES = 2048, /* a matrix instruction, or an atomic sum of floats, that flushes denormals, in and out */
    WIDENED = 4096, /* an atomic of less than a word, made of a compare-and-swap of the word around it: widened.py */
    ACQUIRES = 8192, /* empties the caches that are in front of what other workgroups stored */
    RELEASES = 16384, /* writes caches back; an atomic: what was stored before it needs no such instruction on its card */
    COMPARED = 32768, /* a load of what a compare-and-swap behind it compares with */
};

struct wave;
struct operation;

struct instruction;
typedef void whole(struct wave *w, const struct instruction *i);
typedef void lanes(u32 *d, u32 *e, const u32 *a, const u32 *b, const u32 *c, const u32 *m);

struct instruction {
    const struct operation *op; /* as an index before `prepare_code` */
    whole *run;  /* how it is executed: `prepare_code` chooses */
    u32 pc;      /* bytes from the start of the image */
    i32 imm;     /* offset, immediate, or index of a branch's target */
    u16 flags;
    u16 shuffle; /* DPP control, or two DS offsets, or op_sel and the like: what the operation says */
    u8 write_banks, write_rows; /* DPP */
    u8 keep;     /* SDWA: what happens to the rest of the destination: 0 zero, 1 sign, 2 keep */
    u8 scale;    /* output modifier: 1 times 2, 2 times 4, 3 half */
    u8 event;    /* what it is to the counters that a wave waits for: checks.h */
    u8 unused[7];
    struct operand d, e, s[4];
};

struct operation {
    char name[48];
    whole *run;
    lanes *lanes;
    u8 d, e, s[4];     /* enum type */
    u16 unused;
    i32 parameters[8]; /* of families that share one function */
};

/* Every operation registers itself: the linker makes one table of them. */
#define TABLE __attribute__((section("operations"), used, aligned(8)))
extern const struct operation __start_operations[], __stop_operations[];

enum state { RUNNING, AT_BARRIER, ENDED, SWITCHING };
enum fault { FINE, UNIMPLEMENTED, OUT_OF_BOUNDS, OUT_OF_LDS, TRAPPED, LIMIT, DEADLOCK };

struct range { u64 start, end; };

struct group {
    u32 id[3];
    u32 waves, live, waiting;
    u32 held; /* turns that it leaves out */
    u32 near; /* turns that may be over sooner, as an atomic was not long ago */
    u8 *lds;
    struct wave *wave;
    struct lds_shadow *shadow;
};

struct wave {
    u32 v[ROWS][LANES];
    u32 s[SGPRS];
    u32 write_mask[LANES]; /* all ones in lanes of `write_mask_of` */
    mask write_mask_of;
    u32 scc, mode;
    u32 pc;     /* index of the next instruction */
    u64 steps;  /* instructions that it executed, where its accesses are checked */
    u32 state, number;
    u32 barrier_signalled;
    u8 *scratch;
    struct group *group;
    struct machine *machine;
    struct wave_checks *checks;
};

struct machine {
    /* given */
    const struct instruction *code;
    const u32 *index_of; /* instruction index by word of the image; ~0 inside of one */
    const struct range *ranges;
    u64 image, kernarg, packet, limit, slice;
    u64 until;  /* nanoseconds of the monotonic clock; 0: no limit */
    u64 random; /* a seed for the order of waves and workgroups, then its state; 0: in order */
    u64 most_switches; /* in a random order: turns that end near an atomic */
    u32 count_code, count_ranges, words, lds_bytes, scratch_bytes, rows, accumulators;
    u32 grid[3], threads, entry, mode, user_sgprs, kernarg_at, packet_at, preload_at, preload_words, enable_id, resident;
    u32 ids_in_ttmp, generation, packed_ids;
    u32 sgpr_ids[3], private_at; /* ~0: the kernel asks for none */
    u64 findings; /* address of an array of them, if anything but the result is checked */
    u64 pairs, reversal; /* addresses: of an array, with the findings; of what is to come in the other order */
    u32 most_findings, most_pairs, lds_unit, global_unit;
    u64 counting; /* address of a struct counting, if what instructions do is counted: counts.h */
    /* found */
    u32 count_findings, count_pairs;
    u64 switches; /* turns that ended near an atomic, the last one behind the instruction `last_switch` */
    u64 executed, waves;
    u64 fault_address;
    u64 added; /* bits of the ranges to which atomics add floats: their order rounds what is there */
    u32 fault, fault_index, fault_lane, fault_size, fault_wave, fault_store;
    u32 fault_group[3];
    u32 last_switch;
    u32 rounds, decides; /* the order of atomics may round all results; what others did may decide what a program does */
    u32 last_range;
    struct checks *checks;
    jmp_buf out;
};

/* The lanes that are on. */
static inline mask exec_of(const struct wave *w) {
    mask m;
    memcpy(&m, &w->s[EXEC], sizeof m);
    return m;
}

/* Behind an atomic, and a load that waits for others, a turn may be over: what a program decides by the value may not hold any more when it
 * acts. Not behind sums of many lanes, which decide nothing. */
static inline void may_switch(struct wave *w, int decides) {
    mask on = exec_of(w);
    if (w->machine->random && on && (decides || !(on & (on - 1)))) w->state = SWITCHING;
}

static inline void set_exec(struct wave *w, mask m) { memcpy(&w->s[EXEC], &m, sizeof m); }
static inline mask vcc_of(const struct wave *w) {
    mask m;
    memcpy(&m, &w->s[VCC], sizeof m);
    return m;
}

#define EACH_LANE _Pragma("GCC ivdep") for (int l = 0; l < LANES; l++)
#define EACH_ACTIVE(w) for (mask on_ = exec_of(w); on_; on_ &= on_ - 1) for (int l = LANES == 64 ? __builtin_ctzll(on_) : __builtin_ctz(on_), once_ = 1; once_; once_ = 0)

/* MODE: two bits of rounding for float, and for half and double; what happens to denormals of float, and of half and double. */
enum { KEEPS_DENORMAL_SOURCES = 1 << 4, KEEPS_DENORMAL_RESULTS = 1 << 5, KEEPS_NARROW_OR_WIDE_SOURCES = 1 << 6, KEEPS_NARROW_OR_WIDE_RESULTS = 1 << 7 };
enum { DIRECTIONS = 15, DENORMALS = 15 << 4, FLOAT_MODES = 0xff, USUAL = DENORMALS };
/* MODE.FP16_OVFL: what is too large for a half or an 8-bit float becomes the largest number. Triton sets it for conversions to the latter. */
enum { CLAMPS_OVERFLOW = 1 << 23 };
static inline int is_usual(const struct wave *w) { return (w->mode & (FLOAT_MODES | CLAMPS_OVERFLOW)) == USUAL; }

/* modes.c */
const u32 *without_denormals(const struct wave *w, const struct operation *op, int n, const u32 *from, u32 *room);
int kind_of_result(const struct operation *op);
int flushes_result(const struct wave *w, const struct operation *op);
void flush_result(const struct operation *op, u32 *d);
void clamp_overflow(const struct operation *op, u32 *d, const u32 *a, const u32 *b, const u32 *c);
void compute(struct wave *w, const struct operation *op, u32 *d, u32 *e, const u32 *a, const u32 *b, const u32 *c, const u32 *m);

/* operands.c */
const u32 *fetch(struct wave *w, const struct operand *from, int type, u32 *room);
const u32 *writable(struct wave *w);
void run_lanes(struct wave *w, const struct instruction *i);
int is_modified(const struct operand *by, int type);

/* unmodified.c */
whole *quickest(const struct instruction *i);
u32 scalar32(const struct wave *w, const struct operand *from);
u64 scalar64(const struct wave *w, const struct operand *from);
void set_scalar(struct wave *w, const struct operand *to, u64 value, int words);
void set_mask(struct wave *w, const struct operand *to, mask value);
mask mask_operand(const struct wave *w, const struct operand *from);

/* memory.c */
void *touch(struct wave *w, u64 address, u32 size, int lane, int store);

/* fault.c */
void stop(struct wave *w, int fault) __attribute__((noreturn));

#endif
