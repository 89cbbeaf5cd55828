/* node_run.h - runs one test folder of the ONNX standard: model.onnx, test_data_set_N with
 * input_K.pb and output_K.pb. */
#ifndef PL_TESTS_NODE_RUN_H
#define PL_TESTS_NODE_RUN_H

#include <stdbool.h>
#include <stddef.h>

typedef enum node_result {
    NODE_PASSED,
    NODE_REFUSED, /* the model cannot be built; why says the message */
    NODE_WRONG,   /* other numbers; why says where */
    NODE_FAILED   /* anything else */
} node_result;

/* Builds the model in the folder, runs its data sets, compares the outputs. */
node_result node_run(const char *folder, char *why, size_t cap);
/* Trains the model in the folder: losses.txt has a learning rate and the losses of steps of AdamW
 * on the mean squared difference between the first output and test_data_set_0/target.pb. They agree
 * within tolerance, relative above 1. plain: without recognised patterns. */
node_result node_train(const char *folder, bool plain, double tolerance, char *why, size_t cap);

#endif
