/* arguments.c - attributes and inputs of a node, and the errors that name the node. */
#include "onnx/onnx.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

pl_status pl_ox_fail(const pl_ox_call *c, pl_status code, const char *fmt, ...)
{
    char text[768];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *out = c->node->n_output ? c->node->output[0] : "";
    const char *name = c->node->name ? c->node->name : "";
    return pl_fail(code, "%s: %s node%s%s%s (output '%s'): %s", c->b->model->path, c->op,
                   name[0] ? " '" : "", name, name[0] ? "'" : "", out, text);
}

/* The attribute, where it has the type; notes one of another type. */
static const pl_ox_attr *typed(const pl_ox_call *c, const char *name, int32_t type)
{
    const pl_ox_attr *a = pl_ox_attr_find(c, name);
    if (!a || !a->has_type || !a->type || a->type == type) return a;
    c->b->mistyped = name;
    c->b->wanted_type = type;
    return NULL;
}

int64_t pl_ox_attr_int(const pl_ox_call *c, const char *name, int64_t fallback)
{
    const pl_ox_attr *a = typed(c, name, PL_OX_ATTR_INT);
    return a && a->has_i ? a->i : a && a->type == PL_OX_ATTR_INT ? 0 : fallback;
}

double pl_ox_attr_float(const pl_ox_call *c, const char *name, double fallback)
{
    const pl_ox_attr *a = typed(c, name, PL_OX_ATTR_FLOAT);
    return a && a->has_f ? (double)a->f : a && a->type == PL_OX_ATTR_FLOAT ? 0 : fallback;
}

const char *pl_ox_attr_text(const pl_ox_call *c, const char *name, const char *fallback)
{
    const pl_ox_attr *a = typed(c, name, PL_OX_ATTR_STRING);
    if (!a || !a->has_s) return fallback;
    char *s = pl_arena_strndup(&c->b->mem, (const char *)a->s.data, a->s.len);
    return s ? s : fallback;
}

bool pl_ox_attr_is(const pl_ox_call *c, const char *name, const char *fallback, const char *is)
{
    const pl_ox_attr *a = typed(c, name, PL_OX_ATTR_STRING);
    if (!a || !a->has_s) return strcmp(fallback, is) == 0;
    return a->s.len == strlen(is) && memcmp(a->s.data, is, a->s.len) == 0;
}

const int64_t *pl_ox_attr_ints(const pl_ox_call *c, const char *name, int *n)
{
    static const int64_t none[1];
    const pl_ox_attr *a = typed(c, name, PL_OX_ATTR_INTS);
    *n = a && a->n_ints < 1 << 20 ? (int)a->n_ints : 0;
    if (!a) return NULL;
    return *n ? a->ints : none;
}

bool pl_ox_has(const pl_ox_call *c, int k)
{
    return k < c->n_in && c->in[k];
}

pl_status pl_ox_in_ints(const pl_ox_call *c, int k, const char *what, const int64_t **p, int *n)
{
    if (!pl_ox_has(c, k)) return pl_ox_fail(c, PL_ERR_FILE, "input %d (%s) is missing", k, what);
    pl_ox_val *v = c->in[k];
    if (!pl_ox_known(c->b, v) || !v->host.i)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED,
                          "its %s ('%s') depends on data; the engine plans memory before the first "
                          "step and needs shapes that are known at import. Export the model with "
                          "fixed sizes, or replace this part",
                          what, v->name ? v->name : "");
    *p = v->host.i;
    *n = (int)v->host.n;
    return PL_OK;
}

pl_status pl_ox_in_number(const pl_ox_call *c, int k, const char *what, double fallback,
                          double *out)
{
    *out = fallback;
    if (!pl_ox_has(c, k)) return PL_OK;
    pl_ox_val *v = c->in[k];
    pl_ox_host h = pl_ox_known(c->b, v) ? v->host : (pl_ox_host){0};
    /* An initializer that counts as a weight because of its name is a number all the same. */
    if (!v->known && v->init && v->init->kind != PL_OX_KIND_PARAMETER && pl_ox_elems(v) == 1)
        PL_TRY(pl_ox_init_read(c->b->model, v->init, &c->b->mem, &h));
    if (h.n < 1)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "its %s ('%s') must be a constant", what,
                          v->name ? v->name : "");
    *out = h.i ? (double)h.i[0] : h.d[0];
    return PL_OK;
}

pl_status pl_ox_ints(const pl_ox_call *c, int k, const char *attr, const int64_t **p, int *n)
{
    *p = NULL;
    *n = 0;
    if (pl_ox_has(c, k)) return pl_ox_in_ints(c, k, attr, p, n);
    *p = pl_ox_attr_ints(c, attr, n);
    return PL_OK;
}

pl_status pl_ox_axis_of(const pl_ox_call *c, int64_t axis, int rank, int *out)
{
    if (axis < -rank || axis >= (rank ? rank : 1))
        return pl_ox_fail(c, PL_ERR_FILE, "axis %lld of a tensor with %d dimensions",
                          (long long)axis, rank);
    *out = (int)(axis < 0 ? axis + rank : axis);
    return PL_OK;
}
