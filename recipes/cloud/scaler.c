/* scaler.c - mean and deviation of heights: the network's output is (km - mean) / deviation.
 *
 * The authors fit a scaler to the training heights and pickle it into the checkpoint
 * (scikit-learn's StandardScaler, whose numbers are read as metadata "scaler.mean_.0" and
 * "scaler.scale_.0"). A model that starts from such a file keeps its scale; its own files state
 * the scale as a fact, so that predictions find it again.
 */
#include "cloud.h"

#include <plimsoll_tensors.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FACT "scaler"

static bool number_of(const pl_tensors *t, const char *key, double *out)
{
    const char *text = pl_tensors_meta(t, key);
    char *end;
    if (text) *out = strtod(text, &end);
    return text && end > text && isfinite(*out);
}

/* Whether the file has a scale. A scaler without deviation (with_std=False) divides by 1. */
static bool read_file(const char *path, cloud_scaler *s)
{
    pl_tensors *t;
    cloud_scaler found = {.std = 1};
    if (pl_tensors_open(path, &t) != PL_OK) return false; /* loading the weights says why */
    const char *fact = pl_tensors_meta(t, "plimsoll." FACT);
    bool has = fact ? sscanf(fact, "mean %lf std %lf", &found.mean, &found.std) == 2
                    : number_of(t, "scaler.mean_.0", &found.mean);
    if (has && !fact) number_of(t, "scaler.scale_.0", &found.std);
    pl_tensors_close(t);
    if (has && found.std > 0) *s = found;
    return has && found.std > 0;
}

pl_status cloud_scaler_of(const pl_config *c, cloud_scaler *s)
{
    const char *from = pl_config_text(c, "target.scaler");
    *s = (cloud_scaler){CLOUD_MEAN_KM, CLOUD_STD_KM};
    if (strcmp(from, "published") == 0) return PL_OK;
    if (strcmp(from, "auto") != 0)
        return read_file(from, s) ? PL_OK
                                  : pl_fail(PL_ERR_CONFIG,
                                            "target.scaler=%s: the file has no scaler; name a "
                                            "checkpoint of the authors, auto or published",
                                            from);
    if (!pl_config_is_null(c, "init_from")) read_file(pl_config_text(c, "init_from"), s);
    return PL_OK;
}

void cloud_scaler_fact(pl_builder *b, const cloud_scaler *s)
{
    char text[80];
    bool given = strcmp(pl_config_text(pl_builder_config(b), "target.scaler"), "auto") != 0;
    bool own = s->mean == CLOUD_MEAN_KM && s->std == CLOUD_STD_KM;
    snprintf(text, sizeof text, "mean %.17g std %.17g", s->mean, s->std);
    if (given || !own) pl_builder_fact(b, FACT, text);
}
