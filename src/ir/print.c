/* print.c - graph to text; see text.h for the form. */
#include "ir/text.h"

#include "base/sys.h"

#include <string.h>

static void put_quoted(pl_str *s, const char *text)
{
    pl_str_add(s, "\"");
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\')
            pl_str_addf(s, "\\%c", *p);
        else if (*p < 32 || *p == 127)
            pl_str_addf(s, "\\x%02x", *p);
        else
            pl_str_addn(s, (const char *)p, 1);
    }
    pl_str_add(s, "\"");
}

static void put_dims(pl_str *s, const int64_t *v, int n)
{
    pl_str_add(s, "[");
    for (int i = 0; i < n; i++) pl_str_addf(s, i ? ",%lld" : "%lld", (long long)v[i]);
    pl_str_add(s, "]");
}

static void put_type(pl_str *s, const pl_type *t)
{
    pl_str_add(s, pl_dtype_name(t->dtype));
    put_dims(s, t->dim, t->rank);
}

static void put_attr(pl_str *s, const pl_attr *t, const char *p, const pl_store *store)
{
    switch (t->kind) {
    case PL_ATTR_INT: pl_str_addf(s, "%lld", (long long)*(const int64_t *)(const void *)p); break;
    case PL_ATTR_FLOAT: pl_str_addf(s, "%.17g", *(const double *)(const void *)p); break;
    case PL_ATTR_BOOL: pl_str_add(s, *(const bool *)p ? "true" : "false"); break;
    case PL_ATTR_ENUM: pl_str_add(s, t->names[*(const int32_t *)(const void *)p]); break;
    case PL_ATTR_DTYPE: pl_str_add(s, pl_dtype_name(*(const pl_dtype *)(const void *)p)); break;
    case PL_ATTR_DIMS: {
        const pl_dims *d = (const void *)p;
        put_dims(s, d->v, d->n);
        break;
    }
    case PL_ATTR_TEXT: put_quoted(s, *(const char *const *)(const void *)p); break;
    case PL_ATTR_SLOT:
        put_quoted(s, pl_store_slot(store, *(const int32_t *)(const void *)p)->name);
        break;
    }
}

void pl_attr_print(const pl_op *op, const void *attr, const pl_store *store, pl_str *out)
{
    for (const pl_attr *t = op->attrs; t && t->name; t++) {
        pl_str_addf(out, "%s%s=", t == op->attrs ? "" : ", ", t->name);
        put_attr(out, t, (const char *)attr + t->offset, store);
    }
}

static void put_slot(pl_str *s, const pl_slot *slot)
{
    static const char *kinds[] = {"param", "buffer", "optimizer", "counter"};
    static const char *inits[] = {"const", "uniform", "normal"};
    pl_str_add(s, "slot ");
    put_quoted(s, slot->name);
    pl_str_add(s, " ");
    put_type(s, &slot->type);
    pl_str_addf(s, " %s init=%s(%.17g,%.17g)", kinds[slot->kind], inits[slot->init.kind],
                slot->init.a, slot->init.b);
    if (slot->trainable) pl_str_add(s, " train");
    if (slot->decay) pl_str_add(s, " decay");
    if (slot->layout.rank) {
        int64_t perm[PL_MAX_RANK];
        for (int i = 0; i < slot->layout.rank; i++) perm[i] = slot->layout.perm[i];
        pl_str_add(s, " perm=");
        put_dims(s, perm, slot->layout.rank);
    }
    if (slot->layout.view_rank) {
        pl_str_add(s, " view=");
        put_dims(s, slot->layout.view, slot->layout.view_rank);
    }
    if (slot->layout.flat) pl_str_add(s, " flat");
    if (slot->quant) pl_str_addf(s, " %s", pl_quant_name(slot->quant));
    pl_str_add(s, "\n");
}

static void put_node(pl_str *s, const pl_graph *g, uint32_t node)
{
    const pl_node_rec *n = &g->nodes[node];
    for (uint32_t k = 0; k < n->n_out; k++) pl_str_addf(s, k ? ", %%%u" : "%%%u", n->out + k);
    pl_str_addf(s, "%s%s", n->n_out ? " = " : "", n->op->name);
    for (uint32_t i = 0; i < n->n_in; i++)
        pl_str_addf(s, i ? ", %%%u" : "(%%%u", g->edges[n->in + i]);
    if (n->n_in) pl_str_add(s, ")");
    if (n->op->attrs && n->op->attrs[0].name) {
        pl_str_add(s, " {");
        pl_attr_print(n->op, n->attr, g->store, s);
        pl_str_add(s, "}");
    }
    for (uint32_t k = 0; k < n->n_out; k++) {
        pl_str_add(s, k ? ", " : " : ");
        put_type(s, &g->vals[n->out + k].type);
    }
    if (n->scope) {
        pl_str_add(s, " @");
        put_quoted(s, g->scopes[n->scope].path);
    }
    pl_str_add(s, "\n");
}

pl_status pl_graph_print(const pl_graph *g, char **text)
{
    PL_TRY(pl_graph_status(g));
    pl_str s = PL_STR_INIT;
    pl_str_addf(&s, "plimsoll graph 1\nstreams %u\n", g->n_streams);
    for (int i = 0; i < pl_store_count(g->store); i++) put_slot(&s, pl_store_slot(g->store, i));
    for (uint32_t n = 1; n < g->n_nodes; n++) put_node(&s, g, n);
    return pl_str_take(&s, text);
}

void pl_text_free(char *text)
{
    pl_sys_free(text);
}
