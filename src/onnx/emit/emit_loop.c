/* emit_loop.c - Loop and Scan whose number of rounds is known at import, round by round.
 *
 * The engine plans one fixed list of kernels, so the nodes of the body are added once for each
 * round. A Loop whose number of rounds depends on data is refused. */
#include "onnx/emit/emit.h"
#include "onnx/host.h"

enum { MAX_ROUNDS = 4096 };

/* The values that the iterations of a body read and write. */
typedef struct rounds {
    pl_ox_call *c;
    const pl_ox_graph *body;
    int n_state, n_stacked; /* outputs of the node: states, then results of all rounds */
    pl_ox_val **in, **out;  /* of the body */
    pl_val *part;           /* [n_stacked][MAX_ROUNDS] */
    int done;
} rounds;

static pl_status begin(pl_ox_call *c, int n_in, int lead_out, int n_state, rounds *r)
{
    const pl_ox_attr *a = pl_ox_attr_find(c, "body");
    *r = (rounds){.c = c, .body = a ? a->g : NULL, .n_state = n_state};
    if (!r->body) return pl_ox_fail(c, PL_ERR_FILE, "there is no body");
    r->n_stacked = (int)r->body->n_output - lead_out - n_state;
    if (n_state < 0 || r->n_stacked < 0 || r->body->n_output > 1 << 12 || n_in > 1 << 12)
        return pl_ox_fail(c, PL_ERR_FILE, "its body has %zu outputs, %d states", r->body->n_output,
                          n_state);
    pl_arena *mem = &c->b->mem;
    r->in = pl_arena_new(mem, pl_ox_val *, n_in + 1);
    r->out = pl_arena_new(mem, pl_ox_val *, (int)r->body->n_output + 1);
    r->part = pl_arena_new(mem, pl_val, r->n_stacked * MAX_ROUNDS + 1);
    return r->in && r->out && r->part ? PL_OK : PL_ERR_MEMORY;
}

/* Builds the body once; results of this round are kept for stacking. */
static pl_status build_round(rounds *r, int n_in, int lead_out)
{
    if (r->done >= MAX_ROUNDS)
        return pl_ox_fail(r->c, PL_ERR_UNSUPPORTED, "more than %d rounds", MAX_ROUNDS);
    int n_out = lead_out + r->n_state + r->n_stacked;
    PL_TRY(pl_ox_subgraph(r->c, r->body, n_in, r->in, n_out, r->out));
    for (int k = 0; k < r->n_stacked; k++) {
        pl_ox_val *v = r->out[lead_out + r->n_state + k];
        if (v->item) return pl_ox_fail(r->c, PL_ERR_UNSUPPORTED, "it collects sequences");
        r->part[k * MAX_ROUNDS + r->done] = pl_ox_plain(r->c->b, v);
    }
    r->done++;
    return PL_OK;
}

/* Sets output n_state + k: the results of all rounds along a new axis. */
static pl_status stack(rounds *r, int k, int64_t axis, bool backwards)
{
    pl_graph *g = r->c->g;
    pl_val *p = r->part + k * MAX_ROUNDS;
    int at;
    if (!r->done) return pl_ox_fail(r->c, PL_ERR_UNSUPPORTED, "it has no rounds");
    for (int i = 0; backwards && i < r->done / 2; i++) {
        pl_val t = p[i];
        p[i] = p[r->done - 1 - i];
        p[r->done - 1 - i] = t;
    }
    PL_TRY(pl_ox_axis_of(r->c, axis, pl_val_type(g, p[0]).rank + 1, &at));
    return pl_ox_set(r->c, r->n_state + k, pl_stack(g, r->done, p, at), NULL);
}

static pl_status data_dependent(const pl_ox_call *c)
{
    return pl_ox_fail(c, PL_ERR_UNSUPPORTED,
                      "its number of rounds depends on data: the engine plans one fixed list of "
                      "kernels. Export the model with a number that is known (torch.onnx.export of "
                      "a traced module unrolls loops)");
}

/* Body: round, condition, states -> condition, states, results. */
pl_status pl_ox_emit_loop(pl_ox_call *c)
{
    rounds r;
    int n = c->n_in - 2;
    double limit = MAX_ROUNDS + 1.0, on = 1;
    PL_TRY(begin(c, c->n_in, 1, n, &r));
    for (int k = 0; k < 2; k++)
        if (pl_ox_has(c, k) && !pl_ox_known(c->b, c->in[k])) return data_dependent(c);
    PL_TRY(pl_ox_in_number(c, 0, "number of rounds", limit, &limit));
    PL_TRY(pl_ox_in_number(c, 1, "condition", 1, &on));
    pl_ox_val *condition = c->in[1] ? c->in[1] : pl_ox_host_new(c->b, PL_BOOL, 0, NULL);
    if (!condition) return PL_ERR_MEMORY;
    if (!c->in[1]) condition->host.i[0] = 1;
    r.in[1] = condition;
    for (int k = 0; k < n; k++) {
        if (!c->in[2 + k]) return pl_ox_fail(c, PL_ERR_FILE, "input %d is missing", 2 + k);
        r.in[2 + k] = c->in[2 + k];
    }
    while (r.done < limit && on != 0) {
        pl_ox_val *round = r.in[0] = pl_ox_host_new(c->b, PL_I64, 0, NULL);
        if (!round) return PL_ERR_MEMORY;
        round->host.i[0] = r.done;
        PL_TRY(build_round(&r, c->n_in, 1));
        if (!pl_ox_known(c->b, r.out[0]) || r.out[0]->host.n != 1) return data_dependent(c);
        on = pl_ox_host_real(r.out[0], 0);
        for (int k = 0; k <= n; k++) r.in[1 + k] = r.out[k];
    }
    for (int k = 0; k < n; k++) PL_TRY(pl_ox_set_val(c, k, r.in[2 + k]));
    for (int k = 0; k < r.n_stacked && n + k < c->n_out; k++) PL_TRY(stack(&r, k, 0, false));
    return PL_OK;
}

static int64_t nth(const pl_ox_call *c, const char *name, int k)
{
    int n = 0;
    const int64_t *p = pl_ox_attr_ints(c, name, &n);
    return p && k < n ? p[k] : 0;
}

/* Body: states, one element of each scanned input -> states, results. */
pl_status pl_ox_emit_scan(pl_ox_call *c)
{
    rounds r;
    int scanned = (int)pl_ox_attr_int(c, "num_scan_inputs", 0), n = c->n_in - scanned;
    int64_t steps = -1;
    if (c->b->opset < 9)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "opset %lld; export with opset_version=18",
                          (long long)c->b->opset);
    if (scanned < 1 || n < 0) return pl_ox_fail(c, PL_ERR_FILE, "%d scanned inputs", scanned);
    PL_TRY(begin(c, c->n_in, 0, n, &r));
    for (int k = 0; k < c->n_in; k++) {
        int axis;
        if (!c->in[k]) return pl_ox_fail(c, PL_ERR_FILE, "input %d is missing", k);
        r.in[k] = c->in[k];
        if (k < n) continue;
        PL_TRY(pl_ox_axis_of(c, nth(c, "scan_input_axes", k - n), c->in[k]->rank, &axis));
        if (steps >= 0 && steps != c->in[k]->dim[axis])
            return pl_ox_fail(c, PL_ERR_SHAPE, "scanned inputs of %lld and %lld elements",
                              (long long)steps, (long long)c->in[k]->dim[axis]);
        steps = c->in[k]->dim[axis];
    }
    for (int64_t i = 0; i < steps; i++) {
        for (int k = n; k < c->n_in; k++) {
            pl_ox_val *v = c->in[k];
            int axis, rank = 0;
            int64_t dim[PL_MAX_RANK];
            PL_TRY(pl_ox_axis_of(c, nth(c, "scan_input_axes", k - n), v->rank, &axis));
            int64_t at = nth(c, "scan_input_directions", k - n) ? steps - 1 - i : i;
            pl_val x = pl_slice(c->g, pl_ox_plain(c->b, v), axis, at, at + 1, 1);
            for (int d = 0; d < v->rank; d++)
                if (d != axis) dim[rank++] = v->dim[d];
            r.in[k] = pl_ox_val_new(c->b, pl_reshape(c->g, x, rank, dim), NULL);
            if (!r.in[k]) return PL_ERR_MEMORY;
        }
        PL_TRY(build_round(&r, c->n_in, 0));
        for (int k = 0; k < n; k++) r.in[k] = r.out[k];
    }
    for (int k = 0; k < n; k++) PL_TRY(pl_ox_set_val(c, k, r.in[k]));
    for (int k = 0; k < r.n_stacked && n + k < c->n_out; k++)
        PL_TRY(
            stack(&r, k, nth(c, "scan_output_axes", k), nth(c, "scan_output_directions", k) != 0));
    return PL_OK;
}
