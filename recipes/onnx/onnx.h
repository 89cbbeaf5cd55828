/* onnx.h - declarations that the files of the onnx recipe share. */
#ifndef RECIPES_ONNX_H
#define RECIPES_ONNX_H

#include <plimsoll_onnx.h>
#include <plimsoll_recipe.h>
#include <plimsoll_tasks.h>

/* ---- terms.c: the keys loss and metrics ------------------------------------------------------ */
enum { ONNX_TERMS = 16, ONNX_NAME = 256 };
/* One term: "0.4 * cross_entropy(aux, label)", "accuracy", "output:loss". */
typedef struct onnx_term {
    char kind[24];                             /* "output": the output is the loss itself */
    char output[ONNX_NAME], target[ONNX_NAME]; /* "": the first output, the usual target */
    double weight;
    pl_task_opts o;
} onnx_term;
typedef struct onnx_terms {
    onnx_term term[ONNX_TERMS];
    int n;
} onnx_terms;
/* Reads a sum of terms. key: for messages. PL_ERR_CONFIG says what is expected where. */
pl_status onnx_terms_read(const char *key, const char *text, onnx_terms *out);
/* Reads exactly one term. */
pl_status onnx_term_read(const char *key, const char *text, onnx_term *out);
/* The losses of a run: key loss; auto: what suits the model's first output. */
pl_status onnx_losses(const pl_config *c, const pl_onnx *model, onnx_terms *out);

/* ---- onnx.c -------------------------------------------------------------------------------- */
/* Opens the file that key `recipe` names. */
pl_status onnx_open(const pl_config *c, pl_onnx **out);

/* Where the inputs of a program come from. */
typedef enum onnx_feed {
    ONNX_ARRAYS,   /* arrays with the names of the inputs */
    ONNX_PICTURES, /* input "image", as the image reader fills it */
    ONNX_TOKENS    /* input "tokens", one token more than the model's input */
} onnx_feed;
/* A program that is being built. */
typedef struct onnx_part {
    pl_builder *b;
    pl_nn *m;
    pl_onnx *model;
    onnx_feed feed;
    bool own_batch; /* predictions: the batch of the file, if it is fixed, in place of key batch */
    const onnx_terms *losses; /* whose targets may be inputs of the model; NULL: none */
    pl_onnx_value in[64];     /* values that the model reads; others are inputs of the program */
    int n_in;
    pl_onnx_value out[64]; /* outputs that the losses and metrics need */
    int n_out;
    struct {
        char name[ONNX_NAME];
        pl_val value;
    } target[ONNX_TERMS];
    int n_targets;
} onnx_part;
/* The first input that pictures can fill; NULL: there is none. */
const pl_onnx_port *onnx_picture_port(const pl_onnx *model);
/* Whether pictures of the port are [batch, H, W, C] in the file. */
bool onnx_port_is_last(const pl_onnx_port *port);
/* Adds the model to the program; outputs are in part->out then. */
pl_status onnx_add(onnx_part *p);
/* Marks an output of the model as needed; "" or NULL: the first. */
pl_status onnx_need(onnx_part *p, const char *name);
pl_val onnx_value_of(const onnx_part *p, const char *name);

/* ---- fixed.c: key inputs -------------------------------------------------------------------- */
enum { ONNX_FIXED = 64 };
typedef struct onnx_fixed {
    pl_onnx_constant list[ONNX_FIXED + 1]; /* ends with {NULL} */
    void *data[ONNX_FIXED];                /* owned */
    int n;
} onnx_fixed;
/* The setting of an input in the key; in language models masks are 1 and positions count. NULL:
 * data fill the input. */
const char *onnx_fixed_text(const onnx_part *p, const char *name);
/* PL_ERR_CONFIG: the key names an input that the model has not. */
pl_status onnx_fixed_check(const onnx_part *p);
/* Appends sizes of dynamic dimensions that arrays of the key have; dims ends with {NULL}, and has
 * room for cap entries and the end. */
pl_status onnx_fixed_dims(const onnx_part *p, pl_onnx_dim *dims, int cap);
pl_status onnx_fixed_read(const onnx_part *p, const pl_onnx_opts *o, onnx_fixed *out);
void onnx_fixed_free(onnx_fixed *f);

/* Red, green and blue, or grey: key data.mean or data.std, else what the file notes, else the usual
 * numbers. */
pl_status onnx_colours(const pl_config *c, const pl_onnx *model, const char *key, int channels,
                       float *to);
/* Gives an evaluation or a prediction the class names that the file holds. */
pl_status onnx_class_names(pl_builder *b, const pl_onnx *model);

extern const pl_predict onnx_predict;

#endif
