/* fuzz_onnx.c - any bytes are refused, or are a model that builds or is refused, and whose slots
 * can be filled. External data are looked for in a folder that does not exist. */
#include "onnx/onnx.h"

#include "base/sys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pl_onnx *o;
    if (pl_ox_open_memory(data, size, "/nonexistent", &o) != PL_OK) return 0;
    pl_store *s = pl_store_new();
    pl_graph *g = pl_graph_new(s);
    pl_nn *m = pl_nn_new(g, size % 2);
    pl_onnx_opts opts = {.batch = 2};
    pl_status rc = pl_onnx_build(o, m, &opts, 0, NULL, 0, NULL);
    for (int i = 0; rc == PL_OK && i < pl_store_count(s); i++) {
        const pl_slot *slot = pl_store_slot(s, i);
        size_t bytes = pl_type_bytes(&slot->type);
        bool known;
        if (bytes > 1 << 24) continue;
        void *to = pl_sys_alloc(bytes + 1);
        rc = pl_onnx_slot_read(o, slot, to, &known);
        pl_sys_free(to);
    }
    pl_nn_free(m);
    pl_graph_free(g);
    pl_store_free(s);
    pl_onnx_free(o);
    return 0;
}
