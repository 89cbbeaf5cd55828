/* items.h - the content of an image set: one entry per image, ordered by name alone.
 *
 * Two forms of a set, recognised by what is at the path:
 *
 *   folder   DIR/train/CLASS/x.jpg, DIR/val/...   subsets and classes by folder (torchvision's
 *            DIR/CLASS/x.jpg                      rules: classes sorted by name, files by path)
 *            DIR/val/CLASS/x.jpg                  evaluation alone: no folder has another name
 *            DIR/x.jpg                            no classes: no image has a label
 *            x.txt beside x.jpg, metadata.jsonl {"file_name": , "text": } or a file of
 *            NAME<tab>CAPTION lines give captions; metadata may also give "label" (the name of a
 *            class, or its number) and "weight".
 *            DIR/train/images/x.jpg, DIR/train/masks/x.png, DIR/val/...   pictures and masks, for
 *            DIR/images/x.jpg, DIR/masks/x.png                            recipes with masks
 *   tar      a .tar, or a folder of them: WebDataset shards. Members with one name up to the first
 *            dot are one sample: the image, .txt (caption), .cls (class), .json ("caption", "text"
 *            or "prompt", "label"). Nothing is unpacked, so names like ../x are only names. The
 *            offsets of the members are kept in SHARD.tar.idx, written once.
 *
 * Without folders for both subsets a share of the samples, chosen by a hash of the name, is for
 * evaluation: adding files does not move others between the subsets.
 */
#ifndef PL_DATA_ITEMS_H
#define PL_DATA_ITEMS_H

#include "base/arena.h"

/* How an image got its label. */
typedef enum pl_labelled { PL_LABEL_NONE, PL_LABEL_NAME, PL_LABEL_NUMBER } pl_labelled;

typedef struct pl_item {
    const char *name;    /* path below the root, or of the member */
    const char *larger;  /* the same picture larger, also below the root; NULL: none */
    const char *mask;    /* the mask of the picture, below the root; NULL: none */
    const char *caption; /* NULL: none, or in the file that text_at names */
    uint64_t offset;     /* tar: of the image's bytes */
    int64_t bytes;
    uint64_t text_at; /* tar: of the caption's bytes */
    int32_t text_bytes;
    int32_t shard; /* number of the tar; -1: a separate file */
    int32_t label; /* index of classes; 0 without a label */
    float weight;
    uint8_t labelled; /* pl_labelled */
    bool eval;
} pl_item;

enum { PL_SKIPPED_KINDS = 8 };
typedef struct pl_items {
    pl_arena mem;
    const char *root;
    pl_item *item;
    int64_t n, cap;
    /* Names, by label. If the labels of images are numbers, the names are these numbers: "0". */
    const char **classes;
    int n_classes;
    bool named;             /* metadata.jsonl names classes */
    const char *unlabelled; /* why labels cannot be read, with the way out; NULL: they can */
    const char **shards;
    int n_shards;
    int64_t ignored; /* files that are neither images that are read nor texts beside them */
    struct {         /* the same by the ending of their names */
        char kind[24];
        int64_t n;
    } skipped[PL_SKIPPED_KINDS];
    int n_skipped;
    int64_t max_bytes; /* of the largest file */
} pl_items;

/* Progress of the listing: folders and tars are walked once. May be NULL. */
typedef void (*pl_items_progress_fn)(void *ctx, int64_t images, int64_t bytes_done, int64_t bytes);

typedef struct pl_items_opts {
    const char *path, *captions; /* captions: file of lines, NULL */
    /* folders: PREFIXx.webp beside x.jpg is not a separate image but a larger x; NULL: not used */
    const char *larger;
    double eval_share;
    bool masks;        /* folders images/ and masks/ instead of classes */
    bool only_classes; /* list the classes; images only where the classes depend on them */
    /* every image below the path, or the image at the path, without classes and subsets: all are
     * for evaluation */
    bool plain;
    pl_items_progress_fn progress;
    void *ctx;
} pl_items_opts;

pl_status pl_items_open(const pl_items_opts *o, pl_items **out) PL_MUST_USE;
void pl_items_close(pl_items *s);
/* Files that are not read, with counts: "8 .heic, 2 .mp4"; "" for none. Returns buf. */
const char *pl_items_skipped(const pl_items *s, char *buf, size_t cap);
/* Whether a folder is a run folder (docs/CHECKPOINTS.md). */
bool pl_is_run_folder(const char *path);
/* Whether path is a tar, or a folder that holds one itself or in its train or evaluation set. */
bool pl_items_is_tar(const char *path);
/* Whether a hash of the name selects it for evaluation: a pure function of both. */
bool pl_name_in_share(const char *name, double share);
/* Writes "root/name" or "shard: name" to buf and returns buf. */
const char *pl_item_path(const pl_items *s, const pl_item *i, char *buf, size_t cap);

#endif
