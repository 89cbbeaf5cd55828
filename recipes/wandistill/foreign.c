/* foreign.c - the authors' student_config.json, and the teacher's config.json of diffusers, as
 * configurations of this recipe (`plimsoll convert`). */
#include "wandistill.h"

static const pl_foreign_key student[] = {
    {"model_type", .why = "the recipe has this one student"},
    {"hidden_size", "student.hidden"},
    {"depth", "student.depth"},
    {"num_heads", "student.heads"},
    {"num_channels", "student.channels"},
    {"text_encoder_output_dim", "text.dim"},
    {"text_max_length,projection_factor", .why = "the authors' program reads it and ignores it"},
    {"batch_size", "batch"},
    {"lr,learning_rate", "optim.lr"},
    {"num_steps,max_steps", "train.steps"},
    {"num_epochs", .why = "train.steps = epochs x prompts / batch"},
    {"teacher_path", "teacher.weights"},
    {"teacher_dtype", "teacher.dtype", .values = "float32=fp32|bfloat16=bf16"},
    {"data_path", "data.prompts"},
    {"num_workers", "data.workers"},
    {"gradient_checkpointing", .why = "the plan recomputes as many tensors as the budget needs"},
    {"multi_gpu,distributed,local_rank", .why = "ranks=N and --ranks N train on several GPUs"},
    {"output_dir", .why = "--out names the run folder"},
    {NULL},
};

static void make_student(pl_foreign_doc *d)
{
    int64_t image = pl_foreign_whole(d, "image_size", 0);
    int64_t patch = pl_foreign_whole(d, "patch_size", 16);
    if (patch > 0 && image >= patch)
        pl_foreign_set(d, "image_size,patch_size", "latent", "%lld", (long long)(image / patch));
}

static const pl_foreign_key teacher[] = {
    {"ffn_dim", "teacher.ffn"},
    {"num_layers", "teacher.layers"},
    {"in_channels,out_channels", "teacher.channels"},
    {"freq_dim", "teacher.freq"},
    {"text_dim", "text.dim"},
    {"patch_size", .why = "the recipe's teacher has patches of [1, 2, 2]"},
    {"cross_attn_norm,qk_norm,eps,rope_max_seq_len,added_kv_proj_dim,image_dim,pos_embed_seq_len",
     .why = "the recipe's teacher has the values of the published text-to-video models"},
    {"_class_name,_diffusers_version,_name_or_path", .why = "about the file"},
    {NULL},
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
    {NULL},
};
