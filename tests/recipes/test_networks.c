/* test_networks.c - the networks of classify, segment and text against PyTorch's numbers.
 *
 * tests/data/networks.json is written by tools/oracle/network_numbers.py: presets with keys, the
 * loss in training and in evaluation, and summaries of the gradient of every parameter. Weights and
 * inputs are made from hashes of their names on both sides. The parameters and buffers of a network
 * are those of the PyTorch module, with their file shapes.
 */
#include "base/sys.h"
#include "tests/lib/test.h"
#include "tests/recipes/peer.h"
#include "train/run/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && strcmp(text + n - m, tail) == 0;
}

/* Returns the numbers of Python's numbers(name, shape). */
static void fill_slot(pl_run *r, int slot)
{
    const pl_slot *s = pl_store_slot(r->store, slot);
    float *to = pl_session_slot(r->session, slot);
    if (s->type.dtype != PL_F32 || s->kind > PL_SLOT_BUFFER) return;
    pl_type file = pl__slot_file_type(s);
    int64_t n, *index = peer_slot_order(s, &n);
    float one = ends_with(s->name, ".weight") || ends_with(s->name, "running_var") ? 1 : 0;
    for (int64_t i = 0; i < n; i++) {
        float x = (float)peer_noise(peer_hash(s->name), i);
        to[index[i]] = file.rank > 1 ? x / (float)sqrt((double)(n / file.dim[0])) : 0.1f * x + one;
    }
    pl_sys_free(index);
}

static void fill_input(pl_run *r, const pl_program *p, int i)
{
    pl_type t;
    const char *name = pl_program_input_name(p, i);
    void *to = pl_session_input(r->session, p, name, &t);
    uint64_t hash = peer_hash(name);
    if (t.dtype == PL_I32) {
        double high = strcmp(name, "tokens") == 0 ? 256 : strcmp(name, "mask") == 0 ? 4 : 3;
        for (int64_t k = 0; k < pl_type_elems(&t); k++) {
            int32_t x = (int32_t)(peer_uniform(hash, k) * high);
            ((int32_t *)to)[k] = high == 4 && x == 3 ? 255 : x;
        }
        return;
    }
    int64_t n, *index = peer_file_order(4, t.dim, (const int[]){0, 3, 1, 2}, &n);
    for (int64_t k = 0; k < n; k++) ((float *)to)[index[k]] = (float)peer_uniform(hash, k);
    pl_sys_free(index);
}

static double run_once(pl_run *r, pl_program *p)
{
    for (int i = 0; i < pl_program_input_count(p); i++) fill_input(r, p, i);
    if (pl_session_run(r->session, p) != PL_OK) return (double)NAN;
    const float *loss = pl_session_output(r->session, p, "loss", NULL);
    return loss ? (double)*loss : (double)NAN;
}

static void check_names(pl_run *r, const char *name, json_t *shapes)
{
    size_t n = 0;
    for (int i = 0; i < pl_store_count(r->store); i++) {
        const pl_slot *s = pl_store_slot(r->store, i);
        if (s->kind > PL_SLOT_BUFFER) continue;
        json_t *shape = json_object_get(shapes, s->name);
        if (!shape || !peer_same_shape(s, shape))
            pl_test_fail(__FILE__, __LINE__, "%s: %s is not PyTorch's", name, s->name);
        n++;
    }
    if (n != json_object_size(shapes))
        pl_test_fail(__FILE__, __LINE__, "%s: %zu tensors, PyTorch has %zu", name, n,
                     json_object_size(shapes));
}

static void check_gradients(pl_run *r, const char *name, json_t *grads)
{
    const char *key;
    json_t *want;
    char output[256];
    json_object_foreach(grads, key, want)
    {
        int slot = pl_store_find(r->store, key);
        snprintf(output, sizeof output, "grad.%s", key);
        const float *got = pl_session_output(r->session, pl__train(r), output, NULL);
        if (slot < 0 || !got) {
            pl_test_fail(__FILE__, __LINE__, "%s: no gradient of %s", name, key);
            continue;
        }
        int64_t n, *index = peer_slot_order(pl_store_slot(r->store, slot), &n);
        double *x = pl_sys_alloc(sizeof *x * (size_t)(n + 1));
        for (int64_t i = 0; i < n; i++) x[i] = (double)got[index[i]];
        double off = peer_deviation(peer_summarise(x, n), want, 1e-2);
        pl_sys_free(x);
        pl_sys_free(index);
        if (!(off <= 1e-4))
            pl_test_fail(__FILE__, __LINE__, "%s: gradient of %s is off by %g", name, key, off);
    }
}

static void check_case(json_t *row)
{
    const char *keys[16], *preset = json_string_value(json_object_get(row, "preset"));
    json_t *list = json_object_get(row, "keys");
    int n = (int)json_array_size(list);
    for (int i = 0; i < n; i++) keys[i] = json_string_value(json_array_get(list, (size_t)i));
    pl_run *r;
    CHECK_OK(pl_run_open(preset, keys, n, &r));
    r->purpose.goal = PL_GOAL_REPLAY; /* gradients are outputs of the graph */
    CHECK_OK(pl_run_build(r));
    CHECK_OK(pl_run_start(r));
    check_names(r, keys[0], json_object_get(row, "shapes"));
    for (int i = 0; i < pl_store_count(r->store); i++) fill_slot(r, i);
    CHECK_NEAR(run_once(r, pl__eval(r)), json_number_value(json_object_get(row, "eval")), 1e-5);
    CHECK_NEAR(run_once(r, pl__train(r)), json_number_value(json_object_get(row, "loss")), 1e-5);
    check_gradients(r, keys[0], json_object_get(row, "grads"));
    pl_run_free(r);
}

TEST(networks_of_the_recipes_have_the_losses_and_gradients_of_pytorch)
{
    json_error_t error;
    json_t *cases = json_load_file("tests/data/networks.json", 0, &error), *row;
    CHECK_MSG(cases && json_array_size(cases) > 0, "tests/data/networks.json: %s", error.text);
    size_t i;
    json_array_foreach(cases, i, row) check_case(row);
    json_decref(cases);
}
