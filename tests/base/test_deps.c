/* test_deps.c - tools/deps on machines that lack something. A folder of stand-ins comes first in
 * PATH: a compiler that finds only the headers that the test names, a user number, and package
 * tools that record their calls. */
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool stand_in(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", pl_test_dir(), name);
    return cli_write(path, text) && chmod(path, 0755) == 0;
}

/* The compiler finds every header except those that match $LACKS; apt-cache knows no
 * libspng-dev. */
static bool machine_make(void)
{
    return stand_in("cc", "#!/bin/sh\n"
                          "case $1 in\n"
                          "-dumpmachine) echo ${MACHINE:-x86_64-linux-gnu} ;;\n"
                          "*) grep '^have' | grep -vE \"${LACKS:-^none}\" ;;\n"
                          "esac\n") &&
           stand_in("id", "#!/bin/sh\necho ${NUMBER:-1000}\n") &&
           stand_in("sudo", "#!/bin/sh\necho sudo \"$@\" >>\"$CALLS\"\nexit 1\n") &&
           stand_in("apt-get", "#!/bin/sh\necho apt-get \"$@\" >>\"$CALLS\"\n") &&
           stand_in("apt-cache", "#!/bin/sh\n[ \"$2\" != libspng-dev ]\n") &&
           stand_in("ar", "#!/bin/sh\n") && stand_in("g++", "#!/bin/sh\n") &&
           stand_in("ps", "#!/bin/sh\n") && stand_in("mpicc", "#!/bin/sh\n") &&
           stand_in("mpirun", "#!/bin/sh\n");
}

/* Runs tools/deps there; the recorded calls follow its output. */
static cli_result deps(const char *variables, const char *arguments)
{
    const char *d = pl_test_dir();
    return cli_run(
        "rm -f %s/calls; CC=cc CUDA_HOME= NVCC= %s CALLS=%s/calls PATH=%s:$PATH tools/deps %s "
        "</dev/null; code=$?; cat %s/calls 2>/dev/null; exit $code",
        d, variables, d, d, arguments, d);
}

TEST(deps_that_are_all_there_ask_nobody)
{
    if (access("tools/deps", X_OK) != 0) SKIP("no sources here");
    CHECK(machine_make());
    cli_result r = deps("", "");
    CHECK_MSG(r.code == 0 && !r.out[0] && !r.err[0], "code %d: %s%s", r.code, r.out, r.err);
    r = deps("", "--test");
    CHECK_MSG(r.code == 0 && !r.out[0] && !r.err[0], "code %d: %s%s", r.code, r.out, r.err);
}

TEST(deps_a_missing_feature_fails_no_build_and_is_named)
{
    if (access("tools/deps", X_OK) != 0) SKIP("no sources here");
    CHECK(machine_make());

    cli_result r = deps("LACKS='png.h|webp'", "");
    CHECK_MSG(r.code == 0, "code %d: %s%s", r.code, r.out, r.err);

    r = deps("LACKS='png.h|webp'", "--summary nowhere");
    CHECK_MSG(
        strstr(r.out, "off: PNG images (install libspng-dev or libpng-dev, then make again)") &&
            strstr(r.out, "off: WebP images (install libwebp-dev, then make again)") &&
            strstr(r.out, "off: NVIDIA GPUs (no nvcc was found;") && !strstr(r.out, "JPEG"),
        "%s", r.out);

    r = deps("CUDA_HOME=/nowhere", "--summary nowhere");
    CHECK_MSG(strstr(r.out, "off: NVIDIA GPUs (CUDA_HOME is /nowhere, which has no bin/nvcc)"),
              "%s", r.out);
}

TEST(deps_that_a_user_cannot_install_are_named)
{
    if (access("tools/deps", X_OK) != 0) SKIP("no sources here");
    CHECK(machine_make());

    cli_result r = deps("LACKS='jansson|webp'", "");
    CHECK_MSG(r.code == 1 &&
                  strstr(r.err, "plimsoll needs these packages, which this user cannot install: "
                                "libjansson-dev\n") &&
                  strstr(r.err, "as root: apt-get install libjansson-dev libwebp-dev\n") &&
                  !strstr(r.out, "apt-get"),
              "code %d: %s%s", r.code, r.out, r.err);
}

TEST(deps_are_installed_by_root_without_sudo)
{
    if (access("tools/deps", X_OK) != 0) SKIP("no sources here");
    CHECK(machine_make());

    cli_result r = deps("NUMBER=0 LACKS='dnnl|spng.h|png.h'", "");
    CHECK_MSG(r.code == 0 && strstr(r.out, "--no-install-recommends libdnnl-dev libpng-dev\n") &&
                  !strstr(r.out, "sudo"),
              "code %d: %s%s", r.code, r.out, r.err);

    r = deps("NUMBER=0 LACKS='spng.h|png.h'", "");
    CHECK_MSG(r.code == 0 && strstr(r.out, "--no-install-recommends libpng-dev\n"), "%s", r.out);
}

TEST(deps_tell_make_what_was_found)
{
    if (access("tools/deps", X_OK) != 0) SKIP("no sources here");

    CHECK(machine_make());
    char file[512];
    snprintf(file, sizeof file, "--found %s/found.mk", pl_test_dir());
    cli_result r = deps("LACKS='webp'", file);
    CHECK_MSG(r.code == 0, "%s", r.err);

    r = cli_run("cd %s && cat found.mk && touch -d 2001-01-01 found.mk", pl_test_dir());
    CHECK_MSG(strstr(r.out, "FOUND := JPEG PNG ") && !strstr(r.out, "WebP") &&
                  strstr(r.out, " MPI mpirun\nISAS := base avx2 avx512\n"),
              "%s", r.out);

    r = deps("LACKS='webp'", file); /* an unchanged file is not rewritten: make would start over */
    r = cli_run("find %s/found.mk -not -newermt 2002-01-01", pl_test_dir());
    CHECK_MSG(strstr(r.out, "found.mk"), "%s", r.out);

    r = deps("MACHINE=aarch64-linux-gnu", file);
    r = cli_run("cat %s/found.mk", pl_test_dir());
    CHECK_MSG(strstr(r.out, "WebP") && strstr(r.out, "ISAS := base\n"), "%s", r.out);
}
