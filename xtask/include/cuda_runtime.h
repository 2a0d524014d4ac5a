/* For nccl.h: the handles of the runtime API are those of the driver. See stddef.h. */
#pragma once
#include <stddef.h>
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
