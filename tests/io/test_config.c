/* test_config.c - schemas, loading, overrides, messages, the printed form, hash and difference.
 */
#include "base/str.h"
#include "base/sys.h"
#include "plimsoll_config.h"
#include "tests/lib/test.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const pl_config_entry engine[] = {
    {"seed", PL_CONFIG_INT, "0", 0, 0, NULL, "Seed of every draw."},
    {"train.steps", PL_CONFIG_INT, "1000", 1, 1e9, NULL, "Optimiser steps."},
    {"train.lr", PL_CONFIG_FLOAT, "1e-3", 0, PL_CONFIG_NO_LIMIT, NULL, "Learning rate."},
    {"train.resume", PL_CONFIG_BOOL, "true", 0, 0, NULL, "Go on from a checkpoint."},
    {"train.optimizer.name", PL_CONFIG_CHOICE, "adamw", 0, 0, "sgd|adam|adamw", "Update rule."},
    {"train.optimizer.betas", PL_CONFIG_FLOATS, "[0.9, 0.999]", 0, 1, NULL,
     "Decay of the moments."},
    {"memory.budget", PL_CONFIG_SIZE, "null", 1, PL_CONFIG_NO_LIMIT, NULL, "Whole-process budget."},
    {"checkpoint.period", PL_CONFIG_DURATION, "10min", 0, 0, NULL, "Time between saves."},
    {0}};
static const pl_config_entry recipe[] = {
    {"model.channels", PL_CONFIG_INTS, "[32, 64]", 1, 4096, NULL, "Width of each stage."},
    {"data.path", PL_CONFIG_TEXT, NULL, 0, 0, NULL, "Folder of frames."},
    {"data.tags", PL_CONFIG_TEXTS, "[]", 0, 0, NULL, "Words kept."},
    {"train.note", PL_CONFIG_TEXT, "\"\"", 0, 0, NULL, "Free text."},
    {0}};
static const pl_config_entry *const tables[] = {engine, recipe};

static const char *find_preset(void *ctx, const char *name)
{
    (void)ctx;
    if (strcmp(name, "cloud/small") == 0)
        return "train: {steps: 50, lr: 0.5}\ndata: {path: /small}\n";
    if (strcmp(name, "cloud/tiny") == 0) return "extends: cloud/small\ntrain:\n  steps: 5\n";
    if (strcmp(name, "loop/a") == 0) return "extends: loop/b\n";
    if (strcmp(name, "loop/b") == 0) return "extends: loop/a\n";
    if (strcmp(name, "typo") == 0) return "extends: cloud/tinny\n";
    if (strcmp(name, "recipe") == 0) return "extends: recipe-base\n";
    if (strcmp(name, "recipe-base") == 0) return "recipe: cloud\n";
    return NULL;
}

static pl_config *fresh(void)
{
    pl_config *c = NULL;
    if (pl_config_new(tables, 2, &c) != PL_OK) return NULL;
    pl_config_set_presets(c, find_preset, NULL);
    return c;
}

static pl_status load(pl_config *c, const char *text)
{
    return pl_config_load_text(c, "my.yaml", text, strlen(text));
}

#define SAYS(expr, says)                                                                           \
 do {                                                                                              \
  CHECK_INT((expr), PL_ERR_CONFIG);                                                                \
  CHECK_MSG(strstr(pl_error_text(), (says)), "message was: %s", pl_error_text());                  \
 } while (0)
#define LOAD_SAYS(text, says)                                                                      \
 do {                                                                                              \
  pl_config *c_ = fresh();                                                                         \
  CHECK(c_);                                                                                       \
  uint64_t before_ = pl_config_hash(c_);                                                           \
  SAYS(load(c_, (text)), (says));                                                                  \
  CHECK(pl_config_hash(c_) == before_);                                                            \
  pl_config_free(c_);                                                                              \
 } while (0)

TEST(config_getters_return_defaults)
{
    pl_config *c = fresh();
    int n;

    CHECK_INT(pl_config_int(c, "train.steps"), 1000);
    CHECK(pl_config_float(c, "train.lr") == 1e-3 && pl_config_bool(c, "train.resume"));
    CHECK(strcmp(pl_config_text(c, "train.optimizer.name"), "adamw") == 0);
    CHECK(pl_config_floats(c, "train.optimizer.betas", &n)[1] == 0.999 && n == 2);
    CHECK(pl_config_ints(c, "model.channels", &n)[0] == 32 && n == 2);

    pl_config_texts(c, "data.tags", &n);
    CHECK_INT(n, 0);
    CHECK(pl_config_is_null(c, "memory.budget") && pl_config_size(c, "memory.budget") == 0);
    CHECK(pl_config_duration(c, "checkpoint.period") == 600);
    CHECK(pl_config_has(c, "seed") && !pl_config_has(c, "sead"));
    CHECK(strcmp(pl_config_text(c, "train.note"), "") == 0);
    CHECK(strcmp(pl_config_where(c, "seed"), "default") == 0);

    SAYS(pl_config_check(c), "data.path has no value");
    pl_config_free(c);
}

TEST(config_values_of_every_type_are_read)
{
    pl_config *c = fresh();
    int n;

    CHECK_OK(load(c, "seed: 0x10\n"
                     "train:\n  steps: 1e5\n  lr: 3\n  resume: False\n"
                     "  optimizer: {name: sgd, betas: []}\n"
                     "memory.budget: 7.5GiB\ncheckpoint: {period: 1.5h}\n"
                     "model:\n  channels: [012, 0o17]\n"
                     "data: {path: yes, tags: [a, '1', null]}\n"));
    CHECK_INT(pl_config_int(c, "seed"), 16);
    CHECK_INT(pl_config_int(c, "train.steps"), 100000);
    CHECK(pl_config_float(c, "train.lr") == 3 && !pl_config_bool(c, "train.resume"));
    CHECK(strcmp(pl_config_text(c, "train.optimizer.name"), "sgd") == 0);

    pl_config_floats(c, "train.optimizer.betas", &n);
    CHECK_INT(n, 0);
    CHECK_INT(pl_config_size(c, "memory.budget"), 7.5 * 1024 * 1024 * 1024);
    CHECK(pl_config_duration(c, "checkpoint.period") == 5400);

    const int64_t *ch = pl_config_ints(c, "model.channels", &n);
    CHECK(ch[0] == 12 && ch[1] == 15);
    CHECK(strcmp(pl_config_text(c, "data.path"), "yes") == 0); /* 1.2: not a boolean */
    CHECK(strcmp(pl_config_texts(c, "data.tags", &n)[1], "1") == 0);
    CHECK(strcmp(pl_config_where(c, "train.lr"), "my.yaml:4:7") == 0);
    CHECK_OK(pl_config_check(c));
    pl_config_free(c);
}

TEST(config_unknown_keys_get_suggestions)
{
    LOAD_SAYS("train:\n  stpes: 5\n",
              "my.yaml:2:3: unknown key train.stpes; did you mean train.steps?");
    LOAD_SAYS("trian:\n  steps: 5\n", "my.yaml:1:1: unknown key trian; did you mean train?");
    LOAD_SAYS("steps: 5\n", "did you mean train.steps?");
    LOAD_SAYS("train: {optimizer: {nam: sgd}}\n", "did you mean train.optimizer.name?");
    LOAD_SAYS("zebra: 5\n", "unknown key zebra");
    LOAD_SAYS("train:\n  tags: 5\n", "train.tags; did you mean data.tags? (keys of this group: ");
    /* No key of the group is near: its keys are listed. */
    LOAD_SAYS("train:\n  kind: 5\n", "unknown key train.kind; keys of this group: ");
    CHECK(!strstr(pl_error_text(), "did you mean"));
}

TEST(config_type_errors_show_given_expected_example)
{
    LOAD_SAYS("train:\n  steps: ten\n", "my.yaml:2:10: train.steps: a whole number is "
                                        "expected, ten was given; write e.g. steps: 1000");
    LOAD_SAYS("train: {steps: \"10\"}\n", "\"10\" was given in quotes (remove them)");
    LOAD_SAYS("train: {steps: 1.5}\n", "a whole number is expected, 1.5 was given");
    LOAD_SAYS("train: {steps: 99999999999999999999}\n", "a whole number");
    LOAD_SAYS("train: {steps: [1]}\n", "a list was given");
    LOAD_SAYS("train: {steps: }\n", "nothing (null) was given");
    LOAD_SAYS("train: {resume: yes}\n", "true or false is expected, yes was given");
    LOAD_SAYS("train: {lr: fast}\n", "a number is expected");
    LOAD_SAYS("train: {lr: nan}\n", "a number is expected");
    LOAD_SAYS("train: {lr: .nan}\n", "a number is expected");
    LOAD_SAYS("train: {lr: 1e}\n", "a number is expected");
    LOAD_SAYS("memory: {budget: lots}\n", "write e.g. budget: 7.5GiB");
    LOAD_SAYS("memory: {budget: 0x10}\n", "a size in bytes is expected");
    LOAD_SAYS("memory: {budget: nan}\n", "a size in bytes is expected");
    LOAD_SAYS("checkpoint: {period: 10 weeks}\n", "a duration is expected");
    LOAD_SAYS("checkpoint: {period: -5s}\n", "a duration is expected");
    LOAD_SAYS("model: {channels: 32}\n", "a list of whole numbers is expected, 32 was given");
    LOAD_SAYS("model:\n  channels: [32, x]\n", "my.yaml:2:18: model.channels");
    LOAD_SAYS("data: {path: {a: 1}}\n", "a mapping was given");
    LOAD_SAYS("data: {tags: [[a]]}\n", "a list was given");
    LOAD_SAYS("train: 5\n", "my.yaml:1:8: train is a section");
    LOAD_SAYS("- 1\n", "a configuration is a mapping (key: value), this is a list");
    LOAD_SAYS("hello\n", "this is a value");
}

TEST(config_values_outside_ranges_and_choices_are_refused)
{
    LOAD_SAYS("train: {steps: 0}\n",
              "train.steps: 0 is out of range, it must be from 1 to 1000000000");
    LOAD_SAYS("train: {lr: -1}\n", "at least 0");
    LOAD_SAYS("memory: {budget: 0}\n", "at least 1");
    LOAD_SAYS("model: {channels: [32, 5000]}\n", "5000 is out of range");
    LOAD_SAYS("train: {optimizer: {name: adamm}}\n",
              "\"adamm\" is not one of sgd|adam|adamw; did you mean adam?");
    LOAD_SAYS("train: {optimizer: {name: ad}}\n", "is not one of");
}

TEST(config_key_set_twice_is_refused)
{
    LOAD_SAYS("train: {steps: 1}\ntrain.steps: 2\n",
              "my.yaml:2:14: train.steps is set twice, before at 1:16");
    LOAD_SAYS("seed: 1\nseed: 1\n", "my.yaml:2:1: this key is set twice");
}

TEST(config_presets_can_be_extended)
{
    pl_config *c = fresh();

    CHECK_OK(pl_config_load(c, "cloud/tiny"));
    CHECK_INT(pl_config_int(c, "train.steps"), 5);
    CHECK(pl_config_float(c, "train.lr") == 0.5);
    CHECK(strcmp(pl_config_where(c, "train.lr"), "cloud/small:1:24") == 0);
    CHECK_OK(load(c, "extends: cloud/small\ntrain:\n")); /* an empty section is fine */
    CHECK_INT(pl_config_int(c, "train.steps"), 50);

    SAYS(pl_config_load(c, "loop/a"), "extends itself");
    SAYS(pl_config_load(c, "typo"),
         "typo:1:10: extends: there is no preset \"cloud/tinny\" and no file cloud/tinny");
    SAYS(pl_config_load(c, "/nonexistent.yaml"), "no file /nonexistent.yaml");
    SAYS(pl_config_load(c, pl_test_dir()), "not a regular file");
    SAYS(load(c, "extends: [a]\n"), "my.yaml:1:10: extends");
    CHECK_INT(pl_config_int(c, "train.steps"), 50);
    pl_config_free(c);
}

TEST(config_extends_paths_are_beside_the_file)
{
    char sub[200], path[300];

    snprintf(sub, sizeof sub, "%s/sub", pl_test_dir());
    CHECK_OK(pl_sys_make_dirs(sub));
    snprintf(path, sizeof path, "%s/base.yaml", sub);
    CHECK_OK(pl_sys_write_file(path, "seed: 7\n", 8));
    snprintf(path, sizeof path, "%s/mid.yaml", sub);
    CHECK_OK(pl_sys_write_file(path, "extends: base.yaml\n", 19));
    snprintf(path, sizeof path, "%s/top.yaml", pl_test_dir());
    CHECK_OK(pl_sys_write_file(path, "extends: sub/mid.yaml\n", 22));
    pl_config *c = fresh();
    CHECK_OK(pl_config_load(c, path));
    CHECK_INT(pl_config_int(c, "seed"), 7);

    snprintf(path, sizeof path, "%s/base.yaml", sub); /* the same file by another path is a cycle */
    CHECK_OK(pl_sys_write_file(path, "extends: ../sub/mid.yaml\n", 25));
    SAYS(pl_config_load(c, path), "extends itself");
    pl_config_free(c);
}

TEST(config_long_chains_are_refused)
{
    char path[300], text[64];
    for (int i = 0; i < 30; i++) {
        snprintf(path, sizeof path, "%s/%d.yaml", pl_test_dir(), i);
        snprintf(text, sizeof text, "extends: %d.yaml\n", i + 1);
        CHECK_OK(pl_sys_write_file(path, text, strlen(text)));
    }
    snprintf(path, sizeof path, "%s/0.yaml", pl_test_dir());
    pl_config *c = fresh();
    SAYS(pl_config_load(c, path), "more than 16 files");
    char *t;
    SAYS(pl_config_peek(path, "recipe", NULL, NULL, &t), "more than 16 files");
    pl_config_free(c);
}

TEST(config_peek_reads_a_key_without_a_schema)
{
    char *t;
    CHECK_OK(pl_config_peek("recipe", "recipe", find_preset, NULL, &t));
    CHECK(t && strcmp(t, "cloud") == 0);
    pl_text_free(t);

    CHECK_OK(pl_config_peek("recipe", "other", find_preset, NULL, &t));
    CHECK(t == NULL);

    CHECK_OK(pl_config_peek("cloud/tiny", "train.steps", find_preset, NULL, &t));
    CHECK(t && strcmp(t, "5") == 0);
    pl_text_free(t);

    CHECK_OK(pl_config_peek("cloud/small", "train.steps.more", find_preset, NULL, &t));
    CHECK(t == NULL);

    SAYS(pl_config_peek("loop/a", "recipe", find_preset, NULL, &t), "extends itself");
    SAYS(pl_config_peek("none", "recipe", find_preset, NULL, &t), "no preset");
}

TEST(config_overrides_replace_values)
{
    pl_config *c = fresh();
    int n;

    CHECK_OK(load(c, "train: {steps: 5}\n"));
    CHECK_OK(pl_config_override(c, "train.steps=7"));
    CHECK_OK(pl_config_override(c, "train.steps=8"));
    CHECK_INT(pl_config_int(c, "train.steps"), 8);
    CHECK(strcmp(pl_config_where(c, "train.steps"), "command line") == 0);
    CHECK_OK(pl_config_override(c, "model.channels=[8, 16, 32]"));
    pl_config_ints(c, "model.channels", &n);
    CHECK_INT(n, 3);
    CHECK_OK(pl_config_override(c, "train={lr: 1e-4, optimizer: {name: sgd}}"));
    CHECK(pl_config_float(c, "train.lr") == 1e-4);
    CHECK_OK(pl_config_override(c, "data.path=*odd: [path] # x"));
    CHECK(strcmp(pl_config_text(c, "data.path"), "*odd: [path] # x") == 0);
    CHECK_OK(pl_config_override(c, "data.path=\"a b\""));
    CHECK(strcmp(pl_config_text(c, "data.path"), "a b") == 0);
    CHECK_OK(pl_config_override(c, "memory.budget=8GB"));
    CHECK_OK(pl_config_override(c, "memory.budget="));
    CHECK(pl_config_is_null(c, "memory.budget"));

    uint64_t h = pl_config_hash(c);
    SAYS(pl_config_override(c, "train.stpes=5"),
         "override train.stpes=5: unknown key train.stpes; did you mean train.steps?");
    SAYS(pl_config_override(c, "train.steps=x"),
         "override train.steps=x: train.steps: a whole number");
    SAYS(pl_config_override(c, "train.steps=[1"), "train.steps=[1");
    SAYS(pl_config_override(c, "train={steps: 3, lr: x}"), "a number is expected");
    SAYS(pl_config_override(c, "train.steps"), "key=value is expected");
    SAYS(pl_config_override(c, "=5"), "key=value is expected");
    SAYS(pl_config_override(c, "data.path=\xff"), "not UTF-8");
    CHECK(pl_config_hash(c) == h); /* none of these changed anything */
    pl_config_free(c);
}

/* The printed form loads back to the same values and prints the same text. */
static bool round_trips(const pl_config *c)
{
    char *text = NULL, *again = NULL;
    pl_config *d = fresh();
    bool ok = pl_config_print(c, &text) == PL_OK && load(d, text) == PL_OK &&
              pl_config_hash(c) == pl_config_hash(d) && pl_config_print(d, &again) == PL_OK &&
              strcmp(text, again) == 0;
    if (!ok) printf("%s\n%s\n", pl_error_text(), text ? text : "");
    pl_config_free(d);
    pl_text_free(text);
    pl_text_free(again);
    return ok;
}

TEST(config_printed_form_reads_back_the_same)
{
    pl_config *c = fresh();
    CHECK(round_trips(c)); /* a required key is not set */

    CHECK_OK(
        load(c, "seed: -5\ntrain: {lr: 0.1, note: \"a: b # c\\n\\t\\u00e9 \\u2028 \\x01\"}\n"
                "data: {path: 'null', tags: [yes, 'true', 12, a.b/c, '', \"//x\", '- y', 'k: v']}\n"
                "memory.budget: 20GB\ncheckpoint.period: 0.1\nmodel.channels: []\n"
                "train.optimizer.betas: [0.333333333333333333, 1e-300]\n"));
    CHECK(round_trips(c));

    CHECK_OK(pl_config_override(c, "train.lr=.inf"));
    CHECK(round_trips(c));
    pl_config_free(c);
}

TEST(config_print_is_readable)
{
    pl_config *c = fresh();
    char *text;

    CHECK_OK(pl_config_override(c, "memory.budget=8GiB"));
    CHECK_OK(pl_config_print(c, &text));
    const char *want = "# Seed of every draw.\nseed: 0\n\ntrain:\n"
                       "  # Optimiser steps. [1 to 1000000000]\n  steps: 1000\n"
                       "  # Learning rate. [at least 0]\n  lr: 0.001\n"
                       "  # Go on from a checkpoint.\n  resume: true\n"
                       "  # Free text.\n  note: \"\"\n"
                       "  optimizer:\n"
                       "    # Update rule. [sgd|adam|adamw]\n    name: adamw\n"
                       "    # Decay of the moments. [0 to 1]\n    betas: [0.9, 0.999]\n"
                       "\nmemory:\n  # Whole-process budget. [at least 1]\n  budget: 8GiB\n";

    CHECK_MSG(strncmp(text, want, strlen(want)) == 0, "got:\n%s", text);
    CHECK_MSG(strstr(text, "  # required, not set: path: \n"), "got:\n%s", text);
    pl_text_free(text);
    pl_config_free(c);
}

TEST(config_hash_is_of_values_only)
{
    static const pl_config_entry *const swapped[] = {recipe, engine};
    pl_config *a = fresh(), *b = NULL;
    CHECK_OK(pl_config_new(swapped, 2, &b));

    CHECK(pl_config_hash(a) == pl_config_hash(b));
    CHECK_OK(load(a, "train: {steps: 5, note: ab}\n"));
    CHECK(pl_config_hash(a) != pl_config_hash(b));

    CHECK_OK(pl_config_override(b, "train.steps=5"));
    CHECK(pl_config_hash(a) != pl_config_hash(b));

    CHECK_OK(pl_config_override(b, "train.note=ab"));
    CHECK(pl_config_hash(a) == pl_config_hash(b));
    pl_config_free(a);
    pl_config_free(b);
}

static void note_diff(void *ctx, const char *key, const char *old_value, const char *new_value)
{
    pl_str_addf(ctx, "%s %s %s;", key, old_value ? old_value : "-", new_value ? new_value : "-");
}

TEST(config_diff_names_each_changed_key)
{
    static const pl_config_entry *const engine_only[] = {engine};
    pl_config *a = fresh(), *b = fresh(), *e = NULL;
    pl_str s = PL_STR_INIT;

    CHECK_OK(pl_config_diff(a, b, note_diff, &s));
    CHECK_INT(s.len, 0);
    CHECK_OK(load(b, "train: {lr: 0.5}\ndata.path: /x\n"));
    CHECK_OK(pl_config_diff(a, b, note_diff, &s));
    CHECK_MSG(strcmp(s.text, "data.path null /x;train.lr 0.001 0.5;") == 0, "got %s", s.text);
    pl_str_release(&s);
    CHECK_OK(pl_config_new(engine_only, 1, &e));
    CHECK_OK(pl_config_diff(e, a, note_diff, &s));

    CHECK_MSG(strstr(s.text, "model.channels - [32, 64];") == strchr(s.text, 'm'), "got %s",
              s.text);
    pl_str_release(&s);
    pl_config_free(a);
    pl_config_free(b);
    pl_config_free(e);
}

static pl_status try_schema(pl_config_entry e1, pl_config_entry e2)
{
    pl_config_entry rows[3] = {e1, e2, {0}};
    const pl_config_entry *t[] = {rows};
    pl_config *c = NULL;
    pl_status s = pl_config_new(t, 1, &c);
    pl_config_free(c);
    return s;
}

/* YAML cannot nest keys below a key that has a value: they are printed with dots, and read back. */
TEST(config_keys_below_a_key_with_a_value_are_printed_with_dots)
{
    static const pl_config_entry rows[] = {{"from", PL_CONFIG_TEXT, "null", .doc = "F."},
                                           {"from.step", PL_CONFIG_INT, "1", .doc = "S."},
                                           {"t.from", PL_CONFIG_TEXT, "null", .doc = "T."},
                                           {"t.from.step", PL_CONFIG_INT, "2", .doc = "U."},
                                           {0}};
    const pl_config_entry *t[] = {rows};
    pl_config *c, *d;
    char *text;

    CHECK_OK(pl_config_new(t, 1, &c));
    CHECK_OK(load(c, "from: x\nfrom.step: 5\nt:\n  from: y\n  from.step: 7\n"));
    CHECK_OK(pl_config_print(c, &text));
    CHECK_MSG(strstr(text, "\nfrom.step: 5\n") && strstr(text, "\n  from.step: 7\n"), "%s", text);
    CHECK_OK(pl_config_new(t, 1, &d));
    CHECK_OK(load(d, text));

    CHECK_INT(pl_config_int(d, "t.from.step"), 7);
    CHECK(pl_config_hash(c) == pl_config_hash(d));
    pl_text_free(text);
    pl_config_free(c);
    pl_config_free(d);
}

TEST(config_bad_schemas_are_refused)
{
    pl_config_entry a = {"a", PL_CONFIG_INT, "1", 0, 0, NULL, "A."}, b = a;

    CHECK_INT(try_schema(a, b), PL_ERR_ARG); /* twice */
    b.key = "a.b";
    CHECK_OK(try_schema(a, b)); /* a key may have keys below it */
    b = (pl_config_entry){"b", PL_CONFIG_INT, "x", 0, 0, NULL, "B."};
    CHECK_INT(try_schema(a, b), PL_ERR_ARG); /* default of another type */
    CHECK(strstr(pl_error_text(), "schema: b"));

    b.fallback = "9";
    b.min = 1, b.max = 5;
    CHECK_INT(try_schema(a, b), PL_ERR_ARG); /* default out of range */
    CHECK(strstr(pl_error_text(), "from 1 to 5"));

    b.min = -PL_CONFIG_NO_LIMIT;
    CHECK_INT(try_schema(a, b), PL_ERR_ARG);
    CHECK(strstr(pl_error_text(), "at most 5"));

    b.fallback = "3";
    CHECK_OK(try_schema(a, b));
    b.min = 6;
    CHECK_INT(try_schema(a, b), PL_ERR_ARG);

    b = (pl_config_entry){"b", PL_CONFIG_CHOICE, "x", 0, 0, NULL, "B."};
    CHECK_INT(try_schema(a, b), PL_ERR_ARG); /* no choices */
    b = (pl_config_entry){"extends", PL_CONFIG_TEXT, "x", 0, 0, NULL, "B."};
    CHECK_INT(try_schema(a, b), PL_ERR_ARG);
}

static pl_status whole_use(void)
{
    pl_config *c = NULL;
    char *text = NULL;
    pl_status rc = pl_config_new(tables, 2, &c);
    if (rc == PL_OK) {
        pl_config_set_presets(c, find_preset, NULL);
        rc = pl_config_load(c, "cloud/tiny");
    }
    if (rc == PL_OK) rc = load(c, "extends: cloud/small\ndata: {tags: [a, b]}\n");
    if (rc == PL_OK) rc = pl_config_override(c, "train={lr: 1e-4}");
    if (rc == PL_OK) rc = pl_config_print(c, &text);
    if (rc == PL_OK) {
        pl_text_free(text);
        text = NULL;
        rc = pl_config_peek("recipe", "recipe", find_preset, NULL, &text);
    }
    pl_text_free(text);
    pl_config_free(c);
    return rc;
}

/* A locale whose numbers have a comma: refused with the way out. It is made here, as few machines
 * have one. */
TEST(config_of_a_process_whose_numbers_have_a_comma_is_refused)
{
    char command[600];
    pl_config *c = NULL;
    const char *d = pl_test_dir();
    snprintf(command, sizeof command,
             "printf 'comment_char %%%%\nescape_char /\nLC_NUMERIC\ndecimal_point \",\"\n"
             "thousands_sep \"\"\ngrouping -1\nEND LC_NUMERIC\n' > %s/comma.src && localedef -c -i "
             "%s/comma.src -f ANSI_X3.4-1968 %s/comma >/dev/null 2>&1; test -e %s/comma/LC_NUMERIC",
             d, d, d, d);
    if (system(command) != 0) SKIP("no localedef");
    setenv("LOCPATH", d, 1);
    const char *set = setlocale(LC_NUMERIC, "comma");
    unsetenv("LOCPATH");
    if (!set) SKIP("the locale cannot be used");
    pl_status rc = pl_config_new(tables, 2, &c);
    setlocale(LC_NUMERIC, "C");
    CHECK_INT(rc, PL_ERR_CONFIG);
    CHECK(strstr(pl_error_text(), "LC_NUMERIC"));
    CHECK_OK(pl_config_new(tables, 2, &c));
    pl_config_free(c);
}

TEST(config_survives_failing_allocations)
{
    bool done = false;
    for (uint64_t k = 1; !done && k < 2000; k++) {
        pl_sys_fail_nth(k);
        pl_status rc = whole_use();
        done = !pl_sys_fail_hit();
        pl_sys_fail_nth(0);
        CHECK_MSG(rc == (done ? PL_OK : PL_ERR_MEMORY), "allocation %d: %s %s", (int)k,
                  pl_status_name(rc), pl_error_text());
    }
    CHECK(done);
}
