/* test_convert.c - configurations of other programs: `plimsoll convert`, and hints for their keys.
 */
#include "plimsoll_config.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"
#include "train/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The file of tests/data/convert, whatever the folder of the command. */
static const char *file_of(const char *name)
{
    static char path[4200];
    char here[4000];
    if (!getcwd(here, sizeof here)) here[0] = 0;
    snprintf(path, sizeof path, "%s/tests/data/convert/%s", here, name);
    return path;
}

/* Converts a file and keeps the result; the text is borrowed until the next run. */
static const char *converted(const char *name)
{
    cli_result r = cli_run("$P convert %s > %s/out.yaml", file_of(name), pl_test_dir());
    if (r.code != 0) pl_test_fail(__FILE__, __LINE__, "%s: exit %d: %s", name, r.code, r.err);
    return r.code == 0 ? cli_read(pl_test_path("out.yaml")) : "";
}

static bool has_all(const char *text, const char *const *parts)
{
    for (; *parts; parts++) {
        if (strstr(text, *parts)) continue;
        pl_test_fail(__FILE__, __LINE__, "no \"%s\" in\n%s", *parts, text);
        return false;
    }
    return true;
}

/* Whether the text names every leaf of the object. */
static bool names_all(const char *text, const char *above, json_t *o)
{
    const char *key;
    json_t *v;
    bool ok = true;
    json_object_foreach(o, key, v)
    {
        char path[256];
        snprintf(path, sizeof path, "%s%s%s", above, above[0] ? "." : "", key);
        if (json_is_object(v))
            ok &= names_all(text, path, v);
        else if (!strstr(text, path))
            ok = false, pl_test_fail(__FILE__, __LINE__, "%s is not named in\n%s", path, text);
    }
    return ok;
}

TEST(convert_names_every_key_of_the_file)
{
    WANT_BIN();
    static const char *const files[] = {"lgt.json", "wandistill.json", "teacher.json"};
    for (int i = 0; i < 3; i++) {
        json_t *o = json_load_file(file_of(files[i]), 0, NULL);
        CHECK(o != NULL);
        CHECK(names_all(converted(files[i]), "", o));
        json_decref(o);
    }
}

TEST(convert_maps_values_and_gives_reasons)
{
    WANT_BIN();
    static const char *const lgt[] = {
        "extends: lgt/full\n",
        "\nbatch: 32  # training.batch_size\n",
        "\naccumulate: 2  #",
        "\naccumulate_coupled: true  #",
        "\ntrain.steps: 687  # training.num_epochs\n", /* 3 x 229 */
        "\nprecision: bf16  # training.use_amp\n",
        "\nloss.scales: [1, 2, 4]  # loss.swd_scales\n",
        "\nloss.w_velocity: 0.02  #",
        "loss.patch_size: loss.swd_scales decide\n",
        "Not known, check by hand:\n#   notes: \"tried on Tuesday\"\n",
        NULL};
    static const char *const wan[] = {"\nlatent: 16  #", "\nstudent.hidden: 256  # hidden_size\n",
                                      NULL};
    static const char *const cloud[] = {"\nschedule.warmup_steps: 1998  # warmup_steps\n",
                                        "\nheight: 440  # swath_slice\n",
                                        "\nmodel.channels: [32, 64, 128]  # memory_optimized\n",
                                        "\nangles: zenith  # angles_mode\n",
                                        "\naugment.flip: 0.5  # augment\n",
                                        "flights.1.nFileName",
                                        NULL};
    static const char *const flux[] = {"\ntrain.updates_per_batch: 2  # training.training_steps\n",
                                       "\nschedule.eta_min: 1e-07  #",
                                       "\nresolutions: [32]  # data.reduced_min_sizes\n",
                                       "model_checkpoint: no value: the default applies\n",
                                       "output.sample_sizes",
                                       NULL};
    static const char *const stages[] = {
        "{name: vae-warmup, until: {epochs: 10}, set: {vae.on: true, gan.on: false,",
        "{name: flow, until: {epochs: 20}, set: {vae.on: false, gan.on: false, lpips.on: false, "
        "spade.on: false, flow.on: true}}]",
        "training.pipeline.steps.0.transition_on.threshold", "training.pipeline.steps.1.max_steps",
        NULL};
    static const char *const sr[] = {"extends: stablesr/full_pictures\n",
                                     "\nbatch: 6  #",
                                     "\naccumulate: 3  #",
                                     "\nmodel.attn_levels: 2  #",
                                     "\nstruct.attn_levels: 2  #",
                                     "\nmodel.blocks: 2  #",
                                     "\nmodel.context: [77, 64]  #",
                                     "\ndata.path: \"/nowhere/train/\"  #",
                                     "\ndata.flip: 0.5  #",
                                     "\nunet_from: /nowhere/v2-1_512-ema-pruned.ckpt  #",
                                     "model.params.unfrozen_diff: the preset freezes the U-Net\n",
                                     NULL};
    CHECK(has_all(converted("lgt.json"), lgt));
    CHECK(has_all(converted("wandistill.json"), wan));
    CHECK(has_all(converted("cloud.yaml"), cloud));
    CHECK(has_all(converted("fluxflow.yaml"), flux));
    CHECK(has_all(converted("pipeline.yaml"), stages));
    CHECK(has_all(converted("stablesr.yaml"), sr));
}

TEST(convert_writes_configurations_that_plan)
{
    WANT_BIN();
    static const char *const files[] = {"cloud.yaml",    "wandistill.json", "lgt.json",
                                        "stablesr.yaml", "fluxflow.yaml",   "pipeline.yaml",
                                        "teacher.json"};
    for (int i = 0; i < (pl_test_long() ? 7 : 4); i++) {
        converted(files[i]);
        cli_result r = cli_run("$P plan %s/out.yaml", pl_test_dir());
        CHECK_MSG(r.code == 0, "%s: %s", files[i], r.err);
    }
}

/* Nothing on stdout, exit code 2, and a message that says what is wrong. */
static bool refuses(const char *text, size_t n, const char *want)
{
    FILE *f = fopen(pl_test_path("bad"), "wb");
    bool ok = f && fwrite(text, 1, n, f) == n;
    if (f) fclose(f);
    cli_result r = cli_run("$P convert %s", pl_test_path("bad"));
    ok &= r.code == 2 && !r.out[0] && strstr(r.err, want);
    if (!ok) pl_test_fail(__FILE__, __LINE__, "exit %d: %s (wants %s)", r.code, r.err, want);
    return ok;
}

TEST(convert_refuses_what_is_no_configuration)
{
    WANT_BIN();
    static const char many[] =
        "{\"model\": {\"base_channels\": 8, \"style_dim\": 4}, \"training\": 3}";
    char *huge = calloc(1, 1500000);
    CHECK(huge != NULL);
    memset(huge, 'a', 1500000);
    CHECK(refuses("{\"a\": ", 6, "not valid YAML"));
    CHECK(refuses("\x7f"
                  "ELF\0\1\2",
                  7, "bad"));
    CHECK(refuses("", 0, "it has no keys"));
    CHECK(refuses("- 1\n- 2\n", 8, "it has no keys"));
    CHECK(refuses("a: 1\n", 5, "not a configuration of a known program"));
    CHECK(refuses(many, sizeof many - 1, "LGT's config.json (lgt)"));
    CHECK(refuses(huge, 1500000, "at most 1048576"));
    free(huge);
    cli_result r = cli_run("$P convert /nowhere/x.yaml");
    CHECK_MSG(r.code == 2 && strstr(r.err, "/nowhere/x.yaml"), "%s", r.err);
    r = cli_run("$P convert %s --recipe classify", file_of("lgt.json"));
    CHECK_MSG(r.code == 2 && strstr(r.err, "no conversion to recipe classify"), "%s", r.err);
    r = cli_run("$P convert %s batch=3", file_of("lgt.json"));
    CHECK_MSG(r.code == 2 && strstr(r.err, "key=value"), "%s", r.err);
}

/* Keys and values of a hostile file stay comments, or one value. */
TEST(convert_does_not_let_a_file_write_keys_of_its_own)
{
    WANT_BIN();
    CHECK(cli_write(
        pl_test_path("sly.json"),
        "{\"hidden_size\": 64, \"depth\": \"2\\nbatch: 99\", \"num_heads\": 4, "
        "\"text_encoder_output_dim\": 32, \"a\\nbatch: 98\": 1, \"b\": \"x\\nbatch: 97\", "
        "\"teacher_path\": \"x\\nbatch: 96\", \"lr\": -3, \"image_size\": 1e30}"));
    cli_result r = cli_run("$P convert %s > %s/sly.yaml && $P plan %s/sly.yaml --print-config",
                           pl_test_path("sly.json"), pl_test_dir(), pl_test_dir());
    CHECK_MSG(r.code == 0 && strstr(r.out, "\nbatch: 2\n"), "%s%s", r.out, r.err);
    const char *text = cli_read(pl_test_path("sly.yaml"));
    CHECK_MSG(!strstr(text, "\nbatch:"), "%s", text);
    CHECK_MSG(strstr(text, "depth: student.depth does not take it") &&
                  strstr(text, "lr: optim.lr does not take it"),
              "%s", text);
}

/* A value that a computed key cannot come from is listed; no key is made of another value. */
TEST(convert_lists_values_that_are_not_numbers)
{
    WANT_BIN();
    CHECK(cli_write(
        pl_test_path("odd.json"),
        "{\"model\": {\"base_channels\": 64, \"style_dim\": 16}, \"inference\": {\"use_cfg\": true, "
        "\"cfg_scale\": \"two\"}, \"training\": {\"batch_size\": -5, \"num_epochs\": 2.5, "
        "\"ode_integration_steps\": 4}}"));
    cli_result r = cli_run("$P convert %s > %s/odd.yaml", pl_test_path("odd.json"), pl_test_dir());
    CHECK_INT(r.code, 0);
    const char *text = cli_read(pl_test_path("odd.yaml"));
    static const char *const parts[] = {
        "training.batch_size: a whole number up to 1000000000 is expected, \"-5\" was given",
        "training.num_epochs: a whole number up to 1000000000 is expected, \"2.5\" was given",
        "cfg_scale: a number is expected, \"two\" was given", NULL};
    CHECK(has_all(text, parts));
    CHECK_MSG(!strstr(text, "\nbatch:") && !strstr(text, "\ntrain.steps:") &&
                  !strstr(text, "\ninfer.cfg_scale:"),
              "%s", text);
}

/* Every row names a key of the engine, and no key of the engine has a hint to another. */
TEST(convert_hints_are_keys_and_reach_the_message)
{
    const pl_config_entry *tables[] = {pl_engine_schema};
    pl_config *c;
    const char *ours, *theirs;
    int n = 0;
    CHECK_OK(pl_config_new(tables, 1, &c));
    for (; (theirs = pl_config_hint_at(n, &ours)) != NULL; n++) {
        char text[256], want[256];
        CHECK_MSG(!ours || pl_config_has(c, ours), "%s -> %s, which is no key", theirs, ours);
        CHECK_MSG(!pl_config_has(c, theirs), "%s is a key itself", theirs);
        snprintf(text, sizeof text, "%s=1", theirs);
        snprintf(want, sizeof want, "unknown key %s; %s%s", theirs,
                 ours ? "did you mean " : "no such key is needed: ", ours ? ours : "");
        CHECK_INT(pl_config_override(c, text), PL_ERR_CONFIG);
        CHECK_MSG(strstr(pl_error_text(), want), "%s", pl_error_text());
    }
    CHECK(n > 80);
    static const char *const known[][2] = {{"batch_size", "batch"},
                                           {"training.training_steps", "train.updates_per_batch"},
                                           {"use_checkpoint", "checkpointing"},
                                           {"gradient_accumulation_steps", "accumulate"},
                                           {"model.learning_rate", "optim.lr"},
                                           {"num_epochs", "train.steps"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *note;
        CHECK(pl_config_hint(c, known[i][0], &ours, &note));
        CHECK_MSG(strcmp(ours, known[i][1]) == 0, "%s -> %s", known[i][0], ours);
    }
    static const struct {
        const char *set, *want;
    } values[] = {{"precision=16-mixed", "did you mean fp16?"},
                  {"precision=bf16-mixed", "did you mean bf16?"},
                  {"schedule.name=CosineAnnealingLR", "did you mean cosine?"},
                  {"shard=fsdp", "did you mean weights?"},
                  {"checkpointing=true", "did you mean auto?"}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        CHECK_INT(pl_config_override(c, values[i].set), PL_ERR_CONFIG);
        CHECK_MSG(strstr(pl_error_text(), values[i].want), "%s", pl_error_text());
    }
    pl_config_free(c);
}

/* Keys of the authors' files, with or without their section: every row of every recipe's table is
 * answered by a key that the recipe has, or by a reason. */
TEST(convert_tables_answer_unknown_keys_of_the_authors)
{
    static const struct {
        const char *preset, *key, *want;
    } rows[] = {
        {"fluxflow/tiny", "vae_dim", "did you mean model.dim?"},
        {"fluxflow/tiny", "training.use_lpips", "did you mean lpips.on?"},
        {"fluxflow/tiny", "img_size", "did you mean image?"},
        {"fluxflow/tiny", "preserve_lr", "no such key is needed: a resumed run"},
        {"lgt/tiny", "ode_integration_steps", "did you mean ode.steps?"},
        {"lgt/tiny", "data_root", "did you mean data.latents?"},
        {"lgt/tiny", "training.batch_size", "did you mean batch? (the samples"},
        {"wandistill/tiny", "teacher_path", "did you mean teacher.weights?"},
        {"wandistill/tiny", "hidden_size", "did you mean student.hidden?"},
        {"wandistill/tiny", "multi_gpu", "no such key is needed: ranks=N"},
        {"stablesr/tiny", "jpeg_range2", "did you mean degrade.jpeg2?"},
        {"stablesr/tiny", "lightning.trainer.benchmark", "did you mean compile.mode?"},
        {"cloud/tiny", "temporal_frames", "did you mean frames?"},
        {"cloud/tiny", "hard_mining_k", "did you mean loss.mining_fraction?"},
        {"cloud/tiny", "epochs", "did you mean train.steps? (steps ="},
        {"cloud/tiny", "pin_memory", "no such key is needed:"},
        {"cloud/tiny", "hidden_size", "unknown key hidden_size"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char set[128];
        const char *keys[] = {set};
        pl_run *run = NULL;
        snprintf(set, sizeof set, "%s=1", rows[i].key);
        CHECK_INT(pl_run_open(rows[i].preset, keys, 1, &run), PL_ERR_CONFIG);
        CHECK_MSG(strstr(pl_error_text(), rows[i].want), "%s: %s", rows[i].key, pl_error_text());
    }
}
