/* authors_lgt.c - LGT and LGT++: the velocity network, and one step with the label kept and with
 * the label dropped. */
#include "recipes/lgt/lgt.h"
#include "tests/authors/authors.h"
#include "train/files/naming.h"
#include "train/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CF AUTHORS_CHANNELS_FIRST

/* A network, and whether its label is dropped. */
typedef struct variant {
    const char *name;
    bool plus, dropped;
} variant;

/* ---- configuration ---------------------------------------------------------------------- */
static void numbers(authors *a, authors_keys *k, const char *key, const char *path)
{
    char text[512] = "", at[128];
    size_t n = json_array_size(authors_at(a, path)), used = 0;
    for (size_t i = 0; i < n && used < sizeof text; i++) {
        snprintf(at, sizeof at, "%s.%zu", path, i);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.17g", i ? "," : "",
                                 authors_number(a, at));
    }
    authors_key(k, "%s=[%s]", key, text);
}

static bool is_true(const authors *a, const char *path)
{
    return json_is_true(authors_at(a, path));
}

/* The earliest time of the epoch: it rises with the epochs. */
static double epsilon(authors *a)
{
    double epoch = authors_number(a, "epoch"),
           last = authors_number(a, "config.training.epsilon_warmup_epochs");
    return authors_number(a, "config.training.epsilon") * (epoch < last ? epoch / last : 1);
}

static void sizes(authors *a, authors_keys *k, bool plus)
{
    pl_type t = {0};
    if (!authors_tensor(a, "in/src", AUTHORS_PLAIN, &t)) authors_fail(a, "in/src", "missing");
    authors_key(k, "batch=%lld", (long long)t.dim[0]);
    authors_key(k, "latent=%lld", (long long)t.dim[2]);
    authors_key(k, "latent_columns=%lld", (long long)t.dim[3]);
    static const char *const pairs[][2] = {
        {"model.channels", "config.model.latent_channels"},
        {"model.base", "config.model.base_channels"},
        {"model.cond", "config.model.style_dim"},
        {"model.time", "config.model.time_dim"},
        {"model.styles", "config.model.num_styles"},
        {"model.encoder_blocks", "config.model.num_encoder_blocks"},
        {"model.decoder_blocks", "config.model.num_decoder_blocks"},
        {"ode.steps", "config.training.ode_integration_steps"},
        {"loss.projections", "config.loss.num_projections"},
        {"loss.samples", "config.loss.max_samples"},
        {"loss.positions", "config.loss.max_spatial_samples"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        authors_key(k, "%s=%lld", pairs[i][0], (long long)authors_int(a, pairs[i][1]));
    authors_key(k, "model.block=%s", plus ? "adagn" : "dynamic");
    authors_key(k, "model.plus=%s", plus ? "true" : "false");
    authors_key(k, "seed_compat=true");
    authors_key(k, "ode.epsilon=%.17g", epsilon(a));
}

static void objective(authors *a, authors_keys *k)
{
    static const char *const pairs[][2] = {
        {"loss.w_style", "config.loss.w_style"},
        {"loss.w_content", "config.loss.w_content"},
        {"loss.label_drop", "config.training.label_drop_prob"},
        {"optim.lr", "config.training.learning_rate"},
        {"optim.weight_decay", "config.training.weight_decay"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        authors_key(k, "%s=%.17g", pairs[i][0], authors_number(a, pairs[i][1]));
    bool velocity = is_true(a, "config.loss.use_velocity_reg");
    authors_key(k, "loss.w_velocity=%.17g",
                velocity ? authors_number(a, "config.loss.vel_reg_weight") : 0.0);
    if (is_true(a, "config.loss.use_multiscale_swd")) {
        numbers(a, k, "loss.scales", "config.loss.swd_scales");
        numbers(a, k, "loss.scale_weights", "config.loss.swd_scale_weights");
    } else {
        authors_key(k, "loss.scales=[%lld]", (long long)authors_int(a, "config.loss.patch_size"));
        authors_key(k, "loss.scale_weights=[1]");
    }
    if (authors_at(a, "config.loss.style_weights"))
        numbers(a, k, "loss.style_weights", "config.loss.style_weights");
    authors_key(k, "clip.norm=1");
}

static pl_run *open_run(authors *a, bool plus, bool f64)
{
    authors_keys k = {.a = a};
    sizes(a, &k, plus);
    objective(a, &k);
    authors_key(&k, "init_from=%s/%s", a->dir,
                authors_text(a, plus ? "weights.files.1" : "weights.files.0"));
    if (plus) authors_key(&k, "init_from.missing=allow");
    return authors_run_open(a, "lgt/tiny", &k, f64);
}

/* Slots of LGT++ that are not in the file of its changed tensors: the baseline's. */
static bool copy_shared(authors *a, pl_run *from, pl_run *to)
{
    for (int i = 0; i < pl_store_count(to->store); i++) {
        const pl_slot *s = pl_store_slot(to->store, i);
        int k = pl_store_find(from->store, s->name);
        if (k < 0 || !pl__slot_in_model(s) || pl_nn_match("model.dec*,model.gate*", s->name))
            continue;
        size_t bytes = pl_type_bytes(&s->type);
        void *x = pl_arena_alloc(&a->mem, bytes + 1);
        if (!x || pl_session_read_slot(from->session, k, 0, x, bytes) != PL_OK ||
            pl_session_write_slot(to->session, i, 0, x, bytes) != PL_OK) {
            authors_fail(a, s->name, "%s", pl_error_text());
            return false;
        }
    }
    return true;
}

static bool name_of(const pl_run *run, const char *slot, char name[512])
{
    const pl_slot *s = pl_store_slot(run->store, pl_store_find(run->store, slot));
    pl_published to;
    return pl__naming_find(lgt_start.naming, run->config, s, &to) &&
           snprintf(name, 512, "%s", to.name) < 512;
}

/* ---- the network ------------------------------------------------------------------------ */
static void check_network(authors *a, pl_run *run, bool plus)
{
    for (int average = 0; average < 2; average++) {
        authors_net *net = authors_net_new(a, run, false);
        pl_nn *m = authors_net_nn(net);
        lgt_config c;
        if (lgt_config_of(authors_net_builder(net), m, &c) == PL_OK) {
            char name[64];
            snprintf(name, sizeof name, "out/%s.v%s", plus ? "plus" : "baseline",
                     average ? "_avg_style" : "");
            lgt_style s = {.ids = authors_net_in(net, "in/style", AUTHORS_PLAIN)};
            if (average) s.uncond = pl_fill(m->g, PL_TYPE(PL_BOOL, 1), 1);
            pl_val x = authors_net_in(net, "in/x0", CF);
            pl_val v = lgt_unet(m, &c, x, authors_net_in(net, "in/u", AUTHORS_PLAIN), &s);
            authors_net_out(net, pl_arena_strdup(&a->mem, name), CF, v);
        }
        authors_net_run(net);
    }
}

/* ---- the step --------------------------------------------------------------------------- */
/* Tensor "KIND_VARIANT/NAME" or "KIND_VARIANT_label_dropped/NAME", as text that lives on. */
static const char *named(authors *a, const char *kind, const variant *v, const char *name)
{
    char text[128];
    snprintf(text, sizeof text, "%s_%s%s%s%s", kind, v->name, v->dropped ? "_label_dropped" : "",
             *name ? "/" : "", name);
    return pl_arena_strdup(&a->mem, text);
}

static double number_of(authors *a, const variant *v, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "steps.%s%s.%s", v->name, v->dropped ? "_label_dropped" : "", name);
    return authors_number(a, path);
}

/* Inside of the step: the start, velocities, times and the end of the integration. */
static void check_ode(authors *a, pl_run *run, const variant *v)
{
    authors_net *net = authors_net_new(a, run, false);
    pl_nn *m = authors_net_nn(net);
    pl_graph *g = m->g;
    lgt_config c;
    if (lgt_config_of(authors_net_builder(net), m, &c) == PL_OK) {
        double e = epsilon(a);
        pl_val u = authors_net_in(net, "in/u", AUTHORS_PLAIN);
        pl_val src = authors_net_in(net, "in/src", CF), x0 = authors_net_in(net, "in/x0", CF);
        lgt_batch b = {.style = authors_net_in(net, "in/style", AUTHORS_PLAIN),
                       .t = pl_shift(g, pl_scale(g, u, 1 - e), e)};
        lgt_style kept = {.ids = b.style}, ode = kept;
        if (v->dropped) ode.uncond = b.uncond = pl_fill(g, PL_TYPE(PL_BOOL, 1), 1);
        pl_val t = pl_reshape(g, b.t, PL_DIMS(-1, 1, 1, 1)), times[64];
        pl_val x = pl_add(g, pl_mul(g, pl_shift(g, pl_neg(g, t), 1), x0), pl_mul(g, t, src));
        pl_val first = lgt_unet(m, &c, x, b.t, &ode), now = b.t;
        if (!v->dropped) {
            authors_net_out(net, named(a, "ode", v, "t"), AUTHORS_PLAIN, b.t);
            authors_net_out(net, named(a, "ode", v, "x_t"), CF, x);
        }
        authors_net_out(net, named(a, "ode", v, "v_first"), CF, first);
        authors_net_out(net, named(a, "ode", v, "v_mid"), CF, lgt_unet(m, &c, x, b.t, &kept));
        authors_net_out(net, named(a, "ode", v, "x_1"), CF, lgt_integrate(m, &c, &b, x, first));
        for (int i = 0; i < c.ode_steps && i < 64; i++) {
            pl_val left = pl_shift(g, pl_neg(g, now), 1);
            times[i] = now = pl_add(g, now, pl_scale(g, left, 1.0 / c.ode_steps));
        }
        authors_net_out(net, named(a, "ode", v, "t_after_each_step"), AUTHORS_PLAIN,
                        pl_stack(g, c.ode_steps, times, 0));
    }
    authors_net_run(net);
}

/* The patch distance of each scale, from the end of the integration. */
static void check_scales(authors *a, pl_run *run, const variant *v)
{
    authors_net *net = authors_net_new(a, run, false);
    pl_nn *m = authors_net_nn(net);
    lgt_config c;
    if (lgt_config_of(authors_net_builder(net), m, &c) == PL_OK) {
        pl_val end = authors_net_in(net, named(a, "ode", v, "x_1"), CF);
        pl_val ref = authors_net_in(net, "in/style_ref", CF);
        for (int i = 0; i < c.n_scales; i++) {
            char name[64], rows[32], directions[32];
            snprintf(name, sizeof name, "swd_scale_%lld", (long long)c.scale[i]);
            snprintf(rows, sizeof rows, "in/rows%d", i);
            snprintf(directions, sizeof directions, "in/directions%d", i);
            lgt_config one = c;
            pl_type t;
            one.n_scales = 1;
            one.scale[0] = c.scale[i];
            one.scale_weight[0] = 1;
            pl_val r = PL_NO_VAL;
            if (authors_tensor(a, rows, AUTHORS_PLAIN, &t))
                r = authors_net_in(net, pl_arena_strdup(&a->mem, rows), AUTHORS_PLAIN);
            pl_val d = authors_net_in(net, pl_arena_strdup(&a->mem, directions), AUTHORS_PLAIN);
            authors_net_term(net, pl_arena_strdup(&a->mem, named(a, "step", v, name)),
                             lgt_style_distance(m->g, &one, end, ref, &r, &d),
                             number_of(a, v, name), AUTHORS_TERM);
        }
    }
    authors_net_run(net);
}

/* A draw of the step from io; where all are taken the authors draw nothing: any order. */
static void set_choice(const authors_program *p, const char *input, const char *tensor, int64_t all)
{
    pl_type t;
    if (authors_tensor(p->a, tensor, AUTHORS_PLAIN, &t)) {
        authors_set(p, input, tensor, AUTHORS_PLAIN);
        return;
    }
    double *x = pl_arena_new(&p->a->mem, double, (size_t)all + 1);
    for (int64_t i = 0; x && i < all; i++) x[i] = (double)i;
    if (x) authors_set_values(p, input, x, all);
}

static void feed(const authors_program *p, const variant *v)
{
    static const char *const latents[][2] = {
        {"src", "in/src"}, {"style_ref", "in/style_ref"}, {"x0", "in/x0"}};
    authors *a = p->a;
    const pl_config *c = p->run->config;
    double dropped = v->dropped;
    int scales;
    const int64_t *scale = pl_config_ints(c, "loss.scales", &scales);
    lgt_shape s = lgt_shape_of(c);
    int64_t batch = pl_config_int(c, "batch");
    for (int i = 0; i < 3; i++) authors_set(p, latents[i][0], latents[i][1], CF);
    authors_set(p, "u", "in/u", AUTHORS_PLAIN);
    authors_set(p, "style", "in/style", AUTHORS_PLAIN);
    authors_set_values(p, "uncond", &dropped, 1);
    set_choice(p, "positions", "in/positions", s.rows * s.columns);
    for (int i = 0; i < scales; i++) {
        char ours[32], theirs[32];
        int64_t more = scale[i] % 2 == 0;
        snprintf(ours, sizeof ours, i ? "rows%d" : "rows", i);
        snprintf(theirs, sizeof theirs, "in/rows%d", i);
        set_choice(p, ours, theirs, batch * (s.rows + more) * (s.columns + more));
        snprintf(ours, sizeof ours, i ? "directions%d" : "directions", i);
        snprintf(theirs, sizeof theirs, "in/directions%d", i);
        authors_set(p, ours, pl_arena_strdup(&a->mem, theirs), AUTHORS_PLAIN);
    }
}

/* Whether io has a tensor of the kind. */
static bool has_kind(const authors *a, const char *kind)
{
    size_t n = strlen(kind);
    for (int i = 0; i < pl_st_count(a->io); i++) {
        const char *name = pl_st_at(a->io, i)->name;
        if (strncmp(name, "sketch/", 7) == 0) name += 7;
        if (strncmp(name, kind, n) == 0 && name[n] == '/') return true;
    }
    return false;
}

static void check_step(authors *a, pl_run *run, const variant *v, bool changes)
{
    static const char *const terms[][2] = {
        {"style_swd", "swd"}, {"content_ssm", "ssm"}, {"total", "loss"}};
    authors_program p = {a, run, NULL};
    double **before = authors_snapshot(a, run);
    feed(&p, v);
    if (!authors_run_program(&p)) return;
    if (changes) {
        authors_deltas(a, run, before, named(a, "delta", v, ""), "*", name_of, false);
        return;
    }
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++)
        authors_term(a, named(a, "step", v, terms[i][0]), authors_scalar(&p, terms[i][1]),
                     number_of(a, v, terms[i][0]), AUTHORS_TERM);
    /* a sum of squares over large tensors, where PyTorch's f32 loses most: gradients' tolerance */
    authors_term(a, named(a, "step", v, "grad_norm_before_clip"), authors_scalar(&p, "grad_norm"),
                 number_of(a, v, "grad_norm_before_clip"), AUTHORS_GRADIENT);
    if (is_true(a, "config.loss.use_velocity_reg")) /* the authors' term has its weight */
        authors_term(a, named(a, "step", v, "vel_reg"),
                     authors_scalar(&p, "velocity") *
                         pl_config_float(run->config, "loss.w_velocity"),
                     number_of(a, v, "vel_reg"), AUTHORS_TERM);
    authors_gradients(&p, named(a, "grad", v, ""), "*", name_of, AUTHORS_GRADIENT);
}

/* One variant with its label kept or dropped; base: the baseline, for the slots of LGT++. */
static void check_variant(authors *a, const variant *v, bool f64)
{
    if (f64 && !has_kind(a, named(a, "delta", v, ""))) return;
    pl_run *base = v->plus ? open_run(a, false, f64) : NULL;
    pl_run *run = open_run(a, v->plus, f64);
    if (run && (!v->plus || (base && copy_shared(a, base, run)))) {
        if (!f64 && !v->dropped) check_network(a, run, v->plus);
        if (!f64) check_ode(a, run, v);
        if (!f64) check_scales(a, run, v);
        check_step(a, run, v, f64);
    }
    pl_run_free(run);
    pl_run_free(base);
}

/* LGT++ from its changed tensors (file 1) and the baseline's others. */
static bool of_plus(int file, char *name, size_t cap)
{
    char rest[480];
    if (file == 1) return true;
    if (strncmp(name, "decoder_blocks_", 15) == 0) return false;
    if (strncmp(name, "bottleneck.", 11) == 0) {
        snprintf(rest, sizeof rest, "%s", name + 11);
        snprintf(name, cap, "bottleneck_conv.%s", rest);
    }
    return true;
}

static void check_plus_round_trip(authors *a)
{
    authors_keys k = {.a = a};
    char files[2600], path[1200];
    const char *base = getenv("TMPDIR");
    sizes(a, &k, true);
    snprintf(files, sizeof files, "%s/%s,%s/%s", a->dir, authors_text(a, "weights.files.0"), a->dir,
             authors_text(a, "weights.files.1"));
    snprintf(path, sizeof path, "%s/pl_authors_%ld.pt", base && *base ? base : "/tmp",
             (long)getpid());
    if (authors_merge(files, "model_state_dict", of_plus, path) == PL_OK)
        authors_round_trip(a, "lgt/tiny", &k, path, "plus.pt");
    else
        authors_fail(a, "round trip", "%s", pl_error_text());
    remove(path);
}

static void check_round_trip(authors *a)
{
    authors_keys k = {.a = a};
    const char *file = authors_text(a, "weights.files.0");
    char path[1200];
    sizes(a, &k, false);
    snprintf(path, sizeof path, "%s/%s", a->dir, file);
    authors_round_trip(a, "lgt/tiny", &k, path, file);
}

void authors_lgt(authors *a)
{
    check_round_trip(a);
    check_plus_round_trip(a);
    static const variant variants[] = {{"baseline", false, false},
                                       {"baseline", false, true},
                                       {"plus", true, false},
                                       {"plus", true, true}};
    for (int i = 0; i < 8; i++) check_variant(a, &variants[i / 2], i % 2);
}
