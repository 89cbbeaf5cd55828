/* test_room.c - a card that other programs fill: the run does not start, and says who holds what.
 *
 * The program is given a plug-in, a driver and a management library that the build makes for this
 * (tests/fake); everything between them and the command line is the real thing.
 */
#include "cli_run.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder with the three, or NULL. */
static const char *fakes(void)
{
    static char dir[4200];
    const char *bin = cli_bin();
    if (!bin) return NULL;
    snprintf(dir, sizeof dir, "%s", bin);
    char *slash = strrchr(dir, '/');
    if (!slash) return NULL;
    snprintf(slash, sizeof dir - (size_t)(slash - dir), "/fake");
    return access(dir, R_OK) == 0 ? dir : NULL;
}

static cli_result train(const char *libraries, int free_mib)
{
    const char *dir = fakes();
    return cli_run("FAKE_FREE_MIB=%d LD_LIBRARY_PATH=%s%s PLIMSOLL_PLUGIN=%s/libplimsoll_cuda.so "
                   "$P train " CLI_SMALL "train.steps=1 device=cuda --quiet",
                   free_mib, dir, libraries, dir);
}

TEST(room_names_who_holds_what)
{
    if (!fakes()) SKIP("build/.../fake is not built");
    cli_result r = train("/all", 8000);
    CHECK_MSG(r.code == 0, "%d %s", r.code, r.err);
    r = train("/all", 0);
    CHECK_MSG(r.code == 3, "%d %s", r.code, r.err);
    CHECK_MSG(strstr(r.err, "Fake T4 has 0 B free of 16.0 GiB"), "%s", r.err);
    CHECK_MSG(strstr(r.err, "/usr/bin/python3 (4242) holds 9.00 GiB"), "%s", r.err);
    CHECK_MSG(strstr(r.err, "a process (77) holds what it does not tell"), "%s", r.err);
    /* the run's own share is none of the others' */
    CHECK_MSG(!strstr(r.err, "1.00 GiB"), "%s", r.err);
}

TEST(room_without_a_management_library)
{
    if (!fakes()) SKIP("build/.../fake is not built");
    cli_result r = train("/driver", 8000);
    CHECK_MSG(r.code == 0, "%d %s", r.code, r.err);
    r = train("/driver", 0);
    CHECK_MSG(r.code == 3, "%d %s", r.code, r.err);
    CHECK_MSG(strstr(r.err, "nvidia-smi"), "%s", r.err);
}

TEST(room_is_shown_by_devices)
{
    const char *dir = fakes();
    if (!dir) SKIP("build/.../fake is not built");
    cli_result r = cli_run("LD_LIBRARY_PATH=%s/all PLIMSOLL_PLUGIN=%s/libplimsoll_cuda.so $P devices", dir, dir);
    CHECK_MSG(r.code == 0 && strstr(r.out, "Fake T4") && strstr(r.out, "7.00 GiB"), "%d %s%s", r.code, r.out, r.err);
}
