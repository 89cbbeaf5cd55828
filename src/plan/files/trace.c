/* trace.c - reads a trace in one pass over its numbers.
 *
 * Ops are renumbered by their C commands, so that op i of the problem is the i-th to be computed
 * first. An op that is computed never, or more than once, is an error.
 */
#include "plan/files/trace.h"

#include <ctype.h>
#include <string.h>

#include "base/sys.h"

typedef struct reader {
    const char *at, *end;
    unsigned line;
} reader;

typedef struct op_line {
    double cost;
    bool constant;
    uint32_t n_args, n_results;
    const uint32_t *args;    /* tensors */
    const uint32_t *results; /* tensor, storage, alias: three numbers each */
} op_line;

typedef struct parse {
    reader r;
    pl_trace *t;
    uint32_t n_storages, n_tensors, n_units, n_commands;
    uint64_t *storage_bytes;
    op_line *ops;
    uint32_t *order;      /* ops by first computation */
    uint32_t *storage_of; /* of each tensor, NONE before its op */
    uint32_t *owner;      /* of each storage: the tensor that is not an alias */
    uint32_t *refs;       /* of each storage */
    uint8_t *flags;       /* of each tensor */
} parse;

static void skip_space(reader *r)
{
    while (r->at < r->end && isspace((unsigned char)*r->at)) {
        if (*r->at == '\n') r->line++;
        r->at++;
    }
}

static pl_status read_u64(reader *r, uint64_t *out)
{
    skip_space(r);
    uint64_t v = 0;
    const char *from = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') {
        PL_FAIL_IF(v > (UINT64_MAX - 9) / 10, PL_ERR_DATA, "line %u: number too large", r->line);
        v = v * 10 + (uint64_t)(*r->at++ - '0');
    }
    PL_FAIL_IF(r->at == from, PL_ERR_DATA, "line %u: a number is missing", r->line);
    *out = v;
    return PL_OK;
}

/* A number below limit. */
static pl_status read_index(reader *r, const char *what, uint64_t limit, uint32_t *out)
{
    uint64_t v;
    PL_TRY(read_u64(r, &v));
    PL_FAIL_IF(v >= limit, PL_ERR_DATA,
               "line %u: %s %llu does not exist; there are %llu, counted from 0", r->line, what,
               (unsigned long long)v, (unsigned long long)limit);
    *out = (uint32_t)v;
    return PL_OK;
}

/* Nanoseconds, with or without decimals. */
static pl_status read_cost(reader *r, double *out)
{
    uint64_t whole;
    PL_TRY(read_u64(r, &whole));
    double v = (double)whole, unit = 0.1;
    if (r->at < r->end && *r->at == '.')
        for (r->at++; r->at < r->end && *r->at >= '0' && *r->at <= '9'; unit *= 0.1)
            v += unit * (*r->at++ - '0');
    *out = v;
    return PL_OK;
}

static pl_status read_head(parse *p)
{
    /* Every item takes two characters or more of the text, so counts beyond its length are wrong
     * and nothing larger than the text is ever allocated. */
    uint64_t most = (uint64_t)(p->r.end - p->r.at) / 2 + 2;
    pl_arena *a = &p->t->arena;
    PL_TRY(read_index(&p->r, "storages", most, &p->n_storages));
    PL_TRY(read_index(&p->r, "tensors", most, &p->n_tensors));
    PL_TRY(read_index(&p->r, "ops", most, &p->n_units));
    PL_TRY(read_index(&p->r, "commands", most, &p->n_commands));
    p->storage_bytes = pl_arena_new(a, uint64_t, p->n_storages + 1);
    p->ops = pl_arena_new(a, op_line, p->n_units + 1);
    p->order = pl_arena_new(a, uint32_t, p->n_units + 1);
    p->storage_of = pl_arena_new(a, uint32_t, p->n_tensors + 1);
    p->owner = pl_arena_new(a, uint32_t, p->n_storages + 1);
    p->refs = pl_arena_new(a, uint32_t, p->n_storages + 1);
    p->flags = pl_arena_new(a, uint8_t, p->n_tensors + 1);
    if (!p->storage_bytes || !p->ops || !p->order || !p->storage_of || !p->owner || !p->refs ||
        !p->flags)
        return PL_ERR_MEMORY;
    memset(p->storage_of, 0xff, p->n_tensors * sizeof *p->storage_of);
    memset(p->owner, 0xff, p->n_storages * sizeof *p->owner);
    for (uint32_t i = 0; i < p->n_storages; i++) {
        PL_TRY(read_u64(&p->r, &p->storage_bytes[i]));
        PL_FAIL_IF(p->storage_bytes[i] > (uint64_t)1 << 48, PL_ERR_DATA,
                   "line %u: storage %u has %llu bytes", p->r.line, i,
                   (unsigned long long)p->storage_bytes[i]);
    }
    return PL_OK;
}

static pl_status read_op(parse *p, op_line *o)
{
    uint64_t most = (uint64_t)(p->r.end - p->r.at) / 2 + 2;
    uint32_t constant = 0;
    PL_TRY(read_cost(&p->r, &o->cost));
    PL_TRY(read_index(&p->r, "constant", 2, &constant));
    o->constant = constant != 0;
    PL_TRY(read_index(&p->r, "arguments", most, &o->n_args));
    uint32_t *args = pl_arena_new(&p->t->arena, uint32_t, o->n_args + 1);
    if (!args) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < o->n_args; i++)
        PL_TRY(read_index(&p->r, "tensor", p->n_tensors, &args[i]));
    PL_TRY(read_index(&p->r, "results", most, &o->n_results));
    uint32_t *res = pl_arena_new(&p->t->arena, uint32_t, (size_t)o->n_results * 3 + 1);
    if (!res) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < o->n_results; i++) {
        PL_TRY(read_index(&p->r, "tensor", p->n_tensors, &res[3 * i]));
        PL_TRY(read_index(&p->r, "storage", p->n_storages, &res[3 * i + 1]));
        PL_TRY(read_index(&p->r, "is_alias", 2, &res[3 * i + 2]));
        PL_FAIL_IF(p->storage_of[res[3 * i]] != PL_RECOMPUTE_NONE, PL_ERR_DATA,
                   "line %u: tensor %u is written by two ops", p->r.line, res[3 * i]);
        p->storage_of[res[3 * i]] = res[3 * i + 1];
        if (!res[3 * i + 2]) p->owner[res[3 * i + 1]] = res[3 * i];
    }
    o->args = args;
    o->results = res;
    return PL_OK;
}

/* Reads the commands: the order, the ends, and the peak of the program as traced. */
static pl_status read_commands(parse *p)
{
    uint32_t n_done = 0, op = 0, t = 0;
    uint64_t alive = 0;
    for (uint32_t c = 0; c < p->n_commands; c++) {
        skip_space(&p->r);
        PL_FAIL_IF(p->r.at == p->r.end, PL_ERR_DATA, "line %u: command %u of %u is missing",
                   p->r.line, c + 1, p->n_commands);
        char what = *p->r.at++;
        if (what == 'C') {
            PL_TRY(read_index(&p->r, "op", p->n_units, &op));
            PL_FAIL_IF(n_done == p->n_units, PL_ERR_DATA, "line %u: op %u is listed twice",
                       p->r.line, op);
            p->order[n_done++] = op;
            for (uint32_t i = 0; i < p->ops[op].n_results; i++) {
                uint32_t s = p->ops[op].results[3 * i + 1];
                p->refs[s]++;
                if (!p->ops[op].results[3 * i + 2]) alive += p->storage_bytes[s];
            }
            if (alive > p->t->peak_bytes) p->t->peak_bytes = alive;
            continue;
        }
        PL_FAIL_IF(what != 'G' && what != 'P' && what != 'R', PL_ERR_DATA,
                   "line %u: unknown command '%c'", p->r.line, what);
        PL_TRY(read_index(&p->r, "tensor", p->n_tensors, &t));
        uint32_t s = p->storage_of[t];
        PL_FAIL_IF(s == PL_RECOMPUTE_NONE, PL_ERR_DATA, "line %u: tensor %u is written by no op",
                   p->r.line, t);
        if (what == 'P') p->flags[t] |= PL_RECOMPUTE_END;
        if (what == 'G') p->refs[s]++;
        if (what == 'R') {
            PL_FAIL_IF(!p->refs[s], PL_ERR_DATA, "line %u: storage %u has no references", p->r.line,
                       s);
            if (!--p->refs[s]) alive -= p->storage_bytes[s];
        }
    }
    PL_FAIL_IF(n_done != p->n_units, PL_ERR_DATA, "only %u of %u ops are listed", n_done,
               p->n_units);
    return PL_OK;
}

/* Returns the argument that an alias shares its storage with. */
static uint32_t base_tensor(const parse *p, const op_line *o, uint32_t storage)
{
    for (uint32_t i = 0; i < o->n_args; i++)
        if (p->storage_of[o->args[i]] == storage) return o->args[i];
    return p->owner[storage];
}

static pl_status build_problem(parse *p)
{
    pl_arena *a = &p->t->arena;
    uint32_t n_in = 0, n_out = 0;
    for (uint32_t i = 0; i < p->n_units; i++) {
        n_in += p->ops[i].n_args;
        n_out += p->ops[i].n_results;
    }
    double *cost = pl_arena_new(a, double, p->n_units + 1);
    uint8_t *unit_flags = pl_arena_new(a, uint8_t, p->n_units + 1);
    uint32_t *in_at = pl_arena_new(a, uint32_t, p->n_units + 1);
    uint32_t *out_at = pl_arena_new(a, uint32_t, p->n_units + 1);
    uint32_t *in = pl_arena_new(a, uint32_t, n_in + 1), *out = pl_arena_new(a, uint32_t, n_out + 1);
    uint64_t *bytes = pl_arena_new(a, uint64_t, p->n_tensors + 1);
    uint32_t *base = pl_arena_new(a, uint32_t, p->n_tensors + 1);
    if (!cost || !unit_flags || !in_at || !out_at || !in || !out || !bytes || !base)
        return PL_ERR_MEMORY;
    memset(base, 0xff, p->n_tensors * sizeof *base);
    for (uint32_t i = 0; i < p->n_units; i++) {
        const op_line *o = &p->ops[p->order[i]];
        cost[i] = o->cost;
        unit_flags[i] = o->constant ? PL_RECOMPUTE_ONCE : 0;
        in_at[i + 1] = in_at[i] + o->n_args;
        out_at[i + 1] = out_at[i] + o->n_results;
        if (o->n_args) memcpy(in + in_at[i], o->args, o->n_args * sizeof *in);
        for (uint32_t j = 0; j < o->n_results; j++) {
            uint32_t t = o->results[3 * j], s = o->results[3 * j + 1];
            out[out_at[i] + j] = t;
            if (o->results[3 * j + 2])
                base[t] = base_tensor(p, o, s);
            else
                bytes[t] = p->storage_bytes[s];
            if (o->constant) p->flags[t] |= PL_RECOMPUTE_PINNED;
        }
    }
    p->t->op = p->order;
    p->t->problem = (pl_recompute_problem){.n_units = p->n_units,
                                           .n_buffers = p->n_tensors,
                                           .cost = cost,
                                           .unit_flags = unit_flags,
                                           .in_at = in_at,
                                           .in = in,
                                           .out_at = out_at,
                                           .out = out,
                                           .bytes = bytes,
                                           .buffer_flags = p->flags,
                                           .base = base};
    return PL_OK;
}

static pl_status parse_all(parse *p)
{
    PL_TRY(read_head(p));
    for (uint32_t i = 0; i < p->n_units; i++) PL_TRY(read_op(p, &p->ops[i]));
    PL_TRY(read_commands(p));
    return build_problem(p);
}

void pl_trace_release(pl_trace *t)
{
    pl_arena_release(&t->arena);
    *t = (pl_trace)PL_TRACE_INIT;
}

pl_status pl_trace_parse(const char *text, size_t len, pl_trace *out)
{
    *out = (pl_trace)PL_TRACE_INIT;
    parse p = {.r = {.at = text, .end = text + len, .line = 1}, .t = out};
    pl_status s = parse_all(&p);
    if (s != PL_OK) pl_trace_release(out);
    return s;
}

pl_status pl_trace_read(const char *path, pl_trace *out)
{
    char *text;
    size_t len;
    PL_TRY(pl_sys_read_file(path, (size_t)1 << 30, &text, &len));
    pl_status s = pl_trace_parse(text, len, out);
    pl_sys_free(text);
    return s == PL_OK ? s : pl__fail_prefix(s, "%s", path);
}
