/* authors_net.c - one network over the weights of a run; see authors.h. */
#include "tests/authors/authors.h"

#include "base/dtype.h"
#include "base/sys.h"
#include "plimsoll_optim.h"
#include "tests/lib/lab.h"
#include "train/build/builder.h"

#include <stdio.h>
#include <string.h>

enum { MAX_VALUES = 24 };

typedef struct value {
    const char *name, *tensor; /* of the graph, of io */
    authors_layout layout;
} value;

/* A scalar and the number that it should be. */
typedef struct term {
    const char *what;
    double want, tolerance;
} term;

/* Gradients that are outputs "grad.SLOT". */
typedef struct derivative {
    const char *kind, *slots; /* kind NULL: none */
    authors_namer namer;
    double tolerance;
} derivative;

struct authors_net {
    authors *a;
    pl_run *run;
    pl_store *store;
    pl_graph *graph;
    pl_nn *m;
    pl_builder builder;
    value in[MAX_VALUES], out[MAX_VALUES];
    term term[MAX_VALUES];
    int n_in, n_out, n_terms;
    derivative grad;
};

authors_net *authors_net_new(authors *a, pl_run *run, bool training)
{
    authors_net *net = pl_sys_alloc(sizeof *net);
    if (!net) return NULL;
    net->a = a;
    net->run = run;
    net->store = pl_store_new();
    net->graph = pl_graph_new(net->store);
    net->m = pl_nn_new(net->graph, training);
    if (a->wide) net->m->dtype = PL_F64;
    return net;
}

pl_nn *authors_net_nn(authors_net *net)
{
    return net->m;
}

pl_builder *authors_net_builder(authors_net *net)
{
    const pl_config *c = pl_run_config(net->run);
    net->builder = (pl_builder){.config = c,
                                .store = net->store,
                                .batch = pl_config_int(c, "batch"),
                                .accumulate = 1,
                                .draws_are_inputs = net->m->training};
    return &net->builder;
}

pl_val authors_net_in(authors_net *net, const char *tensor, authors_layout layout)
{
    pl_type t;
    if (!authors_tensor(net->a, tensor, layout, &t)) {
        pl_nn_fail(net->m, PL_ERR_FILE, "io.safetensors has no tensor %s", tensor);
        return PL_NO_VAL;
    }
    net->in[net->n_in++] = (value){tensor, tensor, layout};
    if (pl_dtype_is_float(t.dtype)) t.dtype = net->m->dtype; /* files may have f16, exact */
    return pl_input(net->graph, tensor, t);
}

void authors_net_feed(authors_net *net, const char *input, const char *tensor,
                      authors_layout layout)
{
    net->in[net->n_in++] = (value){input, tensor, layout};
}

void authors_net_out(authors_net *net, const char *tensor, authors_layout layout, pl_val v)
{
    net->out[net->n_out++] = (value){tensor, tensor, layout};
    pl_output(net->graph, tensor, v);
}

void authors_net_term(authors_net *net, const char *what, pl_val v, double want, double tolerance)
{
    net->term[net->n_terms++] = (term){what, want, tolerance};
    pl_output(net->graph, what, v);
}

void authors_net_gradients(authors_net *net, pl_val loss, const char *kind, const char *slots,
                           authors_namer namer, double tolerance)
{
    pl_optim o = PL_OPTIM_INIT;
    pl_grads grads;
    o.params = slots;
    net->grad = (derivative){kind, slots, namer, tolerance};
    pl_optim_gradients(net->m, loss, &o, &grads);
    for (int i = 0; i < grads.n; i++) {
        const char *name = pl_store_slot(net->store, grads.slot[i])->name;
        pl_output(net->graph, pl_nn_name(net->m, "grad.%s", name), grads.grad[i]);
    }
}

static void compare_gradients(authors_net *net, lab *l, int program)
{
    authors_summary all = {.a = net->a, .kind = net->grad.kind, .slots = net->grad.slots};
    int n = pl_store_count(net->store);
    for (int i = 0; i < 2 * n; i++) {
        const pl_slot *s = pl_store_slot(net->store, i % n);
        char name[512], output[600];
        pl_type t;
        snprintf(output, sizeof output, "grad.%s", s->name);
        const void *got = lab_output(l, program, output, &t);
        if (!got || !net->grad.namer(net->run, s->name, name)) continue;
        if (i < n)
            authors_allow_rounding(&all, name);
        else
            authors_gradient(&all, s, name, &t, got);
    }
    authors_print(&all, net->grad.tolerance);
}

/* Copies the slots of the run that have the network's names. */
static pl_status fill_slots(authors_net *net, lab *l)
{
    pl_store *from = pl_run_store(net->run);
    for (int i = 0; i < pl_store_count(net->store); i++) {
        const pl_slot *s = pl_store_slot(net->store, i);
        int k = pl_store_find(from, s->name);
        PL_FAIL_IF(k < 0 || !pl_type_equal(&pl_store_slot(from, k)->type, &s->type), PL_ERR_CONFIG,
                   "the run has no slot %s of this type", s->name);
        PL_TRY(pl_session_read_slot(pl_run_session(net->run), k, 0, lab_slot(l, i),
                                    pl_type_bytes(&s->type)));
    }
    return PL_OK;
}

static void fill_inputs(authors_net *net, lab *l, int program)
{
    for (int i = 0; i < net->n_in; i++) {
        pl_type file, t;
        const double *x = authors_tensor(net->a, net->in[i].tensor, net->in[i].layout, &file);
        void *to = lab_input(l, program, net->in[i].name, &t);
        if (!x || !to || pl_type_elems(&file) != pl_type_elems(&t)) {
            authors_fail(net->a, net->in[i].tensor, "does not fit the input %s", net->in[i].name);
            continue;
        }
        for (int64_t k = 0; x && to && k < pl_type_elems(&t); k++)
            pl_elem_set(t.dtype, to, k, x[k]);
    }
}

static pl_status run_net(authors_net *net, lab *l)
{
    PL_TRY(pl_nn_finish(net->m));
    int program = lab_add(l, net->graph);
    net->graph = NULL;
    PL_TRY(lab_open(l));
    PL_TRY(fill_slots(net, l));
    fill_inputs(net, l, program);
    PL_TRY(lab_run(l, program));
    for (int i = 0; i < net->n_out; i++) {
        pl_type t;
        const void *got = lab_output(l, program, net->out[i].tensor, &t);
        authors_output(net->a, net->out[i].tensor, net->out[i].layout, &t, got);
    }
    for (int i = 0; i < net->n_terms; i++) {
        const term *x = &net->term[i];
        pl_type t;
        const void *got = lab_output(l, program, x->what, &t);
        authors_term(net->a, x->what, pl_elem_get(t.dtype, got, 0), x->want, x->tolerance);
    }
    if (net->grad.kind) compare_gradients(net, l, program);
    return PL_OK;
}

void authors_net_run(authors_net *net)
{
    lab *l = lab_new(net->store);
    lab_allow_slack(l);
    if (run_net(net, l) != PL_OK)
        authors_fail(net->a, net->n_out ? net->out[0].tensor : "network", "%s", pl_error_text());
    pl_nn_free(net->m);
    lab_free(l);
    pl_graph_free(net->graph);
    pl_store_free(net->store);
    pl_sys_free(net);
}
