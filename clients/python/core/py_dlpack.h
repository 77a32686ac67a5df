/* The structs of DLPack 1.0 (https://dmlc.github.io/dlpack/latest/c_api.html). */
#ifndef TRAJD_PYTHON_CORE_PY_DLPACK_H
#define TRAJD_PYTHON_CORE_PY_DLPACK_H

#include <stdint.h>

#define DLPACK_CPU 1
#define DLPACK_CUDA 2
#define DLPACK_READ_ONLY UINT64_C(1)
#define DLPACK_IS_COPIED UINT64_C(2)

enum dlpack_code {
    DLPACK_INT = 0,
    DLPACK_UINT = 1,
    DLPACK_FLOAT = 2,
    DLPACK_BFLOAT = 4,
    DLPACK_BOOL = 6
};

struct dlpack_device {
    int32_t type, id;
};

struct dlpack_dtype {
    uint8_t code, bits;
    uint16_t lanes;
};

struct dlpack_tensor {
    void *data;
    struct dlpack_device device;
    int32_t rank;
    struct dlpack_dtype dtype;
    int64_t *shape, *strides; /* the strides count elements */
    uint64_t offset_bytes;
};

struct dlpack_managed {
    struct dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct dlpack_managed *);
};

struct dlpack_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dlpack_versioned *);
    uint64_t flags;
    struct dlpack_tensor tensor;
};

#endif
