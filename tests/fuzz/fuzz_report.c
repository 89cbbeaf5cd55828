/* fuzz_report.c - any bytes as the log and the plan of a run folder: `report` and `watch` refuse
 * them, or what they show stays inside its tables, and pictures stay inside the folder. The first
 * byte says where the plan ends and the log begins, in parts of 256 of the rest. */
/* also: cli/report/report_read.c cli/ui.c cli/busy.c */
#include "cli/report/report.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];

static void write_file(const char *name, const uint8_t *data, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n) abort();
    close(fd);
}

static void remove_folder(void)
{
    static const char *const names[] = {"plan.json", "config.yaml", "log.jsonl"};
    char path[128];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

/* A new folder once: its messages go to /dev/null. */
static void begin(void)
{
    if (folder[0]) return;
    snprintf(folder, sizeof folder, "%s/fuzz_report_XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder)) abort();
    atexit(remove_folder);
}

static void check(const report *r)
{
    char file[256];
    if (r->n < 0 || r->n_terms < 0 || r->stride < 1 || r->log.at < 0) abort();
    for (int c = 0; c < N_COLS; c++) (void)report_mean(r, c);
    for (int t = 0; t < r->n_terms; t++)
        for (int i = 0; i < r->n; i++)
            if (r->term[t].cell[i] == INFINITY && !r->term[t].name) abort();
    for (size_t i = 0; i < json_array_size(r->samples); i++)
        if (report_shows(r, i, file, sizeof file) && strcmp(file, "samples/..") == 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char plan[] = "{\"programs\":[{}],\"memory\":{\"budget\":1}}";
    report r;
    if (size < 1) return 0;
    begin();
    size_t n = (size - 1) * data[0] / 256;
    /* 0: a plan that is read, so that the log is reached */
    write_file("plan.json", data[0] ? data + 1 : (const uint8_t *)plan, data[0] ? n : strlen(plan));
    write_file("config.yaml", (const uint8_t *)"recipe: regress\n", 16);
    size_t rest = size - 1 - n, half = rest / 2;
    write_file("log.jsonl", data + 1 + n, half);
    if (report_read(&r, folder)) {
        check(&r);
        write_file("log.jsonl", data + 1 + n, rest); /* the log has grown */
        if (report_follow(&r)) check(&r);
    }
    report_release(&r);
    return 0;
}
