/* The keys of every message. Only wire.c uses them. */
#ifndef TRAJD_PROTO_WIRE_FIELDS_H
#define TRAJD_PROTO_WIRE_FIELDS_H

#include "proto/codec.h"

/* Returns the table of an op's struct, or NULL for a number that is no op. */
const struct trajd_codec_table *trajd_wire_table(unsigned op);

#endif
