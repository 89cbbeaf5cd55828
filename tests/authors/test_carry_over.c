/* test_carry_over.c - the pages "Continue from a model of the authors' program" of the
 * recipes' READMEs do what they say, with the checkpoints of tests/data/authors. */
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The text of a README from the heading of the page to the next heading; caller frees. */
static char *page_of(const char *recipe)
{
    static const char heading[] = "## Continue from a model of the authors' program\n";
    char path[256];
    snprintf(path, sizeof path, "recipes/%s/README.md", recipe);
    const char *text = strstr(cli_read(path), heading);
    if (!text) return NULL;
    text += strlen(heading);
    const char *end = strstr(text, "\n## ");
    return strndup(text, end ? (size_t)(end - text) : strlen(text));
}

/* Writes the page's block of YAML to carry.yaml. */
static bool write_config(const char *page)
{
    static const char fence[] = "```yaml\n";
    const char *block = strstr(page, fence), *end = block ? strstr(block, "\n```\n") : NULL;
    if (!end) return false;
    block += strlen(fence);
    char *yaml = strndup(block, (size_t)(end - block) + 1);
    bool ok = yaml && cli_write(pl_test_path("carry.yaml"), yaml);
    free(yaml);
    return ok;
}

/* Runs every line of the page that begins with "plimsoll "; lines that end with \ go on. */
static void run_page(const char *recipe, int least)
{
    WANT_BIN();
    char here[1024], *page = page_of(recipe);
    int n = 0;
    CHECK_MSG(page && getcwd(here, sizeof here), "recipes/%s/README.md has no such page", recipe);
    CHECK(write_config(page));
    CHECK_INT(cli_run("ln -s %s/tests %s/tests", here, pl_test_dir()).code, 0);
    for (char *p = page; p && *p; p = *p ? p + 1 : p) {
        char *end = p + strcspn(p, "\n");
        while (end > p && end[-1] == '\\' && *end) end += 1 + strcspn(end + 1, "\n");
        if (strncmp(p, "plimsoll ", 9) == 0) {
            cli_result r = cli_run("cd %s && $P %.*s", pl_test_dir(), (int)(end - p) - 9, p + 9);
            CHECK_MSG(r.code == 0, "%.*s\n%s", (int)(end - p), p, r.err);
            n++;
        }
        p = end;
    }
    free(page);
    CHECK_MSG(n >= least, "%d commands", n);
}

TEST(carry_over_of_fluxflow_runs_as_its_page_says)
{
    run_page("fluxflow", 8);
}

TEST(carry_over_of_wandistill_runs_as_its_page_says)
{
    run_page("wandistill", 7);
    CHECK(cli_same("back/student_config.json",
                   "tests/data/authors/wandistill/student/student_config.json"));
}

TEST(carry_over_of_cloud_runs_as_its_page_says)
{
    run_page("cloud", 7);
}

TEST(carry_over_of_lgt_runs_as_its_page_says)
{
    run_page("lgt", 5);
}

TEST(carry_over_of_stablesr_runs_as_its_page_says)
{
    run_page("stablesr", 7);
    /* the page allows a random context; predictions do not have one in silence */
    cli_result r = cli_run("cd %s && $P predict runs/sr --input pictures/eval --out strict "
                           "vae.weights=runs/vae/model.safetensors allow_random_frozen=false "
                           "--model tests/data/authors/stablesr/epoch=000000.ckpt",
                           pl_test_dir());
    CHECK_MSG(r.code == 2 && strstr(r.err, "set context_from (1 tensor, context)"), "%d %s", r.code,
              r.err);
}
