/* test_docs.c - the documents are true: their code compiles and runs, their tables are complete. */
#include "base/str.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"
#include "train/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes every ```<language> block of a Markdown page, in order, to one file. */
static bool extract(const char *page, const char *language, const char *to)
{
    char fence[32];
    snprintf(fence, sizeof fence, "\n```%s\n", language);
    const char *text = cli_read(page);
    FILE *f = fopen(to, "w");
    int blocks = 0;
    for (const char *p = text; f && (p = strstr(p, fence));) {
        p += strlen(fence);
        const char *end = strstr(p, "\n```");
        if (!end) break;
        fwrite(p, 1, (size_t)(end - p) + 1, f);
        p = end + 4;
        blocks++;
    }
    return f && fclose(f) == 0 && blocks > 0;
}

TEST(docs_recipe_of_the_guide_compiles_and_trains)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    char path[512];
    const char *d = pl_test_dir();

    CHECK_INT(cli_run("cd %s && $P new vote", d).code, 0);
    snprintf(path, sizeof path, "%s/vote/vote.c", d);
    CHECK(extract("docs/WRITE_A_RECIPE.md", "c", path));
    snprintf(path, sizeof path, "%s/vote/config.yaml", d);
    CHECK(extract("docs/WRITE_A_RECIPE.md", "yaml", path));

    cli_result r = cli_run("cd %s/vote && make CFLAGS='-O1 -Wall -Wextra -Werror'", d);
    CHECK_MSG(r.code == 0, "%s%s", r.out, r.err);
    r = cli_run("cd %s/vote && $P plan config.yaml && $P plan vote.so/wide", d);
    CHECK_MSG(r.code == 0, "%s", r.err);

    r = cli_run("cd %s/vote && $P train config.yaml", d);
    const char *last = strstr(r.err, "before training, ");
    CHECK_MSG(r.code == 0 && last, "%s", r.err);

    double accuracy = strtod(last + strlen("before training, "), NULL);
    CHECK_MSG(accuracy > 0.85, "the network of the page reaches an accuracy of %g", accuracy);
    r = cli_run("cd %s/vote && $P generate vote.so --out set --samples 100 --eval-samples 64 && "
                "$P train config.yaml data.path=set train.steps=5 --quiet",
                d);
    CHECK_MSG(r.code == 0, "%s", r.err);
}

/* ---- the table of CONFIG.md, made from the rows of the schema ---- */
/* 1e9 as "1e9", where %g writes 1e+09. */
static void put_number(pl_str *s, double v)
{
    char text[32];
    snprintf(text, sizeof text, "%g", v);
    char *e = strchr(text, 'e');
    pl_str_addn(s, text, e ? (size_t)(e - text) : strlen(text));
    if (e) pl_str_addf(s, "e%d", atoi(e + 1));
}

static void put_type(pl_str *s, const pl_config_entry *e)
{
    static const char *const names[] = {
        [PL_CONFIG_BOOL] = "true, false",
        [PL_CONFIG_INT] = "whole number",
        [PL_CONFIG_FLOAT] = "number",
        [PL_CONFIG_TEXT] = "text",
        [PL_CONFIG_CHOICE] = "one of ",
        [PL_CONFIG_SIZE] = "size",
        [PL_CONFIG_DURATION] = "duration",
        [PL_CONFIG_INTS] = "list of whole numbers",
        [PL_CONFIG_FLOATS] = "list of numbers",
        [PL_CONFIG_TEXTS] = "list of texts",
        [PL_CONFIG_TREE] = "list",
    };
    pl_str_add(s, names[e->type]);
    for (const char *p = e->choices; p && *p; p += strcspn(p, "|") + (p[strcspn(p, "|")] != 0))
        pl_str_addf(s, "%s`%.*s`", p == e->choices ? "" : ", ", (int)strcspn(p, "|"), p);
    if ((e->min == 0 && e->max == 0) || e->type == PL_CONFIG_SIZE || e->type == PL_CONFIG_DURATION)
        return;
    pl_str_add(s, ", ");
    put_number(s, e->min);
    pl_str_add(s, " to ");
    put_number(s, e->max);
}

/* The help, in which docs/X.md is a link. */
static void put_help(pl_str *s, const char *doc)
{
    for (const char *at; (at = strstr(doc, "docs/")); doc = at) {
        pl_str_addn(s, doc, (size_t)(at - doc));
        size_t n = strlen("docs/"), end = (size_t)(strstr(at, ".md") + 3 - at);
        pl_str_addf(s, "[%.*s](%.*s)", (int)(end - n), at + n, (int)(end - n), at + n);
        at += end;
    }
    pl_str_add(s, doc);
}

static void put_table(pl_str *s)
{
    static const char *const resume[] = {
        [PL_RESUME_SAME] = "no",
        [PL_RESUME_FREE] = "yes",
        [PL_RESUME_ONWARD] = "from there on",
        [PL_RESUME_ROUND] = "rounding",
        [PL_RESUME_SPLIT] = "rounding",
    };
    pl_str_add(s, "| key | type | default | meaning | may change on resume |\n"
                  "| --- | --- | --- | --- | --- |\n");
    for (const pl_config_entry *e = pl_engine_schema; e->key; e++) {
        pl_str_addf(s, "| `%s` | ", e->key);
        put_type(s, e);
        pl_str_addf(s, " | `%s` | ", e->fallback);
        put_help(s, e->doc);
        pl_str_addf(s, " | %s |\n", resume[e->resume]);
    }
}

/* PL_UPDATE_DOCS=1 writes the table instead: after a change of a key, no document is edited by
 * hand. */
TEST(docs_config_table_is_the_schema)
{
    pl_str table = PL_STR_INIT, page = PL_STR_INIT;

    put_table(&table);
    const char *text = cli_read("docs/CONFIG.md"), *at = strstr(text, "| key | type |");
    CHECK(at && !table.failed);
    const char *end = strstr(at, "\n\n");
    CHECK(end);

    pl_str_addf(&page, "%.*s%s%s", (int)(at - text), text, table.text, end + 1);
    bool same = strcmp(page.text, text) == 0;
    if (!same && getenv("PL_UPDATE_DOCS")) {
        FILE *f = fopen("docs/CONFIG.md", "w");
        same = f && fputs(page.text, f) >= 0 && fclose(f) == 0;
    }
    CHECK_MSG(same, "docs/CONFIG.md is not what schema.c says; "
                    "PL_UPDATE_DOCS=1 build/release/pl_test -k docs_config writes the table");
    pl_str_release(&table);
    pl_str_release(&page);
}

/* Figures of plans and results in READMEs and docs are what plans and tables say. Without
 * pl_test_long: the texts of the list are in their files, the tables and one preset are compared.
 */
TEST(docs_plan_figures_are_what_plans_say)
{
    WANT_BIN();
    if (system("command -v python3 >/dev/null") != 0) SKIP("no python3 here");
    CHECK_RUN(cli_run("tools/docs/figures --list"), 0, "");
    CHECK_RUN(cli_run("PL_BIN=$P tools/docs/figures %s", pl_test_long() ? "" : "edge_after"), 0,
              "");
    CHECK_RUN(cli_run("PL_BIN=$P tools/docs/figures mission.csv"), 0, "");
    if (pl_test_long()) CHECK_RUN(cli_run("tools/docs/mission-table --check $P"), 0, "");
    const char *d = pl_test_dir();
    CHECK_RUN(
        cli_run(
            "cp -r recipes tools %s && cd %s && "
            "sed -i '/`edge_after`, batch 6/s/ GiB/9 GiB/' recipes/stablesr/README.md && PL_BIN=$P tools/docs/figures edge_after",
            d, d),
        1, "");
}

/* COMMANDS.md names every option that --help prints. */
TEST(docs_commands_name_every_option)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    char list[2048];

    snprintf(list, sizeof list, "%s", cli_run("$P help --commands").out);
    CHECK(strstr(list, "train"));
    for (const char *name = strtok(list, "\n"); name; name = strtok(NULL, "\n")) {
        cli_result r = cli_run("$P %s --help", name);
        const char *page = cli_read("docs/COMMANDS.md");
        char title[64];
        snprintf(title, sizeof title, "## plimsoll %s", name);
        const char *section = strstr(page, title);
        CHECK_MSG(section, "docs/COMMANDS.md has no section %s", title);
        char *end = strstr((char *)(uintptr_t)section + 3, "\n## ");
        if (end) *end = 0;
        for (const char *p = strstr(r.out, "\n  --"); p; p = strstr(p + 1, "\n  --")) {
            char option[64];
            snprintf(option, sizeof option, "`%.*s", (int)strcspn(p + 3, " "), p + 3);
            CHECK_MSG(strstr(section, option), "docs/COMMANDS.md does not tell of %s %s", name,
                      option + 1);
        }
    }
}

/* COMMANDS.md and --help name every exit code. */
TEST(docs_exit_codes_are_complete)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    static const int codes[] = {
#define CODE(name, number, exit_code, text) exit_code,
        PL_STATUS_LIST(CODE)
#undef CODE
    };

    cli_result r = cli_run("$P --help");
    const char *help = strstr(r.out, "Exit codes:");
    CHECK(help);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        char row[32], word[32];
        snprintf(row, sizeof row, "\n| %d | ", codes[i]);
        snprintf(word, sizeof word, "%d ", codes[i]);
        CHECK_MSG(strstr(cli_read("docs/COMMANDS.md"), row),
                  "docs/COMMANDS.md does not tell of exit code %d", codes[i]);
        CHECK_MSG(strstr(help, word), "--help does not tell of exit code %d", codes[i]);
    }
}

/* ---- invariants ---------------------------------------------------------------------------- */
/* Checks that every `src/...` between two places of a page is a file that cites the invariant, or a
 * folder with one; *n counts them. */
static void check_cited(const char *from, const char *to, const char *name, int *n)
{
    *n = 0;
    for (const char *p = from; (p = strstr(p, "`src/")) && p < to; ++*n) {
        int length = (int)strcspn(++p, "`");
        cli_result r = cli_run("grep -rqw %s %.*s", name, length, p);
        CHECK_MSG(r.code == 0, "%.*s does not cite %s", length, p, name);
    }
}

/* MEMORY.md counts its invariants, and the code that makes an invariant hold cites it. */
TEST(docs_invariants_are_cited_where_they_hold)
{
    char *page = strdup(cli_read("docs/MEMORY.md"));
    const char *end = strstr(page, "\n## Smaller representations"), *after = NULL;
    int n;

    CHECK(end && strstr(page, "Fourteen invariants, M1 to M14."));
    for (int k = 1; k <= 14; k++) {
        char mark[16], name[8];
        snprintf(name, sizeof name, "M%d", k);
        snprintf(mark, sizeof mark, "\n- **%s** ", name);
        const char *at = strstr(page, mark);
        CHECK_MSG(at, "%s is missing", name);
        after = strstr(at + 1, "\n- **M");
        check_cited(at, after && after < end ? after : end, name, &n);
        CHECK_MSG(n > 0 || k == 13, "%s names no file", name);
    }
    CHECK(!after);

    check_cited(end, strstr(end, "\n## Words"), "M13", &n);
    CHECK_INT(n, 8);
    free(page);
}

/* A name of three or more words that a page of rules quotes is a test. */
TEST(docs_rules_name_tests_that_exist)
{
    static const char *const pages[] = {"docs/STYLE.md", "docs/MEMORY.md"};
    int n = 0;

    for (int i = 0; i < 2; i++) {
        char *page = strdup(cli_read(pages[i]));
        for (const char *p = page; (p = strchr(p, '`')); p++) {
            int length = (int)strspn(++p, "abcdefghijklmnopqrstuvwxyz0123456789_"), words = 1;
            for (int k = 0; k < length; k++) words += p[k] == '_';
            if (p[length] != '`' || words < 4) continue;
            cli_result r = cli_run("grep -rqE '^TEST(_ALONE)?\\(%.*s\\)' tests", length, p);
            CHECK_MSG(r.code == 0, "%s: there is no test %.*s", pages[i], length, p);
            n++;
        }
        free(page);
    }
    CHECK(n >= 6);
}

/* The tables of measured figures agree with the stored results. */
TEST(docs_tables_are_the_results)
{
    if (system("command -v python3 >/dev/null") != 0) SKIP("no python3 here");
    const char *d = pl_test_dir();
    cli_result r = cli_run(
        "cp -r README.md docs recipes bench tools %s && cd %s && tools/docs/gpu-table && tools/docs/mission-table && "
        "tools/docs/cuda-table && for f in README.md docs/CUDA.md bench/results/mission.csv recipes/*/README.md; do cmp $f $OLDPWD/$f || exit 1; done",
        d, d);
    CHECK_MSG(r.code == 0, "%s%s", r.out, r.err);
}
