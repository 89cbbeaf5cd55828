/* kinds.c - what exporters note about initializers: which are parameters, which are buffers, and
 * which buffers are not in a module's state_dict.
 *
 * torch's dynamo exporter keeps the signature of the exported program in the graph's metadata, a
 * line for each input:
 *     p_fc_weight: PARAMETER target='fc.weight'
 *     b_index: BUFFER target='index' persistent=False
 *     c_table: CONSTANT_TENSOR target='table'
 * The package for Python writes the names of such buffers itself, for the older exporter; the names
 * of tensors that belong into model files although no node reads them as weights; and the rows of
 * embeddings that get no gradient:
 *     plimsoll.transient = "index;block.mask"
 *     plimsoll.kept = "unused.weight;mask"
 *     plimsoll.padding = "embed.weight=0" */
#include "onnx/onnx.h"

#include <stdlib.h>
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
    if (strcmp(word, "CONSTANT_TENSOR") == 0) set_kind(o, name, PL_OX_KIND_TRANSIENT);
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

static void read_kept(const pl_onnx *o, char *name)
{
    pl_ox_init *t = pl_ox_map_get(o->inits, name);
    if (t && t->kind == PL_OX_KIND_UNKNOWN) t->kind = PL_OX_KIND_BUFFER;
}

/* "embed.weight=0" */
static void read_padding(const pl_onnx *o, char *part)
{
    char *equals = strrchr(part, '=');
    if (!equals) return;
    *equals = 0;
    pl_ox_init *t = pl_ox_map_get(o->inits, part);
    long long row = strtoll(equals + 1, NULL, 10);
    if (!t || t->about.type.rank != 2 || row < 0 || row >= t->about.type.dim[0]) return;
    t->has_padding = true;
    t->padding = row;
}

pl_status pl_ox_read_kinds(pl_onnx *o)
{
    const pl_ox_graph *g = o->proto->graph;
    for (size_t i = 0; i < g->n_metadata; i++) {
        const pl_ox_pair *p = g->metadata[i];
        if (p->key && p->value && strstr(p->key, "ExportedProgram.graph_signature"))
            PL_TRY(each_part(o, p->value, '\n', read_line));
    }
    static const struct {
        const char *key;
        void (*read)(const pl_onnx *o, char *part);
    } own[] = {{"plimsoll.transient", read_transient},
               {"plimsoll.kept", read_kept},
               {"plimsoll.padding", read_padding}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        const char *text = pl_onnx_meta(o, own[i].key);
        if (text) PL_TRY(each_part(o, text, ';', own[i].read));
    }
    return PL_OK;
}
