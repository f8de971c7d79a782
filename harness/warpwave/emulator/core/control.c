/* Control flow, barriers, messages and the machine's own registers. */
#include "checks.h"
#include "numbers.h"

#define WHOLE(name, D, A, body)                                                                                 \
    static void name(struct wave *w, const struct instruction *i) {                                             \
        (void)w, (void)i;                                                                                       \
        body;                                                                                                   \
    }                                                                                                           \
    static const struct operation op_##name TABLE = {#name, name, 0, D, NONE, {A}, 0, {0}};

/* `imm` of a branch is the index of its target. */
#define BRANCH(name, test) WHOLE(name, NONE, NONE, if (test) w->pc = (u32)i->imm)
BRANCH(s_branch, 1)
BRANCH(s_cbranch_scc0, !w->scc)
BRANCH(s_cbranch_scc1, w->scc)
BRANCH(s_cbranch_vccz, vcc_of(w) == 0)
BRANCH(s_cbranch_vccnz, vcc_of(w) != 0)
BRANCH(s_cbranch_execz, exec_of(w) == 0)
BRANCH(s_cbranch_execnz, exec_of(w) != 0)

static u64 address_of_next(const struct wave *w) { return w->machine->image + w->machine->code[w->pc].pc; }
static void jump(struct wave *w, u64 address) {
    u64 word = (address - w->machine->image) / 4;
    if (word >= w->machine->words || w->machine->index_of[word] == ~0u) stop(w, UNIMPLEMENTED);
    w->pc = w->machine->index_of[word];
}
WHOLE(s_getpc_b64, B64, NONE, set_scalar(w, &i->d, address_of_next(w), 2))
WHOLE(s_setpc_b64, NONE, B64, jump(w, scalar64(w, &i->s[0])))
WHOLE(s_swappc_b64, B64, B64, u64 to = scalar64(w, &i->s[0]); set_scalar(w, &i->d, address_of_next(w), 2); jump(w, to))
WHOLE(s_call_b64, B64, NONE, set_scalar(w, &i->d, address_of_next(w), 2); w->pc = (u32)i->imm)

WHOLE(s_endpgm, NONE, NONE, w->state = ENDED)
WHOLE(s_trap, NONE, NONE, stop(w, TRAPPED))

/* What orders, delays or hints, and changes no value: results here are there when an instruction ends. */
#define NOTHING(name) WHOLE(name, NONE, NONE, )
NOTHING(s_nop) NOTHING(s_waitcnt) NOTHING(s_sleep) NOTHING(s_setprio) NOTHING(s_sendmsg) NOTHING(s_icache_inv) NOTHING(s_dcache_inv)
NOTHING(s_dcache_wb) NOTHING(s_clause) NOTHING(s_delay_alu) NOTHING(s_waitcnt_depctr) NOTHING(s_set_inst_prefetch_distance)
NOTHING(s_waitcnt_vscnt) NOTHING(s_waitcnt_vmcnt) NOTHING(s_waitcnt_expcnt) NOTHING(s_waitcnt_lgkmcnt) NOTHING(s_wait_loadcnt)
NOTHING(s_wait_storecnt) NOTHING(s_wait_samplecnt) NOTHING(s_wait_bvhcnt) NOTHING(s_wait_expcnt) NOTHING(s_wait_dscnt)
NOTHING(s_wait_kmcnt) NOTHING(s_wait_loadcnt_dscnt) NOTHING(s_wait_storecnt_dscnt) NOTHING(s_wait_alu) NOTHING(s_wait_idle)
NOTHING(s_wait_event) NOTHING(v_nop) NOTHING(buffer_wbl2) NOTHING(buffer_inv) NOTHING(buffer_gl0_inv)
NOTHING(buffer_gl1_inv) NOTHING(global_inv) NOTHING(global_wb) NOTHING(global_wbinv) NOTHING(s_prefetch_inst)
NOTHING(s_prefetch_inst_pc_rel) NOTHING(s_prefetch_data) NOTHING(s_prefetch_data_pc_rel) NOTHING(s_wakeup)
NOTHING(buffer_wbinvl1) NOTHING(buffer_wbinvl1_vol) NOTHING(ds_nop) NOTHING(s_version)

/* Barriers. A wave that has ended counts as arrived. */
static void tell(struct wave *w) { if (w->machine->checks) signalled(w); }
WHOLE(s_barrier, NONE, NONE, tell(w); w->state = AT_BARRIER)
WHOLE(s_barrier_signal, NONE, NONE, tell(w); w->barrier_signalled = 1)
WHOLE(s_barrier_wait, NONE, NONE, if (!w->barrier_signalled) stop(w, DEADLOCK); w->barrier_signalled = 0; w->state = AT_BARRIER)

/* Clocks count instructions: a kernel sees them go up, and the same at each run. */
WHOLE(s_memtime, B64, NONE, set_scalar(w, &i->d, w->machine->executed, 2))
WHOLE(s_memrealtime, B64, NONE, set_scalar(w, &i->d, w->machine->executed / 16, 2))

/* Machine registers: MODE can be read, and set to what it is; `imm` is number, first bit and width. */
static u32 whole_register(struct wave *w, int number) {
    switch (number) {
    case 1: return w->mode;
    /* Where a wave runs: everything runs in one place. */
    case LANES == 64 ? 4 : 23: case LANES == 64 ? 20 : 24: return 0; /* HW_ID, XCC_ID; HW_ID1, HW_ID2 */
    default: stop(w, UNIMPLEMENTED);
    }
}
static u32 field_mask(i32 imm) { return (u32)(((u64)1 << ((imm >> 11 & 31) + 1)) - 1); }
static void s_getreg_b32(struct wave *w, const struct instruction *i) {
    set_scalar(w, &i->d, whole_register(w, i->imm & 63) >> (i->imm >> 6 & 31) & field_mask(i->imm), 1);
}
static void set_register(struct wave *w, const struct instruction *i, u32 value) {
    u32 at = (u32)i->imm >> 6 & 31, ones = field_mask(i->imm), number = i->imm & 63;
    u32 changed = (w->mode & ~(ones << at)) | (value & ones) << at;
    if (number != 1) stop(w, UNIMPLEMENTED); /* exceptions and hints of MODE have no effect */
    w->mode = changed;
    ieee_mode = changed & IEEE;
}
static void s_setreg_b32(struct wave *w, const struct instruction *i) { set_register(w, i, scalar32(w, &i->s[0])); }
static void s_setreg_imm32_b32(struct wave *w, const struct instruction *i) { set_register(w, i, scalar32(w, &i->s[0])); }
/* Rounding and denormals, four bits of MODE each. */
static void set_mode(struct wave *w, const struct instruction *i, int first) {
    w->mode = (w->mode & ~(15u << first)) | ((u32)i->imm & 15) << first;
}
WHOLE(s_round_mode, NONE, NONE, set_mode(w, i, 0)) WHOLE(s_denorm_mode, NONE, NONE, set_mode(w, i, 4))
static const struct operation op_s_getreg TABLE = {"s_getreg_b32", s_getreg_b32, 0, B32, NONE, {NONE}, 0, {0}};
static const struct operation op_s_setreg TABLE = {"s_setreg_b32", s_setreg_b32, 0, NONE, NONE, {B32}, 0, {0}};
static const struct operation op_s_setreg_imm TABLE = {"s_setreg_imm32_b32", s_setreg_imm32_b32, 0, NONE, NONE, {B32}, 0, {0}};

static void unimplemented(struct wave *w, const struct instruction *i) {
    (void)i;
    stop(w, UNIMPLEMENTED);
}
static const struct operation op_unimplemented TABLE = {"unimplemented", unimplemented, 0, NONE, NONE, {NONE}, 0, {0}};
