/* What moves values between lanes, and between lanes and scalars. */
#include "numbers.h"

#define WHOLE(name, D, A, B, body)                                                                              \
    static void name(struct wave *w, const struct instruction *i) { body; }                                    \
    static const struct operation op_##name TABLE = {#name, name, 0, D, NONE, {A, B}, 0, {0}};

static u32 in_lane(struct wave *w, const struct operand *from, u32 lane) {
    return from->kind == OPERAND_ROW ? w->v[from->index][lane] : scalar32(w, from);
}
static int lowest(mask m) { return m ? (LANES == 64 ? __builtin_ctzll((u64)m) : __builtin_ctz((u32)m)) : 0; }

WHOLE(v_readfirstlane_b32, B32, B32, NONE, set_scalar(w, &i->d, in_lane(w, &i->s[0], (u32)lowest(exec_of(w))), 1))
WHOLE(v_readlane_b32, B32, B32, B32, set_scalar(w, &i->d, in_lane(w, &i->s[0], scalar32(w, &i->s[1]) & (LANES - 1)), 1))
WHOLE(v_writelane_b32, B32, B32, B32, w->v[i->d.index][scalar32(w, &i->s[1]) & (LANES - 1)] = scalar32(w, &i->s[0]))

static void exchange(struct wave *w, u32 row, u32 l, u32 other, u32 k) {
    u32 held = w->v[row][l];
    w->v[row][l] = w->v[other][k];
    w->v[other][k] = held;
}
WHOLE(v_swap_b32, B32, B32, NONE, EACH_ACTIVE(w) exchange(w, i->d.index, (u32)l, i->s[0].index, (u32)l))
/* Odd rows of 16 (halves of 32) of the destination change places with even ones of the source; all lanes take part. */
#if LANES == 64
WHOLE(v_permlane16_swap_b32, B32, B32, NONE,
      for (u32 l = 0; l < 64; l++) if (l & 16) exchange(w, i->d.index, l, i->s[0].index, l ^ 16))
WHOLE(v_permlane32_swap_b32, B32, B32, NONE,
      for (u32 l = 0; l < 64; l++) if (l & 32) exchange(w, i->d.index, l, i->s[0].index, l ^ 32))
#endif

/* Each lane reads a lane of its own row of 16, or of the other row of its 32; `shuffle` bit 0 is fetch-inactive, bit 1 bound-control. */
static void permute_rows(struct wave *w, const struct instruction *i, u32 across) {
    u32 from[LANES];
    u64 select = scalar32(w, &i->s[1]) | (u64)scalar32(w, &i->s[2]) << 32;
    mask on = exec_of(w);
    memcpy(from, w->v[i->s[0].index], sizeof from);
    EACH_ACTIVE(w) {
        u32 other = (((u32)l & ~15u) ^ across) | (u32)(select >> (l & 15) * 4 & 15);
        if (on >> other & 1 || i->shuffle & 1) w->v[i->d.index][l] = from[other];
        else if (i->shuffle & 2) w->v[i->d.index][l] = 0;
    }
}
static void permute_rows_by_lane(struct wave *w, const struct instruction *i, u32 across) {
    u32 from[LANES], select[LANES];
    mask on = exec_of(w);
    memcpy(from, w->v[i->s[0].index], sizeof from);
    memcpy(select, w->v[i->s[1].index], sizeof select);
    EACH_ACTIVE(w) {
        u32 other = (((u32)l & ~15u) ^ across) | (select[l] & 15);
        if (on >> other & 1 || i->shuffle & 1) w->v[i->d.index][l] = from[other];
        else if (i->shuffle & 2) w->v[i->d.index][l] = 0;
    }
}
static void v_permlane16_b32(struct wave *w, const struct instruction *i) { permute_rows(w, i, 0); }
static void v_permlanex16_b32(struct wave *w, const struct instruction *i) { permute_rows(w, i, 16); }
static void v_permlane16_var_b32(struct wave *w, const struct instruction *i) { permute_rows_by_lane(w, i, 0); }
static void v_permlanex16_var_b32(struct wave *w, const struct instruction *i) { permute_rows_by_lane(w, i, 16); }
static const struct operation op_permlane16 TABLE = {"v_permlane16_b32", v_permlane16_b32, 0, B32, NONE, {B32, B32, B32}, 0, {0}};
static const struct operation op_permlanex16 TABLE = {"v_permlanex16_b32", v_permlanex16_b32, 0, B32, NONE, {B32, B32, B32}, 0, {0}};
static const struct operation op_permlane16_var TABLE = {"v_permlane16_var_b32", v_permlane16_var_b32, 0, B32, NONE, {B32, B32}, 0, {0}};
static const struct operation op_permlanex16_var TABLE = {"v_permlanex16_var_b32", v_permlanex16_var_b32, 0, B32, NONE, {B32, B32}, 0, {0}};

/* DS permutes: addresses are four times the lane; they use no memory. s[0] is the address, s[1] the data, `imm` the offset. */
static void ds_bpermute_b32(struct wave *w, const struct instruction *i) {
    u32 from[LANES], address[LANES];
    mask on = exec_of(w);
    memcpy(address, w->v[i->s[0].index], sizeof address);
    memcpy(from, w->v[i->s[1].index], sizeof from);
    EACH_ACTIVE(w) {
        u32 other = (address[l] + (u32)i->imm) / 4 & (LANES - 1);
        w->v[i->d.index][l] = on >> other & 1 ? from[other] : 0;
    }
}
static void ds_permute_b32(struct wave *w, const struct instruction *i) {
    u32 to[LANES] = {0};
    const u32 *address = w->v[i->s[0].index], *from = w->v[i->s[1].index];
    EACH_ACTIVE(w) to[(address[l] + (u32)i->imm) / 4 & (LANES - 1)] = from[l];
    EACH_ACTIVE(w) w->v[i->d.index][l] = to[l];
}
static void ds_swizzle_b32(struct wave *w, const struct instruction *i) {
    u32 from[LANES], how = (u32)i->imm & 0xffff;
    mask on = exec_of(w);
    memcpy(from, w->v[i->s[0].index], sizeof from);
    EACH_ACTIVE(w) {
        u32 lane = (u32)l, other;
        if (how >= 0xe000) { /* for a Fourier transform: bits of the lane in reverse, but for those that are kept */
            u32 keep = how & 31, reversed = 0;
            for (u32 bit = 0; bit < 5; bit++) reversed |= (lane >> bit & 1) << (4 - bit);
            other = (lane & ~31u) | (reversed >> __builtin_popcount(keep)) | (lane & keep);
        } else if (how >= 0xc000) { /* rotate within 32 */
            u32 amount = how >> 5 & 31, keep = how & 31;
            u32 turned = how & 0x400 ? lane - amount : lane + amount;
            other = (lane & ~31u) | (lane & keep) | (turned & 31 & ~keep);
        } else if (how & 0x8000) {
            other = (lane & ~3u) | (how >> (lane & 3) * 2 & 3);
        } else {
            other = (lane & ~31u) | ((((lane & 31) & (how & 31)) | (how >> 5 & 31)) ^ (how >> 10 & 31));
        }
        w->v[i->d.index][l] = on >> other & 1 ? from[other] : 0;
    }
}
static const struct operation op_bpermute TABLE = {"ds_bpermute_b32", ds_bpermute_b32, 0, B32, NONE, {B32, B32}, 0, {0}};
static const struct operation op_permute TABLE = {"ds_permute_b32", ds_permute_b32, 0, B32, NONE, {B32, B32}, 0, {0}};
static const struct operation op_swizzle TABLE = {"ds_swizzle_b32", ds_swizzle_b32, 0, B32, NONE, {B32}, 0, {0}};
