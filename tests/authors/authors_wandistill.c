/* authors_wandistill.c - WanDistiller: student and teacher alone, the step as the authors first
 * wrote it and as they mended it, and the student's weights taken from the teacher. */
#include "recipes/wandistill/wandistill.h"
#include "tests/authors/authors.h"
#include "train/files/naming.h"
#include "train/run/run.h"

#include <stdio.h>
#include <string.h>

#define CF AUTHORS_CHANNELS_FIRST

/* ---- configuration ---------------------------------------------------------------------- */
static void sizes(authors *a, authors_keys *k, const char *latents, const char *text)
{
    pl_type t = {0}, words = {0};
    if (!authors_tensor(a, latents, AUTHORS_PLAIN, &t) ||
        !authors_tensor(a, text, AUTHORS_PLAIN, &words))
        authors_fail(a, latents, "or %s is missing", text);
    authors_key(k, "batch=%lld", (long long)t.dim[0]);
    authors_key(k, "latent=%lld", (long long)t.dim[2]);
    authors_key(k, "text.tokens=%lld", (long long)words.dim[1]);
    static const char *const pairs[][2] = {
        {"text.dim", "constructed.WanLiteStudent.text_encoder_output_dim"},
        {"student.channels", "constructed.WanLiteStudent.num_channels"},
        {"student.hidden", "constructed.WanLiteStudent.hidden_size"},
        {"student.depth", "constructed.WanLiteStudent.depth"},
        {"student.heads", "constructed.WanLiteStudent.num_heads"},
        {"teacher.channels", "constructed.WanTransformer3DModel.in_channels"},
        {"teacher.heads", "constructed.WanTransformer3DModel.num_attention_heads"},
        {"teacher.freq", "constructed.WanTransformer3DModel.freq_dim"},
        {"teacher.ffn", "constructed.WanTransformer3DModel.ffn_dim"},
        {"teacher.layers", "constructed.WanTransformer3DModel.num_layers"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        authors_key(k, "%s=%lld", pairs[i][0], (long long)authors_int(a, pairs[i][1]));
    int64_t heads = authors_int(a, "constructed.WanTransformer3DModel.num_attention_heads"),
            width = authors_int(a, "constructed.WanTransformer3DModel.attention_head_dim");
    authors_key(k, "teacher.dim=%lld", (long long)(heads * width));
    authors_key(k, "teacher.dtype=fp32");
    authors_key(k, "optim.lr=%.17g", authors_number(a, "lr"));
}

static pl_run *open_run(authors *a, const char *latents, const char *text, bool seed, bool project,
                        bool f64)
{
    authors_keys k = {.a = a};
    sizes(a, &k, latents, text);
    authors_key(&k, "init_from=%s/student", a->dir);
    authors_key(&k, "teacher.weights=%s/teacher/transformer", a->dir);
    if (seed) authors_key(&k, "seed_compat=true");
    if (project) authors_key(&k, "student.from_teacher=true");
    if (project) authors_key(&k, "student.projection=joined");
    return authors_run_open(a, "wandistill/tiny", &k, f64);
}

/* The authors' name of a slot of the student; with a prefix where `project` is trained too. */
static bool student_name(const pl_run *run, const char *slot, char name[512])
{
    const pl_slot *s = pl_store_slot(run->store, pl_store_find(run->store, slot));
    pl_published to;
    if (!pl__naming_find(wan_start.naming, run->config, s, &to)) return false;
    return snprintf(name, 512, "%s", to.name) < 512;
}

static bool mended_name(const pl_run *run, const char *slot, char name[512])
{
    char theirs[512];
    if (strncmp(slot, "project.", 8) == 0) return snprintf(name, 512, "%s", slot) < 512;
    return student_name(run, slot, theirs) && snprintf(name, 512, "student.%s", theirs) < 512;
}

static wan_config sizes_of(const pl_run *run)
{
    const pl_config *c = run->config;
    return (wan_config){.batch = pl_config_int(c, "batch"),
                        .latent = pl_config_int(c, "latent"),
                        .channels = pl_config_int(c, "student.channels"),
                        .hidden = pl_config_int(c, "student.hidden"),
                        .text_tokens = pl_config_int(c, "text.tokens"),
                        .text_dim = pl_config_int(c, "text.dim"),
                        .depth = (int)pl_config_int(c, "student.depth"),
                        .heads = (int)pl_config_int(c, "student.heads"),
                        .teacher_channels = pl_config_int(c, "teacher.channels"),
                        .teacher_dim = pl_config_int(c, "teacher.dim"),
                        .teacher_ffn = pl_config_int(c, "teacher.ffn"),
                        .teacher_freq = pl_config_int(c, "teacher.freq"),
                        .teacher_heads = (int)pl_config_int(c, "teacher.heads"),
                        .teacher_layers = (int)pl_config_int(c, "teacher.layers"),
                        .teacher_dtype = run->purpose.f64 ? PL_F64 : PL_F32};
}

/* ---- networks alone --------------------------------------------------------------------- */
static void check_networks(authors *a, pl_run *run)
{
    wan_config k = sizes_of(run);
    authors_net *net = authors_net_new(a, run, false);
    pl_nn *m = authors_net_nn(net);
    pl_val latents = authors_net_in(net, "in/latents2", CF);
    pl_val lifted = authors_net_in(net, "in/lifted2", CF);
    pl_val t = authors_net_in(net, "in/t2", AUTHORS_PLAIN);
    pl_val text = authors_net_in(net, "in/text2", AUTHORS_PLAIN);
    pl_val student = wan_student(m, &k, latents, t, text);
    authors_net_out(net, "out/student", CF, student);
    authors_net_out(net, "out/teacher", CF, wan_teacher(m, &k, lifted, t, text));
    pl_val zeros = pl_scale(m->g, lifted, 0);
    authors_net_out(net, "out/teacher_of_zeros", CF, wan_teacher(m, &k, zeros, t, text));
    authors_net_out(net, "mended/teacher", CF, wan_target(m, &k, latents, t, text, false));
    authors_net_out(
        net, "mended/student_projected", CF,
        pl_nn_conv2d(m, student, "project", k.teacher_channels, (pl_nn_conv){.kernel = 1}));
    authors_net_run(net);
}

static void check_seed_networks(authors *a, pl_run *run)
{
    wan_config k = sizes_of(run);
    authors_net *net = authors_net_new(a, run, false);
    pl_nn *m = authors_net_nn(net);
    pl_val latents = authors_net_in(net, "in/latents", CF);
    pl_val t = authors_net_in(net, "in/t", AUTHORS_PLAIN);
    pl_val text = authors_net_in(net, "in/text", AUTHORS_PLAIN);
    authors_net_out(net, "seed/student", CF, wan_student(m, &k, latents, t, text));
    authors_net_out(net, "seed/teacher", CF, wan_target(m, &k, latents, t, text, true));
    authors_net_run(net);
}

/* ---- steps ------------------------------------------------------------------------------ */
static void put_projections(authors *a, pl_run *run)
{
    authors_put(a, run, "lift.weight", "in/lift.weight");
    authors_put(a, run, "lift.bias", "in/lift.bias");
    authors_put(a, run, "project.weight", "in/project.weight");
    authors_put(a, run, "project.bias", "in/project.bias");
}

/* One step. kind: "seed" or "mended". changes: the weights' change alone, in f64. */
static void check_step(authors *a, pl_run *run, const char *kind, authors_namer namer, bool changes)
{
    bool seed = strcmp(kind, "seed") == 0;
    authors_program p = {a, run, NULL};
    double **before = authors_snapshot(a, run);
    char name[64];
    authors_set(&p, "latents", seed ? "in/latents" : "in/latents2", CF);
    authors_set(&p, "t", seed ? "in/t" : "in/t2", AUTHORS_PLAIN);
    authors_set(&p, "text", seed ? "in/text" : "in/text2", AUTHORS_PLAIN);
    if (!authors_run_program(&p)) return;
    if (changes) {
        snprintf(name, sizeof name, "delta_%s", kind);
        authors_deltas(a, run, before, name, "*", namer, false);
        return;
    }
    double loss = authors_scalar(&p, "loss");
    snprintf(name, sizeof name, "loss_%s", kind);
    authors_term(a, name, loss, authors_number(a, name), AUTHORS_TERM);
    snprintf(name, sizeof name, "%s/loss", kind);
    pl_type scalar = PL_RANK0(PL_F64);
    authors_output(a, name, AUTHORS_PLAIN, &scalar, &loss);
    snprintf(name, sizeof name, "grad_%s", kind);
    authors_gradients(&p, name, "*", namer, AUTHORS_GRADIENT);
}

static void check_projection(authors *a)
{
    pl_run *run = open_run(a, "in/latents2", "in/text2", false, true, false);
    if (!run) return;
    authors_program p = {a, run, "project"};
    if (authors_run_program(&p))
        authors_state(a, run, "projection", "student.*", student_name, AUTHORS_OUTPUT);
    pl_run_free(run);
}

static void check_round_trip(authors *a)
{
    authors_keys k = {.a = a};
    char folder[1100];
    sizes(a, &k, "in/latents", "in/text");
    snprintf(folder, sizeof folder, "%s/student", a->dir);
    authors_round_trip(a, "wandistill/tiny", &k, folder, NULL);
}

void authors_wandistill(authors *a)
{
    check_round_trip(a);
    for (int f64 = 0; f64 < 2; f64++) {
        pl_run *run = open_run(a, "in/latents", "in/text", true, false, f64);
        if (run && !f64) check_seed_networks(a, run);
        if (run) check_step(a, run, "seed", student_name, f64);
        pl_run_free(run);
        run = open_run(a, "in/latents2", "in/text2", false, false, f64);
        if (run) put_projections(a, run);
        if (run && !f64) check_networks(a, run);
        if (run) check_step(a, run, "mended", mended_name, f64);
        pl_run_free(run);
    }
    check_projection(a);
}
