/* attention_op.h - attention as one op, for the op of the standard and for recognised patterns. */
#ifndef PL_ONNX_ATTENTION_OP_H
#define PL_ONNX_ATTENTION_OP_H

#include "onnx/onnx.h"

typedef struct pl_ox_attention {
    pl_ox_val *q, *k, *v; /* logical [B, H, N, D], [B, K, M, D], [B, K, M, E]; K divides H */
    pl_ox_val *bias;      /* added to the scores, broadcasts to [B, H, N, M]; NULL: none */
    pl_ox_val *keep;      /* truth values: keys that count; with bias only; NULL: all */
    double scale;         /* 0: 1/sqrt(D) */
    double softcap;       /* 0: none */
    bool causal;
    bool windowed;       /* left and right count */
    int64_t left, right; /* keys before and behind a query's own that count; -1: all */
    pl_ox_val *lengths;  /* [B]: keys that count, the queries are the last of them; NULL: all */
    int64_t offset;      /* tokens of the past before the queries */
    int scores_mode; /* which scores are asked for: 0 products, 1 capped, 2 with bias, 3 softmax */
} pl_ox_attention;
/* Returns the result in tokens-first order, [B, N, H, E]. scores: NULL, or set to [B, H, N, M]. */
pl_val pl_ox_attend(pl_ox_build *b, const pl_ox_attention *a, pl_val *scores);

#endif
