/* Element types of rows and tensors. The numbers are in the index cache and in the blocks of
 * RESAMPLE: only append to the list. */
#ifndef TRAJD_PROTO_DTYPE_H
#define TRAJD_PROTO_DTYPE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum trajd_dtype {
    TRAJD_DTYPE_NONE = 0,
    TRAJD_F16 = 1,  /* IEEE binary16 */
    TRAJD_BF16 = 2, /* bfloat16: the upper half of a binary32 */
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

/* Returns the bytes of one element, or 0 for a number that is not a type. All rows and tensors are
 * little endian. */
uint32_t trajd_dtype_size(enum trajd_dtype dtype);

/* Returns the name that configuration, wire and trajctl use ("f16", "bf16", "f32", ...), or "none"
 * for a number that is not a type. */
const char *trajd_dtype_name(enum trajd_dtype dtype);
/* The same names by number, with "" for none and NULL at the end, for tables of the codec. */
extern const char *const trajd_dtype_words[TRAJD_DTYPE_COUNT + 1];

/* Returns the type of a name. Also accepts long names like "float32" and "uint8". Returns
 * TRAJD_DTYPE_NONE for any other word. */
enum trajd_dtype trajd_dtype_parse(const char *name);

#ifdef __cplusplus
}
#endif
#endif
