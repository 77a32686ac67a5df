/* The tensors of a feed as OPENED told them, checked against the slot's size once, so that no batch
 * has to be. */
#ifndef TRAJD_C_TENSORS_H
#define TRAJD_C_TENSORS_H

#include "clients/c/trajd.h"
#include "proto/wire.h"

struct trajd_schema_tensor {
    struct trajd_tensor shape; /* of a whole batch; data is NULL */
    uint64_t offset_bytes, row_size_bytes;
};

struct trajd_schema {
    uint32_t references; /* the client's and one a batch; changed atomically */
    uint32_t global_batch;
    uint32_t tensor_count;
    struct trajd_schema_tensor *tensors; /* their texts stand behind them */
};

/* TRAJD_ERR_PROTOCOL: a tensor that does not lie in the slot, or whose numbers overflow. */
enum trajd_status trajd_schema_create(const struct trajd_wire_opened *opened,
                                      struct trajd_schema **schema, struct trajd_error *error);
struct trajd_schema *trajd_schema_hold(struct trajd_schema *schema);
void trajd_schema_drop(struct trajd_schema *schema); /* NULL is fine */

#endif
