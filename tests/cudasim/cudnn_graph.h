/* cudnn_graph.h - names of cuDNN that src/cuda/device/lib.h mentions; the simulator has no cuDNN.
 */
#ifndef PL_CUDASIM_CUDNN_GRAPH_H
#define PL_CUDASIM_CUDNN_GRAPH_H

typedef struct cudnnContext *cudnnHandle_t;
typedef enum cudnnStatus_t { CUDNN_STATUS_SUCCESS = 0 } cudnnStatus_t;

#endif
