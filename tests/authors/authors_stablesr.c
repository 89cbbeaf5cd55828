/* authors_stablesr.c - StableSR with edges: autoencoder, structure encoder, edge processor and
 * U-Net alone, then one training step; with the groups of the file and with other ones. */
#include "recipes/stablesr/stablesr.h"
#include "tests/authors/authors.h"
#include "train/files/naming.h"
#include "train/run/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CF    AUTHORS_CHANNELS_FIRST
#define UNET  "constructed.UNetModelDualcondV2WithEdge."
#define MAPS  "constructed.EncoderUNetModelWT."
#define VAE   "constructed.AutoencoderKL.ddconfig."
#define EDGES "widths_reduced_in_authors_code."

/* Gradients of BatchNorm's layers over few values. */
#define EDGE_GRADIENT 1e-3

/* ---- configuration ---------------------------------------------------------------------- */
static void numbers(authors *a, authors_keys *k, const char *key, const char *path)
{
    char text[256] = "", at[128];
    size_t n = json_array_size(authors_at(a, path)), used = 0;
    for (size_t i = 0; i < n && used < sizeof text; i++) {
        snprintf(at, sizeof at, "%s.%zu", path, i);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld", i ? "," : "",
                                 (long long)authors_int(a, at));
    }
    authors_key(k, "%s=[%s]", key, text);
}

/* What stands behind the arrow of "64 -> 8": a width of the authors' code that was reduced. */
static const char *reduced(authors *a, const char *name)
{
    char path[96];
    snprintf(path, sizeof path, EDGES "%s", name);
    const char *text = json_string_value(authors_at(a, path)),
               *arrow = text ? strstr(text, "-> ") : NULL;
    if (!arrow) authors_fail(a, path, "about.json has no such width");
    return arrow ? arrow + 3 : "1";
}

/* Levels with attention: attention_resolutions has the factors by which they are smaller. */
static void attention_keys(authors *a, authors_keys *k, const char *net, const char *path)
{
    int from = 0, levels = 0;
    size_t n = json_array_size(authors_at(a, path));
    for (size_t i = 0; i < n; i++) {
        char at[128];
        snprintf(at, sizeof at, "%s.%zu", path, i);
        int level = 0;
        for (int64_t factor = authors_int(a, at); factor > 1; factor /= 2) level++;
        if (!i || level < from) from = level;
        if (level + 1 > levels) levels = level + 1;
    }
    if ((size_t)(levels - from) != n)
        authors_fail(a, path, "the recipe has attention at neighbouring levels only");
    authors_key(k, "%s.attn_from=%d", net, from);
    authors_key(k, "%s.attn_levels=%d", net, levels);
}

static void edge_sizes(authors *a, authors_keys *k)
{
    const char *stage = reduced(a, "edge_stage1");
    authors_key(k, "edge.stem=%s", reduced(a, "edge_initial_conv"));
    authors_key(k, "edge.after=[%s,%s,%s]", stage, stage, stage);
    authors_key(k, "edge.after_down=%s", reduced(a, "edge_stage2"));
    authors_key(k, "model.spade_hidden=%s", reduced(a, "spade_nhidden"));
}

static void sizes(authors *a, authors_keys *k)
{
    pl_type image = {0}, context = {0}, noise = {0};
    if (!authors_tensor(a, "in/lq", AUTHORS_PLAIN, &image) ||
        !authors_tensor(a, "in/noise", AUTHORS_PLAIN, &noise) ||
        !authors_tensor(a, "in/context", AUTHORS_PLAIN, &context))
        authors_fail(a, "in/lq, in/noise, in/context", "missing");
    authors_key(k, "batch=%lld", (long long)image.dim[0]);
    authors_key(k, "image=%lld", (long long)image.dim[2]);
    authors_key(k, "latent=%lld", (long long)noise.dim[2]);
    authors_key(k, "model.context=[%lld,%lld]", (long long)context.dim[1],
                (long long)context.dim[2]);
    static const char *const pairs[][2] = {
        {"model.width", UNET "model_channels"},       {"model.blocks", UNET "num_res_blocks"},
        {"model.head_dim", UNET "num_head_channels"}, {"struct.out", UNET "semb_channels"},
        {"struct.width", MAPS "model_channels"},      {"struct.blocks", MAPS "num_res_blocks"},
        {"struct.heads", MAPS "num_heads"},           {"vae.width", VAE "ch"},
        {"vae.blocks", VAE "num_res_blocks"},         {"model.depth", UNET "transformer_depth"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        authors_key(k, "%s=%lld", pairs[i][0], (long long)authors_int(a, pairs[i][1]));
    numbers(a, k, "model.mult", UNET "channel_mult");
    numbers(a, k, "struct.mult", MAPS "channel_mult");
    numbers(a, k, "vae.mult", VAE "ch_mult");
    attention_keys(a, k, "model", UNET "attention_resolutions");
    attention_keys(a, k, "struct", MAPS "attention_resolutions");
    edge_sizes(a, k);
}

/* The whole system. encode: from pictures, with the autoencoder; otherwise from latents. */
static void system_keys(authors *a, authors_keys *k, int groups, const char *frozen, bool encode)
{
    sizes(a, k);
    authors_key(k, "part=full");
    authors_key(k, "model.groups=%d", groups);
    authors_key(k, "frozen='%s'", frozen);
    authors_key(k, "vae.encode=%s", encode ? "true" : "false");
}

static pl_run *open_run(authors *a, int groups, const char *frozen, bool encode, bool f64)
{
    authors_keys k = {.a = a};
    system_keys(a, &k, groups, frozen, encode);
    authors_key(&k, "optim.lr=5e-5");
    authors_key(&k, "optim.weight_decay=0.01");
    authors_key(&k, "init_from=%s/%s", a->dir, authors_text(a, "weights.file"));
    return authors_run_open(a, "stablesr/tiny", &k, f64);
}

static bool name_of(const pl_run *run, const char *slot, char name[512])
{
    const pl_slot *s = pl_store_slot(run->store, pl_store_find(run->store, slot));
    pl_published to;
    return pl__naming_find(sr_start.naming, run->config, s, &to) &&
           snprintf(name, 512, "%s", to.name) < 512;
}

/* ---- networks alone --------------------------------------------------------------------- */
/* A tensor of "GROUP/NAME", as text that lives on. */
static const char *named(authors *a, const char *group, const char *name)
{
    char text[128];
    snprintf(text, sizeof text, "%s/%s", group, name);
    return pl_arena_strdup(&a->mem, text);
}

static void check_autoencoder(authors *a, pl_run *run)
{
    authors_net *net = authors_net_new(a, run, false);
    pl_nn *m = authors_net_nn(net);
    sr_config c;
    if (sr_config_of(authors_net_builder(net), m, &c) == PL_OK) {
        pl_val lq = vae_moments(m, &c.vae, authors_net_in(net, "in/lq", CF));
        pl_val gt = vae_moments(m, &c.vae, authors_net_in(net, "in/gt", CF));
        pl_val z = vae_sample(m, lq, authors_net_in(net, "in/eps_lq", CF));
        pl_val good = vae_sample(m, gt, authors_net_in(net, "in/eps_gt", CF));
        authors_net_out(net, "out/vae.moments_lq", CF, lq);
        authors_net_out(net, "out/vae.moments_gt", CF, gt);
        authors_net_out(net, "out/vae.z_lq", CF, z);
        authors_net_out(net, "step/z_lq", CF, z);
        authors_net_out(net, "step/z_gt", CF, good);
    }
    authors_net_run(net);
}

/* Structure maps, edges and the U-Net's prediction on the latent itself, as in evaluation. */
static void check_networks(authors *a, pl_run *run, const char *group, bool edges)
{
    authors_net *net = authors_net_new(a, run, false);
    pl_nn *m = authors_net_nn(net);
    sr_config c;
    if (sr_config_of(authors_net_builder(net), m, &c) == PL_OK) {
        pl_val z = authors_net_in(net, "out/vae.z_lq", CF), maps[SR_MAX_LEVELS];
        pl_val t = authors_net_in(net, "in/t", AUTHORS_PLAIN);
        pl_val context = authors_net_in(net, "in/context", AUTHORS_PLAIN);
        pl_val features = sr_edge(m, &c, authors_net_in(net, "in/edge", CF));
        pl_val fused = sr_fused(m, z, features);
        sr_struct_encoder(m, &c, z, t, maps);
        for (int i = 0; i < c.levels; i++) {
            char name[32];
            snprintf(name, sizeof name, "struct.%lld", (long long)(c.latent >> i));
            authors_net_out(net, named(a, group, name), CF, maps[i]);
        }
        if (edges) authors_net_out(net, "out/edge.features_eval", CF, features);
        if (edges) authors_net_out(net, "out/edge.fused_eval", CF, fused);
        authors_net_out(net, named(a, group, "unet.eval"), CF,
                        sr_unet(m, &c, fused, t, context, maps));
    }
    authors_net_run(net);
}

/* ---- the step --------------------------------------------------------------------------- */
/* The second sample of the degraded picture's latent, which the structure encoder sees, in our
 * layout; NULL: a line says why. */
static double *second_sample(authors *a, int64_t *n)
{
    pl_type t, mt;
    const double *eps = authors_tensor(a, "in/eps_lq_again", CF, &t);
    const double *moments = authors_tensor(a, "out/vae.moments_lq", CF, &mt);
    *n = eps ? pl_type_elems(&t) : 0;
    double *z = pl_arena_new(&a->mem, double, (size_t)*n + 1);
    if (!eps || !moments || !z || pl_type_elems(&mt) != 2 * *n) {
        authors_fail(a, "in/eps_lq_again", "missing, or not half of the moments");
        return NULL;
    }
    int64_t channels = t.dim[3];
    for (int64_t i = 0; i < *n; i++) {
        const double *at = moments + i / channels * 2 * channels + i % channels;
        double log_variance = fmin(fmax(at[channels], -30), 20);
        z[i] = VAE_SCALE * (at[0] + exp(0.5 * log_variance) * eps[i]);
    }
    return z;
}

/* start: the latent that noise is added to. */
static bool run_step(const authors_program *p, const char *start)
{
    int64_t n;
    const double *again = second_sample(p->a, &n);
    if (!again) return false;
    authors_set_values(p, "z_lq", again, n);
    authors_set(p, "z_gt", start, CF);
    authors_set(p, "eps", "in/noise", CF);
    authors_set(p, "edge", "in/edge", CF);
    authors_set(p, "context", "in/context", AUTHORS_PLAIN);
    authors_set(p, "t", "in/t", AUTHORS_PLAIN);
    return authors_run_program(p);
}

/* Prediction in training, with batch statistics. */
static void check_prediction(authors *a, pl_run *run, const char *group, const char *start)
{
    authors_net *net = authors_net_new(a, run, true);
    pl_nn *m = authors_net_nn(net);
    sr_config c;
    if (sr_config_of(authors_net_builder(net), m, &c) == PL_OK) {
        pl_val moments = authors_net_in(net, "out/vae.moments_lq", CF);
        sr_batch b = {.z = authors_net_in(net, start, CF),
                      .lq = vae_sample(m, moments, authors_net_in(net, "in/eps_lq_again", CF)),
                      .eps = authors_net_in(net, "in/noise", CF),
                      .t = authors_net_in(net, "in/t", AUTHORS_PLAIN),
                      .context = authors_net_in(net, "in/context", AUTHORS_PLAIN),
                      .edge = authors_net_in(net, "in/edge", CF)};
        pl_val x = sr_noised(m, &c, &b);
        if (strcmp(group, "step") == 0) authors_net_out(net, "step/x_noisy", CF, x);
        authors_net_out(net, named(a, group, "prediction"), CF, sr_predicted(m, &c, &b, x));
    }
    authors_net_run(net);
}

/* Loss and gradients of every parameter, trained by the authors or not. */
static void check_step(authors *a, pl_run *run, const char *step, const char *grad,
                       const char *start)
{
    authors_program p = {a, run, NULL};
    const char *name = named(a, step, "loss");
    pl_type t;
    check_prediction(a, run, step, start);
    if (!run_step(&p, start)) return;
    const double *want = authors_tensor(a, name, AUTHORS_PLAIN, &t);
    if (want) authors_term(a, name, authors_scalar(&p, "loss"), want[0], AUTHORS_TERM);
    authors_gradients(&p, grad, "unet.*", name_of, AUTHORS_GRADIENT);
    authors_gradients(&p, grad, "struct.*", name_of, AUTHORS_GRADIENT);
    authors_gradients(&p, grad, "edge.*", name_of, EDGE_GRADIENT);
    authors_gradients(&p, grad, "fusion.*", name_of, EDGE_GRADIENT);
}

/* How many tensors of the authors' are trained. */
static void check_trained(authors *a, pl_run *run)
{
    int n = 0;
    char last[512] = "", name[512];
    for (int i = 0; i < pl_store_count(run->store); i++) {
        const pl_slot *s = pl_store_slot(run->store, i);
        if (!s->trainable || !name_of(run, s->name, name) || strcmp(name, last) == 0) continue;
        memcpy(last, name, sizeof last); /* q, k and v are slots of one tensor */
        n++;
    }
    authors_line(a, "trained_count", fabs((double)n - authors_number(a, "trained_count")), 0, NULL);
}

/* One step of what the authors train: changes in f64, and statistics of the frozen edge processor
 * in f32, which move. */
static void check_update(authors *a, bool f64)
{
    pl_run *run = open_run(a, 32, "unet.*,edge.*,fusion.*,!*.spade.*", false, f64);
    if (!run) return;
    if (!f64) check_trained(a, run);
    authors_program p = {a, run, NULL};
    double **before = authors_snapshot(a, run);
    if (run_step(&p, "step/z_lq")) {
        if (f64) authors_deltas(a, run, before, "delta", "unet.*,struct.*", name_of, false);
        if (!f64) authors_state(a, run, "bn_after", "edge.*,fusion.*", name_of, AUTHORS_OUTPUT);
    }
    pl_run_free(run);
}

/* Networks and step with so many groups: group "out" and so on, with the ending. */
static void check_groups(authors *a, int groups, const char *end)
{
    char out[32], step[32], grad[32];
    snprintf(out, sizeof out, "out%s", end);
    snprintf(step, sizeof step, "step%s", end);
    snprintf(grad, sizeof grad, "grad%s", end);
    bool gt = strcmp(end, "_gt") == 0;
    pl_run *run = open_run(a, groups, "", false, false);
    if (run && !gt) check_networks(a, run, out, !*end);
    if (run)
        check_step(a, run, step, pl_arena_strdup(&a->mem, grad), gt ? "step/z_gt" : "step/z_lq");
    pl_run_free(run);
}

static void check_round_trip(authors *a)
{
    authors_keys k = {.a = a};
    const char *file = authors_text(a, "weights.file");
    char path[1200];
    system_keys(a, &k, 32, "unet.*,!*.spade.*", true);
    snprintf(path, sizeof path, "%s/%s", a->dir, file);
    authors_round_trip(a, "stablesr/tiny", &k, path, file);
}

void authors_stablesr(authors *a)
{
    check_round_trip(a);
    pl_run *run = open_run(a, 32, "unet.*,!*.spade.*", true, false);
    if (run) check_autoencoder(a, run);
    pl_run_free(run);
    check_groups(a, 32, "");
    check_groups(a, 32, "_gt");
    for (int i = 0; i < pl_st_count(a->io); i++) { /* step_gN/loss: N groups */
        const char *name = pl_st_at(a->io, i)->name;
        char end[16];
        int groups, n = 0;
        if (sscanf(name, "step_g%d/loss%n", &groups, &n) != 1 || !n || name[n]) continue;
        snprintf(end, sizeof end, "_g%d", groups);
        check_groups(a, groups, end);
    }
    check_update(a, false);
    check_update(a, true);
}
