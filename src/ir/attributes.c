/* attributes.c - compare and hash attribute structs through their tables (padding never counts). */
#include "ir/graph.h"

#include <string.h>

static size_t attr_size(pl_attr_kind k)
{
    switch (k) {
    case PL_ATTR_INT: return sizeof(int64_t);
    case PL_ATTR_FLOAT: return sizeof(double);
    case PL_ATTR_BOOL: return sizeof(bool);
    case PL_ATTR_ENUM:
    case PL_ATTR_SLOT: return sizeof(int32_t);
    case PL_ATTR_DTYPE: return sizeof(pl_dtype);
    case PL_ATTR_DIMS: return sizeof(pl_dims);
    case PL_ATTR_TEXT: return sizeof(char *);
    }
    return 0;
}

bool pl_attr_equal(const pl_op *op, const void *a, const void *b)
{
    for (const pl_attr *t = op->attrs; t && t->name; t++) {
        const char *x = (const char *)a + t->offset, *y = (const char *)b + t->offset;
        if (t->kind == PL_ATTR_TEXT) {
            const char *s, *u;
            memcpy(&s, x, sizeof s);
            memcpy(&u, y, sizeof u);
            if (strcmp(s, u) != 0) return false;
        } else if (t->kind == PL_ATTR_DIMS) {
            const pl_dims *d = (const void *)x, *e = (const void *)y;
            if (d->n != e->n || memcmp(d->v, e->v, (size_t)d->n * sizeof d->v[0]) != 0)
                return false;
        } else if (memcmp(x, y, attr_size(t->kind)) != 0) {
            return false;
        }
    }
    return true;
}

static uint64_t mix(uint64_t h, const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)p)[i]) * 1099511628211u;
    return h;
}

uint64_t pl_attr_hash(const pl_op *op, const void *attr)
{
    uint64_t h = 14695981039346656037u;
    for (const pl_attr *t = op->attrs; t && t->name; t++) {
        const char *x = (const char *)attr + t->offset;
        if (t->kind == PL_ATTR_TEXT) {
            const char *s;
            memcpy(&s, x, sizeof s);
            h = mix(h, s, strlen(s));
        } else if (t->kind == PL_ATTR_DIMS) {
            const pl_dims *d = (const void *)x;
            h = mix(h, d->v, (size_t)d->n * sizeof d->v[0]);
            h = mix(h, &d->n, sizeof d->n);
        } else {
            h = mix(h, x, attr_size(t->kind));
        }
    }
    return h;
}

int pl_node_slot(const pl_graph *g, uint32_t node)
{
    const pl_node_rec *n = &g->nodes[node];
    if (!(n->op->flags & (PL_OP_SOURCE | PL_OP_EFFECT))) return -1;
    for (const pl_attr *t = n->op->attrs; t && t->name; t++) {
        if (t->kind != PL_ATTR_SLOT) continue;
        int32_t slot;
        memcpy(&slot, (const char *)n->attr + t->offset, sizeof slot);
        return slot;
    }
    return -1;
}

const char *pl_node_name(const pl_graph *g, uint32_t node)
{
    const pl_node_rec *n = &g->nodes[node];
    if (!(n->op->flags & (PL_OP_SOURCE | PL_OP_EFFECT))) return NULL;
    for (const pl_attr *t = n->op->attrs; t && t->name; t++) {
        if (t->kind != PL_ATTR_TEXT) continue;
        const char *name;
        memcpy(&name, (const char *)n->attr + t->offset, sizeof name);
        return name;
    }
    return NULL;
}
