/* One message of every kind as structs. tests/golden/wire has the same messages as bytes (NAME.hex)
 * and in words (vectors.json). */
#ifndef TRAJD_TESTS_WIRE_VECTORS_H
#define TRAJD_TESTS_WIRE_VECTORS_H

#include "proto/wire.h"

struct wire_vector {
    const char *name;
    struct trajd_wire_message message;
};

extern const struct wire_vector wire_vectors[];
extern const size_t wire_vector_count;

#endif
