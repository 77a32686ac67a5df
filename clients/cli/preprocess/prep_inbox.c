/* Lists the inbox, and decides which files are complete. */
#include "clients/cli/preprocess/prep_inbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/memory.h"
#include "daemon/layout/glob.h"

/* delay before a file that is open for writing is checked again */
#define BUSY_NS INT64_C(1000000000)

static bool is_unfinished_name(const char *name)
{
    static const char *const ends[] = {".partial", ".part", ".tmp", "~", NULL};
    const size_t length = strlen(name);

    for (const char *const *end = ends; *end; end++)
        if (length >= strlen(*end) && strcmp(name + length - strlen(*end), *end) == 0)
            return true;
    return strstr(name, "/.") || *name == '.';
}

static bool look_at(const struct prep_config *config, struct prep_arrival *arrival)
{
    char path[PREP_PATH_SIZE];
    struct stat stat;

    if (prep_path(path, config->inbox, arrival->name, "", NULL) || lstat(path, &stat) ||
        !S_ISREG(stat.st_mode))
        return false;
    arrival->identity.size_bytes = (uint64_t)stat.st_size;
    arrival->identity.mtime_ns = prep_mtime_ns(&stat);
    arrival->identity.ctime_ns = prep_ctime_ns(&stat);
    arrival->inode = stat.st_ino;
    return true;
}

/* Carries over the state of the file, if it is unchanged. */
static void carry_over(struct prep_arrival *arrival, const struct prep_inbox *before, uint32_t *at)
{
    arrival->since_ns = trajd_now_ns();
    while (*at < before->count &&
           trajd_natural_compare(before->arrivals[*at].name, arrival->name) < 0)
        (*at)++;
    if (*at < before->count && strcmp(before->arrivals[*at].name, arrival->name) == 0) {
        const struct prep_arrival *known = &before->arrivals[*at];
        if (known->inode != arrival->inode ||
            known->identity.ctime_ns != arrival->identity.ctime_ns ||
            known->identity.mtime_ns != arrival->identity.mtime_ns ||
            known->identity.size_bytes != arrival->identity.size_bytes)
            return;
        arrival->since_ns = known->since_ns;
        arrival->is_finished = known->is_finished;
    }
}

enum trajd_status prep_inbox_look(struct prep_inbox *inbox, const struct prep_config *config,
                                  bool (*is_ours)(void *context, const char *name), void *context,
                                  struct trajd_error *error)
{
    struct trajd_file_list list = {0};
    struct prep_inbox next = {0};
    uint32_t at = 0;
    enum trajd_status status =
        trajd_file_list_find_recordings(config->inbox, config->files, &list, error);

    next.arrivals = trajd_memory_or_exit(calloc((size_t)list.count + 1, sizeof *next.arrivals));
    for (uint32_t f = 0; f < list.count && !status; f++) {
        struct prep_arrival arrival = {.name = list.relative_paths[f]};
        if (is_unfinished_name(arrival.name) || !is_ours(context, arrival.name) ||
            !look_at(config, &arrival))
            continue;
        carry_over(&arrival, inbox, &at);
        list.relative_paths[f] = NULL; /* now owned by the arrival */
        next.arrivals[next.count++] = arrival;
    }
    trajd_file_list_free(&list);
    if (status) {
        prep_inbox_clear(&next);
        return status;
    }
    prep_inbox_clear(inbox);
    *inbox = next;
    return TRAJD_OK;
}

/* Returns whether a process has the file open for writing. The kernel grants a read lease only if
 * none has; the lease is released at once. */
static bool is_open_for_writing(const struct prep_config *config, const char *name)
{
    char path[PREP_PATH_SIZE];
    const int fd = prep_path(path, config->inbox, name, "", NULL)
                       ? -1
                       : open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool is_open = fd >= 0 && fcntl(fd, F_SETLEASE, F_RDLCK) != 0 && errno == EAGAIN;

    if (fd >= 0) {
        fcntl(fd, F_SETLEASE, F_UNLCK);
        close(fd);
    }
    return is_open;
}

int64_t prep_inbox_wait_ns(const struct prep_config *config, const struct prep_arrival *arrival)
{
    const int64_t remaining_ns = config->settle_ns - (trajd_now_ns() - arrival->since_ns);

    if (remaining_ns > 0)
        return remaining_ns;
    return is_open_for_writing(config, arrival->name) ? BUSY_NS : 0;
}

void prep_inbox_clear(struct prep_inbox *inbox)
{
    for (uint32_t a = 0; a < inbox->count; a++)
        free(inbox->arrivals[a].name);
    free(inbox->arrivals);
    *inbox = (struct prep_inbox){0};
}
