/* kinds.c - what exporters note about initializers: which are parameters, which are buffers, and
 * which buffers are not in a module's state_dict.
 *
 * torch's dynamo exporter keeps the signature of the exported program in the graph's metadata, a
 * line for each input:
 *     p_fc_weight: PARAMETER target='fc.weight'
 *     b_index: BUFFER target='index' persistent=False
 * The package for Python writes the names of such buffers itself, for the older exporter:
 *     plimsoll.transient = "index;block.mask" */
#include "onnx/onnx.h"

#include <string.h>

static void set_kind(const pl_onnx *o, const char *name, pl_ox_kind kind)
{
    pl_ox_init *t = pl_ox_map_get(o->inits, name);
    if (t) t->kind = kind;
}

/* Reads one line of the signature, which is changed. */
static void read_line(const pl_onnx *o, char *line)
{
    static const char mark[] = " target='";
    char *target = strstr(line, mark);
    if (!target) return;
    char *name = target + sizeof mark - 1, *end = strchr(name, '\'');
    if (!end) return;
    *end = *target = 0;
    const char *word = strrchr(line, ' ');
    word = word ? word + 1 : line;
    if (strcmp(word, "PARAMETER") == 0) set_kind(o, name, PL_OX_KIND_PARAMETER);
    if (strcmp(word, "BUFFER") == 0)
        set_kind(o, name,
                 strstr(end + 1, "persistent=False") ? PL_OX_KIND_TRANSIENT : PL_OX_KIND_BUFFER);
}

/* Calls a function for each part of a text between separators. */
static pl_status each_part(pl_onnx *o, const char *text, char separator,
                           void (*fn)(const pl_onnx *o, char *part))
{
    char *copy = pl_arena_strdup(&o->mem, text);
    if (!copy) return PL_ERR_MEMORY;
    for (char *p = copy, *next; p; p = next) {
        next = strchr(p, separator);
        if (next) *next++ = 0;
        fn(o, p);
    }
    return PL_OK;
}

static void read_transient(const pl_onnx *o, char *name)
{
    set_kind(o, name, PL_OX_KIND_TRANSIENT);
}

pl_status pl_ox_read_kinds(pl_onnx *o)
{
    const pl_ox_graph *g = o->proto->graph;
    for (size_t i = 0; i < g->n_metadata; i++) {
        const pl_ox_pair *p = g->metadata[i];
        if (p->key && p->value && strstr(p->key, "ExportedProgram.graph_signature"))
            PL_TRY(each_part(o, p->value, '\n', read_line));
    }
    const char *own = pl_onnx_meta(o, "plimsoll.transient");
    return own ? each_part(o, own, ';', read_transient) : PL_OK;
}
