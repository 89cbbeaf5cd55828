/* test_groups.c - parameter groups: one program, one loss, several sections with their own learning
 * rate and decay. */
#include "base/threads.h"
#include "plimsoll_train.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"

#include <math.h>
#include <string.h>

enum { STEPS = 3, WEIGHTS = 64 };

static const pl_config_entry schema[] = {
    {"groups", PL_CONFIG_TEXT, "none", 0, 0, NULL, "none, two, same or overlap."},
    {0},
};
static const char *const sections[] = {"optim_head", NULL};

static pl_status build(pl_builder *b)
{
    pl_nn *m = pl_builder_train(b);
    int64_t n = pl_builder_batch(b);
    const char *how = pl_config_text(pl_builder_config(b), "groups");
    pl_val x = pl_input(m->g, "x", PL_TYPE(PL_F32, n, 4));
    pl_val y = pl_input(m->g, "y", PL_TYPE(PL_F32, n, 6));
    x = pl_silu(m->g, pl_nn_linear(m, x, "body", 16, (pl_nn_lin){0}));
    pl_val loss = pl_loss_mse(m->g, pl_nn_linear(m, x, "head", 6, (pl_nn_lin){0}), y);
    if (strcmp(how, "none") == 0) {
        pl_builder_minimise(b, loss);
        return PL_OK;
    }
    bool same = strcmp(how, "same") == 0, overlap = strcmp(how, "overlap") == 0;
    pl_builder_minimise_with(b, m, loss, &(pl_group){.slots = overlap ? NULL : "body.*"});
    pl_builder_minimise_with(b, m, loss,
                             &(pl_group){.slots = "head.*", .optim = same ? NULL : "optim_head"});
    return PL_OK;
}

static int64_t data_size(void *data, pl_subset subset)
{
    (void)data, (void)subset;
    return 64;
}

static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                 .name = "groups-test",
                                 .about = "a body and a head",
                                 .schema = schema,
                                 .build = build,
                                 .data_size = data_size,
                                 .data_read = small_run_noise,
                                 .optims = sections};

typedef struct outcome {
    float body[WEIGHTS], head[WEIGHTS];
    double lr, head_lr, loss;
    int64_t steps[2]; /* of optim and optim_head */
} outcome;

static int64_t counter(pl_run *run, const char *name)
{
    int64_t n = 0;
    int slot = pl_store_find(pl_run_store(run), name);
    if (slot >= 0) memcpy(&n, pl_session_slot(pl_run_session(run), slot), sizeof n);
    return n;
}

static pl_status train(const char *const *keys, int n, outcome *o)
{
    pl_run *run = NULL;
    pl_step_info info = {0};
    int threads = pl_threads();
    pl_threads_set(1); /* the network is too small for more */
    memset(o, 0, sizeof *o);
    pl_status rc = small_run_open(&recipe, keys, n, &run);
    if (rc == PL_OK) rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    for (int i = 0; rc == PL_OK && i < STEPS; i++) rc = pl_run_step(run, &info);
    if (rc == PL_OK) {
        const pl_store *s = pl_run_store(run);
        memcpy(o->body, pl_session_slot(pl_run_session(run), pl_store_find(s, "body.weight")),
               sizeof o->body);
        memcpy(o->head, pl_session_slot(pl_run_session(run), pl_store_find(s, "head.weight")),
               sizeof o->head);
        o->lr = info.lr;
        o->loss = info.loss;
        for (int i = 0; i < info.n_terms; i++)
            if (strcmp(info.term_name[i], "optim_head.lr") == 0) o->head_lr = info.term[i];
        o->steps[0] = counter(run, "optim.step");
        o->steps[1] = counter(run, "optim_head.step");
    }
    pl_run_free(run);
    pl_threads_set(threads);
    return rc;
}

/* With equal settings, groups train what one optimiser trains, to the bit; gradients of the second
 * group do not see the update of the first. */
TEST(groups_with_equal_settings_train_as_one_optimiser)
{
    static const char *const more[] = {"accumulate=1", "accumulate=2", "precision=fp16"};
    for (int i = 0; i < 3; i++) {
        const char *one[] = {"batch=8", "optim.lr=0.01", more[i]};
        const char *two[] = {"batch=8", "optim.lr=0.01", more[i], "groups=two",
                             "optim_head.lr=0.01"};
        outcome a, b;
        CHECK_OK(train(one, 3, &a));
        CHECK_OK(train(two, 5, &b));
        CHECK(memcmp(a.body, b.body, sizeof a.body) == 0);
        CHECK(memcmp(a.head, b.head, sizeof a.head) == 0);
        CHECK_INT(b.steps[0], STEPS);
        CHECK_INT(b.steps[1], STEPS);
    }
}

/* A learning rate of 0 in one group leaves its weights and trains the others; both rates are
 * reported; decay is the group's own. */
TEST(groups_have_their_own_rate_and_decay)
{
    const char *still[] = {"batch=8", "optim.lr=0.01", "groups=two", "optim_head.lr=0"};
    const char *plain[] = {"batch=8", "optim.lr=0.01", "groups=two", "optim_head.lr=1e-3"};
    const char *decay[] = {"batch=8", "optim.lr=0.01", "groups=two", "optim_head.lr=1e-3",
                           "optim_head.weight_decay=0.5"};
    outcome a, b, c;
    CHECK_OK(train(still, 4, &a));
    CHECK_OK(train(plain, 4, &b));
    CHECK_OK(train(decay, 5, &c));
    CHECK(memcmp(a.head, b.head, sizeof a.head) != 0);
    CHECK_NEAR(b.lr, 0.01, 1e-8);
    CHECK_NEAR(b.head_lr, 1e-3, 1e-9);
    /* Adam's step of a weight is at most about its rate; here the rates differ tenfold. */
    double far = 0;
    for (int i = 0; i < WEIGHTS; i++) far = fmax(far, fabs((double)(a.head[i] - b.head[i])));
    CHECK(far > 0.5e-3 && far < 1.2e-3 * STEPS);
    /* decoupled decay of 0.5 at rate 1e-3 takes 0.05 % of a weight per step */
    for (int i = 0; i < WEIGHTS; i++)
        CHECK_NEAR(c.head[i] - b.head[i], -5e-4 * STEPS * (double)b.head[i], 3e-5);
}

TEST(groups_that_share_a_slot_or_a_section_are_refused)
{
    const char *same[] = {"batch=8", "groups=same"}, *overlap[] = {"batch=8", "groups=overlap"};
    outcome o;
    CHECK_INT(train(same, 2, &o), PL_ERR_CONFIG);
    CHECK_MSG(strstr(pl_error_text(), "section optim trains two groups of the program train"), "%s",
              pl_error_text());
    CHECK_INT(train(overlap, 2, &o), PL_ERR_CONFIG);
    CHECK_MSG(strstr(pl_error_text(), "head.weight is trained by optim and by optim_head") ||
                  strstr(pl_error_text(), "head.bias is trained by optim and by optim_head"),
              "%s", pl_error_text());
}
