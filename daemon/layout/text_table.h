/* The texts of episodes in one JSON file: an entry for each episode, or one for all. */
#ifndef TRAJD_LAYOUT_TEXT_TABLE_H
#define TRAJD_LAYOUT_TEXT_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/layout/layout.h"
#include "proto/error.h"

struct trajd_text_table;

/* Reads the document as the layout says. Copies what it needs. TRAJD_ERR_DATA: it is not JSON, or
 * has another shape; the message says where. The caller destroys the table. */
enum trajd_status trajd_text_table_parse(const struct trajd_layout_meta *meta, const char *text,
                                         size_t length, struct trajd_text_table **table,
                                         struct trajd_error *error);
void trajd_text_table_destroy(struct trajd_text_table **table);

/* Writes the text of the entry with this key, or of the only entry where meta->by is
 * TRAJD_TEXT_KEY_NONE, in which control characters become spaces. `hash` chooses one of several.
 * TRAJD_ERR_NOT_FOUND: there is none. TRAJD_ERR_DATA: it is not a text, or too long. */
enum trajd_status trajd_text_table_find(const struct trajd_text_table *table,
                                        const struct trajd_layout_meta *meta, const char *key,
                                        uint64_t hash, char *out, size_t size,
                                        struct trajd_error *error);

#endif
