/* terms.c - the keys loss and metrics: names of functions, of outputs and of targets.
 *
 *     sum  = term { "+" term }
 *     term = [number "*"] (NAME ["(" argument {"," argument} ")"] | "output:" OUTPUT)
 *     argument = OUTPUT, then TARGET, or KEY "=" number (axis, smoothing, ignore, beta, peak)
 *
 *     loss: cross_entropy
 *     loss: cross_entropy(logits, label) + 0.4 * cross_entropy(aux, label, smoothing=0.1)
 *     loss: output:loss
 */
#include "onnx.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const char *key, *text, *at;
} reader;

static void skip(reader *r)
{
    while (isspace((unsigned char)*r->at)) r->at++;
}

static pl_status wrong(const reader *r, const char *expected)
{
    if (!*r->at)
        return pl_fail(PL_ERR_CONFIG, "%s: \"%.200s\": %s expected at the end", r->key, r->text,
                       expected);
    return pl_fail(PL_ERR_CONFIG, "%s: \"%.200s\": %s expected at \"%.40s\"", r->key, r->text,
                   expected, r->at);
}

static bool take(reader *r, char c)
{
    skip(r);
    if (*r->at != c) return false;
    r->at++;
    return true;
}

/* A word up to one of the characters `end`, without spaces around it. */
static pl_status word(reader *r, const char *end, char *to, size_t cap)
{
    skip(r);
    size_t n = strcspn(r->at, end), kept = n;
    while (kept && isspace((unsigned char)r->at[kept - 1])) kept--;
    if (!kept) return wrong(r, "a name is");
    if (kept >= cap)
        return pl_fail(PL_ERR_CONFIG, "%s: the name %.40s... has more than %zu characters", r->key,
                       r->at, cap - 1);
    memcpy(to, r->at, kept);
    to[kept] = 0;
    r->at += n;
    return PL_OK;
}

static pl_status option(const reader *r, onnx_term *t, const char *name, const char *value)
{
    char *end;
    double v = strtod(value, &end);
    if (end == value || *end)
        return pl_fail(PL_ERR_CONFIG, "%s: %s=%s is not a number", r->key, name, value);
    if (strcmp(name, "axis") == 0)
        t->o.axis = (int)v;
    else if (strcmp(name, "smoothing") == 0)
        t->o.smoothing = v;
    else if (strcmp(name, "ignore") == 0) {
        t->o.ignore = (int64_t)v;
        t->o.ignore_zero = t->o.ignore == 0;
    } else if (strcmp(name, "beta") == 0)
        t->o.beta = v;
    else if (strcmp(name, "peak") == 0)
        t->o.peak = v;
    else
        return pl_fail(
            PL_ERR_CONFIG,
            "%s: unknown option \"%s\"; the options are axis, smoothing, ignore, beta, peak",
            r->key, name);
    return PL_OK;
}

static pl_status arguments(reader *r, onnx_term *t)
{
    char text[ONNX_NAME];
    int n = 0;
    do {
        pl_status rc = word(r, ",)", text, sizeof text);
        char *equals = rc == PL_OK ? strchr(text, '=') : NULL;
        if (rc != PL_OK) return rc;
        if (equals) {
            *equals = 0;
            if ((rc = option(r, t, text, equals + 1)) != PL_OK) return rc;
        } else if (n < 2) {
            memcpy(n++ ? t->target : t->output, text, sizeof text);
        } else {
            return pl_fail(PL_ERR_CONFIG, "%s: %s takes an output and a target, not %s", r->key,
                           t->kind, text);
        }
    } while (take(r, ','));
    return take(r, ')') ? PL_OK
                        : wrong(r, "a closing bracket (quote texts with commas in lists: "
                                   "[\"psnr(output, target)\"]) is");
}

static pl_status read_term(reader *r, onnx_term *t)
{
    char *end;
    skip(r);
    *t = (onnx_term){.weight = 1};
    double weight = strtod(r->at, &end);
    if (end != r->at) {
        r->at = end;
        t->weight = weight;
        if (!take(r, '*')) return wrong(r, "* and a name are");
    }
    skip(r);
    if (strncmp(r->at, "output:", 7) == 0) {
        memcpy(t->kind, "output", 7);
        r->at += 7;
        return word(r, "+", t->output, sizeof t->output);
    }
    pl_status rc = word(r, "(+*,", t->kind, sizeof t->kind);
    return rc == PL_OK && take(r, '(') ? arguments(r, t) : rc;
}

pl_status onnx_terms_read(const char *key, const char *text, onnx_terms *out)
{
    reader r = {key, text, text};
    out->n = 0;
    do {
        if (out->n == ONNX_TERMS)
            return pl_fail(PL_ERR_CONFIG, "%s has more than %d terms", key, ONNX_TERMS);
        pl_status rc = read_term(&r, &out->term[out->n]);
        if (rc != PL_OK) return rc;
        out->n++;
    } while (take(&r, '+'));
    skip(&r);
    return *r.at ? wrong(&r, "+ or the end is") : PL_OK;
}

pl_status onnx_term_read(const char *key, const char *text, onnx_term *out)
{
    reader r = {key, text, text};
    pl_status rc = read_term(&r, out);
    skip(&r);
    return rc == PL_OK && *r.at ? wrong(&r, "the end is") : rc;
}

/* ---- losses --------------------------------------------------------------------------------- */
static bool is_real(const pl_onnx_port *p)
{
    return p->supported && pl_dtype_is_float(p->dtype);
}

/* A scalar is a loss; one number per sample is a regression; a picture is compared with a picture;
 * everything else are classes. */
static const char *usual_loss(const pl_onnx *model, const pl_onnx_port **of)
{
    const pl_onnx_port *picture = onnx_picture_port(model);
    *of = NULL;
    for (int i = 0; i < pl_onnx_output_count(model); i++) {
        const pl_onnx_port *p = pl_onnx_output(model, i);
        if (is_real(p) && p->rank == 0 && (*of = p)) return "output";
    }
    for (int i = 0; i < pl_onnx_output_count(model) && !*of; i++)
        if (is_real(pl_onnx_output(model, i))) *of = pl_onnx_output(model, i);
    const pl_onnx_port *p = *of;
    if (!p || p->rank < 2 || p->dim[p->rank - 1] == 1) return "mse";
    if (p->rank == 4 && picture && p->dim[1] == picture->dim[1]) return "mse";
    return "cross_entropy";
}

pl_status onnx_losses(const pl_config *c, const pl_onnx *model, onnx_terms *out)
{
    const char *text = pl_config_text(c, "loss");
    const pl_onnx_port *of;
    if (strcmp(text, "auto") != 0) {
        pl_status rc = onnx_terms_read("loss", text, out);
        for (int i = 0; i < out->n && rc == PL_OK; i++)
            if (strcmp(out->term[i].kind, "output") != 0 && !pl_task_is_loss(out->term[i].kind))
                rc = pl_fail(PL_ERR_CONFIG, "loss: there is no loss \"%s\" (%s|output:NAME)",
                             out->term[i].kind, pl_task_losses());
        return rc;
    }
    out->n = 1;
    out->term[0] = (onnx_term){.weight = 1};
    snprintf(out->term[0].kind, sizeof out->term[0].kind, "%s", usual_loss(model, &of));
    if (!of)
        return pl_fail(PL_ERR_CONFIG,
                       "%s has no output of floating-point numbers: nothing in it "
                       "can be trained",
                       pl_config_text(c, "recipe"));
    if (strlen(of->name) >= ONNX_NAME)
        return pl_fail(PL_ERR_CONFIG, "the name of output %.60s... is too long", of->name);
    memcpy(out->term[0].output, of->name, strlen(of->name) + 1);
    return PL_OK;
}
