/* names.c - names of the weights in the authors' checkpoints, {'model_state_dict', 'scaler'}.
 *
 * A level of their Sequential has five modules (convolution, norm, activation, pool, dropout), a
 * layer of the head four. Their SSM model calls its LSTM `mamba` where the Mamba library is not
 * installed.
 */
#include "cloud.h"

static const pl_rename rules[] = {
    {"spatial_attention.conv1.*", "spatial.0.*"},
    {"spatial_attention.conv2.*", "spatial.2.*"},
    {"cnn_layers.0.*", "conv.0.*"},
    {"cnn_layers.1.*", "norm.0.*"},
    {"cnn_layers.5.*", "conv.1.*"},
    {"cnn_layers.6.*", "norm.1.*"},
    {"cnn_layers.10.*", "conv.2.*"},
    {"cnn_layers.11.*", "norm.2.*"},
    {"film_layers.0.film_mlp.*.*", "film.*.*"},
    {"temporal_attention.fc1.*", "temporal.0.*"},
    {"temporal_attention.fc2.*", "temporal.2.*"},
    {"dense_layers.0.*", "dense.0.*"},
    {"dense_layers.1.*", "dense_norm.0.*"},
    {"dense_layers.4.*", "dense.1.*"},
    {"dense_layers.5.*", "dense_norm.1.*"},
    {"output.*", "out.*"},
    {"mamba.*", "lstm.*"},
    {NULL, NULL},
};

static const char *const order[] = {
    "cnn_layers.*",        "film_layers.*",        "dense_layers.*", "output.*",
    "spatial_attention.*", "temporal_attention.*", "mamba.*",        NULL};

static const pl_naming namings[] = {
    {.name = "authors", .rules = rules, .order = order},
    {.name = NULL},
};

const pl_start cloud_start = {.naming = namings};

/* Their loader reads the scaler of heights from the file too: None, so that a program that wants
 * one says so. */
static const pl_export_entry entries[] = {{"scaler", "null"}, {NULL, NULL}};
static const pl_export_file files[] = {
    {.name = "cloud.pth", .naming = namings, .under = "model_state_dict", .entries = entries},
    {.name = NULL},
};
const pl_export cloud_exports[] = {
    {"authors", "a .pth of cloudML's train_model.py", files},
    {NULL, NULL, NULL},
};
