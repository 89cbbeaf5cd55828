/* lab.h - several graphs over one store, for tests of layers and workloads. */
#ifndef PL_TESTS_LAB_H
#define PL_TESTS_LAB_H

#include "plimsoll.h"

typedef struct lab lab;
lab *lab_new(pl_store *s); /* the store is the caller's */
void lab_free(lab *l);
/* Takes the graph over; returns its number, to be used below. */
void lab_allow_slack(lab *l); /* arenas may be larger than the bytes alive at once */
int lab_add(lab *l, pl_graph *g);
/* After the last lab_add: memory for the slots (zero) and the programs. */
pl_status lab_open(lab *l) PL_MUST_USE;
void *lab_slot(lab *l, int slot);
/* NULL if there is no such name. */
void *lab_input(lab *l, int program, const char *name, pl_type *type);
const void *lab_output(lab *l, int program, const char *name, pl_type *type);
pl_status lab_run(lab *l, int program) PL_MUST_USE;

#endif
