/* names.c - names of the weights in the authors' checkpoints, {'model_state_dict', 'scaler'}.
 *
 * A level of their Sequential has five modules (convolution, norm, activation, pool, dropout), a
 * layer of the head four. Their SSM model calls its LSTM `mamba` where the Mamba library is not
 * installed.
 */
#include "cloud.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const pl_rename rules[] = {
    {"spatial_attention.conv1.*", "spatial.0.*"},
    {"spatial_attention.conv2.*", "spatial.2.*"},
    {"film_layers.0.film_mlp.*.*", "film.*.*"},
    {"temporal_attention.fc1.*", "temporal.0.*"},
    {"temporal_attention.fc2.*", "temporal.2.*"},
    {"output.*", "out.*"},
    {"mamba.*", "lstm.*"},
    {NULL, NULL},
};

/* Slots of level or layer i: PART.i.weight; module `step` * i + `offset` of a Sequential. */
static bool map(const pl_config *c, const char *ours, const pl_type *type, pl_published *to)
{
    static const struct {
        const char *ours, *theirs;
        int step, offset;
    } parts[] = {{"conv.", "cnn_layers", 5, 0},
                 {"norm.", "cnn_layers", 5, 1},
                 {"dense.", "dense_layers", 4, 0},
                 {"dense_norm.", "dense_layers", 4, 1}};
    (void)c;
    (void)type;
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        size_t length = strlen(parts[k].ours);
        char *rest;
        if (strncmp(ours, parts[k].ours, length) != 0) continue;
        long i = strtol(ours + length, &rest, 10);
        if (rest == ours + length || *rest != '.' || i < 0 || i >= CLOUD_MAX_LEVELS) return false;
        return snprintf(to->name, sizeof to->name, "%s.%ld%s", parts[k].theirs,
                        parts[k].step * i + parts[k].offset, rest) < (int)sizeof to->name;
    }
    return false;
}

static const char *const order[] = {
    "cnn_layers.*",        "film_layers.*",        "dense_layers.*", "output.*",
    "spatial_attention.*", "temporal_attention.*", "mamba.*",        NULL};

static const pl_naming namings[] = {
    {.name = "authors", .rules = rules, .map = map, .order = order},
    {.name = NULL},
};

const pl_start cloud_start = {.naming = namings};

/* Their loader reads the scaler of heights from the file too: None, so that a program that needs a
 * scaler reports it. */
static const pl_export_entry entries[] = {{"scaler", "null"}, {NULL, NULL}};
static const pl_export_file files[] = {
    {.name = "cloud.pth", .naming = namings, .under = "model_state_dict", .entries = entries},
    {.name = NULL},
};
const pl_export cloud_exports[] = {
    {"authors", "a .pth of cloudML's train_model.py", files},
    {NULL, NULL, NULL},
};
