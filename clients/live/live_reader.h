/* Reads typed members of a description. The first error stays; reads after it return a harmless value
 * of the allowed range, so that a caller looks at reader->status once. */
#ifndef TRAJD_LIVE_LIVE_READER_H
#define TRAJD_LIVE_LIVE_READER_H

#include "clients/live/live_state.h"

struct trajd_live_reader {
    struct trajd_live *live;
    const struct trajd_yaml *yaml;
    struct trajd_error *error;
    enum trajd_status status;
};

/* Returns the member, or NULL with an error where it is missing. */
const struct trajd_yaml_node *trajd_live_member(struct trajd_live_reader *reader,
                                                const struct trajd_yaml_node *mapping,
                                                const char *key);
bool trajd_live_is_null(const struct trajd_yaml_node *node);
/* Refuses keys that are not in the list: they are of a later version. */
void trajd_live_check_keys(struct trajd_live_reader *reader, const struct trajd_yaml_node *mapping,
                           const char *const *keys);
/* Sets an error at the node, unless there is one. */
void trajd_live_wrong(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                      const char *rule);
/* Returns zeroed memory of the arena whose pages are mapped: a real-time loop must not wait for one.
 * NULL with an error. */
void *trajd_live_alloc(struct trajd_live_reader *reader, uint64_t count, uint64_t size_bytes);

const char *trajd_live_read_text(struct trajd_live_reader *reader,
                                 const struct trajd_yaml_node *mapping, const char *key);
int64_t trajd_live_read_int(struct trajd_live_reader *reader, const struct trajd_yaml_node *mapping,
                            const char *key, int64_t low, int64_t high);
double trajd_live_read_number(struct trajd_live_reader *reader,
                              const struct trajd_yaml_node *mapping, const char *key, double low,
                              double high);
bool trajd_live_read_bool(struct trajd_live_reader *reader, const struct trajd_yaml_node *mapping,
                          const char *key);
/* Returns the index of the word in the list. */
int trajd_live_read_word(struct trajd_live_reader *reader, const struct trajd_yaml_node *mapping,
                         const char *key, const char *const *words);
enum trajd_dtype trajd_live_read_dtype(struct trajd_live_reader *reader,
                                       const struct trajd_yaml_node *mapping, const char *key);
/* num 0 for null */
struct trajd_rate trajd_live_read_rate(struct trajd_live_reader *reader,
                                       const struct trajd_yaml_node *mapping, const char *key);
/* Returns a list of at least `low` and at most `high` elements; NULL with an error. */
const struct trajd_yaml_node *trajd_live_read_list(struct trajd_live_reader *reader,
                                                   const struct trajd_yaml_node *mapping,
                                                   const char *key, uint32_t low, uint32_t high);
/* Reads a list of `count` whole numbers within [low, high]. */
void trajd_live_read_ints(struct trajd_live_reader *reader, const struct trajd_yaml_node *mapping,
                          const char *key, uint32_t count, int64_t low, int64_t high,
                          int64_t *numbers);
/* Reads a list of `count` numbers. */
void trajd_live_read_numbers(struct trajd_live_reader *reader,
                             const struct trajd_yaml_node *mapping, const char *key, uint32_t count,
                             double *numbers);
/* Reads "shape". Returns the product from the axis `first` on, at most 2^24. */
uint64_t trajd_live_read_shape(struct trajd_live_reader *reader,
                               const struct trajd_yaml_node *mapping, uint32_t first,
                               uint32_t *rank, uint64_t shape[TRAJD_LIVE_MAX_RANK]);

/* live_read_output.c */
void trajd_live_read_outputs(struct trajd_live_reader *reader,
                             const struct trajd_yaml_node *outputs);
/* live_read_picture.c: fills preparation, augmentation and finish. */
void trajd_live_read_picture(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                             struct trajd_live_picture *picture);
/* live_read_chain.c: returns a transform of rows of column_count columns; NULL with an error. */
struct trajd_transform *trajd_live_read_chain(struct trajd_live_reader *reader,
                                              const struct trajd_yaml_node *chain,
                                              uint32_t column_count);

#endif
