/* foreign.c - the authors' student_config.json, and the teacher's config.json of diffusers, as
 * configurations of this recipe (`plimsoll convert`). */
#include "wandistill.h"

static const pl_foreign_key student[] = {
    {"model_type", NULL, NULL, "the recipe has this one student", 0},
    {"hidden_size", "student.hidden", NULL, NULL, 0},
    {"depth", "student.depth", NULL, NULL, 0},
    {"num_heads", "student.heads", NULL, NULL, 0},
    {"num_channels", "student.channels", NULL, NULL, 0},
    {"text_encoder_output_dim", "text.dim", NULL, NULL, 0},
    {"text_max_length,projection_factor", NULL, NULL,
     "the authors' program reads it and ignores it", 0},
    {"batch_size", "batch", NULL, NULL, 0},
    {"lr,learning_rate", "optim.lr", NULL, NULL, 0},
    {"num_steps,max_steps", "train.steps", NULL, NULL, 0},
    {"num_epochs", NULL, NULL, "train.steps = epochs x prompts / batch", 0},
    {"teacher_path", "teacher.weights", NULL, NULL, 0},
    {"teacher_dtype", "teacher.dtype", "float32=fp32|bfloat16=bf16", NULL, 0},
    {"data_path", "data.prompts", NULL, NULL, 0},
    {"num_workers", "data.workers", NULL, NULL, 0},
    {"gradient_checkpointing", NULL, NULL, "the plan recomputes what the budget needs", 0},
    {"multi_gpu,distributed,local_rank", NULL, NULL, "ranks=N and --ranks N train on several GPUs",
     0},
    {"output_dir", NULL, NULL, "--out names the run folder", 0},
    {NULL, NULL, NULL, NULL, 0},
};

static void make_student(pl_foreign_doc *d)
{
    int64_t image = pl_foreign_whole(d, "image_size", 0);
    int64_t patch = pl_foreign_whole(d, "patch_size", 16);
    if (patch > 0 && image >= patch)
        pl_foreign_set(d, "image_size,patch_size", "latent", "%lld", (long long)(image / patch));
}

static const pl_foreign_key teacher[] = {
    {"ffn_dim", "teacher.ffn", NULL, NULL, 0},
    {"num_layers", "teacher.layers", NULL, NULL, 0},
    {"in_channels,out_channels", "teacher.channels", NULL, NULL, 0},
    {"freq_dim", "teacher.freq", NULL, NULL, 0},
    {"text_dim", "text.dim", NULL, NULL, 0},
    {"patch_size", NULL, NULL, "the recipe's teacher has patches of [1, 2, 2]", 0},
    {"cross_attn_norm,qk_norm,eps,rope_max_seq_len,added_kv_proj_dim,image_dim,pos_embed_seq_len",
     NULL, NULL, "the recipe's teacher has the values of the published text-to-video models", 0},
    {"_class_name,_diffusers_version,_name_or_path", NULL, NULL, "about the file", 0},
    {NULL, NULL, NULL, NULL, 0},
};

static void make_teacher(pl_foreign_doc *d)
{
    int64_t heads = pl_foreign_whole(d, "num_attention_heads", 0);
    int64_t wide = pl_foreign_whole(d, "attention_head_dim", 0);
    if (heads < 1 || wide < 1) return;
    pl_foreign_set(d, "num_attention_heads,attention_head_dim", "teacher.dim", "%lld",
                   (long long)(heads * wide));
    pl_foreign_set(d, "num_attention_heads", "teacher.heads", "%lld", (long long)heads);
}

static const char *const student_marks[] = {"hidden_size", "depth", "text_encoder_output_dim",
                                            NULL};
static const char *const teacher_marks[] = {"num_attention_heads", "attention_head_dim", "ffn_dim",
                                            "freq_dim", NULL};
const pl_foreign wan_foreign[] = {
    {"WanDistiller's student_config.json", student_marks, "wandistill/full", student, make_student},
    {"the teacher's config.json of diffusers", teacher_marks, "wandistill/full", teacher,
     make_teacher},
    {NULL, NULL, NULL, NULL, NULL},
};
