/* The table of element types: their names and sizes. */
#include "proto/dtype.h"

#include <string.h>

const char *const trajd_dtype_words[TRAJD_DTYPE_COUNT + 1] = {
    [TRAJD_DTYPE_NONE] = "", [TRAJD_F16] = "f16",   [TRAJD_BF16] = "bf16", [TRAJD_F32] = "f32",
    [TRAJD_F64] = "f64",     [TRAJD_I8] = "i8",     [TRAJD_I16] = "i16",   [TRAJD_I32] = "i32",
    [TRAJD_I64] = "i64",     [TRAJD_U8] = "u8",     [TRAJD_U16] = "u16",   [TRAJD_U32] = "u32",
    [TRAJD_U64] = "u64",     [TRAJD_BOOL] = "bool",
};

static const struct {
    const char *long_name;
    uint32_t size;
} dtypes[TRAJD_DTYPE_COUNT] = {
    [TRAJD_DTYPE_NONE] = {"none", 0}, [TRAJD_F16] = {"float16", 2}, [TRAJD_BF16] = {"bfloat16", 2},
    [TRAJD_F32] = {"float32", 4},     [TRAJD_F64] = {"float64", 8}, [TRAJD_I8] = {"int8", 1},
    [TRAJD_I16] = {"int16", 2},       [TRAJD_I32] = {"int32", 4},   [TRAJD_I64] = {"int64", 8},
    [TRAJD_U8] = {"uint8", 1},        [TRAJD_U16] = {"uint16", 2},  [TRAJD_U32] = {"uint32", 4},
    [TRAJD_U64] = {"uint64", 8},      [TRAJD_BOOL] = {"bool", 1},
};

uint32_t trajd_dtype_size(enum trajd_dtype dtype)
{
    return (unsigned)dtype < TRAJD_DTYPE_COUNT ? dtypes[dtype].size : 0;
}

const char *trajd_dtype_name(enum trajd_dtype dtype)
{
    return dtype > TRAJD_DTYPE_NONE && dtype < TRAJD_DTYPE_COUNT ? trajd_dtype_words[dtype]
                                                                 : "none";
}

enum trajd_dtype trajd_dtype_parse(const char *name)
{
    for (int dtype = 1; dtype < TRAJD_DTYPE_COUNT; dtype++)
        if (strcmp(name, trajd_dtype_words[dtype]) == 0 ||
            strcmp(name, dtypes[dtype].long_name) == 0)
            return (enum trajd_dtype)dtype;
    return TRAJD_DTYPE_NONE;
}
