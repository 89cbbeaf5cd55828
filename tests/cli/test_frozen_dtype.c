/* test_frozen_dtype.c - frozen.dtype and teacher.dtype: runs with quantized weights. */
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

#define RUN  "train.steps=3 eval.batches=1 threads=1 --json "
#define TINY "stablesr/tiny " RUN

/* The losses of all steps, as text. */
static const char *losses(const cli_result *r, char *to, size_t cap)
{
    size_t n = 0;
    to[0] = 0;
    for (const char *p = r->out; n < cap && (p = strstr(p, "\"event\":\"step\"")); p++) {
        const char *loss = strstr(p, "\"loss\":");
        if (loss) n += (size_t)snprintf(to + n, cap - n, "%.*s ", (int)strcspn(loss, ","), loss);
    }
    return to;
}

static long long number(const cli_result *r, const char *name)
{
    const char *p = strstr(r->out, name);
    return p ? atoll(p + strlen(name)) : -1;
}

/* Plans change no bit: quantized weights are dequantized once or twice. */
TEST(frozen_dtype_gives_the_same_losses_in_every_plan)
{
    WANT_BIN();
    char want[1024], got[1024];

    cli_result r = cli_run("$P train " TINY "frozen.dtype=nf4 checkpointing=off");
    CHECK_MSG(r.code == 0, "%s", r.err);
    CHECK(strlen(losses(&r, want, sizeof want)) > 30);

    r = cli_run("$P train " TINY "frozen.dtype=nf4 checkpointing=blocks");
    CHECK_MSG(strcmp(losses(&r, got, sizeof got), want) == 0, "%s, not %s", got, want);
    r = cli_run("$P train " TINY "frozen.dtype=int8");
    CHECK(r.code == 0 && strcmp(losses(&r, got, sizeof got), want) != 0);
}

static long long state_bytes(const char *form)
{
    cli_result r = cli_run("$P plan stablesr/tiny frozen.dtype=%s --json", form);
    return r.code == 0 ? number(&r, "\"state_bytes\":") : -1;
}

TEST(frozen_dtype_shrinks_the_state)
{
    WANT_BIN();

    long long plain = state_bytes("null"), int8 = state_bytes("int8"), nf4 = state_bytes("nf4");

    CHECK_MSG(0 < nf4 && nf4 < int8 && int8 < plain, "%lld %lld %lld", plain, int8, nf4);
}

/* Model files hold numbers, so that a file goes back into quantized slots unchanged. */
TEST(frozen_dtype_survives_checkpoints_and_model_files)
{
    WANT_BIN();
    cli_result r =
        cli_run("cd %s && $P train " TINY "frozen.dtype=nf4 --out whole --quiet && "
                "$P train " TINY "train.steps=2 frozen.dtype=nf4 --out parts --quiet && "
                "$P train " TINY "frozen.dtype=nf4 --out parts --quiet && "
                "cmp whole/model.safetensors parts/model.safetensors && "
                "$P train " TINY
                "frozen.dtype=nf4 train.steps=1 optim.lr=0 init_from=whole/model.safetensors "
                "--out same --quiet",
                pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);

    r = cli_run("cd %s && $P eval whole --json threads=1 && $P eval same --json threads=1",
                pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);
}

/* What training freezes by name has no further mark in a prediction. */
TEST(frozen_dtype_holds_for_predictions_with_frozen_names)
{
    WANT_BIN();
    cli_result r = cli_run("cd %s && $P train text/tiny threads=1 train.steps=1 "
                           "'optim.frozen=h.*' frozen.dtype=nf4 --out p --quiet && $P predict p "
                           "--prompt the --out a.txt predict.tokens=8 --json",
                           pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);
    long long small = number(&r, "\"state_bytes\":");
    r = cli_run("cd %s && $P predict p --prompt the --out b.txt predict.tokens=8 "
                "frozen.dtype=null --json && cmp a.txt b.txt",
                pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);
    long long whole = number(&r, "\"state_bytes\":");
    CHECK_MSG(0 < small && small < whole / 2, "%lld of %lld bytes", small, whole);
}

TEST(frozen_dtype_of_a_teacher_is_a_key_of_its_recipe)
{
    WANT_BIN();
    char a[1024], b[1024];

    cli_result r = cli_run("$P train wandistill/tiny " RUN "teacher.dtype=fp8");
    CHECK_MSG(r.code == 0, "%s", r.err);
    losses(&r, a, sizeof a);
    r = cli_run("$P train wandistill/tiny " RUN "teacher.dtype=bf16 'frozen.dtype=teacher.*=fp8'");
    CHECK_MSG(r.code == 0, "%s", r.err);

    CHECK_MSG(a[0] && strcmp(losses(&r, b, sizeof b), a) == 0, "%s, not %s", b, a);
}

TEST(frozen_dtype_refuses_what_it_cannot_store)
{
    WANT_BIN();
    static const struct {
        const char *args, *says;
    } cases[] = {
        {"stablesr/tiny frozen.dtype=nf5", "\"nf5\" is not a form of storing weights"},
        {"stablesr/tiny 'frozen.dtype==nf4'", "no pattern before the ="},
        {"stablesr/tiny frozen.dtype=int8,,nf4", "an empty rule"},
        {"cloud/tiny frozen.dtype=nf4", "no frozen weight of this network has 4096 or more"},
        {"stablesr/tiny 'frozen.dtype=nothing.*=nf4'", "no frozen weight like nothing.*"},
        {"cloud/tiny 'frozen.dtype=*=int8'", "which is trained; only frozen weights"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli_result r = cli_run("$P plan %s", cases[i].args);
        CHECK_MSG(r.code == 2 && strstr(r.err, cases[i].says), "%s: %d %s", cases[i].args, r.code,
                  r.err);
    }
}
