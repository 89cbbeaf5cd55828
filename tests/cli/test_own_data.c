/* test_own_data.c - the commands of the README's quick start on own data, run as they are written,
 * on folders that the test makes. A wrapper named plimsoll shortens the training. */
#include "plimsoll_events.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The commands of the code block below the heading "### title" of README.md, joined by &&. Returns
 * their number; -1: there is no such block. */
static int commands_of(const char *title, char *out, size_t cap)
{
    char mark[128];
    snprintf(mark, sizeof mark, "\n### %s\n", title);
    const char *at = strstr(cli_read("README.md"), mark),
               *block = at ? strstr(at, "\n```sh\n") : NULL;
    const char *end = block ? strstr(block + 7, "\n```") : NULL;
    int n = 0;
    size_t used = 0;
    for (const char *line = block ? block + 7 : NULL; line && line < end; n++) {
        size_t len = strcspn(line, "\n");
        used += (size_t)snprintf(out + used, cap - used, "%s%.*s", n ? " && " : "",
                                 (int)strcspn(line, "#\n"), line);
        if (used >= cap) return -1;
        line += len + 1;
    }
    return block ? n : -1;
}

/* Writes a wrapper that trains 12 steps, named plimsoll, into the folder of the test. */
static void prepare(void)
{
    char path[700], text[2048];
    snprintf(path, sizeof path, "%s/bin", pl_test_dir());
    mkdir(path, 0777);
    snprintf(text, sizeof text,
             "#!/bin/sh\ncase $1 in\ntrain) exec %s \"$@\" train.steps=12 eval.every=0 --quiet ;;\n"
             "*) exec %s \"$@\" ;;\nesac\n",
             cli_bin(), cli_bin());
    snprintf(path, sizeof path, "%s/bin/plimsoll", pl_test_dir());
    CHECK(cli_write(path, text));
    chmod(path, 0755);
}

static void run_task(const char *title, const char *result)
{
    char commands[4096];
    int n = commands_of(title, commands, sizeof commands);
    CHECK_MSG(n >= 1 && n <= 5, "README.md, \"%s\": %d commands", title, n);
    cli_result r = cli_run("cd %s && PATH=$PWD/bin:$PATH && %s", pl_test_dir(), commands);
    CHECK_MSG(r.code == 0, "%s\n%s%s", commands, r.out, r.err);
    r = cli_run("cd %s && test -s %s", pl_test_dir(), result);
    CHECK_MSG(r.code == 0, "%s leaves no %s", title, result);
}

/* A picture whose colour and stripes depend on kind and number. */
static void draw(const char *path, int kind, int number, bool mask)
{
    enum { SIDE = 40 };
    uint8_t pixels[SIDE * SIDE * 3];
    char full[700];
    for (int i = 0; i < SIDE * SIDE; i++) {
        bool in = abs(i % SIDE - 20) < 6 + number % 5 && abs(i / SIDE - 20) < 9;
        for (int c = 0; c < 3; c++)
            pixels[(mask ? 1 : 3) * i + (mask ? 0 : c)] = (uint8_t)(mask ? (in ? 255 : 0)
                                                                    : in ? (kind == c ? 230 : 90)
                                                                         : 30 + number % 9);
    }
    snprintf(full, sizeof full, "%s/%s", pl_test_dir(), path);
    CHECK_OK(pl_png_save(full, SIDE, SIDE, mask ? 1 : 3, pixels));
}

TEST(readme_classifies_pictures_of_a_folder)
{
    char path[64];
    WANT_BIN();
    prepare();
    CHECK_RUN(cli_run("cd %s && mkdir -p pets/cat pets/dog new-pictures", pl_test_dir()), 0, "");
    for (int i = 0; i < 48; i++) {
        snprintf(path, sizeof path, i < 40 ? "pets/%s/%d.png" : "new-pictures/%s-%d.png",
                 i % 2 ? "cat" : "dog", i);
        draw(path, i % 2, i, false);
    }
    run_task("Classify pictures", "pets.csv");
}

TEST(readme_segments_pictures_of_a_folder)
{
    char path[64];
    WANT_BIN();
    prepare();
    CHECK_RUN(cli_run("cd %s && mkdir -p cells/images cells/masks new-pictures", pl_test_dir()), 0,
              "");
    for (int i = 0; i < 24; i++) {
        snprintf(path, sizeof path, i < 20 ? "cells/images/%d.png" : "new-pictures/%d.png", i);
        draw(path, 1, i, false);
        snprintf(path, sizeof path, "cells/masks/%d.png", i);
        if (i < 20) draw(path, 1, i, true);
    }
    run_task("Segment pictures", "new-masks/20.png");
}

TEST(readme_continues_a_text)
{
    char path[700];
    WANT_BIN();
    prepare();
    snprintf(path, sizeof path, "%s/book.txt", pl_test_dir());
    FILE *f = fopen(path, "w");
    CHECK(f);
    for (int i = 0; i < 300; i++) fprintf(f, "It was a day like any other, number %d.\n", i);
    fclose(f);
    run_task("Continue a text", "said.txt");
}

TEST(readme_predicts_numbers_of_a_table)
{
    static const char *const city[] = {"Oslo", "Rome", "Lima"};
    char path[700];
    WANT_BIN();

    prepare();
    for (int k = 0; k < 2; k++) {
        snprintf(path, sizeof path, "%s/%s", pl_test_dir(), k ? "new-houses.csv" : "houses.csv");
        FILE *f = fopen(path, "w");
        CHECK(f);
        fprintf(f, "id,area,city%s\n", k ? "" : ",price");
        for (int i = 0; i < (k ? 9 : 400); i++) {
            fprintf(f, "%d,%d,%s", i, 40 + i * 7 % 160, city[i % 3]);
            if (!k) fprintf(f, ",%d", 1000 * (40 + i * 7 % 160) + 20000 * (i % 3));
            fputc('\n', f);
        }
        fclose(f);
    }
    run_task("Predict numbers of a table", "prices.csv");
}
