/* The tensors of a feed, as OPENED describes them. They are checked against the slot's size once,
 * so that batches need no check. Reference-counted; thread-safe. */
#ifndef TRAJD_C_TENSORS_H
#define TRAJD_C_TENSORS_H

#include "clients/c/trajd.h"
#include "proto/wire.h"

struct trajd_schema_tensor {
    struct trajd_tensor shape; /* for the rows of the global batch; data is NULL */
    uint64_t offset_bytes, row_size_bytes;
    struct trajd_finish finish; /* shape.finish points here, or is NULL */
};

struct trajd_schema {
    uint32_t references; /* atomic; the client's, and one for each batch */
    uint32_t global_batch;
    uint32_t tensor_count;
    struct trajd_schema_tensor *tensors; /* their names follow in the same allocation */
};

/* Checks and copies the tensors of OPENED. The caller drops the schema. TRAJD_ERR_PROTOCOL: a
 * tensor is not in the slot, or its numbers overflow; TRAJD_ERR_MEMORY. */
enum trajd_status trajd_schema_create(const struct trajd_wire_opened *opened,
                                      struct trajd_schema **schema, struct trajd_error *error);
struct trajd_schema *trajd_schema_hold(struct trajd_schema *schema);
void trajd_schema_drop(struct trajd_schema *schema); /* the last reference frees it; NULL is fine */

#endif
