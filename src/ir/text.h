/* text.h - the text form of types, attributes and graphs.
 *
 *     plimsoll graph 1
 *     streams 2
 *     slot "conv.weight" f32[8,3,3,1] param init=uniform(-0.33,0.33) train decay perm=[0,3,1,2]
 *     %1 = input {name="x", dtype=f32, shape=[4,24,32,1]} : f32[4,24,32,1]
 *     %2 = state {slot="conv.weight", dtype=f32, shape=[8,3,3,1]} : f32[8,3,3,1]
 *     %3 = conv(%1, %2) {stride=[1,1], ...} : f32[4,24,32,8] @"model.conv"
 *     assign(%9) {slot="conv.weight", dtype=f32, shape=[8,3,3,1]}
 *
 * One line per node; values are numbered in order of definition, so a printed text parses to the
 * same ids and prints to the same bytes. Strings are quoted with \" \\ and \xHH. Types are written
 * for the reader and checked against infer. '#' starts a comment line.
 */
#ifndef PL_IR_TEXT_H
#define PL_IR_TEXT_H

#include "base/str.h"
#include "ir/graph.h"

/* Parses a type, "f32[8,512]"; the whole text must be one. */
pl_status pl_type_parse(const char *text, size_t len, pl_type *out) PL_MUST_USE;

/* Parses attributes, "stride=[2,2], groups=1", into op->attr_bytes at attr, zeroed first. Unknown
 * names, wrong kinds and values out of range are errors; absent ones stay zero. Texts are copied
 * into g's arena, slots are looked up in g's store. */
pl_status pl_attr_parse(const pl_op *op, const char *text, size_t len, pl_graph *g,
                        void *attr) PL_MUST_USE;
/* Prints every attribute in the same form. */
void pl_attr_print(const pl_op *op, const void *attr, const pl_store *store, pl_str *out);

#endif
