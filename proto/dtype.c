#include "proto/dtype.h"

#include <string.h>

static const struct {
    const char *name;
    const char *long_name;
    uint32_t size;
} dtypes[TRAJD_DTYPE_COUNT] = {
    [TRAJD_DTYPE_NONE] = {"none", "none", 0}, [TRAJD_F16] = {"f16", "float16", 2},
    [TRAJD_BF16] = {"bf16", "bfloat16", 2},   [TRAJD_F32] = {"f32", "float32", 4},
    [TRAJD_F64] = {"f64", "float64", 8},      [TRAJD_I8] = {"i8", "int8", 1},
    [TRAJD_I16] = {"i16", "int16", 2},        [TRAJD_I32] = {"i32", "int32", 4},
    [TRAJD_I64] = {"i64", "int64", 8},        [TRAJD_U8] = {"u8", "uint8", 1},
    [TRAJD_U16] = {"u16", "uint16", 2},       [TRAJD_U32] = {"u32", "uint32", 4},
    [TRAJD_U64] = {"u64", "uint64", 8},       [TRAJD_BOOL] = {"bool", "bool", 1},
};

uint32_t trajd_dtype_size(enum trajd_dtype dtype)
{
    return (unsigned)dtype < TRAJD_DTYPE_COUNT ? dtypes[dtype].size : 0;
}

const char *trajd_dtype_name(enum trajd_dtype dtype)
{
    return (unsigned)dtype < TRAJD_DTYPE_COUNT ? dtypes[dtype].name : "none";
}

enum trajd_dtype trajd_dtype_parse(const char *name)
{
    for (int dtype = 1; dtype < TRAJD_DTYPE_COUNT; dtype++)
        if (strcmp(name, dtypes[dtype].name) == 0 || strcmp(name, dtypes[dtype].long_name) == 0)
            return (enum trajd_dtype)dtype;
    return TRAJD_DTYPE_NONE;
}
