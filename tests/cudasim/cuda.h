/* cuda.h - the driver's result type, for files of the plug-in that are compiled without the
 * toolkit. */
#ifndef PL_CUDASIM_CUDA_H
#define PL_CUDASIM_CUDA_H

typedef enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_UNKNOWN = 999 } CUresult;

#endif
