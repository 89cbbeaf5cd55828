/* dnn_int.h - shared by the files of this folder: a pl_dnn as lists, and the calls that fill them.
 *
 * A pl_dnn is a short list of steps over a short list of operands. An operand is a oneDNN memory
 * object whose bytes lie in one of the run's inputs or outputs or in the work block; a step is a
 * oneDNN primitive, or one of our functions, with its operands. prepare fills the lists; run points
 * the operands at the caller's memory and executes the steps in order.
 *
 * Steps from loop_from on are repeated n_images times, and each time operands with image_bytes
 * advance by that much: a temporary then needs room for one image instead of the batch.
 */
#ifndef PL_CPU_DNN_INT_H
#define PL_CPU_DNN_INT_H

#include "cpu/dnn/dnn_api.h"
#include "cpu/kernels/narrow.h"
#include "cpu/kernels/strided.h"
#include "cpu/kernels/thin.h"

enum {
    PL_DNN_MAX_OPERANDS = 40,
    PL_DNN_MAX_STEPS = 16,
    PL_DNN_MAX_ARGS = 5,
    PL_DNN_WORK_ALIGN = 64,
    PL_DNN_IMPL_CHARS = 64
};

typedef enum pl_dnn_place { PL_DNN_IN, PL_DNN_OUT, PL_DNN_WORK } pl_dnn_place;

typedef struct pl_dnn_operand {
    dnnl_memory_t mem;
    pl_dnn_place where;
    int index;          /* into in[] or out[] */
    size_t offset;      /* bytes from that tensor's or the work block's start */
    size_t image_bytes; /* advance per iteration of the loop */
    void *at;           /* where mem points */
} pl_dnn_operand;

/* One of our functions as a step: its sizes, and its operands, in order. */
typedef struct pl_dnn_call {
    void (*fn)(const struct pl_dnn_call *c, void *const *p);
    union {
        pl_thin thin;
        pl_narrow narrow;
        struct {
            pl_strided_box box;
            size_t elem;
        } copy;
    } size;
    int operand[PL_DNN_MAX_ARGS]; /* -1: none, NULL in p */
} pl_dnn_call;

typedef struct pl_dnn_step {
    dnnl_primitive_t prim; /* or NULL, and call */
    dnnl_exec_arg_t arg[PL_DNN_MAX_ARGS];
    int n_args;
    pl_dnn_call call;
} pl_dnn_step;

struct pl_dnn {
    pl_dnn_operand operands[PL_DNN_MAX_OPERANDS];
    pl_dnn_step steps[PL_DNN_MAX_STEPS];
    int n_operands, n_steps, loop_from;
    int64_t n_images;
    size_t work_used;  /* end of the regions in use while preparing; regions may be released */
    size_t work_bytes; /* the largest value of work_used */
    char impl[PL_DNN_IMPL_CHARS];
};

/* The process's engine, and the attributes of every kernel: scratchpads belong to the caller. After
 * pl_dnn_new. */
dnnl_engine_t pl_dnn_engine(void);
dnnl_primitive_attr_t pl_dnn_attr(void);

pl_status pl_dnn_new(pl_dnn **out);
/* Ends a prepare: returns d to the caller, or frees it on failure. */
pl_status pl_dnn_hand_over(pl_status s, pl_dnn *d, pl_dnn **out, size_t *work_bytes);
/* Converts a oneDNN status to ours; `what` completes "oneDNN cannot ...". */
pl_status pl_dnn_check(dnnl_status_t s, const char *what);

/* Add operands; the operand's number goes to *out. */
pl_status pl_dnn_add_operand(pl_dnn *d, const pl_mdesc *md, pl_dnn_place where, int index,
                             int *out);
pl_status pl_dnn_add_work(pl_dnn *d, const pl_mdesc *md, int *out);
/* Adds operand `from`, of layout `has`, in the layout `want`: itself if it has that layout, else a
 * copy in the work block. */
pl_status pl_dnn_add_as(pl_dnn *d, const pl_mdesc *has, int from, const pl_mdesc *want, int *out);
/* Adds an input in the layout `want`. */
pl_status pl_dnn_add_input(pl_dnn *d, const pl_mdesc *user, const pl_mdesc *want, int index,
                           int *out);

/* Add steps. args are n pairs (DNNL_ARG_ name, operand). */
pl_status pl_dnn_add_step(pl_dnn *d, dnnl_primitive_desc_t pd, int n, const int (*args)[2]);
pl_status pl_dnn_add_reorder(pl_dnn *d, const pl_mdesc *from_md, int from, const pl_mdesc *to_md,
                             int to);
void pl_dnn_add_call(pl_dnn *d, const pl_dnn_call *call);
/* Adds products with few vectors (narrow.h); operands of A, B, bias (-1: none), C. */
pl_status pl_dnn_add_narrow(pl_dnn *d, bool dot, const pl_narrow *s, int a, int b, int bias, int c);

/* Adds a matrix product as a 1x1 convolution over m pixels, one batch after the other (f32). */
pl_status pl_dnn_add_product(pl_dnn *d, const pl_dnn_matmul_desc *m);

/* Sets *out to the first kernel of the offer whose name contains no word of `avoid` (NULL: any
 * name). offered: the status of creating the offer. Reference loops are used for f32 only when
 * nothing else exists. Ends the offer. */
pl_status pl_dnn_choose(dnnl_status_t offered, pl_dnn_offer *o, pl_dtype dtype, const char *avoid,
                        const char *what, dnnl_primitive_desc_t *out);
const char *pl_dnn_impl_of(const_dnnl_primitive_desc_t pd);
void pl_dnn_note_impl(pl_dnn *d, const char *name);

/* Layouts. */
pl_status pl_dnn_data_type(pl_dtype t, dnnl_data_type_t *out);
pl_mdesc pl_dnn_vector_md(dnnl_data_type_t type, int64_t n);
/* Describes (N, spatial.., C), dense, as oneDNN's N,C,spatial.. */
pl_mdesc pl_dnn_activation_md(dnnl_data_type_t type, int n_spatial, int64_t n, int64_t c,
                              const int64_t *size);
/* The layout that kernel pd chose for one of its tensors; valid as long as pd. */
pl_mdesc pl_dnn_chosen_md(const_dnnl_primitive_desc_t pd, dnnl_query_t tensor);
pl_status pl_dnn_same_md(const pl_mdesc *a, const pl_mdesc *b, bool *out);
/* oneDNN's descriptors of n layouts, NULL for those that are NULL; all of them or none. */
pl_status pl_dnn_mds_new(const pl_mdesc *const *m, int n, void **out);
void pl_dnn_mds_free(void **mds, int n);
pl_status pl_dnn_check_window(const char *what, int n_spatial, const int64_t *in,
                              const int64_t *out, const int64_t *kernel, const int64_t *stride,
                              const int64_t *dilation, const int64_t *pad_lo,
                              const int64_t *pad_hi);

pl_dnn_window pl_dnn_window_make(int n_spatial, const int64_t *kernel, const int64_t *stride,
                                 const int64_t *dilation, const int64_t *pad_lo,
                                 const int64_t *pad_hi);

#endif
