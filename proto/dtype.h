/* Element types of rows and tensors. The numbers are on the wire and in the index cache: append
 * only. */
#ifndef TRAJD_PROTO_DTYPE_H
#define TRAJD_PROTO_DTYPE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum trajd_dtype {
    TRAJD_DTYPE_NONE = 0,
    TRAJD_F16 = 1,  /* IEEE binary16 */
    TRAJD_BF16 = 2, /* the upper half of a binary32 */
    TRAJD_F32 = 3,
    TRAJD_F64 = 4,
    TRAJD_I8 = 5,
    TRAJD_I16 = 6,
    TRAJD_I32 = 7,
    TRAJD_I64 = 8,
    TRAJD_U8 = 9,
    TRAJD_U16 = 10,
    TRAJD_U32 = 11,
    TRAJD_U64 = 12,
    TRAJD_BOOL = 13, /* one byte, 0 or 1 */
    TRAJD_DTYPE_COUNT = 14,
};

/* Bytes of one element; 0 for a number that is no type. All rows and tensors are little endian. */
uint32_t trajd_dtype_size(enum trajd_dtype dtype);

/* "f16", "bf16", "f32", ... as config, wire and trajctl write them; "none" for a number that is no
 * type. */
const char *trajd_dtype_name(enum trajd_dtype dtype);

/* The inverse; also takes "float32", "uint8" and the like. TRAJD_DTYPE_NONE for a word that is no
 * type. */
enum trajd_dtype trajd_dtype_parse(const char *name);

#ifdef __cplusplus
}
#endif
#endif
