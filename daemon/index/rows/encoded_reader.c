/* The memory of a reader of encoded rows. */
#include "daemon/index/rows/encoded_internal.h"

#include <stdlib.h>

enum trajd_status trajd_encoded_no_memory(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory to read encoded rows");
}

enum trajd_status trajd_encoded_reader_create(struct trajd_encoded_reader **reader,
                                              struct trajd_error *error)
{
    struct trajd_encoded_reader *made = calloc(1, sizeof *made);
    enum trajd_status status = TRAJD_OK;

    *reader = made;
    if (!made)
        return trajd_encoded_no_memory(error);
    made->rows = malloc(TRAJD_ENCODED_CALL_ROWS * sizeof *made->rows);
    status = made->rows ? trajd_array_reader_create(&made->arrays, error)
                        : trajd_encoded_no_memory(error);
    if (status)
        trajd_encoded_reader_destroy(reader);
    return status;
}

void trajd_encoded_reader_destroy(struct trajd_encoded_reader **reader)
{
    struct trajd_encoded_reader *made = *reader;

    *reader = NULL;
    if (!made)
        return;
    trajd_array_reader_destroy(&made->arrays);
    free(made->bytes);
    free(made->stored);
    free(made->rows);
    free(made->references);
    free(made->slots);
    free(made);
}

void trajd_encoded_reader_keep(struct trajd_encoded_reader *reader, bool keeps)
{
    trajd_array_reader_keep(reader->arrays, keeps);
}

enum trajd_status trajd_encoded_grow(uint8_t **bytes, uint64_t *capacity, uint64_t size,
                                     struct trajd_error *error)
{
    uint8_t *grown;

    if (size <= *capacity)
        return TRAJD_OK;
    size = size < *capacity + *capacity / 2 ? *capacity + *capacity / 2 : size;
    grown = realloc(*bytes, size);
    if (!grown)
        return trajd_encoded_no_memory(error);
    *bytes = grown;
    *capacity = size;
    return TRAJD_OK;
}
