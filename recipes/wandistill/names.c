/* names.c - names of the teacher's weights in the files of diffusers and of Wan, and of the
 * student's in the authors' checkpoint. */
#include "wandistill.h"

#include <stdio.h>

/* clang-format off */
static const pl_rename diffusers[] = {
    {"patch_embedding.*",                            "teacher.patch.*"},
    {"condition_embedder.text_embedder.linear_1.*",  "teacher.text.0.*"},
    {"condition_embedder.text_embedder.linear_2.*",  "teacher.text.2.*"},
    {"condition_embedder.time_embedder.linear_1.*",  "teacher.time.0.*"},
    {"condition_embedder.time_embedder.linear_2.*",  "teacher.time.2.*"},
    {"condition_embedder.time_proj.*",               "teacher.time6.*"},
    {"blocks.*.scale_shift_table",                   "teacher.blocks.*.modulation"},
    {"blocks.*.attn1.to_q.*",                        "teacher.blocks.*.self_attn.q.*"},
    {"blocks.*.attn1.to_k.*",                        "teacher.blocks.*.self_attn.k.*"},
    {"blocks.*.attn1.to_v.*",                        "teacher.blocks.*.self_attn.v.*"},
    {"blocks.*.attn1.to_out.0.*",                    "teacher.blocks.*.self_attn.o.*"},
    {"blocks.*.attn1.*.*",                           "teacher.blocks.*.self_attn.*.*"},
    {"blocks.*.attn2.to_q.*",                        "teacher.blocks.*.cross_attn.q.*"},
    {"blocks.*.attn2.to_k.*",                        "teacher.blocks.*.cross_attn.k.*"},
    {"blocks.*.attn2.to_v.*",                        "teacher.blocks.*.cross_attn.v.*"},
    {"blocks.*.attn2.to_out.0.*",                    "teacher.blocks.*.cross_attn.o.*"},
    {"blocks.*.attn2.*.*",                           "teacher.blocks.*.cross_attn.*.*"},
    {"blocks.*.norm2.*",                             "teacher.blocks.*.norm.*"},
    {"blocks.*.ffn.net.0.proj.*",                    "teacher.blocks.*.ffn.0.*"},
    {"blocks.*.ffn.net.2.*",                         "teacher.blocks.*.ffn.2.*"},
    {"scale_shift_table",                            "teacher.modulation"},
    {"proj_out.*",                                   "teacher.head.*"},
    {NULL, NULL},
};

static const pl_rename native[] = {
    {"patch_embedding.*",         "teacher.patch.*"},
    {"text_embedding.*.*",        "teacher.text.*.*"},
    {"time_embedding.*.*",        "teacher.time.*.*"},
    {"time_projection.1.*",       "teacher.time6.*"},
    {"blocks.*.modulation",       "teacher.blocks.*.modulation"},
    {"blocks.*.self_attn.*.*",    "teacher.blocks.*.self_attn.*.*"},
    {"blocks.*.cross_attn.*.*",   "teacher.blocks.*.cross_attn.*.*"},
    {"blocks.*.norm3.*",          "teacher.blocks.*.norm.*"},
    {"blocks.*.ffn.*.*",          "teacher.blocks.*.ffn.*.*"},
    {"head.modulation",           "teacher.modulation"},
    {"head.head.*",               "teacher.head.*"},
    {NULL, NULL},
};

static const pl_rename student[] = {
    {"text_proj.*",    "student.text.*"},
    {"time_embed.*.*", "student.time.*.*"},
    {"conv_in.*",      "student.inp.*"},
    {"conv_out.*",     "student.out.*"},
    {"blocks.**",      "student.blocks.**"},
    {"weight",         "project.weight"}, /* output_proj.safetensors, of later versions */
    {"bias",           "project.bias"},
    {NULL, NULL},
};
/* clang-format on */

static const pl_naming namings[] = {
    {.name = "diffusers", .rules = diffusers},
    {.name = "native Wan", .rules = native},
    {.name = NULL},
};

const pl_weights wan_weights[] = {
    {"teacher.weights", "teacher.*", namings},
    {"vae.weights", "vae.*", wan_vae_namings},
    {NULL, NULL, NULL},
};

static const pl_naming student_namings[] = {
    {.name = "WanLiteStudent", .rules = student},
    {.name = NULL},
};

/* The authors' checkpoint holds the student alone: the teacher has a separate key, and the two
 * projections between student and teacher start with random values. */
const pl_start wan_start = {.missing = "teacher.*,lift.*,project.*", .naming = student_namings};

/* ---- `export --as authors` ---------------------------------------------------------------- */
/* Their JSON file of sizes. They read the latent's side as image_size / patch_size, and neither
 * text_max_length nor projection_factor. */
static int student_config(const pl_config *c, char *to, size_t cap)
{
    enum { PATCH = 16 };
    return snprintf(to, cap,
                    "{\n    \"model_type\": \"WanLiteStudent\",\n    \"hidden_size\": %lld,\n"
                    "    \"depth\": %lld,\n    \"num_heads\": %lld,\n    \"num_channels\": %lld,\n"
                    "    \"image_size\": %lld,\n    \"patch_size\": %d,\n"
                    "    \"text_max_length\": 77,\n    \"text_encoder_output_dim\": %lld,\n"
                    "    \"projection_factor\": 1.0\n}",
                    (long long)pl_config_int(c, "student.hidden"),
                    (long long)pl_config_int(c, "student.depth"),
                    (long long)pl_config_int(c, "student.heads"),
                    (long long)pl_config_int(c, "student.channels"),
                    (long long)pl_config_int(c, "latent") * PATCH, PATCH,
                    (long long)pl_config_int(c, "text.dim"));
}

static const pl_export_file authors_files[] = {
    {.name = "diffusion_model.safetensors", .slots = "student.*", .naming = student_namings},
    {.name = "student_config.json", .text = student_config},
    /* Later versions of their program read the projection; the first checkpoints have none. */
    {.name = "output_proj.safetensors",
     .slots = "project.*",
     .naming = student_namings,
     .optional = true},
    {.name = NULL},
};
const pl_export wan_exports[] = {
    {"authors", "WanDistiller: a folder for WanLiteStudent.from_pretrained", authors_files},
    {NULL, NULL, NULL},
};
