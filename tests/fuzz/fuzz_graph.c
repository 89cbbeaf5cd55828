/* fuzz_graph.c - any bytes as graph text: parse, and what parses prints and parses again to itself.
 */
#include "plimsoll.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pl_store *s = pl_store_new(), *t = pl_store_new();
    pl_graph *g = NULL, *h = NULL;
    char *first = NULL, *second = NULL;
    if (pl_graph_parse((const char *)data, size, s, &g) == PL_OK) {
        if (pl_graph_print(g, &first) != PL_OK) abort();
        if (pl_graph_parse(first, strlen(first), t, &h) != PL_OK) abort();
        if (pl_graph_print(h, &second) != PL_OK || strcmp(first, second) != 0) abort();
    }
    pl_text_free(first);
    pl_text_free(second);
    pl_graph_free(g);
    pl_graph_free(h);
    pl_store_free(s);
    pl_store_free(t);
    return 0;
}
