/* peer.c - the PyTorch program of bench/peers that `plimsoll replay` compares with. */
#include "stablesr.h"

static const char *const workloads[] = {"stablesr-full", "stablesr-full-sdpa",
                                        "stablesr-edge-before", "stablesr-edge-after", NULL};
static const pl_peer_key peer_keys[] = {
    {"part", "part"},
    {"batch", "batch"},
    {"image", "image"},
    {"latent", "latent"},
    {"before", "edge.before"},
    {"before_down", "edge.before_down"},
    {"stem", "edge.stem"},
    {"after", "edge.after"},
    {"after_down", "edge.after_down"},
    {"width", "model.width"},
    {"mult", "model.mult"},
    {"blocks", "model.blocks"},
    {"attn_levels", "model.attn_levels"},
    {"groups", "model.groups"},
    {"head_dim", "model.head_dim"},
    {"context", "model.context"},
    {"struct_width", "struct.width"},
    {"struct_mult", "struct.mult"},
    {"struct_out", "struct.out"},
    {"struct_blocks", "struct.blocks"},
    {"struct_heads", "struct.heads"},
    {"spade_hidden", "model.spade_hidden"},
    {"x_start", "x_start"},
    {"lr", "optim.lr"},
    {NULL, NULL},
};
const pl_peer sr_peer = {.workloads = workloads,
                         .preset = "tiny",
                         .keys = peer_keys,
                         .channels_first = "z_*,eps,edge,target"};
