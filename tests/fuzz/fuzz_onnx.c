/* fuzz_onnx.c - any bytes are refused, or are a model that builds or is refused; a small one is
 * filled, compiled, run for one step, and written in both ways: the file with its weights, and the
 * graph as a new file, which opens again. External data are looked for in a folder that does not
 * exist. */
/* computes */
#include "ir/graph.h"
#include "onnx/onnx.h"
#include "onnx/write/write_graph.h"
#include "plimsoll_unstable.h"

#include "base/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_OUTPUTS = 4, MOST_NODES = 300, MOST_ELEMS = 1 << 14, MOST_BYTES = 1 << 20 };

static char folder[64];

static const char *file_in(const char *name, char path[128])
{
    if (!folder[0]) snprintf(folder, sizeof folder, "/dev/shm/plimsoll-fuzz-%d", (int)getpid());
    mkdir(folder, 0700);
    snprintf(path, 128, "%s/%s", folder, name);
    return path;
}

/* Whether a step of the graph takes a moment only. */
static bool is_small(const pl_graph *g, const pl_store *s)
{
    size_t bytes = 0;
    bool small = g->n_nodes < MOST_NODES;
    for (uint32_t v = 1; small && v < g->n_vals; v++)
        small = pl_type_elems(pl_type_of(g, v)) <= MOST_ELEMS;
    for (int i = 0; small && i < pl_store_count(s); i++)
        bytes += pl_type_bytes(&pl_store_slot(s, i)->type);
    return small && bytes <= MOST_BYTES;
}

static pl_type slot_type(void *ctx, int slot)
{
    return pl_store_slot(ctx, slot)->type;
}

static pl_status slot_zeros(void *ctx, int slot, void *to)
{
    memset(to, 0, pl_type_bytes(&pl_store_slot(ctx, slot)->type));
    return PL_OK;
}

/* The graph as a file, which our importer reads again. */
static void write_new(const pl_graph *g, pl_store *s)
{
    char path[128];
    pl_ow_info info;
    pl_onnx *again;
    pl_ow_source source = {.ctx = s, .type = slot_type, .read = slot_zeros};
    if (pl_ow_graph(g, &source, file_in("graph.onnx", path), 0, &info) != PL_OK) return;
    if (pl_onnx_open(path, &again) == PL_OK) pl_onnx_free(again);
}

/* The model's own file without new weights. */
static void write_same(pl_onnx *o)
{
    static const char header[] = "\2\0\0\0\0\0\0\0{}";
    char weights[128], path[128];
    FILE *f = fopen(file_in("none.safetensors", weights), "wb");
    if (!f) return;
    fwrite(header, 1, sizeof header - 1, f);
    fclose(f);
    if (pl_onnx_write(o, weights, file_in("same.onnx", path), NULL) != PL_OK) return;
    pl_onnx *again;
    if (pl_onnx_open(path, &again) == PL_OK) pl_onnx_free(again);
}

static pl_status fill(pl_onnx *o, const pl_store *s, pl_session *session)
{
    for (int i = 0; i < pl_store_count(s); i++) {
        bool known;
        PL_TRY(pl_onnx_slot_read(o, pl_store_slot(s, i), pl_session_slot(session, i), &known));
    }
    return PL_OK;
}

/* Takes the graph. */
static void run(pl_onnx *o, pl_nn *m, pl_graph *g, pl_store *s)
{
    pl_program *program = NULL;
    pl_session *session = NULL;
    pl_compile_opts c = PL_COMPILE_INIT;
    if (pl_nn_finish(m) != PL_OK) {
        pl_graph_free(g);
        return;
    }
    write_new(g, s);
    pl_status rc = pl_compile(g, &c, &program);
    if (rc == PL_OK) rc = pl_session_new(s, 1, &program, &session);
    if (rc == PL_OK) rc = fill(o, s, session);
    if (rc == PL_OK && pl_session_run(session, program) == PL_OK) rc = pl_session_wait(session);
    pl_session_free(session);
    pl_program_free(program);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pl_onnx *o;
    if (pl_ox_open_memory(data, size, "/nonexistent", &o) != PL_OK) return 0;
    pl_store *s = pl_store_new();
    pl_graph *g = pl_graph_new(s);
    pl_nn *m = pl_nn_new(g, size % 2);
    pl_onnx_opts opts = {.batch = 2};
    pl_onnx_value out[MOST_OUTPUTS] = {{0}};
    int n = pl_onnx_output_count(o);
    if (n > MOST_OUTPUTS) n = 0; /* all nodes are built, and none is an output */
    for (int i = 0; i < n; i++) out[i].name = pl_onnx_output(o, i)->name;
    pl_status rc = pl_onnx_build(o, m, &opts, 0, NULL, n, out);
    for (int i = 0; i < n && rc == PL_OK; i++) {
        char name[16];
        snprintf(name, sizeof name, "out.%d", i);
        pl_output(g, name, out[i].value);
    }
    if (rc == PL_OK && n && is_small(g, s)) {
        run(o, m, g, s);
        write_same(o);
    } else
        pl_graph_free(g);
    pl_nn_free(m);
    pl_store_free(s);
    pl_onnx_free(o);
    return 0;
}
