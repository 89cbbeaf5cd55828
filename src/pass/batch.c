/* batch.c - see batch.h; the tags of values and the rules of ops are in batch_rules.h.
 *
 * One walk over both builds in the graph's order gives every value that a goal depends on its tag.
 * A rule that fails names its node as a cause, and the walk continues with the tag that follows
 * from the shape, so that one report names all kinds of coupling. At the end every goal must be a
 * mean over the batch, or independent of it. Cost: O(nodes + edges). */
#include "pass/batch.h"

#include "base/err.h"
#include "pass/batch_rules.h"

#include <stdio.h>
#include <string.h>

static void add_cause(pl_batch_walk *w, uint32_t node, const char *why)
{
    pl_batch_report *r = w->report;
    const pl_op *op = pl_node_get(w->g, node)->op;
    for (int i = 0; i < r->n_causes; i++)
        if (pl_node_get(w->g, r->cause[i].node)->op == op) return;
    if (r->n_causes == PL_BATCH_CAUSES) return;
    pl_batch_cause *c = &r->cause[r->n_causes++];
    c->node = node;
    c->why = why;
    pl_node_label(w->g, node, c->label, sizeof c->label);
}

static void visit(pl_batch_walk *w, uint32_t node)
{
    const pl_node_rec *r = pl_node_get(w->g, node);
    pl_batch_node *s = &w->s;
    s->op = r->op;
    pl_node_call(w->g, node, w->types[0], w->types[1], &s->whole);
    pl_node_call(w->h, node, w->types[2], w->types[3], &s->part);
    for (uint32_t i = 0; i < r->n_in; i++) s->in[i] = w->tags[pl_node_in(w->g, node)[i]];
    const char *why = pl_batch_rule(w, node);
    for (uint32_t k = 0; k < r->n_out; k++) {
        if (why) s->out[k] = pl_batch_by_shape(w, (int)k); /* so that later causes are found too */
        w->tags[r->out + k] = s->out[k];
    }
    if (why) add_cause(w, node, why);
}

static void mark_needed(pl_batch_walk *w, const pl_val *goals, int n_goals)
{
    for (int i = 0; i < n_goals; i++)
        if (pl_val_ok(goals[i])) w->need[pl_producer(w->g, goals[i].id)] = true;
    for (uint32_t n = w->g->n_nodes - 1; n >= 1; n--)
        for (uint32_t i = 0; w->need[n] && i < w->g->nodes[n].n_in; i++)
            w->need[pl_producer(w->g, pl_node_in(w->g, n)[i])] = true;
}

static void check_goal(pl_batch_walk *w, pl_val v)
{
    if (!pl_val_ok(v)) return;
    const pl_batch_tag *t = &w->tags[v.id];
    uint32_t node = pl_producer(w->g, v.id);
    double mean = 1.0 / (double)w->parts;
    if (t->zero) return;
    if (t->kind == PL_BATCH_EACH) add_cause(w, node, "the result is not one number for the batch");
    if (t->kind == PL_BATCH_NONE && !pl_batch_near(t->ratio, 1))
        add_cause(w, node, PL_BATCH_FOLLOWS);
    if (t->kind == PL_BATCH_SUM && !pl_batch_near(t->ratio, mean))
        add_cause(
            w, node,
            "the result is not a mean over the batch: micro-batches would have other weights");
}

static pl_status same_program(const pl_graph *a, const pl_graph *b)
{
    bool same = a->n_nodes == b->n_nodes && a->n_edges == b->n_edges;
    for (uint32_t n = 1; same && n < a->n_nodes; n++)
        same = a->nodes[n].op == b->nodes[n].op && a->nodes[n].in == b->nodes[n].in &&
               a->nodes[n].n_in == b->nodes[n].n_in && a->nodes[n].out == b->nodes[n].out;
    if (same) same = memcmp(a->edges, b->edges, a->n_edges * sizeof *a->edges) == 0;
    PL_FAIL_IF(!same, PL_ERR_GRAPH, "the model builds a different program for a different batch");
    return PL_OK;
}

static pl_status walk_new(pl_batch_walk *w, pl_arena *a)
{
    const pl_graph *g = w->g;
    size_t widest = pl_graph_widest(g);
    w->tags = pl_arena_new(a, pl_batch_tag, g->n_vals);
    w->need = pl_arena_new(a, bool, g->n_nodes);
    w->s.in = pl_arena_new(a, pl_batch_tag, widest + 3); /* map_ratio names three */
    w->s.at = pl_arena_new(a, pl_batch_spot, widest);
    if (!w->tags || !w->need || !w->s.in || !w->s.at) return PL_ERR_MEMORY;
    for (int i = 0; i < 4; i++) {
        w->types[i] = pl_arena_new(a, pl_type, widest + PL_MAX_OUT);
        if (!w->types[i]) return PL_ERR_MEMORY;
    }
    return PL_OK;
}

pl_status pl_batch_analyse(const pl_graph *whole, const pl_graph *part, int64_t batch,
                           int64_t parts, bool at_once, const pl_val *goals, int n_goals,
                           pl_batch_report *out)
{
    memset(out, 0, sizeof *out);
    PL_FAIL_IF(parts < 2 || batch < 1 || batch % parts, PL_ERR_ARG,
               "a batch of %lld does not divide into %lld micro-batches", (long long)batch,
               (long long)parts);
    PL_TRY(same_program(whole, part));
    pl_arena scratch = PL_ARENA_INIT;
    pl_batch_walk w = {
        .g = whole, .h = part, .batch = batch, .parts = parts, .at_once = at_once, .report = out};
    pl_status rc = walk_new(&w, &scratch);
    if (rc == PL_OK) {
        mark_needed(&w, goals, n_goals);
        for (uint32_t n = 1; n < whole->n_nodes; n++) {
            const pl_node_rec *r = pl_node_get(whole, n);
            int slot = r->op->flags & PL_OP_EFFECT ? pl_node_slot(whole, n) : -1;
            if (slot >= 0 && !at_once && pl_store_slot(whole->store, slot)->kind != PL_SLOT_COUNTER)
                add_cause(&w, n, "state of the model would change with every micro-batch");
            else if (w.need[n])
                visit(&w, n);
        }
        for (int i = 0; i < n_goals && out->n_causes == 0; i++) check_goal(&w, goals[i]);
        out->proven = out->n_causes == 0;
    }
    pl_arena_release(&scratch);
    return rc;
}

const char *pl_batch_text(const pl_batch_report *r, char *buf, size_t cap)
{
    enum { NAMED = 3 }; /* later causes often follow from the first */
    size_t used = 0;
    if (cap) buf[0] = 0;
    for (int i = 0; i < r->n_causes && i < NAMED && used < cap; i++) {
        int n = snprintf(buf + used, cap - used, "%s%s: %s", i ? "; " : "", r->cause[i].label,
                         r->cause[i].why);
        used += n > 0 ? (size_t)n : 0;
    }
    return buf;
}
