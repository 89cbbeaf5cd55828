/* cmd_devices.c - `plimsoll devices`: lists what this machine can train on. */
#include "cli/commands/device_test.h"
#include "cli/ui.h"
#include "plimsoll_json.h"

#include <stdlib.h>
#include <string.h>

static pl_status devices_json(const pl_device_info *d, int n)
{
    pl_json *j = pl_json_new(stdout);
    pl_json_array(j, NULL);
    for (int i = 0; i < n; i++) {
        pl_json_object(j, NULL);
        pl_json_string(j, "name", d[i].name);
        pl_json_bool(j, "usable", d[i].usable);
        pl_json_string(j, "about", d[i].about);
        pl_json_string(j, "why_not", d[i].why_not);
        pl_json_uint(j, "total_bytes", d[i].total_bytes);
        pl_json_uint(j, "free_bytes", d[i].free_bytes);
        pl_json_end(j);
    }
    pl_json_end(j);
    pl_status rc = pl_json_finish(j);
    pl_json_free(j);
    return rc;
}

/* Lists the data formats that need a library. */
static void print_formats(void)
{
    enum { CAP = 8 };
    pl_data_format f[CAP];
    int n = pl_data_formats(f, CAP);
    printf("%sdata%s  ", cli_bold(stdout), cli_plain(stdout));
    for (int i = 0; i < n; i++)
        if (!f[i].why_not) printf(" %s", f[i].name);
    printf(" can be read\n");
    for (int i = 0; i < n; i++)
        if (f[i].why_not) printf("       %s cannot: %s\n", f[i].name, f[i].why_not);
}

static void print_devices(const pl_device_info *d, int n, bool profiles)
{
    for (int i = 0; i < n && profiles; i++)
        printf("%s%-14s%s %10s  %s\n", cli_bold(stdout), d[i].name, cli_plain(stdout),
               cli_bytes(d[i].total_bytes), d[i].about);
    for (int i = 0; i < n && !profiles; i++) {
        printf("%s%-6s%s %s\n", cli_bold(stdout), d[i].name, cli_plain(stdout), d[i].about);
        if (d[i].usable)
            printf("       usable; %s free of %s\n", cli_bytes(d[i].free_bytes),
                   cli_bytes(d[i].total_bytes));
        else
            printf("       not usable: %s\n", d[i].why_not);
    }
    if (!profiles) print_formats();
}

typedef struct devices_options {
    bool json, profiles, calibrate;
    const char *test, *disk;
} devices_options;

const cli_help cli_help_devices = {
    .usage = "plimsoll devices",
    .about = "Lists what this machine can train on; for a device that is not usable, the reason.",
    .examples = "  plimsoll devices\n  plimsoll devices --profiles\n"
                "  plimsoll devices --calibrate --disk /scratch\n  plimsoll devices --test cpu\n",
    .options =
        (const cli_option[]){
            {"--json", NULL, offsetof(devices_options, json), "print a JSON array"},
            {"--profiles", NULL, offsetof(devices_options, profiles),
             "list the GPUs that plan --device knows"},
            {"--calibrate", NULL, offsetof(devices_options, calibrate),
             "measure kernels of the CPU and links of GPUs, for predicted times (a few seconds)"},
            {"--disk", "FOLDER", offsetof(devices_options, disk),
             "with --calibrate: measure the disk of this folder too"},
            {"--test", "DEVICE", offsetof(devices_options, test),
             "train a small network on DEVICE and check that memory and losses are as planned"},
            {NULL},
        },
};

int cmd_devices(int argc, char **argv)
{
    devices_options o = {.json = false};
    cli_args a;
    cli_parse(argc, argv, &cli_help_devices, &o, &a);
    cli_want(&a, 0, 0, "devices", "no arguments");
    if (o.disk && !o.calibrate) {
        cli_error("--disk FOLDER needs --calibrate");
        return 2;
    }
    if (o.calibrate) return times_calibrate(o.disk);
    if (o.test) return device_test(o.test, o.json);
    int n;
    pl_device_info *d = cli_devices(o.profiles, &n);
    pl_status rc = !d ? PL_ERR_MEMORY : o.json ? devices_json(d, n) : PL_OK;
    if (rc == PL_OK && !o.json) print_devices(d, n, o.profiles);
    free(d);
    return rc == PL_OK ? 0 : cli_fail(rc);
}
