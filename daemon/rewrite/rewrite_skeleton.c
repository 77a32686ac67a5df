#include "daemon/rewrite/rewrite_skeleton.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/json.h"
#include "daemon/dataset/glob.h"
#include "daemon/dataset/indexer.h"
#include "daemon/dataset/record.h"
#include "daemon/dataset/window_report.h"
#include "daemon/rewrite/writer.h"

enum { PATH_SIZE = 4096, BATCH_MAX = 64, ANSWER_TIMEOUT_MS = 600000, SLICE_MS = 100, END_SLICES = 100, TEXT_SIZE = 512, LEVEL_DEFAULT = 4 };

static const uint64_t answer_bytes_max = UINT64_C(64) << 20;

struct child {
    const struct rewrite_plan *plan;
    struct trajd_error *error;
    pid_t pid;
    int socket;
    bool is_ready;   /* it has begun the output */
    bool is_closing; /* it puts chunks into it */
    struct trajd_bytes frame; /* being made */
    uint8_t *answer;
    size_t answer_capacity;
};

/* ---- the process ---- */

static enum trajd_status start(struct child *child)
{
    const char *path = child->plan->options->indexer_path;
    int sockets[2], code;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
        return trajd_error_set(child->error, TRAJD_ERR_SYSTEM, errno, "socketpair: %s", strerror(errno));
    code = trajd_indexer_spawn(path, "write", sockets[1], &child->pid);
    close(sockets[1]);
    child->socket = sockets[0];
    if (code)
        child->pid = 0;
    return code ? trajd_error_set(child->error, TRAJD_ERR_SYSTEM, code, "%s: cannot be started: %s", path, strerror(code)) : TRAJD_OK;
}

/* Ends the child; what it says of itself goes into *error where that is still empty. */
static void end(struct child *child)
{
    int status = 0;

    if (child->socket >= 0)
        close(child->socket);
    if (child->pid) {
        kill(child->pid, SIGKILL);
        while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    trajd_bytes_free(&child->frame);
    free(child->answer);
}

/* How it ended; one that only closed its socket is ended. */
static int wait_for_end(struct child *child)
{
    int status = 0;
    pid_t gone = 0;

    for (int i = 0; i < END_SLICES && !gone; i++) {
        gone = waitpid(child->pid, &status, WNOHANG);
        if (!gone)
            poll(NULL, 0, SLICE_MS);
    }
    if (!gone) {
        kill(child->pid, SIGKILL);
        while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    child->pid = 0;
    return status;
}

/* Its end came without a word. A kill comes from the machine (its memory is full, or somebody), and so does a start that fails: neither speaks
 * against an input. */
static enum trajd_status lost(struct child *child)
{
    const int status = child->pid ? wait_for_end(child) : 0;
    const bool is_killed = WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM);
    char how[TEXT_SIZE] = "ended";

    if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (WIFEXITED(status))
        snprintf(how, sizeof how, "ended with status %d", WEXITSTATUS(status));
    return trajd_error_set(child->error, is_killed || !child->is_ready ? TRAJD_ERR_SYSTEM : TRAJD_ERR_DATA, 0,
                           "the process that makes the output's structure %s%s", how,
                           is_killed ? "" : child->is_ready ? ": an input is damaged" : ": it does not start");
}

/* ---- frames ---- */

static void begin(struct child *child)
{
    child->frame.length = 0;
}

static void put_u8(struct child *child, uint8_t value)
{
    trajd_bytes_add(&child->frame, &value, 1);
}

static enum trajd_status send_frame(struct child *child, uint32_t kind, int fd)
{
    struct trajd_indexer_header header = {TRAJD_INDEXER_MAGIC, kind, child->frame.length};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {&header, sizeof header};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    size_t sent = 0;
    ssize_t done;

    if (child->frame.failed)
        return trajd_error_set(child->error, TRAJD_ERR_MEMORY, 0, "no memory for the output's structure");
    if (fd >= 0) {
        struct cmsghdr *rights;
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    }
    if (sendmsg(child->socket, &message, MSG_NOSIGNAL) != (ssize_t)sizeof header)
        return lost(child);
    while (sent < child->frame.length) {
        done = send(child->socket, child->frame.data + sent, child->frame.length - sent, MSG_NOSIGNAL);
        if (done < 0 && errno != EINTR)
            return TRAJD_OK; /* why it hung up is in what it said before */
        sent += done > 0 ? (size_t)done : 0;
    }
    return TRAJD_OK;
}

/* Until there is something to read. Chunks take as long as they take, and there is no way back from them. */
static enum trajd_status wait_readable(struct child *child)
{
    const bool *cancel = child->is_closing ? NULL : child->plan->options->cancel;

    for (int waited_ms = 0; waited_ms < ANSWER_TIMEOUT_MS; waited_ms += child->is_closing ? 0 : SLICE_MS) {
        struct pollfd poll_fd = {.fd = child->socket, .events = POLLIN};
        if (cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED))
            return trajd_error_set(child->error, TRAJD_ERR_CLOSED, 0, "interrupted");
        if (poll(&poll_fd, 1, SLICE_MS) > 0)
            return TRAJD_OK;
    }
    return trajd_error_set(child->error, TRAJD_ERR_DATA, 0, "the process that makes the output's structure has not answered for %d s",
                           ANSWER_TIMEOUT_MS / 1000);
}

static enum trajd_status receive(struct child *child, void *data, size_t size)
{
    enum trajd_status status = TRAJD_OK;
    uint8_t *next = data;

    while (size && !(status = wait_readable(child))) {
        const ssize_t got = recv(child->socket, next, size, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return lost(child);
        next += got;
        size -= (size_t)got;
    }
    return status;
}

static enum trajd_status failed(struct child *child, size_t length)
{
    uint32_t code = 0;
    const char *text = (const char *)child->answer + sizeof code;

    if (length < sizeof code)
        return lost(child);
    memcpy(&code, child->answer, sizeof code);
    if (code == ENOSPC || code == EDQUOT || code == EFBIG)
        return trajd_error_set(child->error, TRAJD_ERR_IO, (int)code, "%s: %s", child->plan->options->output, strerror((int)code));
    return trajd_error_set(child->error, code ? TRAJD_ERR_IO : TRAJD_ERR_DATA, (int)code, "%.*s", (int)(length - sizeof code), text);
}

/* The next answer, which must be of that kind; notes before it are passed on. */
static enum trajd_status answer(struct child *child, uint32_t kind, size_t *length)
{
    struct trajd_indexer_header header;
    enum trajd_status status;

    for (;;) {
        if ((status = receive(child, &header, sizeof header)))
            return status;
        if (header.magic != TRAJD_INDEXER_MAGIC || header.length > answer_bytes_max)
            return trajd_error_set(child->error, TRAJD_ERR_DATA, 0, "the process that makes the output's structure broke the framing");
        if (header.length >= child->answer_capacity) {
            uint8_t *grown = realloc(child->answer, header.length + 1);
            if (!grown)
                return trajd_error_set(child->error, TRAJD_ERR_MEMORY, 0, "no memory for an answer");
            child->answer = grown;
            child->answer_capacity = header.length + 1;
        }
        if ((status = receive(child, child->answer, header.length)))
            return status;
        child->answer[header.length] = '\0';
        *length = header.length;
        if (header.kind == kind)
            return TRAJD_OK;
        if (header.kind == TRAJD_WRITER_FAILED)
            return failed(child, header.length);
        if (header.kind != TRAJD_WRITER_NOTE)
            return trajd_error_set(child->error, TRAJD_ERR_DATA, 0, "the process that makes the output's structure answered what was not asked");
        rewrite_note(child->plan->options, "%s", (const char *)child->answer);
    }
}

/* ---- the recipe ---- */

void rewrite_episode_path(const struct trajd_index *index, const char *id, char *path, size_t size)
{
    const char *groups = index->layout->groups;
    size_t length = strcspn(groups, "*?[");

    if (!groups[length]) {
        snprintf(path, size, "%s", groups);
        return;
    }
    while (length > 0 && groups[length - 1] != '/')
        length--;
    snprintf(path, size, "%.*s%s", (int)length, groups, id);
}

static void put_label(struct child *child, const struct trajd_index *index, const struct trajd_episode *episode)
{
    const char *file = index->files[episode->file_index].relative_path;
    char label[PATH_SIZE];

    snprintf(label, sizeof label, "%s", file);
    if (strcmp(file, episode->id))
        snprintf(label, sizeof label, "%.2000s:%.1500s", file, episode->id);
    trajd_bytes_add_text(&child->frame, label);
}

static void put_part(struct child *child, const struct rewrite_episode *made)
{
    char *text = rewrite_part_text(child->plan, made);

    child->frame.failed = child->frame.failed || !text;
    if (text)
        trajd_bytes_add_text(&child->frame, text);
    free(text);
}

/* Whether a dataset is a stream, taken or not, or times: its absence from the output is no surprise. */
static bool is_known(const struct trajd_index *index, uint32_t dataset)
{
    for (uint32_t s = 0; s < index->stream_count; s++)
        if (index->streams[s].dataset_index == dataset)
            return true;
    for (uint32_t k = 0; k < index->clock_count; k++) {
        const struct trajd_layout_clock *clock = &index->layout->clocks[k];
        if ((clock->stamps_path && !strcmp(clock->stamps_path, index->datasets[dataset].path)) ||
            (clock->start_path && !strcmp(clock->start_path, index->datasets[dataset].path)))
            return true;
    }
    return false;
}

static void put_known(struct child *child, const struct trajd_index *index)
{
    uint32_t known = 0;

    for (uint32_t d = 0; d < index->dataset_count; d++)
        known += is_known(index, d);
    trajd_bytes_add_u32(&child->frame, known);
    for (uint32_t d = 0; d < index->dataset_count; d++)
        if (is_known(index, d))
            trajd_bytes_add_text(&child->frame, index->datasets[d].path);
}

static void put_row_counts(struct child *child, const struct trajd_index *index, const struct trajd_episode *episode)
{
    uint32_t count = 0;

    for (uint32_t d = 0; d < index->dataset_count; d++)
        count += episode->arrays[d].storage != TRAJD_STORAGE_ABSENT;
    trajd_bytes_add_u32(&child->frame, count);
    for (uint32_t d = 0; d < index->dataset_count; d++)
        if (episode->arrays[d].storage != TRAJD_STORAGE_ABSENT)
            trajd_bytes_add_u64(&child->frame, trajd_array_row_count(&episode->arrays[d]));
}

static void put_arrays(struct child *child, const struct rewrite_episode *made, const struct trajd_episode *episode)
{
    const uint32_t *source_datasets = child->plan->source_datasets[made->source];

    trajd_bytes_add_u32(&child->frame, made->array_count);
    for (uint32_t a = 0; a < made->array_count; a++) {
        trajd_bytes_add_u32(&child->frame, made->arrays[a].dataset);
        put_u8(child, episode->arrays[source_datasets[made->arrays[a].dataset]].has_attributes);
    }
}

/* False where all that the source's episode holds is made: the child need not look. */
static bool has_more(const struct trajd_index *index, const struct trajd_episode *episode, const struct rewrite_episode *made)
{
    uint32_t present = 0;

    for (uint32_t k = 0; k < index->clock_count; k++)
        if (index->layout->clocks[k].start_path)
            return true;
    for (uint32_t d = 0; d < index->dataset_count; d++)
        present += episode->arrays[d].storage != TRAJD_STORAGE_ABSENT;
    return !episode->is_plain || present != made->array_count;
}

/* First rows of regular clocks that say when they begin: as recorded, so without offset and latency. */
static void put_starts(struct child *child, const struct trajd_index *index, const struct trajd_episode *episode, int64_t begin_ns)
{
    uint32_t count = 0;

    for (uint32_t k = 0; k < index->clock_count; k++)
        count += index->layout->clocks[k].start_path != NULL;
    trajd_bytes_add_u32(&child->frame, count);
    for (uint32_t k = 0; k < index->clock_count; k++) {
        const struct trajd_layout_clock *clock = &index->layout->clocks[k];
        if (!clock->start_path)
            continue;
        trajd_bytes_add_text(&child->frame, clock->start_path);
        trajd_bytes_add_u64(&child->frame, (uint64_t)(episode->origin_ns + begin_ns - clock->offset_ns + clock->latency_ns));
        put_u8(child, (uint8_t)clock->start_unit);
    }
}

static void put_episode(struct child *child, const struct rewrite_episode *made)
{
    const struct trajd_index *index = child->plan->options->indexes[made->source];
    const struct trajd_episode *episode = &index->episodes[made->episode];
    char path[PATH_SIZE];

    rewrite_episode_path(index, episode->id, path, sizeof path);
    trajd_bytes_add_text(&child->frame, path);
    rewrite_episode_path(index, made->id, path, sizeof path);
    trajd_bytes_add_text(&child->frame, path);
    put_label(child, index, episode);
    put_part(child, made);
    trajd_bytes_add_u64(&child->frame, made->step_count);
    put_u8(child, has_more(index, episode, made));
    put_row_counts(child, index, episode);
    put_arrays(child, made, episode);
    put_starts(child, index, episode, made->begin_ns);
}

static enum trajd_status take_offsets(struct child *child, struct rewrite_episode *made, uint32_t count)
{
    size_t length, arrays = 0;
    enum trajd_status status = answer(child, TRAJD_WRITER_OFFSETS, &length);
    const uint8_t *next = child->answer;

    for (uint32_t e = 0; e < count; e++)
        arrays += made[e].array_count;
    if (!status && length != arrays * sizeof(uint64_t))
        return trajd_error_set(child->error, TRAJD_ERR_DATA, 0, "%s: offsets of %zu bytes for %zu datasets", made->id, length, arrays);
    for (uint32_t e = 0; e < count && !status; e++)
        for (uint32_t a = 0; a < made[e].array_count; a++, next += sizeof(uint64_t))
            memcpy(&made[e].arrays[a].offset, next, sizeof(uint64_t));
    return status;
}

static enum trajd_status send_datasets(struct child *child)
{
    const struct rewrite_plan *plan = child->plan;
    const int level = plan->options->compress_level;

    begin(child);
    trajd_bytes_add_u32(&child->frame, plan->dataset_count);
    for (uint32_t i = 0; i < plan->dataset_count; i++) {
        const struct rewrite_dataset *dataset = &plan->datasets[i];
        trajd_bytes_add_text(&child->frame, dataset->path);
        put_u8(child, (uint8_t)dataset->to);
        put_u8(child, (uint8_t)(dataset->rank + 1));
        for (uint32_t d = 0; d < dataset->rank; d++)
            trajd_bytes_add_u64(&child->frame, dataset->shape[d]);
        trajd_bytes_add_u64(&child->frame, dataset->is_compressed ? dataset->chunk_rows : 0);
        for (uint32_t d = 0; d < dataset->rank; d++)
            trajd_bytes_add_u64(&child->frame, dataset->chunk_shape[d]);
        put_u8(child, (uint8_t)(level ? level < 9 ? level : 9 : LEVEL_DEFAULT));
    }
    return send_frame(child, TRAJD_WRITER_DATASETS, -1);
}

static enum trajd_status send_input(struct child *child, const struct trajd_index *index, uint32_t file, bool is_first)
{
    const char *filter = index->layout->filter_path, *path = index->files[file].path;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    char folder[PATH_SIZE] = "";
    enum trajd_status status;
    size_t length;

    if (fd < 0)
        return trajd_error_set(child->error, TRAJD_ERR_IO, errno, "%s: %s", path, strerror(errno));
    if (filter)
        snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(filter, '/') - filter), filter);
    begin(child);
    trajd_bytes_add_text(&child->frame, index->files[file].relative_path);
    trajd_bytes_add_text(&child->frame, index->layout->groups);
    trajd_bytes_add_text(&child->frame, folder);
    put_u8(child, is_first);
    put_known(child, index);
    status = send_frame(child, TRAJD_WRITER_INPUT, fd);
    close(fd);
    return status ? status : answer(child, TRAJD_WRITER_READY, &length);
}

static bool is_of_one_file(const struct rewrite_plan *plan, uint32_t left, uint32_t right)
{
    const struct rewrite_episode *a = &plan->episodes[left], *b = &plan->episodes[right];
    const struct trajd_index *index = plan->options->indexes[a->source];

    return a->source == b->source && index->episodes[a->episode].file_index == index->episodes[b->episode].file_index;
}

/* Episodes from `first` on, and their answer before anything else: two that both wait for the other's socket to have room would wait for ever. */
static enum trajd_status send_batch(struct child *child, struct rewrite_plan *plan, uint32_t first, uint32_t count)
{
    enum trajd_status status;

    begin(child);
    trajd_bytes_add_u32(&child->frame, count);
    for (uint32_t i = 0; i < count; i++)
        put_episode(child, &plan->episodes[first + i]);
    status = send_frame(child, TRAJD_WRITER_EPISODES, -1);
    return status ? status : take_offsets(child, &plan->episodes[first], count);
}

/* In order, several at a time: a question and an answer for each would cost as much as what is asked. */
static enum trajd_status send_episodes(struct child *child, struct rewrite_plan *plan)
{
    enum trajd_status status = send_datasets(child);

    for (uint32_t e = 0, count; e < plan->episode_count && !status; e += count) {
        const struct trajd_index *index = plan->options->indexes[plan->episodes[e].source];
        if (!e || !is_of_one_file(plan, e - 1, e))
            status = send_input(child, index, index->episodes[plan->episodes[e].episode].file_index, e == 0);
        for (count = 1; count < BATCH_MAX && e + count < plan->episode_count && is_of_one_file(plan, e, e + count); count++)
            ;
        if (!status)
            status = send_batch(child, plan, e, count);
    }
    return status;
}

/* ---- masks, rates, whence ---- */

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const struct trajd_episode *episode_of(const struct rewrite_plan *plan, uint32_t e)
{
    return &plan->options->indexes[plan->episodes[e].source]->episodes[plan->episodes[e].episode];
}

static bool lists(const struct trajd_episode *episode, const char *key)
{
    for (const char *const *own = episode->filter_keys; own && *own; own++)
        if (!strcmp(*own, key))
            return true;
    return false;
}

static void put_mask(struct child *child, const char *key)
{
    uint32_t count = 0;

    trajd_bytes_add_text(&child->frame, key);
    for (uint32_t e = 0; e < child->plan->episode_count; e++)
        count += lists(episode_of(child->plan, e), key);
    trajd_bytes_add_u32(&child->frame, count);
    for (uint32_t e = 0; e < child->plan->episode_count; e++)
        if (lists(episode_of(child->plan, e), key))
            trajd_bytes_add_text(&child->frame, child->plan->episodes[e].id);
}

static enum trajd_status send_masks(struct child *child)
{
    const struct rewrite_plan *plan = child->plan;
    const char *filter = plan->options->indexes[0]->layout->filter_path, **keys;
    size_t count = 0, distinct = 0;
    char folder[PATH_SIZE];

    if (!filter)
        return TRAJD_OK;
    for (uint32_t e = 0; e < plan->episode_count; e++)
        for (const char *const *own = episode_of(plan, e)->filter_keys; own && *own; own++)
            count++;
    keys = malloc((count + 1) * sizeof *keys);
    if (!keys)
        return trajd_error_set(child->error, TRAJD_ERR_MEMORY, 0, "no memory for masks");
    count = 0;
    for (uint32_t e = 0; e < plan->episode_count; e++)
        for (const char *const *own = episode_of(plan, e)->filter_keys; own && *own; own++)
            keys[count++] = *own;
    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 0; i < count; i++)
        if (!i || strcmp(keys[i], keys[distinct - 1]))
            keys[distinct++] = keys[i];
    begin(child);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(filter, '/') - filter), filter);
    trajd_bytes_add_text(&child->frame, folder);
    trajd_bytes_add_u32(&child->frame, (uint32_t)distinct);
    for (size_t i = 0; i < distinct; i++)
        put_mask(child, keys[i]);
    free(keys);
    return distinct ? send_frame(child, TRAJD_WRITER_MASKS, -1) : TRAJD_OK;
}

/* As a number: 20, 12.5, 29.97. False where no such number is the rate exactly. */
static bool rate_number(struct trajd_rate rate, char *text, size_t size)
{
    static const int digits[] = {4, 6, 9, 15};
    struct trajd_rate back;

    for (size_t i = 0; i < sizeof digits / sizeof *digits; i++) {
        snprintf(text, size, "%.*g", digits[i], (double)rate.num / (double)rate.den);
        if (!strchr(text, 'e') && trajd_parse_rate(text, &back) && back.num == rate.num && back.den == rate.den)
            return true;
    }
    return false;
}

static bool clock_is_used(const struct rewrite_plan *plan, uint32_t clock)
{
    for (uint32_t d = 0; d < plan->dataset_count; d++)
        if (plan->datasets[d].clock == clock)
            return true;
    return false;
}

/* The clock's rate where its attribute is, which may be each episode's own. */
static uint32_t put_rate(struct child *child, const struct trajd_layout_clock *clock, const char *number)
{
    const struct rewrite_plan *plan = child->plan;
    const bool is_one = *clock->rate_attribute == '/';
    const uint32_t count = is_one ? 1 : plan->episode_count;
    const char *at = strchr(clock->rate_attribute, '@'); /* the layout has it */
    const int length = (int)(at - clock->rate_attribute);

    for (uint32_t e = 0; e < count; e++) {
        char where[2 * PATH_SIZE], group[PATH_SIZE];
        rewrite_episode_path(plan->options->indexes[plan->episodes[e].source], plan->episodes[e].id, group, sizeof group);
        snprintf(where, sizeof where, "%s%s%.*s", is_one ? "" : group, is_one || !length ? "" : "/", length, clock->rate_attribute);
        trajd_bytes_add_text(&child->frame, where);
        trajd_bytes_add_text(&child->frame, at + 1);
        trajd_bytes_add_text(&child->frame, clock->rate_json);
        trajd_bytes_add_text(&child->frame, number);
    }
    return count;
}

/* What reads the output by the same layout must find the new rate. */
static void put_rates(struct child *child)
{
    const struct rewrite_plan *plan = child->plan;
    const struct trajd_layout *layout = plan->options->indexes[0]->layout;
    const struct trajd_rate rate = plan->options->rate;
    const size_t at = child->frame.length;
    char number[64];
    const bool exact = rate_number(rate, number, sizeof number);
    uint32_t count = 0;

    trajd_bytes_add_u32(&child->frame, 0);
    for (uint32_t k = 0; k < layout->clock_count; k++) {
        const struct trajd_layout_clock *clock = &layout->clocks[k];
        if (clock->stamps_path || !clock_is_used(plan, k))
            continue;
        if (clock->rate_attribute) {
            count += put_rate(child, clock, number);
            if (!exact)
                rewrite_note(plan->options, "clock %s: no number is %" PRId64 "/%" PRId64 " Hz exactly, %s stands in %s", clock->name, rate.num,
                             rate.den, number, clock->rate_attribute);
        } else if (clock->rate.num != rate.num || clock->rate.den != rate.den) {
            rewrite_note(plan->options, "layout %s says itself that clock %s is at %.6g Hz: the output needs a copy of it with `rate: %s`",
                         layout->name, clock->name, (double)clock->rate.num / (double)clock->rate.den, number);
        }
    }
    if (!child->frame.failed)
        memcpy(child->frame.data + at, &count, sizeof count);
}

/* {"version": ..., "rate": ..., "sources": [...], "streams": {...}} */
static char *provenance(const struct rewrite_plan *plan)
{
    const struct trajd_rewrite_options *options = plan->options;
    char *text = NULL;
    size_t size = 0, files = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    fprintf(out, "{\"by\": \"trajd %s\", \"layout\": ", TRAJD_VERSION);
    trajd_json_text(out, options->indexes[0]->layout->name);
    fprintf(out, ", \"rate\": \"%" PRId64 "/%" PRId64 "\"%s, \"sources\": [", options->rate.num, options->rate.den,
            plan->is_on_gpu ? ", \"arithmetic\": \"gpu\"" : "");
    for (uint32_t k = 0; k < options->index_count; k++)
        for (uint32_t f = 0; f < options->indexes[k]->file_count && files < 1000; f++, files++) {
            fprintf(out, files ? ", " : "");
            trajd_json_text(out, options->indexes[k]->files[f].path);
        }
    fprintf(out, "], \"streams\": {");
    for (uint32_t s = 0; s < plan->stream_count; s++) {
        const struct trajd_rewrite_stream *stream = &plan->streams[s];
        fprintf(out, s ? ", " : "");
        trajd_json_text(out, stream->name);
        fprintf(out, ": {\"kind\": \"%s\", \"from\": \"%s\", \"to\": \"%s\"", trajd_window_kind_name(stream->kind),
                trajd_dtype_name(stream->from), trajd_dtype_name(stream->to));
        if (stream->window_ns)
            fprintf(out, ", \"window_ns\": %" PRId64, stream->window_ns);
        fprintf(out, "}");
    }
    fprintf(out, "}}");
    fclose(out);
    return text;
}

static enum trajd_status finish(struct child *child)
{
    char *text = provenance(child->plan);
    enum trajd_status status;
    size_t length;

    begin(child);
    trajd_bytes_add_u64(&child->frame, child->plan->step_count);
    trajd_bytes_add_u64(&child->frame, child->plan->episode_count);
    put_rates(child);
    trajd_bytes_add_text(&child->frame, text);
    free(text);
    status = send_frame(child, TRAJD_WRITER_FINISH, -1);
    if (!status)
        status = answer(child, TRAJD_WRITER_DONE, &length);
    return status;
}

/* What the closed file is. */
static enum trajd_status measure(const struct rewrite_plan *plan, int fd, uint64_t *size_bytes, struct trajd_error *error)
{
    struct stat status;

    if (fstat(fd, &status))
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", plan->options->output, strerror(errno));
    *size_bytes = (uint64_t)status.st_size;
    return TRAJD_OK;
}

static enum trajd_status begin_output(struct child *child, int fd, bool is_new)
{
    enum trajd_status status = start(child);
    size_t length;

    begin(child);
    put_u8(child, is_new);
    if (!status)
        status = send_frame(child, TRAJD_WRITER_OUTPUT, fd);
    if (!status)
        status = answer(child, TRAJD_WRITER_READY, &length);
    child->is_ready = !status;
    return status;
}

/* Rows are written where the child says: inside the file, and nowhere twice as far as can be seen. */
static enum trajd_status check_offsets(const struct rewrite_plan *plan, uint64_t size_bytes, struct trajd_error *error)
{
    for (uint32_t e = 0; e < plan->episode_count; e++)
        for (uint32_t a = 0; a < plan->episodes[e].array_count; a++) {
            const struct rewrite_array *array = &plan->episodes[e].arrays[a];
            const struct rewrite_dataset *dataset = &plan->datasets[array->dataset];
            const uint64_t bytes = dataset->row_bytes * plan->episodes[e].step_count;
            if (!dataset->is_compressed && (array->offset < TRAJD_WRITER_SIGNATURE_SIZE || array->offset > size_bytes || bytes > size_bytes - array->offset))
                return trajd_error_set(error, TRAJD_ERR_DATA, 0, "%s: %s: room at %" PRIu64 " of a file of %" PRIu64 " bytes",
                                       plan->episodes[e].id, dataset->path, array->offset, size_bytes);
        }
    return TRAJD_OK;
}

enum trajd_status rewrite_skeleton_make(struct rewrite_plan *plan, int fd, uint64_t *size_bytes, struct trajd_error *error)
{
    struct child child = {.plan = plan, .error = error, .socket = -1};
    enum trajd_status status = begin_output(&child, fd, true);

    if (!status)
        status = send_episodes(&child, plan);
    if (!status)
        status = send_masks(&child);
    if (!status)
        status = finish(&child);
    end(&child);
    if (!status)
        status = measure(plan, fd, size_bytes, error);
    return status ? status : check_offsets(plan, *size_bytes, error);
}

/* Where a chunk begins in the dataset. */
static void put_place(struct child *child, const struct rewrite_dataset *dataset, uint64_t chunk)
{
    uint64_t place[TRAJD_ARRAY_MAX_RANK] = {0}, tile = chunk % dataset->tile_count;

    for (uint32_t d = dataset->rank; d-- > 0;) {
        const uint64_t extent = (dataset->shape[d] + dataset->chunk_shape[d] - 1) / dataset->chunk_shape[d];
        place[d] = tile % extent * dataset->chunk_shape[d];
        tile /= extent;
    }
    trajd_bytes_add_u64(&child->frame, chunk / dataset->tile_count * dataset->chunk_rows);
    for (uint32_t d = 0; d < dataset->rank; d++)
        trajd_bytes_add_u64(&child->frame, place[d]);
}

static void put_chunks(struct child *child, const struct rewrite_episode *made, uint32_t a, const struct rewrite_chunk *chunks)
{
    const struct rewrite_dataset *dataset = &child->plan->datasets[made->arrays[a].dataset];
    const uint64_t count = rewrite_chunk_count(dataset, made->step_count);
    char group[PATH_SIZE], path[2 * PATH_SIZE];

    rewrite_episode_path(child->plan->options->indexes[made->source], made->id, group, sizeof group);
    snprintf(path, sizeof path, "%s%s%s", group, group[1] ? "/" : "", dataset->path);
    trajd_bytes_add_text(&child->frame, path);
    put_u8(child, (uint8_t)(dataset->rank + 1));
    trajd_bytes_add_u64(&child->frame, count);
    for (uint64_t c = 0; c < count; c++) {
        put_place(child, dataset, c);
        trajd_bytes_add_u64(&child->frame, chunks[c].offset);
        trajd_bytes_add_u32(&child->frame, chunks[c].size);
        trajd_bytes_add_u32(&child->frame, chunks[c].mask);
    }
}

enum trajd_status rewrite_skeleton_add_chunks(const struct rewrite_plan *plan, struct rewrite_chunk *const *const *chunks, int fd,
                                              int spool_fd, uint64_t *size_bytes, struct trajd_error *error)
{
    struct child child = {.plan = plan, .error = error, .socket = -1, .is_closing = true};
    enum trajd_status status = begin_output(&child, fd, false);
    uint32_t count = 0;
    size_t length;

    begin(&child);
    trajd_bytes_add_u32(&child.frame, 0);
    for (uint32_t e = 0; e < plan->episode_count; e++)
        for (uint32_t a = 0; a < plan->episodes[e].array_count; a++)
            if (chunks[e][a]) {
                put_chunks(&child, &plan->episodes[e], a, chunks[e][a]);
                count++;
            }
    if (!child.frame.failed)
        memcpy(child.frame.data, &count, sizeof count);
    if (!status)
        status = send_frame(&child, TRAJD_WRITER_CHUNKS, spool_fd);
    if (!status)
        status = answer(&child, TRAJD_WRITER_DONE, &length);
    end(&child);
    return status ? status : measure(plan, fd, size_bytes, error);
}
