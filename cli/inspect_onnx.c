/* inspect_onnx.c - see inspect_onnx.h. */
#include "cli/inspect_onnx.h"

#include "cli/ui.h"
#include "plimsoll_onnx.h"

#include <stdio.h>
#include <string.h>

static void print_row(const char *kind, const char *name, const char *type)
{
    int n = (int)strlen(name);
    cli_say("  %-9s ", kind);
    cli_put(stdout, name);
    cli_say("%*s ", n < 48 ? 48 - n : 0, "");
    cli_put(stdout, type);
    putchar('\n');
}

/* "float[batch,3,?]": a dynamic dimension has its name. */
static void print_port(const char *kind, const pl_onnx_port *p)
{
    char type[512];
    int n = snprintf(type, sizeof type, "%s%s", p->type_name, p->rank < 0 ? "" : "[");
    for (int i = 0; i < p->rank && n >= 0 && (size_t)n < sizeof type; i++) {
        const char *comma = i ? "," : "";
        size_t left = sizeof type - (size_t)n;
        n += p->dim[i] >= 0
                 ? snprintf(type + n, left, "%s%lld", comma, (long long)p->dim[i])
                 : snprintf(type + n, left, "%s%s", comma, p->dim_name[i] ? p->dim_name[i] : "?");
    }
    if (p->rank >= 0 && n >= 0 && (size_t)n + 1 < sizeof type) strcpy(type + n, "]");
    print_row(kind, p->name, type);
}

int inspect_onnx(const char *path)
{
    pl_onnx *o;
    pl_status rc = pl_onnx_open(path, &o);
    int64_t elems = 0;
    int weights = 0;
    if (rc != PL_OK) return cli_fail(rc);
    for (int i = 0; i < pl_onnx_input_count(o); i++) print_port("input", pl_onnx_input(o, i));
    for (int i = 0; i < pl_onnx_output_count(o); i++) print_port("output", pl_onnx_output(o, i));
    for (int i = 0; i < pl_onnx_initializer_count(o); i++) {
        const pl_onnx_initializer *t = pl_onnx_initializer_get(o, i);
        char type[96];
        print_row(t->weight ? "weight" : "constant", t->name,
                  pl_type_text(&t->type, type, sizeof type));
        if (!t->weight) continue;
        elems += pl_type_elems(&t->type);
        weights++;
    }
    cli_say("%d nodes, %d weights with %s parameters", pl_onnx_node_count(o), weights,
            cli_count(elems));
    const char *producer = pl_onnx_producer(o);
    if (producer[0]) {
        cli_say(", by ");
        cli_put(stdout, producer);
    }
    putchar('\n');
    pl_onnx_free(o);
    return 0;
}
