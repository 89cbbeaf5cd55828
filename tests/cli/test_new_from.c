/* test_new_from.c - `plimsoll new --from RECIPE`: the copied source builds, trains the same numbers
 * as the recipe, and follows a change. */
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#define IN "cd %s && "

/* The losses of two steps of a configuration. */
static void losses_of(const char *config, const char *run, char *to, size_t cap)
{
    CHECK_RUN(cli_run(IN
                      "$P train %s batch=2 context=8 model.width=16 model.layers=1 data.samples=64 "
                      "eval.every=0 train.steps=2 train.log_every=1 --out %s --quiet",
                      pl_test_dir(), config, run),
              0, "");
    cli_losses(run, to, cap);
}

TEST(new_from_a_recipe_gives_its_source_to_change)
{
    static char own[4096], copy[4096], changed[4096];
    const char *d = pl_test_dir();
    WANT_BIN();

    CHECK_RUN(cli_run(IN "$P new mine --from text && cd mine && make CFLAGS=-O1 >/dev/null", d), 0,
              "");
    losses_of("text/tiny", "own", own, sizeof own);
    losses_of("mine/config.yaml", "copy", copy, sizeof copy);
    CHECK_MSG(own[0] && strcmp(own, copy) == 0, "%s\n%s", own, copy);
    CHECK_RUN(cli_run(IN "cd mine && sed -i 's/pl_gelu_tanh(/pl_silu(/' model.c && "
                         "make CFLAGS=-O1 >/dev/null",
                      d),
              0, "");
    losses_of("mine/config.yaml", "changed", changed, sizeof changed);

    CHECK_MSG(changed[0] && strcmp(own, changed) != 0, "a change in model.c changes no loss");
}

/* Each recipe that offers its source builds without a warning. */
TEST(new_from_every_recipe_builds)
{
    static const char *const recipes[] = {"classify", "segment", "regress"};
    WANT_BIN();
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        CHECK_RUN(
            cli_run(IN "$P new my-%s --from %s && cd my-%s && make CFLAGS='-O0 -Wall -Werror' && "
                       "$P plan config.yaml >/dev/null",
                    pl_test_dir(), recipes[i], recipes[i], recipes[i]),
            0, "");
}

TEST(new_from_an_unknown_recipe_lists_the_known_ones)
{
    WANT_BIN();
    CHECK_RUN(cli_run(IN "$P new x --from none", pl_test_dir()), 2,
              "--from none: there is no such recipe; recipes whose source can be copied: ");
    CHECK_RUN(cli_run(IN "$P new x --from cloud", pl_test_dir()), 2,
              "its source is not part of this program");
    CHECK_RUN(cli_run(IN "test ! -e x", pl_test_dir()), 0, "");
}
