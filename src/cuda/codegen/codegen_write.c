/* codegen_write.c - the text and the arguments of a kernel while it is written.
 *
 * Arguments are one struct by value: pointers, then numbers by type. The text names an argument by
 * its index (a.s[3]).
 *
 * Invariant: equal numbers share an index only where they mean the same thing, so the text does not
 * depend on their values and groups over other shapes share compiled kernels.
 */
#include "cuda/codegen/codegen_int.h"
#include "plimsoll_embed.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

PL_EMBED(prelude, "src/cuda/codegen/prelude.cuh");

pl_cg *pl_cg_new(const pl_cg_pass *p, pl_arena *a)
{
    pl_cg *w = pl_arena_new(a, pl_cg, 1);
    if (!w) return NULL;
    w->p = p;
    w->a = a;
    w->tile = -1;
    w->ref = pl_arena_alloc(a, sizeof *w->ref * (size_t)(p->n_instr + 1));
    w->raw = pl_arena_alloc(a, sizeof *w->raw * (size_t)(p->n_instr + 1));
    w->ptr_of = pl_arena_new(a, int32_t, p->n_op + 1);
    return w->ref && w->raw && w->ptr_of ? w : NULL;
}

void pl_cg_put(pl_cg *w, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (n < 0 || n >= (int)sizeof line) PL_BUG("a line of generated text is too long");
    pl_str_add(&w->body, line);
}

/* ---- arguments -------------------------------------------------------------------------- */

static int place(pl_cg *w, int32_t *n)
{
    if (*n == PL_CG_SLOTS) {
        w->full = true;
        return 0;
    }
    return (*n)++;
}

int pl_cg_size(pl_cg *w, int64_t v)
{
    int i = place(w, &w->n.s);
    w->s[i] = v;
    return i;
}

int pl_cg_float(pl_cg *w, float v)
{
    int i = place(w, &w->n.f);
    w->f[i] = v;
    return i;
}

int pl_cg_double(pl_cg *w, double v)
{
    int i = place(w, &w->n.d);
    w->d[i] = v;
    return i;
}

int pl_cg_long(pl_cg *w, int64_t v)
{
    int i = place(w, &w->n.l);
    w->l[i] = v;
    return i;
}

/* The quotient of n < 2^31 by d is (high word of n*m + n) >> s, with 2^s >= d and m =
 * 2^32 (2^s - d) / d + 1 (Granlund and Montgomery 1994, section 4, with one bit to spare). */
int pl_cg_divider(pl_cg *w, int64_t d)
{
    int i = place(w, &w->n.m);
    uint32_t s = 0;
    while (((int64_t)1 << s) < d) s++;
    uint64_t gap = ((uint64_t)1 << s) - (uint64_t)d;
    w->m[i] = (pl_cg_div){(uint32_t)d, (uint32_t)((gap << 32) / (uint64_t)d + 1), s};
    return i;
}

int pl_cg_pointer(pl_cg *w, pl_code_space space, uint32_t index, int64_t plus, uint32_t align)
{
    for (int i = 0; i < w->n_p; i++) {
        pl_code_patch *q = &w->ptr[i];
        if (q->space != space || q->index != index || q->plus != plus) continue;
        if (align > q->align) q->align = align;
        return i;
    }
    int i = place(w, &w->n_p);
    w->ptr[i] = (pl_code_patch){space, 0, index, plus, align};
    return i;
}

/* ---- the head --------------------------------------------------------------------------- */

void pl_cg_head(pl_cg *w, int threads, int resident)
{
    pl_cg_put(w, "extern \"C\" __global__ void __launch_bounds__(%d", threads);
    if (resident) pl_cg_put(w, ", %d", resident);
    pl_cg_put(w, ") " PL_CODE_ENTRY "(const GRID_CONST p_args a)\n{\np_begun();\np_after();\n");
}

/* ---- the finished kernel ---------------------------------------------------------------- */

typedef struct layout {
    size_t l, d, s, f, m, end;
} layout;

static layout lay_out(const pl_cg *w)
{
    layout y;
    y.l = 8 * (size_t)w->n_p;
    y.d = y.l + 8 * (size_t)w->n.l;
    y.s = y.d + 8 * (size_t)w->n.d;
    y.f = y.s + (w->p->wide ? 8u : 4u) * (size_t)w->n.s;
    y.m = y.f + 4 * (size_t)w->n.f;
    y.end = (y.m + sizeof(pl_cg_div) * (size_t)w->n.m + 7) / 8 * 8;
    return y;
}

static void put_member(pl_str *s, const char *type, const char *name, int n)
{
    if (n) pl_str_addf(s, "    %s %s[%d];\n", type, name, n);
}

/* Adds prelude.cuh without blank lines and comment lines; replaces its line MATH_LIBM by one line
 * for each PL_SCALAR_LIBM row of scalar.def. */
static void put_prelude(pl_str *s)
{
    static const char libm[] =
#define PL_SCALAR_LIBM(NAME, name) "MATH(" #name ", " #name "f(x), " #name "(x))\n"
#include "ir/scalar.def"
        ;
    for (const char *line = prelude; *line;) {
        const char *first = line + strspn(line, " "), *end = strchr(line, '\n') + 1;
        if (strncmp(first, "MATH_LIBM", 9) == 0)
            pl_str_add(s, libm);
        else if (*first != '\n' && strncmp(first, "//", 2) != 0)
            pl_str_addn(s, line, (size_t)(end - line));
        line = end;
    }
}

static char *whole_text(pl_cg *w, size_t *len)
{
    pl_str s = PL_STR_INIT;
    put_prelude(&s);
    pl_str_addf(&s, "typedef %s I;\nstruct p_args {\n", w->p->wide ? "p_i64" : "int");
    put_member(&s, "char *", "p", w->n_p);
    put_member(&s, "p_i64", "l", w->n.l);
    put_member(&s, "double", "d", w->n.d);
    put_member(&s, "I", "s", w->n.s);
    put_member(&s, "float", "f", w->n.f);
    put_member(&s, "p_by", "m", w->n.m);
    pl_str_add(&s, "};\n");
    pl_str_add(&s, w->body.text ? w->body.text : "");
    char *text = s.failed || w->body.failed ? NULL : pl_arena_strdup(w->a, s.text);
    *len = s.len;
    pl_str_release(&s);
    return text;
}

static uint8_t *pack(const pl_cg *w, const layout *y)
{
    uint8_t *b = pl_arena_new(w->a, uint8_t, y->end);
    if (!b) return NULL;
    memcpy(b + y->l, w->l, 8 * (size_t)w->n.l);
    memcpy(b + y->d, w->d, 8 * (size_t)w->n.d);
    for (int i = 0; i < w->n.s; i++) {
        int32_t narrow = (int32_t)w->s[i];
        if (w->p->wide)
            memcpy(b + y->s + 8 * (size_t)i, &w->s[i], 8);
        else
            memcpy(b + y->s + 4 * (size_t)i, &narrow, 4);
    }
    memcpy(b + y->f, w->f, 4 * (size_t)w->n.f);
    memcpy(b + y->m, w->m, sizeof(pl_cg_div) * (size_t)w->n.m);
    return b;
}

pl_status pl_cg_finish(pl_cg *w, uint32_t grid, uint32_t block_x, uint32_t block_y,
                       pl_code_kernel *out)
{
    layout y = lay_out(w);
    pl_status rc = PL_OK;
    memset(out, 0, sizeof *out);
    out->text = whole_text(w, &out->len);
    out->args = pack(w, &y);
    pl_code_patch *patch = pl_arena_new(w->a, pl_code_patch, w->n_p + 1);
    if (!out->text || !out->args || !patch)
        rc = PL_ERR_MEMORY;
    else if (w->full || y.end > PL_CODE_ARGS)
        rc = pl__fail(PL_ERR_UNSUPPORTED, __FILE__, __LINE__,
                      "a group's kernel has more arguments than fit %d bytes", PL_CODE_ARGS);
    pl_str_release(&w->body);
    if (rc != PL_OK) return rc;
    for (int i = 0; i < w->n_p; i++) {
        patch[i] = w->ptr[i];
        patch[i].at = 8 * (uint32_t)i;
    }
    out->patch = patch;
    out->n_patches = (uint32_t)w->n_p;
    out->arg_bytes = (uint32_t)y.end;
    out->grid = grid;
    out->block_x = block_x;
    out->block_y = block_y;
    return PL_OK;
}

bool pl_code_bind(const pl_code_kernel *k, const void *const *in, void *const *out, void *work,
                  void *args)
{
    memcpy(args, k->args, k->arg_bytes);
    for (uint32_t i = 0; i < k->n_patches; i++) {
        const pl_code_patch *q = &k->patch[i];
        uintptr_t at = q->space == PL_CODE_IN    ? (uintptr_t)in[q->index]
                       : q->space == PL_CODE_OUT ? (uintptr_t)out[q->index]
                                                 : (uintptr_t)work;
        at += (uintptr_t)q->plus;
        if (at % q->align) return false;
        uint64_t word = at;
        memcpy((char *)args + q->at, &word, 8);
    }
    return true;
}
