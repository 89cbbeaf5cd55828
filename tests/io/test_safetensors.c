/* test_safetensors.c - every rule S1..S7 of safetensors.h has a file that breaks it; round
 * trips; the writer's promises; allocation failures; and the reference package as a second
 * reader. */
#include "base/sys.h"
#include "io/safetensors.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files made by hand ----------------------------------------------------------------- */

typedef struct blob {
    char *data;
    size_t len;
} blob;

/* Length word, header text of n bytes, then `bytes` data bytes of value 1. */
static blob make_n(const char *header, size_t n, size_t bytes)
{
    blob b = {malloc(8 + n + bytes + 1), 8 + n + bytes};
    for (int i = 0; i < 8; i++) b.data[i] = (char)(n >> (8 * i) & 0xFF);
    memcpy(b.data + 8, header, n);
    memset(b.data + 8 + n, 1, bytes);
    return b;
}

/* Opens such a file from memory, closes the reader, and returns the status. */
static pl_status try_n(const char *header, size_t n, size_t bytes)
{
    blob b = make_n(header, n, bytes);
    pl_st_reader *r = NULL;
    pl_status s = pl_st_open_memory(b.data, b.len, "bad.safetensors", &r);
    if (s == PL_OK) pl_st_close(r);
    free(b.data);
    return s;
}

static pl_status try_text(const char *header, size_t bytes)
{
    return try_n(header, strlen(header), bytes);
}

/* The file is refused with PL_ERR_FILE, and the message contains the file name and `says`. */
#define REFUSED(expr, says)                                                                        \
 do {                                                                                              \
  CHECK_INT((expr), PL_ERR_FILE);                                                                  \
  CHECK_MSG(strstr(pl_error_text(), "bad.safetensors") && strstr(pl_error_text(), (says)),         \
            "message was: %s", pl_error_text());                                                   \
 } while (0)

#define ONE(dtype, shape, offsets)                                                                 \
 "{\"t\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

/* ---- what is legal ---------------------------------------------------------------------- */

TEST(safetensors_plain_file_is_read)
{
    const char *h = "{\"__metadata__\":{\"format\":\"pt\"},"
                    "\"b\":{\"dtype\":\"BOOL\",\"shape\":[4],\"data_offsets\":[24,28]},"
                    "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}";
    blob b = make_n(h, strlen(h), 28);
    pl_st_reader *r;
    CHECK_OK(pl_st_open_memory(b.data, b.len, "x", &r));
    CHECK_INT(pl_st_count(r), 2);
    const pl_st_tensor *t = pl_st_at(r, 0);
    CHECK(strcmp(t->name, "a") == 0 && t->loadable && t->type.dtype == PL_F32 &&
          t->type.dim[1] == 3);
    CHECK(pl_st_find(r, "b") == pl_st_at(r, 1));
    CHECK(pl_st_find(r, "c") == NULL);
    CHECK(strcmp(pl_st_meta_get(r, "format"), "pt") == 0);
    CHECK(pl_st_meta_get(r, "none") == NULL);
    unsigned char buf[4];
    CHECK_OK(pl_st_read(r, pl_st_find(r, "b"), buf, 4));
    CHECK_INT(buf[3], 1);
    CHECK_INT(pl_st_read(r, pl_st_find(r, "b"), buf, 3), PL_ERR_ARG);
    CHECK_INT(pl_st_read_range(r, pl_st_find(r, "b"), 3, 2, buf), PL_ERR_ARG);
    pl_st_close(r);
    free(b.data);
}

TEST(safetensors_white_space_around_the_header_is_accepted)
{
    CHECK_OK(try_text(" \n\t" ONE("U8", "[2]", "[0,2]") "  \r\n ", 2));
    CHECK_OK(try_text("{ }", 0));
}

TEST(safetensors_scalars_and_empty_tensors_are_accepted)
{
    CHECK_OK(try_text(ONE("F32", "[]", "[0,4]"), 4));
    CHECK_OK(try_text(ONE("F32", "[3,0,5]", "[0,0]"), 0));
    CHECK_OK(try_text("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]},"
                      "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                      "\"c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                      2));
}

TEST(safetensors_every_dtype_is_listed)
{
    for (int d = 0; d < PL_ST_N_DTYPES; d++) {
        char h[160];
        int bits = pl_st_dtype_bits((pl_st_dtype)d), bytes = bits * 8 / 8;
        snprintf(h, sizeof h, "{\"t\":{\"dtype\":\"%s\",\"shape\":[8],\"data_offsets\":[0,%d]}}",
                 pl_st_dtype_name((pl_st_dtype)d), bytes);
        blob b = make_n(h, strlen(h), (size_t)bytes);
        pl_st_reader *r;
        CHECK_OK(pl_st_open_memory(b.data, b.len, "x", &r));
        const pl_st_tensor *t = pl_st_at(r, 0);
        CHECK_INT(t->dtype, d);
        if (t->loadable) CHECK_INT(pl_type_bytes(&t->type), bytes);
        pl_st_close(r);
        free(b.data);
    }
}

TEST(safetensors_rank_nine_is_listed_but_not_loadable)
{
    const char *h = ONE("U8", "[1,1,1,1,1,1,1,1,2]", "[0,2]");
    blob b = make_n(h, strlen(h), 2);
    pl_st_reader *r;
    CHECK_OK(pl_st_open_memory(b.data, b.len, "x", &r));
    CHECK(pl_st_at(r, 0)->rank == 9 && !pl_st_at(r, 0)->loadable);
    pl_st_close(r);
    free(b.data);
}

/* ---- attacks ---------------------------------------------------------------------------- */

TEST(safetensors_s1_bad_sizes_are_refused)
{
    pl_st_reader *r;
    for (size_t n = 0; n < 9; n++)
        REFUSED(pl_st_open_memory("\0\0\0\0\0\0\0", n, "bad.safetensors", &r), "too few");
    REFUSED(pl_st_open_memory("\377\377\377\377\377\377\377\377{}", 10, "bad.safetensors", &r),
            "header of");
    REFUSED(pl_st_open_memory("\1\341\365\5\0\0\0\0{}", 10, "bad.safetensors", &r), "100000001");
    REFUSED(pl_st_open_memory("\3\0\0\0\0\0\0\0{}", 10, "bad.safetensors", &r), "cut short");
    REFUSED(pl_st_open_memory("\0\0\0\0\0\0\0\0", 9, "bad.safetensors", &r), "not JSON");
}

TEST(safetensors_s1_huge_header_takes_no_memory)
{
    /* A sparse file that claims, and has, more bytes than the limit. */
    char path[200];
    snprintf(path, sizeof path, "%s/bad.safetensors", pl_test_dir());
    FILE *f = fopen(path, "wb");
    fwrite("\0\0\0\0\1\0\0\0{}", 1, 10, f); /* 4 GiB of JSON */
    CHECK_INT(fflush(f), 0);
    CHECK_INT(ftruncate(fileno(f), (off_t)5 << 30), 0);
    fclose(f);
    pl_st_reader *r;
    size_t before = pl_sys_rss_bytes();
    REFUSED(pl_st_open(path, &r), "4294967296");
    CHECK(pl_sys_rss_bytes() < before + (16 << 20));
}

TEST(safetensors_s2_bad_json_is_refused)
{
    REFUSED(try_text("[1]", 0), "'{' expected");
    REFUSED(try_text("{", 0), "name in quotes");
    REFUSED(try_text("{\"a", 0), "does not end");
    REFUSED(try_text("{\"a\\", 0), "does not end");
    REFUSED(try_text("{\"a\"", 0), "':' expected");
    REFUSED(try_text("{\"a\":", 0), "too early");
    REFUSED(try_text("{\"a\":}", 0), "brackets");
    REFUSED(try_text("{\"a\":,}", 0), "not valid JSON");
    REFUSED(try_text("{\"a\":1]", 0), "brackets");
    REFUSED(try_text("{a:1}", 0), "name in quotes");
    REFUSED(try_text("{} {}", 0), "follow");
    REFUSED(try_text("{}x", 0), "follow");
    REFUSED(try_text(ONE("U8", "[0]", "[0,0]") ",", 0), "follow");
    REFUSED(try_text("{\"t\":{\"dtype\":\"U8\",\"shape\":[0,],\"data_offsets\":[0,0]}}", 0),
            "JSON");
    REFUSED(try_text("{\"t\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},}", 0),
            "name in quotes");
    REFUSED(try_text("{\"t\":{\"dtype\":\"\xff\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0),
            "JSON");
    REFUSED(try_text("{\"\xc0\xaf\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0),
            "JSON");
    REFUSED(try_text("{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0),
            "JSON");
    REFUSED(try_n("{\0}", 3, 0), "name in quotes");
    REFUSED(try_text("{\"a\":[[[[1]]]]}", 0), "nested deeper");
}

TEST(safetensors_s3_bad_counts_are_refused)
{
    REFUSED(try_text("{\"__metadata__\":{},\"__metadata__\":{}}", 0), "twice");
    REFUSED(try_text("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                     "\"\\u0074\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                     2),
            "has tensor \"t\" twice");
    REFUSED(
        try_text("{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                 1),
        "uplicate");
    REFUSED(try_text("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0), "uplicate");
    char h[400] = "{\"t\":{\"dtype\":\"U8\",\"shape\":[1";
    for (int i = 0; i < 64; i++) strcat(h, ",1");
    strcat(h, "],\"data_offsets\":[0,1]}}");
    REFUSED(try_text(h, 1), "rank 65");
}

TEST(safetensors_s3_long_lists_are_refused_before_parsing)
{
    size_t n = 400000;
    char *h = malloc(n);
    size_t at = (size_t)sprintf(h, "{\"t\":{\"dtype\":\"U8\",\"shape\":[1");
    while (at + 40 < n) at += (size_t)sprintf(h + at, ",1");
    at += (size_t)sprintf(h + at, "],\"data_offsets\":[0,1]}}");
    REFUSED(try_n(h, at, 1), "items");
    free(h);
}

TEST(safetensors_s3_a_million_and_one_tensors_are_refused)
{
    if (!pl_test_long()) SKIP("long: set PL_TEST_LONG");
    size_t n = 64u * 1000001u;
    char *h = malloc(n + 80);
    size_t at = 0;
    for (int i = 0; i <= 1000000; i++)
        at += (size_t)sprintf(h + at,
                              "%c\"%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                              i ? ',' : '{', i);
    h[at++] = '}';
    REFUSED(try_n(h, at, 0), "1000000");
    free(h);
}

TEST(safetensors_s4_bad_members_are_refused)
{
    REFUSED(try_text("{\"t\":1}", 0), "\"t\" is not an object");
    REFUSED(try_text("{\"t\":{}}", 0), "exactly");
    REFUSED(try_text("{\"t\":{\"dtype\":\"U8\",\"shape\":[1]}}", 0), "exactly");
    REFUSED(try_text("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1),
            "exactly");
    REFUSED(try_text(ONE("U9", "[1]", "[0,1]"), 1), "unknown dtype \"U9\"");
    REFUSED(try_text("{\"t\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", 1),
            "dtype is not text");
    REFUSED(try_text(ONE("U8", "1", "[0,1]"), 1), "shape is not a list");
    REFUSED(try_text(ONE("U8", "[1]", "[0,1,1]"), 1), "two numbers");
    REFUSED(try_text(ONE("U8", "[1]", "1"), 1), "two numbers");
    REFUSED(try_text("{\"__metadata__\":1}", 0), "not an object");
    REFUSED(try_text("{\"__metadata__\":{\"a\":1}}", 0), "\"a\" is not text");
    REFUSED(try_text("{\"__metadata__\":{\"a\":{}}}", 0), "\"a\" is not text");
}

TEST(safetensors_s5_bad_numbers_are_refused)
{
    REFUSED(try_text(ONE("U8", "[-1]", "[0,1]"), 1), "[0, 2^48)");
    REFUSED(try_text(ONE("U8", "[1.0]", "[0,1]"), 1), "whole number");
    REFUSED(try_text(ONE("U8", "[\"1\"]", "[0,1]"), 1), "whole number");
    REFUSED(try_text(ONE("U8", "[281474976710656]", "[0,1]"), 1), "2^48");
    REFUSED(try_text(ONE("U8", "[99999999999999999999]", "[0,1]"), 1), "JSON");
    REFUSED(try_text(ONE("U8", "[1]", "[-1,0]"), 1), "[0, 2^48)");
    REFUSED(try_text(ONE("U8", "[1]", "[1,0]"), 1), "[1, 0)");
    REFUSED(try_text(ONE("U8", "[1]", "[0,281474976710656]"), 1), "2^48");
    REFUSED(try_text(ONE("U8", "[9]", "[0,9]"), 1), "do not lie in");
}

TEST(safetensors_s6_overflowing_products_are_refused)
{
    /* 2^16 * 2^16 * 2^16 * 2^16 wraps to 0, which would match empty offsets. */
    REFUSED(try_text(ONE("U8", "[65536,65536,65536,65536]", "[0,0]"), 0), "overflows");
    REFUSED(try_text(ONE("F64", "[281474976710655,281474976710655]", "[0,8]"), 8), "overflows");
    REFUSED(try_text(ONE("F4", "[3]", "[0,2]"), 2), "whole bytes");
    REFUSED(try_text(ONE("F32", "[2]", "[0,4]"), 4), "takes 8 bytes");
    REFUSED(try_text(ONE("F32", "[0]", "[0,4]"), 4), "takes 0 bytes");
}

TEST(safetensors_s7_gaps_and_overlaps_are_refused)
{
    const struct {
        const char *a, *b, *says;
        size_t bytes;
    } rows[] = {
        {"0,2", "1,3", "\"b\" begins at byte 1 of the data, overlapping", 3},
        {"0,2", "0,2", "overlapping", 2}, /* many tensors on the same bytes: a memory bomb */
        {"0,2", "3,5", "hole", 5},
        {"1,3", "3,5", "hole", 5},
        {"0,2", "2,4", "end at byte 4 of the data, the file has 5", 5},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char h[300];
        snprintf(h, sizeof h,
                 "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[%s]},"
                 "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[%s]}}",
                 rows[i].a, rows[i].b);
        REFUSED(try_text(h, rows[i].bytes), rows[i].says);
    }
    REFUSED(try_text("{}", 1), "the file has 1");
    REFUSED(try_text(ONE("U8", "[2]", "[0,2]"), 1), "do not lie in");
}

TEST(safetensors_bool_bytes_are_checked)
{
    const char *h = ONE("BOOL", "[2]", "[0,2]");
    blob b = make_n(h, strlen(h), 2);
    b.data[b.len - 1] = 2;
    pl_st_reader *r;
    unsigned char buf[2];
    CHECK_OK(pl_st_open_memory(b.data, b.len, "bad.safetensors", &r));
    REFUSED(pl_st_read(r, pl_st_at(r, 0), buf, 2), "BOOL byte 1 is 2");
    pl_st_close(r);
    free(b.data);
}

TEST(safetensors_file_cut_while_open_is_an_error)
{
    char path[200];
    snprintf(path, sizeof path, "%s/bad.safetensors", pl_test_dir());
    const char *h = ONE("U8", "[100]", "[0,100]");
    blob b = make_n(h, strlen(h), 100);
    CHECK_OK(pl_sys_write_file(path, b.data, b.len));
    pl_st_reader *r;
    CHECK_OK(pl_st_open(path, &r));
    CHECK_INT(truncate(path, (off_t)b.len - 50), 0);
    char buf[100];
    REFUSED(pl_st_read(r, pl_st_at(r, 0), buf, 100), "cut short");
    pl_st_close(r);
    free(b.data);
}

TEST(safetensors_paths_without_a_regular_file_are_refused)
{
    pl_st_reader *r;
    char path[200];
    CHECK_INT(pl_st_open("/nonexistent/x.safetensors", &r), PL_ERR_IO);
    CHECK_INT(pl_st_open(pl_test_dir(), &r), PL_ERR_FILE);
    snprintf(path, sizeof path, "%s/pipe", pl_test_dir());
    CHECK_INT(mkfifo(path, 0600), 0);
    CHECK_INT(pl_st_open(path, &r), PL_ERR_FILE);
    CHECK(strstr(pl_error_text(), "not a regular file"));
}

/* ---- the writer ------------------------------------------------------------------------- */

static float weight[6] = {1, 2, 3, 4, 5, 6};
static double wide[2] = {-1, 1e300};
static uint8_t flags[3] = {1, 0, 1};

typedef struct item {
    const char *name;
    pl_type type;
    const void *data;
} item;

static pl_status write_items(const char *path, const item *items, int n, size_t chunk)
{
    pl_st_writer *w = NULL;
    pl_status rc = pl_st_writer_new(path, &w);
    for (int i = 0; rc == PL_OK && i < n; i++)
        rc = pl_st_writer_add(w, items[i].name, &items[i].type);
    if (rc == PL_OK) rc = pl_st_writer_meta(w, "format", "pt");
    if (rc == PL_OK) rc = pl_st_writer_meta(w, "note \"1\"", "line\nline");
    if (rc == PL_OK) rc = pl_st_writer_begin(w);
    for (int i = 0; rc == PL_OK && i < n; i++) {
        int k = pl_st_writer_order(w, i);
        size_t bytes = pl_type_bytes(&items[k].type);
        for (size_t at = 0; rc == PL_OK && at < bytes; at += chunk)
            rc = pl_st_writer_write(w, k, (const char *)items[k].data + at,
                                    bytes - at < chunk ? bytes - at : chunk);
    }
    if (rc == PL_OK) rc = pl_st_writer_finish(w);
    pl_st_writer_free(w);
    return rc;
}

static const item *sample_items(int *n)
{
    static item items[6];
    items[0] = (item){"flags", PL_TYPE(PL_BOOL, 3), flags};
    items[1] = (item){"layer.\"w\"\xc3\xa9", PL_TYPE(PL_F32, 2, 3), weight};
    items[2] = (item){"empty", PL_TYPE(PL_F32, 0, 7), weight};
    items[3] = (item){"wide", PL_TYPE(PL_F64, 2), wide};
    items[4] = (item){"scalar", PL_RANK0(PL_F32), weight + 4};
    items[5] = (item){"none", PL_TYPE(PL_BOOL, 0), flags};
    *n = 6;
    return items;
}

static int count_entries(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

TEST(safetensors_read_back_the_same_for_any_chunk_size)
{
    int n;
    const item *items = sample_items(&n);
    char path[200], *first = NULL;
    size_t first_len = 0;
    snprintf(path, sizeof path, "%s/m.safetensors", pl_test_dir());
    for (size_t chunk = 1; chunk <= 64; chunk *= 3) {
        CHECK_OK(write_items(path, items, n, chunk));
        pl_st_reader *r;
        CHECK_OK(pl_st_open(path, &r));
        CHECK_INT(pl_st_count(r), n);
        for (int i = 0; i < n; i++) {
            const pl_st_tensor *t = pl_st_find(r, items[i].name);
            CHECK(t && t->loadable && pl_type_equal(&t->type, &items[i].type));
            char buf[64];
            size_t bytes = pl_type_bytes(&items[i].type);
            CHECK_OK(pl_st_read(r, t, buf, bytes));
            CHECK(memcmp(buf, items[i].data, bytes) == 0);
        }
        CHECK(strcmp(pl_st_meta_get(r, "note \"1\""), "line\nline") == 0);
        pl_st_close(r);
        char *all;
        size_t len;
        CHECK_OK(pl_sys_read_file(path, 1 << 20, &all, &len));
        if (first) CHECK(len == first_len && memcmp(first, all, len) == 0);
        pl_sys_free(first);
        first = all;
        first_len = len;
    }
    CHECK_INT(first_len, 4096 + 16 + 28 + 3); /* data begins at a page */
    CHECK(first[8] == '{' && first[4095] == ' ');
    pl_sys_free(first);
    CHECK_INT(count_entries(pl_test_dir()), 1);
}

TEST(safetensors_writer_order_is_alignment_then_name)
{
    int n;
    const item *items = sample_items(&n);
    char path[200];
    snprintf(path, sizeof path, "%s/m.safetensors", pl_test_dir());
    CHECK_OK(write_items(path, items, n, 64));
    pl_st_reader *r;
    CHECK_OK(pl_st_open(path, &r));
    CHECK(strcmp(pl_st_at(r, 0)->name, "wide") == 0);
    for (int i = 0; i < n; i++)
        CHECK(pl_st_at(r, i)->begin % pl_dtype_bytes(pl_st_at(r, i)->type.dtype) == 0);
    CHECK(pl_st_find(r, "layer.\"w\"\xc3\xa9")->begin < pl_st_find(r, "scalar")->begin);
    pl_st_close(r);
}

TEST(safetensors_abandoned_writer_leaves_nothing)
{
    char path[200];
    snprintf(path, sizeof path, "%s/m.safetensors", pl_test_dir());
    pl_type t = PL_TYPE(PL_F32, 6);
    for (int stage = 0; stage < 4; stage++) {
        pl_st_writer *w;
        CHECK_OK(pl_st_writer_new(path, &w));
        CHECK_OK(pl_st_writer_add(w, "a", &t));
        if (stage > 0) CHECK_OK(pl_st_writer_begin(w));
        if (stage > 1) CHECK_OK(pl_st_writer_write(w, 0, weight, 8));
        if (stage > 2) CHECK_INT(pl_st_writer_finish(w), PL_ERR_ARG); /* bytes are missing */
        pl_st_writer_free(w);
        CHECK_INT(count_entries(pl_test_dir()), 0);
    }
}

TEST(safetensors_abandoned_writer_keeps_the_old_file)
{
    int n;
    const item *items = sample_items(&n);
    char path[200];
    snprintf(path, sizeof path, "%s/m.safetensors", pl_test_dir());
    CHECK_OK(write_items(path, items, n, 64));
    pl_st_writer *w;
    CHECK_OK(pl_st_writer_new(path, &w));
    CHECK_OK(pl_st_writer_begin(w));
    pl_st_writer_free(w);
    pl_st_reader *r;
    CHECK_OK(pl_st_open(path, &r));
    CHECK_INT(pl_st_count(r), n);
    pl_st_close(r);
}

TEST(safetensors_writer_misuse_is_reported)
{
    char path[200];
    snprintf(path, sizeof path, "%s/m.safetensors", pl_test_dir());
    pl_type t = PL_TYPE(PL_F32, 2), huge = PL_TYPE(PL_F32, 1 << 30, 1 << 30);
    pl_st_writer *w;
    CHECK_OK(pl_st_writer_new(path, &w));
    CHECK_INT(pl_st_writer_add(w, "__metadata__", &t), PL_ERR_ARG);
    CHECK_INT(pl_st_writer_add(w, "\xff", &t), PL_ERR_ARG);
    CHECK_INT(pl_st_writer_add(w, "huge", &huge), PL_ERR_ARG);
    CHECK_INT(pl_st_writer_write(w, 0, weight, 4), PL_ERR_ARG);
    CHECK_OK(pl_st_writer_add(w, "a", &t));
    CHECK_OK(pl_st_writer_add(w, "b", &t));
    CHECK_OK(pl_st_writer_meta(w, "k", "v"));
    CHECK_INT(pl_st_writer_meta(w, "k", "v"), PL_ERR_ARG);
    CHECK_INT(pl_st_writer_finish(w), PL_ERR_ARG);
    CHECK_OK(pl_st_writer_begin(w));
    CHECK_INT(pl_st_writer_add(w, "c", &t), PL_ERR_ARG);
    CHECK_INT(pl_st_writer_write(w, 1, weight, 4), PL_ERR_ARG);  /* b before a */
    CHECK_INT(pl_st_writer_write(w, 0, weight, 12), PL_ERR_ARG); /* too many bytes */
    pl_st_writer_free(w);
    CHECK_OK(pl_st_writer_new(path, &w));
    CHECK_OK(pl_st_writer_add(w, "a", &t));
    CHECK_OK(pl_st_writer_add(w, "a", &t));
    CHECK_INT(pl_st_writer_begin(w), PL_ERR_ARG); /* twice */
    pl_st_writer_free(w);
    CHECK_INT(count_entries(pl_test_dir()), 0);
}

TEST(safetensors_unwritable_paths_are_reported)
{
    pl_st_writer *w;
    CHECK_OK(pl_st_writer_new("/nonexistent/m.safetensors", &w));
    CHECK_INT(pl_st_writer_begin(w), PL_ERR_IO);
    CHECK(strstr(pl_error_text(), "/nonexistent/m.safetensors"));
    pl_st_writer_free(w);
    char path[200];
    snprintf(path, sizeof path, "%s/folder", pl_test_dir());
    CHECK_OK(pl_sys_make_dirs(path)); /* a folder cannot be replaced by a file */
    CHECK_OK(pl_st_writer_new(path, &w));
    CHECK_OK(pl_st_writer_begin(w));
    CHECK_INT(pl_st_writer_finish(w), PL_ERR_IO);
    pl_st_writer_free(w);
    CHECK_INT(count_entries(pl_test_dir()), 1);
}

TEST(safetensors_survives_failing_allocations)
{
    int n;
    const item *items = sample_items(&n);
    char path[200];
    snprintf(path, sizeof path, "%s/m.safetensors", pl_test_dir());
    bool done = false;
    for (uint64_t k = 1; !done && k < 1000; k++) {
        pl_sys_fail_nth(k);
        pl_status rc = write_items(path, items, n, 64);
        pl_st_reader *r = NULL;
        if (rc == PL_OK) rc = pl_st_open(path, &r);
        done = !pl_sys_fail_hit();
        pl_sys_fail_nth(0);
        pl_st_close(r);
        CHECK_INT(rc, done ? PL_OK : PL_ERR_MEMORY);
    }
    CHECK(done);
    CHECK_INT(count_entries(pl_test_dir()), 1);
}

TEST(safetensors_files_agree_with_the_reference_package)
{
    WANT_PYTHON(python, "safetensors.numpy");
    char cmd[1200], path[200];
    int n;
    const item *items = sample_items(&n);
    snprintf(path, sizeof path, "%s/m.safetensors", pl_test_dir());
    CHECK_OK(write_items(path, items, n, 64));
    snprintf(cmd, sizeof cmd,
             "%s -c 'import safetensors.numpy as s, safetensors, numpy as np, sys\n"
             "d = s.load_file(sys.argv[1])\n"
             "assert sorted(d) == "
             "sorted([\"flags\",\"layer.\\\"w\\\"\\u00e9\",\"empty\",\"wide\",\"scalar\","
             "\"none\"]), d\n"
             "assert (d[\"wide\"] == [-1, 1e300]).all() and d[\"empty\"].shape == (0, 7) and "
             "d[\"scalar\"] == 5\n"
             "assert d[\"flags\"].tolist() == [True, False, True]\n"
             "f = safetensors.safe_open(sys.argv[1], \"np\")\n"
             "m = f.metadata()\n"
             "assert len(m.pop(\"plimsoll.xxh64\")) == 16 and m == {\"format\": \"pt\", "
             "\"note \\\"1\\\"\": \"line\\nline\"}, m\n"
             "s.save_file({\"x\": np.arange(6, dtype=np.float32).reshape(2, 3)}, sys.argv[1], "
             "{\"k\": \"v\"})' %s",
             python, path);
    CHECK_INT(system(cmd), 0);
    pl_st_reader *r;
    CHECK_OK(pl_st_open(path, &r));
    const pl_st_tensor *t = pl_st_find(r, "x");
    float x[6];
    CHECK(t != NULL);
    CHECK_OK(pl_st_read(r, t, x, sizeof x));
    CHECK(x[5] == 5 && strcmp(pl_st_meta_get(r, "k"), "v") == 0);
    pl_st_close(r);
}

/* The length of the header, 0x0280 to 0x0580, begins like a pickle. */
TEST(safetensors_header_that_begins_like_a_pickle_is_read)
{
    for (int n = 0x280; n <= 0x580; n += 0x100) {
        char file[8 + 0x580 + 4];
        static const char header[] =
            "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
        pl_st_reader *r;
        memset(file, ' ', sizeof file);
        memcpy(file, (const char[]){(char)0x80, (char)(n >> 8), 0, 0, 0, 0, 0, 0}, 8);
        memcpy(file + 8, header, sizeof header - 1);
        CHECK_OK(pl_st_open_memory(file, 8 + (size_t)n + 4, "x", &r));
        CHECK(pl_st_find(r, "x") != NULL);
        pl_st_close(r);
    }
}
