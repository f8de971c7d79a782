/* How a wave ends its launch: the fault, and where it happened. */
#include "machine.h"

void stop(struct wave *w, int fault) {
    struct machine *m = w->machine;
    m->fault = (u32)fault;
    m->fault_index = w->pc - 1;
    m->fault_wave = w->number;
    memcpy(m->fault_group, w->group->id, sizeof m->fault_group);
    longjmp(m->out, 1);
}
