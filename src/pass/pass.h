/* pass.h - the pipeline: which passes a graph goes through before it is planned (passes.def).
 *
 * A pass reads a graph and writes a new one over the same store; it does not change the old graph.
 * The graph is verified after each pass, and a failure names the pass.
 */
#ifndef PL_PASS_PASS_H
#define PL_PASS_PASS_H

#include "ir/graph.h"

typedef struct pl_pass_opts {
    pl_dtype low;  /* bf16, f16: mixed precision; f32: none */
    bool open;     /* decompose ops where groups gain from it */
    bool tails;    /* merge ops with the maps after them (join_tails.c); requires fuse */
    bool tf32;     /* f32 products may use TF32 units */
    bool pads;     /* products run on tensor cores, which need whole units in rows (pad_rows.c) */
    bool pads_all; /* pads: also where padding takes longer than it saves */
    /* least bytes of a product's result in one chunk of rows (chunk_rows.c); 0: 256 MiB */
    int64_t chunk_bytes;
    /* low, tails: how the device groups; NULL: nothing is grouped */
    const struct pl_fuse_opts *fuse;
} pl_pass_opts;

typedef struct pl_pass {
    const char *name, *about;
    pl_status (*run)(const pl_graph *in, const pl_pass_opts *o, pl_graph **out);
    bool repeat; /* runs again while the graph shrinks */
    bool open;   /* only for devices whose groups gain from decomposed ops */
    bool lowers; /* only for mixed precision */
    bool tails;  /* only for devices whose libraries have ops with tails */
    bool pads;   /* only for products on tensor cores */
} pl_pass;

#define PL_PASS(name, ...)                                                                         \
 pl_status pl_pass_##name(const pl_graph *in, const pl_pass_opts *o, pl_graph **out) PL_MUST_USE;
#define PL_PASS_AGAIN(name, ...)
#include "pass/passes.def"
#undef PL_PASS
#undef PL_PASS_AGAIN

/* Runs all passes that the options enable; *g is replaced, the old graph freed. On failure *g is
 * still a graph to free. o may be NULL: f32, nothing decomposed. */
pl_status pl_passes_run(pl_graph **g, const pl_pass_opts *o) PL_MUST_USE;

#endif
