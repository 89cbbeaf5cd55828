/* slot_file.h - a file with the weights of a graph, as another program would write it. */
#ifndef PL_TESTS_SLOT_FILE_H
#define PL_TESTS_SLOT_FILE_H

#include "plimsoll.h"

typedef struct slot_file {
    const char *of;                              /* slots whose names begin so; it is cut off */
    float (*value)(const char *name, int64_t k); /* element k of a slot, in the order of files */
    void (*rename)(char *name, size_t cap);      /* their name, in place; NULL: ours */
    const char *leave_out;                       /* a slot, by its name; NULL */
    const char *const *add;                      /* further tensors of zeros; NULL */
    int n_add;
} slot_file;
/* A path that ends in .ckpt becomes a file of torch.save with the tensors under "state_dict". */
pl_status slot_file_write(const pl_store *store, const char *path, const slot_file *o) PL_MUST_USE;

#endif
