/* Names of feeds. A feed of the configuration has the name that the configuration gives it. A feed
 * that a job sent as text is called "spec:HASH". Both may be followed by "@UUID" (batches in the
 * memory of that GPU; trajd_feed_gpu_name) and by "#NUMBER" (another instance of the same feed).
 * No name of the configuration contains '@' or '#'. Pure functions. */
#ifndef TRAJD_CONTROL_FEED_NAME_H
#define TRAJD_CONTROL_FEED_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes the name of a feed that a job sent. Equal texts get equal names, so the workers of a job
 * share one feed. */
void trajd_feed_name_of_text(const char *text, char *name, size_t size);
/* Writes the name of instance `number` of the family. */
void trajd_feed_name_of_instance(const char *family, uint32_t number, char *name, size_t size);

/* Returns the length of the name without the instance's number: all instances share this part. */
size_t trajd_feed_name_family_length(const char *name);
/* Returns the length of the name without the GPU and the instance's number. */
size_t trajd_feed_name_base_length(const char *name);
bool trajd_feed_name_is_in_family(const char *name, const char *family);

/* Returns true for a feed of the configuration, its instances and its productions on GPUs; false
 * for a feed that a job sent. */
bool trajd_feed_name_is_configured(const char *name);
bool trajd_feed_name_is_on_gpu(const char *name);
/* Returns true where the feed may be closed while no worker reads it. Feeds under the
 * configuration's own names stay open. */
bool trajd_feed_name_may_close(const char *name);

#endif
