/* predicted.c - see predicted.h. */
#include "tests/predict/predicted.h"

#include "base/sys.h"
#include "data/image/image.h"
#include "io/npy.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

float *predicted_numbers(const char *name, pl_type *type)
{
    pl_npy *a;
    if (pl_npy_open(pl_test_path(name), &a) != PL_OK) return NULL;
    *type = pl_npy_type(a);
    float *x = type->dtype == PL_F32 ? malloc(pl_type_bytes(type)) : NULL;
    if (x && pl_npy_read(a, 0, pl_npy_rows(a), x) != PL_OK) {
        free(x);
        x = NULL;
    }
    pl_npy_close(a);
    return x;
}

uint8_t *predicted_pixels(const char *name, int *width, int *height)
{
    char *bytes;
    size_t n;
    pl_decoder *d = NULL;
    pl_image_info info = {0};
    pl_image_limits limits = PL_IMAGE_LIMITS_INIT;
    if (pl_sys_read_file(pl_test_path(name), 1 << 24, &bytes, &n) != PL_OK) return NULL;
    uint8_t *rgb = NULL;
    if (pl_decoder_new(&d) == PL_OK && pl_image_probe(d, bytes, n, &limits, &info) == PL_OK) {
        rgb = malloc((size_t)info.width * (size_t)info.height * 4 + 64);
        if (rgb && pl_image_decode(d, bytes, n, &info, info.width, info.height, rgb) != PL_OK) {
            free(rgb);
            rgb = NULL;
        }
    }
    pl_decoder_free(d);
    pl_sys_free(bytes);
    *width = info.width;
    *height = info.height;
    return rgb;
}

double predicted_metric(const char *json, const char *name)
{
    json_t *j = json_loads(json, 0, NULL);
    double x = json_number_value(json_object_get(json_object_get(j, "metrics"), name));
    json_decref(j);
    return x;
}

pl_status predicted_open(const char *folder, const char *const *keys, int n, pl_run **out)
{
    char config[700], model[700];
    const char *all[16] = {model};
    snprintf(config, sizeof config, "%s/%s/config.yaml", pl_test_dir(), folder);
    snprintf(model, sizeof model, "init_from=%s/%s/model.safetensors", pl_test_dir(), folder);
    for (int i = 0; i < n; i++) all[1 + i] = keys[i];
    pl_status rc = pl_run_open(config, all, 1 + n, out);
    if (rc == PL_OK) rc = pl_run_predict_only(*out);
    if (rc == PL_OK) rc = pl_run_build(*out);
    return rc == PL_OK ? pl_run_start(*out) : rc;
}

pl_program *predicted_program(pl_run *run, const char *name)
{
    for (int i = 0; i < pl_run_step_program_count(run); i++) {
        pl_run_step_program s = pl_run_step_program_at(run, i);
        if (name ? s.name && strcmp(s.name, name) == 0 : s.run == pl_run_train_program(run))
            return (pl_program *)(uintptr_t)s.run;
    }
    return NULL;
}

bool predicted_set(pl_run *run, pl_program *p, const char *name, const void *data, size_t bytes)
{
    pl_type t;
    void *to = pl_session_input(pl_run_session(run), p, name, &t);
    if (!to || pl_type_bytes(&t) != bytes) return false;
    memcpy(to, data, bytes);
    return true;
}

const float *predicted_run(pl_run *run, pl_program *p, const char *output)
{
    pl_session *s = pl_run_session(run);
    if (pl_session_run(s, p) != PL_OK || pl_session_wait(s) != PL_OK) return NULL;
    return pl_session_output(s, p, output, NULL);
}

/* ---- an autoencoder with fusion layers --------------------------------------------------- */
float predicted_weight(const char *name, int64_t k)
{
    double w = sin(0.37 * (double)k + (double)strlen(name));
    bool scale = strstr(name, "norm") && strstr(name, "weight");
    return (float)(scale ? 1 + 0.1 * w : 0.08 * w);
}

pl_status predicted_autoencoder(const vae_sizes *c, int64_t side, double weight, pl_graph *g)
{
    pl_nn *m = pl_nn_new(g, false);
    pl_val image = pl_input(g, "image", PL_TYPE(PL_F32, 1, side, side, 3));
    pl_val z = pl_input(g, "z", PL_TYPE(PL_F32, 1, side / 8, side / 8, 4));
    pl_output(g, "x", vae_decode_fused(m, c, z, image, weight));
    pl_output(g, "moments", vae_moments(m, c, image));
    pl_status rc = pl_nn_finish(m);
    pl_nn_free(m);
    return rc;
}
