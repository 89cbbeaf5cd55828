/* pickle.h - a Python pickle (protocols 0 to 5) as a tree of values.
 *
 * Nothing is executed: a class or function is its name, a call is a value that holds the function's
 * name and the arguments. The reader of the tree decides which calls it understands.
 *
 * Values may be shared and may contain themselves, as in Python: code that walks the tree must
 * bound depth and number of visits.
 */
#ifndef PL_IO_PICKLE_H
#define PL_IO_PICKLE_H

#include "base/arena.h"

typedef enum pl_pickle_kind {
    PL_PICKLE_NONE,
    PL_PICKLE_BOOL,
    PL_PICKLE_INT,
    PL_PICKLE_FLOAT,
    PL_PICKLE_TEXT,       /* text or bytes */
    PL_PICKLE_SEQUENCE,   /* tuple, list or set */
    PL_PICKLE_DICT,       /* item: key, value, key, value, ... */
    PL_PICKLE_NAME,       /* of a class or function: "torch.FloatStorage" */
    PL_PICKLE_PERSISTENT, /* args: what the id is */
    PL_PICKLE_CALL        /* func(args), with item and state as they were set afterwards */
} pl_pickle_kind;

typedef struct pl_pickle pl_pickle;
struct pl_pickle {
    pl_pickle_kind kind;
    int n, cap; /* item */
    union {
        int64_t number; /* BOOL, INT; a whole number that does not fit is a FLOAT */
        double real;
        const char
            *text; /* of `length` bytes, in the pickle's bytes or the arena; may lack a NUL */
        pl_pickle *func;
    };
    size_t length;
    pl_pickle **item;
    pl_pickle *args, *state; /* state: of __setstate__; NULL: none */
};

/* The value that the pickle makes. Memory is taken from mem and is proportional to the number of
 * opcodes; data must outlive the tree. name: for messages. */
pl_status pl_pickle_read(const uint8_t *data, size_t bytes, const char *name, pl_arena *mem,
                         const pl_pickle **out) PL_MUST_USE;

/* Whether a NAME or TEXT is this. */
bool pl_pickle_is(const pl_pickle *v, const char *text);

#endif
