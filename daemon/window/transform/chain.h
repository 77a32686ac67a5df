/* The chain of an output: its transform, resolved on the streams of a dataset. Also the chain in
 * words, as JSON, and as a number. */
#ifndef TRAJD_WINDOW_TRANSFORM_CHAIN_H
#define TRAJD_WINDOW_TRANSFORM_CHAIN_H

#include "daemon/base/json.h"
#include "daemon/window/transform/chain_spec.h"

/* A stream whose columns are columns of the output, or of the reference. */
struct trajd_chain_source {
    const char *name;
    uint32_t column_count;
    enum trajd_kind kind; /* the layout's */
    double angle_period;
};

/* Resolves a chain on the output's sources and on the streams of relative_to. spec NULL: all
 * columns stay as they are. TRAJD_ERR_ARGUMENT with a key of the output. */
enum trajd_status trajd_chain_resolve(const struct trajd_chain_spec *spec,
                                      const struct trajd_chain_source *sources,
                                      uint32_t source_count,
                                      const struct trajd_chain_source *references,
                                      uint32_t reference_count, struct trajd_transform *transform,
                                      struct trajd_error *error);

/* Returns a number for what the chain does with columns. 0: nothing. */
uint64_t trajd_chain_id(const struct trajd_transform *transform);
/* Writes for example "0:3 minus the state at the anchor in its frame, 3:6 axis_angle to rot6d
 * relative to it, 6:7 as recorded". */
void trajd_chain_describe(const struct trajd_transform *transform, char *text, size_t size);
/* Writes the chain as the member "chain" of an open object. trajd.Stats reads it. */
void trajd_chain_write(const struct trajd_transform *transform, struct trajd_json *json);

#endif
