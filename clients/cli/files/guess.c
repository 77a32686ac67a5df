/* Tries the installed layouts on a file, those of one family before the general ones. */
#include "clients/cli/files/guess.h"

#include <stdio.h>
#include <string.h>

#include "proto/array_len.h"

/* A layout that is tried. */
struct candidate {
    const char *layout;
    /* a prefix of a stream that only files of this family have; without one, another layout may fit
     * better. NULL: none is needed */
    const char *convincing;
    /* a layout that reads the same files and differs in what no file states, and in what; or NULL */
    const char *twin, *difference;
};

/* robomimic, robosuite, LIBERO, MimicGen and Isaac Lab have the same groups. Only robomimic fits all
 * of them, so its like come first. */
static const struct candidate candidates[] = {
    {.layout = "libero"},
    {.layout = "mimicgen"},
    {.layout = "isaaclab"},
    {.layout = "robomimic", .convincing = "obs/"},
    {.layout = "robosuite_raw"},
    {.layout = "maniskill"},
    {.layout = "minari_jpeg"},
    {.layout = "minari"},
    {.layout = "droid_im"},
    {.layout = "droid_raw"},
    {.layout = "aloha"},
    {.layout = "robomind"},
    {.layout = "robotwin", .twin = "robotwin_bgr", .difference = "the order of the colours"},
};

enum { REASON_SIZE = 72 };

/* Why the candidates did not fit. */
struct reasons {
    char texts[ARRAY_LEN(candidates)][REASON_SIZE];
    size_t count;
};

static bool is_convincing(const struct candidate *candidate, const struct trajd_index *index)
{
    const size_t length = candidate->convincing ? strlen(candidate->convincing) : 0;

    for (uint32_t i = 0; i < index->stream_count && length; i++)
        if (!strncmp(index->streams[i].name, candidate->convincing, length))
            return true;
    return !length;
}

/* Keeps the part of the message that differs between layouts: without the file's name. */
static void add_reason(struct reasons *reasons, const char *message)
{
    static const char before[] = "the first reason: ";
    const char *reason = strstr(message, before), *behind_file;

    reason = reason ? reason + strlen(before) : message;
    behind_file = strstr(reason, ": ");
    reason = behind_file ? behind_file + 2 : reason;
    snprintf(reasons->texts[reasons->count++], REASON_SIZE, "%.*s",
             (int)(strstr(reason, " (the layout") ? strstr(reason, " (the layout") - reason
                                                  : (ptrdiff_t)strlen(reason)),
             reason);
}

static bool is_one_reason(const struct reasons *reasons)
{
    for (size_t i = 1; i < reasons->count; i++)
        if (strcmp(reasons->texts[i], reasons->texts[0]))
            return false;
    return true;
}

/* Writes "a, b: REASON; c: REASON": layouts with the same reason stand together. */
static void write_reasons(const struct reasons *reasons, char *text, size_t size)
{
    size_t used = 0;

    for (size_t i = 0; i < reasons->count; i++) {
        const char *reason = reasons->texts[i];
        bool is_told = false;
        for (size_t k = 0; k < i && !is_told; k++)
            is_told = !strcmp(reasons->texts[k], reason);
        for (size_t k = i; k < reasons->count && !is_told && used < size; k++)
            if (!strcmp(reasons->texts[k], reason))
                used += (size_t)snprintf(text + used, size - used, "%s%s",
                                         k > i ? ", "
                                         : i   ? "; "
                                               : "",
                                         candidates[k].layout);
        if (!is_told && used < size)
            used += (size_t)snprintf(text + used, size - used, ": %s", reason);
    }
}

static enum trajd_status refuse_twins(const struct candidate *candidate, struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "the layouts %s and %s fit, which differ in %s, and the file does not "
                           "state it: choose one of them as its layout",
                           candidate->layout, candidate->twin, candidate->difference);
}

/* Opens the path if the first episodes fit the layout: the others need not be read to refuse it. */
static enum trajd_status try(const struct cli_files *files, cli_open_function *open,
                             const char *layout, const char *path, struct trajd_index **index,
                             struct trajd_error *error)
{
    enum trajd_status status = open(files, layout, path, true, index, error);

    trajd_index_destroy(index);
    return status == TRAJD_ERR_NOT_FOUND ? status : open(files, layout, path, false, index, error);
}

enum trajd_status cli_guess(const struct cli_files *files, cli_open_function *open,
                            const char *path, struct trajd_index **index, struct trajd_error *error)
{
    struct trajd_index *second_best = NULL;
    enum trajd_status status = TRAJD_ERR_NOT_FOUND;
    struct reasons reasons = {.count = 0};
    char text[TRAJD_ERROR_MESSAGE_SIZE];

    for (size_t i = 0; i < ARRAY_LEN(candidates) && status == TRAJD_ERR_NOT_FOUND; i++) {
        status = try(files, open, candidates[i].layout, path, index, error);
        if (status) {
            add_reason(&reasons, error->message);
        } else if (candidates[i].twin) {
            trajd_index_destroy(index);
            status = refuse_twins(&candidates[i], error);
        } else if (!is_convincing(&candidates[i], *index)) {
            second_best = *index;
            *index = NULL;
            status = TRAJD_ERR_NOT_FOUND;
            add_reason(&reasons, "");
        }
    }
    if (status == TRAJD_ERR_NOT_FOUND && second_best) {
        *index = second_best;
        return TRAJD_OK;
    }
    trajd_index_destroy(&second_best);
    if (status != TRAJD_ERR_NOT_FOUND)
        return status;
    if (is_one_reason(&reasons))
        return status; /* the path itself: the message names it */
    write_reasons(&reasons, text, sizeof text);
    return trajd_error_set(error, status, 0, "no layout fits: %s", text);
}
