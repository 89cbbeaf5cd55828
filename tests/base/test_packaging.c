/* test_packaging.c - installation, the shared library, and the files around a release. */
#include "plimsoll.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A shell function that installs into DIR/root, with the variables of packaging/build.mk. */
static const char setup[] =
    "B=$(dirname $P); V=$($P --version | cut -d' ' -f2); LIBS='-ldnnl -lfyaml -ljansson -lxxhash "
    "-l:libgomp.so.1 -lpthread -ldl -lm'; export LC_ALL=C; "
    "place() { DESTDIR= PREFIX=$D/root LIBDIR=$D/root/lib BUILD=$B VERSION=$V LIBS=\"$LIBS\" "
    "PLUGINS= packaging/install $1 >/dev/null; }; ";

static bool has_shared(void)
{
    return cli_run("ls $(dirname $P)/libplimsoll.so").code == 0;
}
#define WANT_SHARED()                                                                              \
 do {                                                                                              \
  WANT_BIN();                                                                                      \
  if (!has_shared()) SKIP("the shared library is not built (make shared)");                        \
 } while (0)

/* Every relative link of an installed document names an installed file. */
TEST(install_documents_have_links_that_work)
{
    WANT_SHARED();
    cli_result r = cli_run(
        "D=%s; %s place; cd $D/root/share/doc/plimsoll || exit 1; find . -name '*.md' | while read f; do "
        "awk '/^```/{c=!c} !c' $f | grep -oE '\\]\\([^() ]+\\)' | sed 's/^](//; s/)$//; s/#.*//' | while read l; do "
        "case $l in ''|http*) ;; *) [ -e $(dirname $f)/$l ] || echo $f: $l;; esac; done; done",
        pl_test_dir(), setup);

    CHECK_MSG(r.code == 0 && !r.out[0], "dangling: %s%s", r.out, r.err);
    CHECK_INT(cli_run("grep -q ']('  %s/root/share/doc/plimsoll/README.md", pl_test_dir()).code, 0);
}

/* uninstall removes the files that install wrote; other files stay. */
TEST(uninstall_removes_what_install_wrote)
{
    WANT_SHARED();
    cli_result r = cli_run(
        "D=%s; %s mkdir -p $D/root/bin && echo other >$D/root/bin/other && place && "
        "$D/root/bin/plimsoll recipes >/dev/null && "
        "for f in bin/plimsoll include/plimsoll.h lib/libplimsoll.so lib/libplimsoll.a lib/pkgconfig/plimsoll.pc "
        "share/man/man1/plimsoll.1 share/man/man1/plimsoll-train.1 share/bash-completion/completions/plimsoll "
        "share/zsh/site-functions/_plimsoll share/fish/vendor_completions.d/plimsoll.fish share/doc/plimsoll/README.md; "
        "do [ -s $D/root/$f ] || echo lacks $f; done; "
        "place --uninstall; find $D/root ! -type d; ls -d $D/root/share/doc/plimsoll 2>/dev/null",
        pl_test_dir(), setup);
    char want[512];
    snprintf(want, sizeof want, "%s/root/bin/other\n", pl_test_dir());

    CHECK_MSG(strcmp(r.out, want) == 0, "%s%s", r.out, r.err);
}

/* Each exported symbol has a version; a public function has the public version. */
TEST(shared_library_has_versioned_symbols)
{
    WANT_SHARED();
    cli_result r = cli_run(
        "L=$(dirname $P)/libplimsoll.so; readelf -d $L | grep SONAME; "
        "readelf --dyn-syms -W $L | awk '$7 ~ /^[0-9]+$/ && $5 != \"LOCAL\" {print $8}' >%s/s; "
        "grep -v '@@PLIMSOLL_' %s/s; grep -c '@@PLIMSOLL_0$' %s/s; "
        "grep '^pl_run_open@' %s/s; grep '^pl_sys_free@' %s/s",
        pl_test_dir(), pl_test_dir(), pl_test_dir(), pl_test_dir(), pl_test_dir());

    CHECK_MSG(strstr(r.out, "[libplimsoll.so.0]"), "%s%s", r.out, r.err);
    CHECK_MSG(strstr(r.out, "pl_run_open@@PLIMSOLL_0\npl_sys_free@@PLIMSOLL_PRIVATE\n"), "%s",
              r.out);

    const char *count = strchr(r.out, '\n');
    CHECK_MSG(count && atoi(count + 1) > 400, "unversioned symbols, or few public ones: %s", r.out);
}

/* A program links with the output of pkg-config, shared and static, and both compute the same. */
TEST(installed_libraries_link_with_pkg_config)
{
    WANT_SHARED();
    if (cli_run("command -v pkg-config").code != 0) SKIP("no pkg-config here");

    if (cli_run("nm $P | grep -q __asan_init\\\\\\|__tsan_init").code == 0)
        SKIP("built with a sanitizer");
    static const char source[] =
        "#include <plimsoll_train.h>\n#include <stdio.h>\n"
        "int main(void) { pl_run *r; const char *k[] = {\"train.steps=1\", \"eval.every=0\"}; pl_step_info s;\n"
        "  if (pl_run_open(\"cloud/tiny\", k, 2, &r) || pl_run_build(r) || pl_run_start(r) || pl_run_step(r, &s)) return 1;\n"
        "  printf(\"%s %.9g\\n\", pl_version(), s.loss); pl_run_free(r); return 0; }\n";
    char path[512];
    snprintf(path, sizeof path, "%s/embed.c", pl_test_dir());
    CHECK(cli_write(path, source));

    cli_result r = cli_run(
        "D=%s; %s place; cd $D; export PKG_CONFIG_PATH=$D/root/lib/pkgconfig LD_LIBRARY_PATH=$D/root/lib; "
        "for n in plimsoll plimsoll-static; do ${CC:-cc} embed.c -o $n $(pkg-config --cflags --libs $n) || exit 1; done; "
        "ldd plimsoll | grep -q $D/root/lib/libplimsoll.so.0 || exit 2; ldd plimsoll-static | grep libplimsoll && exit 3; "
        "a=$(./plimsoll) && b=$(./plimsoll-static) && [ \"$a\" = \"$b\" ] && echo $a",
        pl_test_dir(), setup);
    CHECK_MSG(r.code == 0 && strncmp(r.out, pl_version(), strlen(pl_version())) == 0, "%d %s%s",
              r.code, r.out, r.err);
}

/* Every place that names the release names the same version. */
TEST(release_has_one_version)
{
    char want[64];
    snprintf(want, sizeof want, "plimsoll (%s) ", pl_version());
    CHECK_MSG(strncmp(cli_read("debian/changelog"), want, strlen(want)) == 0,
              "debian/changelog: %s", want);

    snprintf(want, sizeof want, "\n## %s\n", pl_version());
    CHECK_MSG(strstr(cli_read("CHANGELOG.md"), want), "CHANGELOG.md has no section %s",
              pl_version());

    snprintf(want, sizeof want, "%d.%d.%d", PL_VERSION_MAJOR, PL_VERSION_MINOR, PL_VERSION_PATCH);
    CHECK_MSG(strcmp(want, pl_version()) == 0, "%s", want);
}

/* The workflow runs the two commands of the README on each distribution of the README. */
TEST(workflow_runs_the_commands_of_the_readme)
{
    static const char *const needs[] = {"debian:12",
                                        "debian:13",
                                        "ubuntu:22.04",
                                        "ubuntu:24.04",
                                        "\n      - run: make demo\n",
                                        "\n      - run: make test\n"};

    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        CHECK_MSG(strstr(cli_read(".github/workflows/test.yml"), needs[i]), "no %s", needs[i]);
    CHECK(strstr(cli_read("README.md"), "make demo") && strstr(cli_read("README.md"), "make test"));
}

/* The plug-in of a package has code for GPUs from the T4 on, whatever was built for this machine:
 * its objects are apart, and a build for this machine does not stand in for them. */
TEST(packages_have_code_for_older_gpus)
{
    if (access("packaging/dist", X_OK) != 0) SKIP("no sources here");
    const char *d = pl_test_dir();
    cli_run("cd %s && mkdir -p cuda/bin cuda/include b && touch cuda/include/cublasLt.h "
            "cuda/include/cudnn.h cuda/include/nvrtc.h && "
            "printf '#!/bin/sh\\n' > cuda/bin/nvcc && chmod +x cuda/bin/nvcc",
            d);
    cli_result r =
        cli_run("make -s -n -o build/deps.ok BUILD=%s/b CUDA_HOME=%s/cuda "
                "NVCC=%s/cuda/bin/nvcc PACKAGE=1 %s/b/package/libplimsoll_cuda.so 2>&1 | "
                "grep -c 'code=sm_75.*/package/src/cuda/ops/fill.cu.o'",
                d, d, d, d);

    CHECK_INT(atoi(r.out), 1);
    CHECK_INT(cli_run("grep -c 'make .*PACKAGE=1 all shared' packaging/dist").code, 0);
}
