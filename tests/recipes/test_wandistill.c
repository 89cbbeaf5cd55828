/* test_wandistill.c - the teacher: weights from published files, memory, and the original's
 * loss. Sizes, learning and PyTorch are in test_recipes.c. */
#include "base/dtype.h"
#include "io/safetensors.h"
#include "plimsoll_train.h"
#include "recipes/wandistill/wandistill.h"
#include "tests/lib/graph_eval.h"
#include "tests/lib/renamed.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"
#include "train/data/run_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- other people's files ----------------------------------------------------------------- */
/* The names of Wan's own files, taken from its modules. */
static void native_name(const char *ours, char *out, size_t cap)
{
    static const char *const parts[][2] = {{"teacher.patch", "patch_embedding"},
                                           {"teacher.text", "text_embedding"},
                                           {"teacher.time6", "time_projection.1"},
                                           {"teacher.time", "time_embedding"},
                                           {"teacher.modulation", "head.modulation"},
                                           {"teacher.head", "head.head"},
                                           {"teacher.blocks", "blocks"}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t n = strlen(parts[i][0]);
        if (strncmp(ours, parts[i][0], n) != 0 || (ours[n] && ours[n] != '.')) continue;
        snprintf(out, cap, "%s%s", parts[i][1], ours + n);
        break;
    }
    char *norm = strstr(out, ".norm.");
    if (norm) { /* the norm before cross-attention */
        char tail[64];
        snprintf(tail, sizeof tail, "%s", norm + 6);
        snprintf(norm, cap - (size_t)(norm - out), ".norm3.%s", tail);
    }
}

static void swap(char *text, size_t cap, const char *from, const char *to)
{
    char *at = strstr(text, from), tail[256];
    if (!at) return;
    snprintf(tail, sizeof tail, "%s", at + strlen(from));
    snprintf(at, cap - (size_t)(at - text), "%s%s", to, tail);
}

/* The names of diffusers, as its conversion derives them from Wan's. */
static void diffusers_name(const char *ours, char *out, size_t cap)
{
    native_name(ours, out, cap);
    if (strcmp(out, "head.modulation") == 0) {
        snprintf(out, cap, "scale_shift_table");
        return;
    }
    static const char *const changes[][2] = {
        {"text_embedding.0.", "condition_embedder.text_embedder.linear_1."},
        {"text_embedding.2.", "condition_embedder.text_embedder.linear_2."},
        {"time_embedding.0.", "condition_embedder.time_embedder.linear_1."},
        {"time_embedding.2.", "condition_embedder.time_embedder.linear_2."},
        {"time_projection.1.", "condition_embedder.time_proj."},
        {"head.head.", "proj_out."},
        {".modulation", ".scale_shift_table"},
        {".norm3.", ".norm2."},
        {".self_attn.q.", ".attn1.to_q."},
        {".self_attn.k.", ".attn1.to_k."},
        {".self_attn.v.", ".attn1.to_v."},
        {".self_attn.o.", ".attn1.to_out.0."},
        {".self_attn.", ".attn1."},
        {".cross_attn.q.", ".attn2.to_q."},
        {".cross_attn.k.", ".attn2.to_k."},
        {".cross_attn.v.", ".attn2.to_v."},
        {".cross_attn.o.", ".attn2.to_out.0."},
        {".cross_attn.", ".attn2."},
        {".ffn.0.", ".ffn.net.0.proj."},
        {".ffn.2.", ".ffn.net.2."}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        swap(out, cap, changes[i][0], changes[i][1]);
}

static pl_status save_with(const char *weights, const char *path)
{
    char key[640];
    snprintf(key, sizeof key, "teacher.weights=%s", weights);
    return small_run_save("wandistill/tiny", (const char *const[]){"seed=6", key}, 2, path);
}

#define PATH(var, name)                                                                            \
 char var[512];                                                                                    \
 snprintf(var, sizeof var, "%s/" name, pl_test_dir())

TEST(wandistill_teacher_loads_from_both_naming_schemes)
{
    PATH(model, "model.safetensors");
    PATH(file, "teacher.safetensors");
    PATH(back, "back.safetensors");
    CHECK_OK(small_run_save("wandistill/tiny", (const char *const[]){"seed=5"}, 1, model));
    for (int k = 0; k < 4; k++) {
        renamed_file o = {.of = "teacher.",
                          .name = k % 2 ? native_name : diffusers_name,
                          .parts = 1,
                          .bf16 = k > 1};
        int off, same;
        CHECK_OK(renamed_write(model, file, o));
        CHECK_OK(save_with(file, back));
        CHECK_OK(renamed_compare(model, back, "teacher.", o.bf16, &off, &same));
        CHECK_MSG(off == 0 && same == 0,
                  "names %d: %d tensors of the teacher differ, %d others came with them", k, off,
                  same);
    }
    /* Without a file the weights differ, so the comparison can fail. */
    int off, same;
    CHECK_OK(small_run_save("wandistill/tiny", (const char *const[]){"seed=6"}, 1, back));
    CHECK_OK(renamed_compare(model, back, "teacher.", false, &off, &same));

    CHECK(off > 20);
}

/* The teacher is bf16 here and mostly f32 in files. */
TEST(wandistill_teacher_is_rounded_to_bf16)
{
    PATH(model, "model.safetensors");
    PATH(file, "teacher.safetensors");
    char key[640];
    pl_run *run;
    pl_st_reader *f;
    snprintf(key, sizeof key, "teacher.weights=%s", file);
    CHECK_OK(small_run_save("wandistill/tiny", (const char *const[]){"seed=5"}, 1, model));
    CHECK_OK(renamed_write(model, file,
                           (renamed_file){.of = "teacher.", .name = native_name, .parts = 1}));
    CHECK_OK(pl_run_open("wandistill/tiny",
                         (const char *const[]){"seed=6", "teacher.dtype=bf16", key}, 3, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_start(run));
    CHECK_OK(pl_st_open(model, &f));
    static const char *const names[] = {"teacher.blocks.1.ffn.0.weight", "teacher.modulation",
                                        "teacher.head.bias"};
    for (int k = 0; k < 3; k++) {
        const pl_st_tensor *t = pl_st_find(f, names[k]);
        const uint16_t *ours =
            pl_session_slot(pl_run_session(run), pl_store_find(pl_run_store(run), names[k]));
        int64_t n = pl_type_elems(&t->type);
        float *theirs = malloc((size_t)n * sizeof *theirs);
        CHECK_OK(pl_st_read(f, t, theirs, (size_t)n * sizeof *theirs));
        for (int64_t i = 0; i < n; i++) CHECK_INT(ours[i], pl_f32_to_bf16(theirs[i]));
        free(theirs);
    }
    pl_st_close(f);
    pl_run_free(run);
}

static bool write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    bool ok = f && fputs(text, f) >= 0;
    return f && fclose(f) == 0 && ok;
}

/* Writes the index of the shards: which tensor is in which file. */
static bool write_index(const char *model, const char *path, renamed_fn name, int parts,
                        const char *also)
{
    pl_st_reader *f;
    FILE *out = fopen(path, "w");
    int k = 0;
    if (!out || pl_st_open(model, &f) != PL_OK) return false;
    fprintf(out, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {");
    for (int i = 0; i < pl_st_count(f); i++) {
        const char *ours = pl_st_at(f, i)->name;
        char theirs[256];
        if (strncmp(ours, "teacher.", 8) != 0) continue;
        name(ours, theirs, sizeof theirs);
        fprintf(out, "%s\"%s\": \"shard-%d.safetensors\"", k ? ", " : "", theirs, k % parts);
        k++;
    }
    if (also) fprintf(out, ", \"%s\": \"shard-0.safetensors\"", also);
    fprintf(out, "}}\n");
    pl_st_close(f);
    return fclose(out) == 0;
}

TEST(wandistill_teacher_loads_from_shards)
{
    PATH(model, "model.safetensors");
    PATH(folder, "wan");
    PATH(index, "wan/model.safetensors.index.json");
    PATH(back, "back.safetensors");
    char shard[640], text[2048];
    snprintf(text, sizeof text, "mkdir -p %s", folder);

    CHECK_INT(system(text), 0);
    CHECK_OK(small_run_save("wandistill/tiny", (const char *const[]){"seed=5"}, 1, model));
    for (int i = 0; i < 3; i++) {
        snprintf(shard, sizeof shard, "%s/shard-%d.safetensors", folder, i);
        CHECK_OK(renamed_write(
            model, shard,
            (renamed_file){.of = "teacher.", .name = diffusers_name, .part = i, .parts = 3}));
    }
    int off, same;
    CHECK_OK(save_with(folder, back)); /* all files of the folder */
    CHECK_OK(renamed_compare(model, back, "teacher.", false, &off, &same));
    CHECK_INT(off, 0);

    CHECK(write_index(model, index, diffusers_name, 3, NULL));
    for (int k = 0; k < 2; k++) { /* the folder with its index, and the index */
        CHECK_OK(save_with(k ? index : folder, back));
        CHECK_OK(renamed_compare(model, back, "teacher.", false, &off, &same));
        CHECK_INT(off, 0);
    }
    CHECK(write_index(model, index, diffusers_name, 3, "not.there"));
    CHECK(save_with(index, back) == PL_ERR_FILE && strstr(pl_error_text(), "not.there"));
    CHECK(write_text(index, "{\"other\": 1}"));
    CHECK(save_with(index, back) == PL_ERR_FILE && strstr(pl_error_text(), "weight_map"));
    CHECK(write_text(index, "{\"weight_map\": {\"a\": \"../elsewhere.safetensors\"}}"));
    CHECK(save_with(index, back) == PL_ERR_FILE && strstr(pl_error_text(), "beside"));
    /* The same tensor in two files. */
    snprintf(text, sizeof text, "rm %s && cp %s/shard-1.safetensors %s/shard-9.safetensors", index,
             folder, folder);
    CHECK_INT(system(text), 0);
    CHECK(save_with(folder, back) == PL_ERR_FILE && strstr(pl_error_text(), "shard-9"));
}

TEST(wandistill_teacher_file_must_match_exactly)
{
    PATH(model, "model.safetensors");
    PATH(file, "teacher.safetensors");
    PATH(back, "back.safetensors");
    CHECK_OK(small_run_save("wandistill/tiny", (const char *const[]){"seed=5"}, 1, model));
    CHECK_OK(renamed_write(model, file,
                           (renamed_file){.of = "teacher.",
                                          .name = native_name,
                                          .parts = 1,
                                          .leave_out = "blocks.1.ffn.2.bias",
                                          .add = "blocks.1.img_attn.k"}));
    CHECK(save_with(file, back) == PL_ERR_FILE);

    CHECK_MSG(strstr(pl_error_text(), "blocks.1.ffn.2.bias") &&
                  strstr(pl_error_text(), "blocks.1.img_attn.k") &&
                  strstr(pl_error_text(), "native Wan") &&
                  strstr(pl_error_text(), "1 tensor is missing"),
              "%s", pl_error_text());

    /* Teachers of another size: more blocks than the model has, other widths. */
    PATH(large, "large.safetensors");
    CHECK_OK(
        small_run_save("wandistill/tiny", (const char *const[]){"teacher.layers=3"}, 1, large));
    CHECK_OK(renamed_write(large, file,
                           (renamed_file){.of = "teacher.", .name = diffusers_name, .parts = 1}));
    CHECK(save_with(file, back) == PL_ERR_FILE && strstr(pl_error_text(), "blocks.2."));
    CHECK_OK(small_run_save("wandistill/tiny", (const char *const[]){"teacher.ffn=80"}, 1, large));
    CHECK_OK(renamed_write(large, file,
                           (renamed_file){.of = "teacher.", .name = diffusers_name, .parts = 1}));
    CHECK(save_with(file, back) == PL_ERR_FILE && strstr(pl_error_text(), "ffn.net.0.proj"));
    CHECK(save_with("/nowhere/teacher.safetensors", back) != PL_OK);
}

/* ---- weights cut out of the teacher ------------------------------------------------------- */
static const float *slot_data(pl_run *run, const char *name, pl_type *type)
{
    int slot = pl_store_find(pl_run_store(run), name);
    if (slot < 0) return NULL;
    *type = pl_store_slot(pl_run_store(run), slot)->type;
    return pl_session_slot(pl_run_session(run), slot);
}

/* With a learning rate of 0 the first step leaves the weights that were copied from the teacher. */
TEST(wandistill_student_starts_from_the_teacher)
{
    pl_run *run;
    pl_step_info info;
    const char *const o[] = {"student.from_teacher=true", "optim.lr=0", "student.depth=2",
                             "teacher.layers=5", "teacher.ffn=130"};
    CHECK_OK(pl_run_open("wandistill/tiny", o, 5, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_start(run));
    CHECK_OK(pl_run_step(run, &info));
    pl_type st, tt;
    for (int i = 0; i < 2; i++) {
        char name[96];
        int of = i * 5 / 2;
        snprintf(name, sizeof name, "student.blocks.%d.attn.in_proj_weight", i);
        const float *s = slot_data(run, name, &st);
        snprintf(name, sizeof name, "teacher.blocks.%d.self_attn.k.weight", of);
        const float *t = slot_data(run, name, &tt);
        CHECK(s && t && st.dim[1] == 32 && tt.dim[1] == 48);
        for (int r = 0; r < 32; r++) /* k is the middle third */
            for (int c = 0; c < 32; c++)
                CHECK_NEAR(s[(32 + r) * 32 + c], (double)t[r * 48 + c] * sqrt(48.0 / 32), 1e-6);
        snprintf(name, sizeof name, "student.blocks.%d.mlp.2.weight", i);
        s = slot_data(run, name, &st);
        snprintf(name, sizeof name, "teacher.blocks.%d.ffn.2.weight", of);
        t = slot_data(run, name, &tt);
        CHECK_NEAR(s[31 * 128 + 127], (double)t[31 * 130 + 127] * sqrt(130.0 / 128), 1e-6);
        snprintf(name, sizeof name, "student.blocks.%d.mlp.0.bias", i);
        s = slot_data(run, name, &st);
        snprintf(name, sizeof name, "teacher.blocks.%d.ffn.0.bias", of);
        t = slot_data(run, name, &tt);
        CHECK(memcmp(s, t, 128 * sizeof *s) == 0);
    }
    /* Weights are copied in the first step only; later steps do not copy. */
    int slot = pl_store_find(pl_run_store(run), "student.blocks.0.mlp.2.bias");
    float *own = pl_session_slot(pl_run_session(run), slot);
    own[0] = 7;
    CHECK_OK(pl_run_step(run, &info));

    CHECK(own[0] == 7);
    pl_run_free(run);
}

/* ---- memory ------------------------------------------------------------------------------- */
typedef struct figures {
    uint64_t arena, state, keep_all;
    double again;
} figures;

static pl_status plan_of(const char *const *overrides, int n, const pl_compile_opts *o, figures *f)
{
    pl_run *run;
    PL_TRY(pl_run_open("wandistill/tiny", overrides, n, &run));
    if (o) pl_run_set_compile(run, o);
    pl_status rc = pl_run_build(run);
    if (rc == PL_OK) {
        const pl_plan_info *p = pl_program_plan(pl_run_train_program(run));
        *f = (figures){p->arena_bytes, p->state_bytes, p->keep_all_bytes, p->recompute_ratio};
    }
    pl_run_free(run);
    return rc;
}

/* Twelve blocks of the teacher need the same arena as two: tensors of a block are freed after
 * the block, and the student reuses their bytes. The state has the teacher's weights in bf16 and
 * nothing else of the teacher. */
TEST(wandistill_teacher_depth_does_not_grow_the_arena)
{
    figures two, twelve, full;
    const char *const few[] = {"latent=16", "teacher.dtype=bf16"};
    const char *const many[] = {"latent=16", "teacher.dtype=bf16", "teacher.layers=12"};
    const char *const wide[] = {"latent=16", "teacher.dtype=fp32", "teacher.layers=12"};
    CHECK_OK(plan_of(few, 2, NULL, &two));
    CHECK_OK(plan_of(many, 3, NULL, &twelve));
    CHECK_OK(plan_of(wide, 3, NULL, &full));

    CHECK_MSG(twelve.arena <= two.arena + two.arena / 50, "arena %llu with 2 blocks, %llu with 12",
              (unsigned long long)two.arena, (unsigned long long)twelve.arena);

    /* Parameters of a block: q, k, v, o twice, two norms twice, one affine norm, six rows, two
     * layers of the feed-forward part. */
    uint64_t d = 48, f = 64,
             block = 8 * (d * d + d) + 4 * d + 2 * d + 6 * d + (f * d + f) + (d * f + d);
    uint64_t grown = twelve.state - two.state;
    CHECK_MSG(grown >= 10 * 2 * block && grown < 10 * 2 * block + 10 * 64 * 40,
              "%llu more bytes of state, the blocks are %llu", (unsigned long long)grown,
              (unsigned long long)(10 * 2 * block));
    CHECK(full.state > twelve.state + 10 * block);
}

/* The probabilities of the student's attention would have (B,heads,N,N) elements per block: no
 * tensor of that size is stored. */
TEST(wandistill_attention_keeps_no_probabilities)
{
    figures f;
    const char *const o[] = {"latent=32", "batch=1", "student.depth=4", "teacher.layers=1",
                             "text.tokens=2"};
    /* depth, heads, tokens squared */
    uint64_t probabilities = 4ull * 2 * 1024 * 1024 * sizeof(float);
    CHECK_OK(plan_of(o, 5, NULL, &f));

    CHECK_MSG(f.keep_all < probabilities / 2,
              "%llu bytes with everything kept; the probabilities alone are %llu",
              (unsigned long long)f.keep_all, (unsigned long long)probabilities);
}

/* Each block is a scope that can be recomputed: as the planner chooses, or all of them on
 * request. */
TEST(wandistill_blocks_are_recomputed_by_the_plan_or_on_request)
{
    figures keep, less, blocks;
    const char *const o[] = {"latent=16", "student.depth=4"};
    const char *const asked[] = {"latent=16", "student.depth=4", "checkpointing=blocks"};
    CHECK_OK(plan_of(o, 2, NULL, &keep));
    pl_compile_opts c = PL_COMPILE_INIT;
    c.arena_budget = keep.arena / 2;
    CHECK_OK(plan_of(o, 2, &c, &less));
    CHECK_OK(plan_of(asked, 3, NULL, &blocks));

    CHECK_MSG(keep.again == 0 && less.arena <= c.arena_budget && less.again > 0,
              "arena %llu of %llu, %g again", (unsigned long long)less.arena,
              (unsigned long long)c.arena_budget, less.again);
    CHECK_MSG(blocks.again > 0.1 && blocks.arena < keep.arena, "blocks: %g again, arena %llu",
              blocks.again, (unsigned long long)blocks.arena);
    CHECK(less.again < blocks.again); /* half the memory costs less than recomputing all blocks */
}

/* ---- the original's loss ------------------------------------------------------------------ */
/* As PyTorch broadcasts: (B,4,S,S) and (B,16,1,S,S) are (1,B,4,S,S) and (B,16,1,S,S). */
static double torch_broadcast(const float *out, const float *target, int b, int s)
{
    double sum = 0;
    for (int i = 0; i < b; i++)
        for (int j = 0; j < 16; j++)
            for (int c = 0; c < 4; c++)
                for (int p = 0; p < s * s; p++) {
                    double x = (double)out[((b == 1 ? 0 : j) * s * s + p) * 4 + c];
                    double y = (double)target[(i * s * s + p) * 16 + j];
                    sum += (x - y) * (x - y);
                }
    return sum / (b * 16.0 * 4 * s * s);
}

static pl_status broadcast_loss(int b, double *ours, double *torch)
{
    enum { S = 3 };
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_nn *m = pl_nn_new(g, true);
    pl_val out = pl_input(g, "out", PL_TYPE(PL_F32, b, S, S, 4));
    pl_val target = pl_input(g, "target", PL_TYPE(PL_F32, b, S, S, 16));
    pl_val loss = wan_broadcast_loss(m, out, target);
    pl_output(g, "loss", loss);
    pl_status rc = pl_nn_finish(m);
    if (rc == PL_OK) {
        graph_eval *e = graph_eval_new(g, true);
        graph_eval_wave(e, out, 0.37);
        graph_eval_wave(e, target, 0.11);
        rc = graph_eval_run(e);
        *ours = (double)*(float *)graph_eval_at(e, loss);
        *torch = torch_broadcast(graph_eval_at(e, out), graph_eval_at(e, target), b, S);
        graph_eval_free(e);
    }
    pl_nn_free(m);
    pl_graph_free(g);
    pl_store_free(store);
    return rc;
}

TEST(wandistill_seed_compat_broadcasts_as_pytorch_does)
{
    double ours, torch;
    CHECK_OK(broadcast_loss(1, &ours, &torch));
    CHECK_NEAR(ours, torch, 1e-6);
    CHECK_OK(broadcast_loss(16, &ours, &torch));
    CHECK_NEAR(ours, torch, 1e-6);
    CHECK(broadcast_loss(2, &ours, &torch) == PL_ERR_CONFIG && strstr(pl_error_text(), "1 or 16"));
}

/* The projection before the teacher is zero, so the teacher gets the same latent for any noise;
 * the student has no projection after it. */
TEST(wandistill_seed_compat_trains_with_a_zero_projection)
{
    double loss[2][2];
    for (int k = 0; k < 2; k++) {
        const char *const o[] = {"batch=1", k ? "seed_compat=true" : "seed_compat=false"};
        pl_run *run;
        CHECK_OK(pl_run_open("wandistill/tiny", o, 2, &run));
        CHECK_OK(pl_run_build(run));
        CHECK_INT(pl_nn_count(pl_run_store(run), "project.*", false), k ? 0 : 80);
        CHECK_OK(pl_run_start(run));
        float lift[64];
        int slot = pl_store_find(pl_run_store(run), "lift.weight"), zeros = 0;
        CHECK_OK(pl_session_read_slot(pl_run_session(run), slot, 0, lift, sizeof lift));
        for (int i = 0; i < 64; i++) zeros += lift[i] == 0;
        CHECK_INT(zeros, k ? 64 : 0);
        for (int i = 0; i < 2; i++) {
            pl_step_info info;
            CHECK_OK(pl_run_step(run, &info));
            loss[k][i] = info.loss;
        }
        pl_run_free(run);
    }

    CHECK(isfinite(loss[1][1]) && loss[0][0] != loss[1][0] && loss[0][1] != loss[1][1]);
}

/* ---- prompts ------------------------------------------------------------------------------ */
/* Training on the prompts and embeddings that the recipe writes equals training on its own
 * samples, up to their order: the mean loss over the evaluation lines is the mean over some of
 * the lines, and the row of each line is read. */
TEST(wandistill_prompts_and_embeddings_train_as_generated_samples_do)
{
    PATH(dir, "raw");
    char prompts[640], rows[640];
    pl_run *run;
    const char *const few[] = {"data.samples=24", "data.eval_samples=8"};
    CHECK_OK(pl_run_open("wandistill/tiny", few, 2, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_generate_raw(run, dir, 0, 0, NULL, NULL));
    pl_run_free(run);

    snprintf(prompts, sizeof prompts, "data.prompts=%s/prompts.txt", dir);
    snprintf(rows, sizeof rows, "data.embeddings=%s/embeddings.npy", dir);
    double loss[2];
    for (int k = 0; k < 2; k++) {
        CHECK_OK(pl_run_open(
            "wandistill/tiny",
            (const char *const[]){prompts, rows, "data.eval_share=0.2", "allow_random_frozen=true"},
            4, &run));
        CHECK_OK(pl_run_build(run));
        CHECK_OK(pl_run_start(run));
        CHECK_MSG(pl__run_samples(run) > 16 && pl__run_samples(run) < 32,
                  "%lld prompts to train on", (long long)pl__run_samples(run));
        for (int i = 0; i < 20; i++) {
            pl_step_info info;
            CHECK_OK(pl_run_step(run, &info));
            loss[k] = info.loss;
        }
        pl_eval_info e;
        CHECK_OK(pl_run_eval(run, &e));
        CHECK(e.n == 1 && isfinite(e.value[0]));
        pl_run_free(run);
    }

    CHECK(loss[0] == loss[1] && loss[0] > 0);
    /* The rows matter: without the file the recipe has no source of text. */
    CHECK_OK(pl_run_open("wandistill/tiny",
                         (const char *const[]){prompts, "allow_random_frozen=true"}, 2, &run));
    CHECK_OK(pl_run_build(run));
    CHECK(pl_run_start(run) != PL_OK && strstr(pl_error_text(), "data.embeddings"));
    pl_run_free(run);
}
