/* test_sums.c - checksums inside files: a flipped byte is found wherever it is, files of other
 * programs are read as they are, and every command that reads a model verifies it. */
#include "base/sys.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "io/st_set.h"
#include "plimsoll_tensors.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 96 };

/* Writes a file with two tensors; its bytes are in *data. */
static bool make_file(const char *name, char **data, size_t *n)
{
    static float a[N];
    static int64_t b[8];
    for (int i = 0; i < N; i++) a[i] = (float)i * 0.25f - 3;
    for (int i = 0; i < 8; i++) b[i] = i;
    pl_tensor_data t[] = {{.name = "a", .type = PL_TYPE(PL_F32, N), .data = a},
                          {.name = "b", .type = PL_TYPE(PL_I64, 8), .data = b}};
    return pl_tensors_save(pl_test_path(name), t, 2) == PL_OK &&
           pl_sys_read_file(pl_test_path(name), 1 << 20, data, n) == PL_OK;
}

/* Opens the file as weights and reads its tensors; PL_OK with other numbers is *wrong. */
static pl_status read_all(const char *path, bool *wrong)
{
    pl_st_set *set;
    int file;
    float a[N];
    int64_t b[8];
    *wrong = false;
    PL_TRY(pl_st_set_open(path, &set));
    const pl_st_tensor *x = pl_st_set_find(set, "a", &file), *y = pl_st_set_find(set, "b", &file);
    const pl_st_reader *r = pl_st_set_file(set, 0);
    *wrong = !x || !y || pl_st_read(r, x, a, sizeof a) != PL_OK ||
             pl_st_read(r, y, b, sizeof b) != PL_OK;
    for (int i = 0; i < N && !*wrong; i++) *wrong = a[i] != (float)i * 0.25f - 3;
    for (int i = 0; i < 8 && !*wrong; i++) *wrong = b[i] != i;
    pl_st_set_close(set);
    return PL_OK;
}

/* Flips a bit of one byte after the other, of all in the header and of some behind it: each time
 * the file is refused, or what is read of it is right. Returns how often it was refused. */
static int flip_every(const char *name, int *of)
{
    enum { HEADER = 400, STEP = 23 };
    char *data;
    size_t n;
    bool wrong;
    int refused = 0;
    *of = 0;
    if (!make_file(name, &data, &n) || read_all(pl_test_path(name), &wrong) != PL_OK || wrong) {
        pl_test_fail(__FILE__, __LINE__, "%s cannot be read: %s", name, pl_error_text());
        return 0;
    }
    for (size_t i = 0; i < n; i += i < HEADER || pl_test_long() ? 1 : STEP, ++*of) {
        data[i] ^= (char)(1 << i % 7);
        FILE *f = fopen(pl_test_path("flipped"), "wb"); /* not synced: there are hundreds */
        if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) break;
        refused += read_all(pl_test_path("flipped"), &wrong) == PL_ERR_FILE;
        if (wrong) pl_test_fail(__FILE__, __LINE__, "byte %zu of %s is wrong unnoticed", i, name);
        data[i] ^= (char)(1 << i % 7);
    }
    pl_sys_free(data);
    return refused;
}

/* Only the 14 letters of the key can change without notice: then the file has no checksum. */
TEST(sums_every_flipped_byte_of_a_safetensors_file_is_found)
{
    int n, refused = flip_every("x.safetensors", &n);
    CHECK_MSG(n > 500 && refused >= n - 14, "%d of %d", refused, n);
}

/* Bytes between the members, names of the list and the like carry no numbers. */
TEST(sums_a_flipped_byte_of_a_pytorch_file_is_found)
{
    int n, refused = flip_every("x.pt", &n);
    CHECK_MSG(n > 400 && refused > n / 4, "%d of %d", refused, n);
}

/* Another program keeps the metadata and writes the file anew: its sum is not taken for ours. */
TEST(sums_of_a_file_that_another_program_wrote_anew_are_not_compared)
{
    static const char header[] =
        "{\"__metadata__\":{\"" PL_SUM_KEY "\":\"0123456789abcdef\"},\"a\":{\"dtype\":\"F32\","
        "\"shape\":[1],\"data_offsets\":[0,4]}}";
    char file[8 + sizeof header - 1 + 4] = {(char)(sizeof header - 1)};
    memcpy(file + 8, header, sizeof header - 1);
    pl_st_set *set;
    CHECK_OK(pl_sys_write_file(pl_test_path("other.safetensors"), file, sizeof file));
    CHECK_OK(pl_st_set_open(pl_test_path("other.safetensors"), &set));
    pl_st_set_close(set);
}

/* A process verifies a file once, and again when the file has changed. */
TEST(sums_a_file_that_changes_is_verified_again)
{
    char *data;
    size_t n;
    bool wrong;
    const char *path = pl_test_path("x.safetensors");
    CHECK(make_file("x.safetensors", &data, &n));
    CHECK_OK(read_all(path, &wrong));
    data[n - 1] ^= 1;
    CHECK_OK(pl_sys_write_file(path, data, n));
    CHECK_INT(read_all(path, &wrong), PL_ERR_FILE);
    CHECK_MSG(strstr(pl_error_text(), "damaged") && strstr(pl_error_text(), "x.safetensors"), "%s",
              pl_error_text());
    pl_sys_free(data);
}

/* ---- commands ------------------------------------------------------------------------------- */
#define NET                                                                                        \
 "regress/tiny batch=4 'model.widths=[2]' data.samples=16 data.eval_samples=4 eval.batches=1 "     \
 "threads=1 log.tensorboard=false --quiet "
/* Adds 1 to the byte at the middle of $1. */
#define BREAK                                                                                      \
 "damage() { n=$(($(stat -c %%s $1) - ${2:-3})); b=$(od -An -tu1 -j$n -N1 $1); printf "            \
 "$(printf '\\\\%%03o' $(((b + 1) %% 256))) | dd of=$1 bs=1 seek=$n conv=notrunc status=none; }; "

TEST(sums_every_command_that_reads_a_damaged_model_says_so)
{
    WANT_BIN();
    static const char *const commands[] = {
        "train " NET "train.steps=2 init_from=m.safetensors --out other",
        "eval " NET "--model m.safetensors",
        "predict " NET "--model m.safetensors --input in.npy --out out.npy",
        "inspect m.safetensors",
        "inspect copies",
    };
    CHECK_RUN(cli_run("cd %s && $P train " NET
                      "train.steps=1 --out run && cp run/model.safetensors "
                      "m.safetensors && mkdir copies && cp m.safetensors copies && $P inspect "
                      "copies && $P train " NET "train.steps=1 init_from=m.safetensors --out "
                      "fine && $P generate " NET "--out set --samples 4 --eval-samples 4 && cp "
                      "set/train/input.npy in.npy",
                      pl_test_dir()),
              0, "");
    CHECK_RUN(cli_run("cd %s && " BREAK "damage m.safetensors; damage copies/m.safetensors",
                      pl_test_dir()),
              0, "");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        cli_result r = cli_run("cd %s && $P %s", pl_test_dir(), commands[i]);
        CHECK_MSG(r.code == 6 && (strstr(r.err, "is damaged") || strstr(r.out, "is damaged")),
                  "%s: exit code %d: %s%s", commands[i], r.code, r.err, r.out);
    }
}

TEST(sums_exports_carry_them)
{
    WANT_BIN();
    CHECK_RUN(cli_run("cd %s && $P train " NET "train.steps=1 --out run && $P export run --out "
                      "w.safetensors && $P export run --out w.pt && $P inspect w.pt && $P inspect "
                      "w.safetensors",
                      pl_test_dir()),
              0, "");
    cli_result r = cli_run("cd %s && $P inspect w.pt && $P inspect w.safetensors", pl_test_dir());
    CHECK_MSG(strstr(r.out, "checksum = CRC-32 of every member, matches") &&
                  strstr(r.out, "checksum = XXH64 of the file, matches"),
              "%s", r.out);
    for (int i = 0; i < 2; i++) {
        const char *file = i ? "w.pt" : "w.safetensors";
        cli_run("cd %s && " BREAK "damage %s $(($(stat -c %%s %s) - 80))", pl_test_dir(), file,
                file);
        r = cli_run("cd %s && $P train " NET "init_from=%s --out again%d", pl_test_dir(), file, i);
        CHECK_MSG(r.code == 6, "%s: exit code %d: %s", file, r.code, r.err);
    }
}

TEST(sums_an_onnx_file_carries_its_own)
{
    WANT_BIN();
    cli_result r = cli_run("cd %s && $P train " NET "train.steps=1 --out run && $P export run --as "
                           "onnx --out w.onnx && $P inspect w.onnx batch=4 && mkdir d && cp w.onnx "
                           "d && $P inspect d",
                           pl_test_dir());
    if (strstr(r.err, "protobuf")) SKIP("no protobuf-c");
    CHECK_RUN(r, 0, "");
    for (int at = 3; at < 400; at += 44) {
        r = cli_run("cd %s && cp d/w.onnx w.onnx && " BREAK
                    "damage w.onnx %d; $P inspect w.onnx batch=4",
                    pl_test_dir(), at);
        CHECK_MSG(r.code == 6 && strstr(r.err, "damaged"), "byte -%d: exit code %d: %s", at, r.code,
                  r.err);
    }
}
