/* Divides a list of files among shards, and records what a shard has finished. */
#include "clients/cli/cli_shard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clients/cli/cli.h"
#include "clients/cli/resample/convert.h"
#include "clients/cli/cli_shard_record.h"
#include "daemon/base/files.h"
#include "daemon/base/json.h"
#include "daemon/base/memory.h"
#include "daemon/base/progress/progress.h"
#include "daemon/layout/glob.h"
#include "proto/plural.h"

#define RECORDINGS "**/*.hdf5"
#define MAX_MANIFEST_BYTES (1 << 20)

static void set_shard(void *place, const struct cli_option *option, char *value)
{
    struct shard *shard = (struct shard *)((char *)place + option->offset);
    int length = 0;

    if (sscanf(value, "%5u/%5u%n", &shard->index, &shard->count, &length) != 2 || value[length] ||
        strspn(value, "0123456789/") != strlen(value) || !shard->count ||
        shard->count > SHARD_COUNT_MAX || shard->index >= shard->count)
        cli_refuse("%s %s: write I/N with I from 0 to N-1, and N up to %d", option->name, value,
                   SHARD_COUNT_MAX);
}

const struct cli_option cli_shard_options[] = {
    {"--shard", "I/N", "make only the files of shard I of N, counted from 0", CLI_CALL,
     .set = set_shard},
    {0}};

uint32_t shard_of_name(const char *name, uint32_t shard_count)
{
    char digest[PREP_DIGEST_SIZE];

    prep_digest_bytes(name, strlen(name), digest);
    digest[15] = 0;
    return (uint32_t)(strtoull(digest, NULL, 16) % shard_count);
}

/* ---- the recipe ---- */

/* Appends the digest of the file that a value names, up to a ':'. */
static void add_file(FILE *out, const char *value)
{
    char path[PREP_PATH_SIZE], digest[PREP_DIGEST_SIZE];
    struct trajd_error error;
    struct stat found;
    int fd;

    snprintf(path, sizeof path, "%.*s", (int)strcspn(value, ":"), value);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    if (!fstat(fd, &found) && S_ISREG(found.st_mode) && !prep_digest_file(fd, path, digest, &error))
        fprintf(out, " (%.12s)", digest);
    close(fd);
}

const char *shard_recipe(int argc, char **argv)
{
    static const char *const but[] = {"-o",     "--output",  "--shard",  "--threads",  "--force",
                                      "--json", "--dry-run", "--resume", "--endpoint", NULL};
    static char *text;
    size_t size = 0;
    FILE *out = trajd_memory_or_exit(open_memstream(&text, &size));

    fprintf(out, "trajd %s: %s", TRAJD_VERSION, argv[0]);
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        const char *value, *name = cli_option_at(argc, argv, &i, &value);
        bool counts = name != NULL;
        for (const char *const *other = but; *other && counts; other++)
            counts = strcmp(*other, name) != 0;
        if (!counts)
            continue;
        fprintf(out, " %s%s%s", name, value ? " " : "", value ? value : "");
        if (value)
            add_file(out, value);
    }
    trajd_memory_close_or_exit(out, &text);
    return text;
}

/* ---- the list ---- */

struct listed {
    char *name, *path; /* of the output, relative to the folder; of the input */
};

struct run {
    const struct shard_work *work;
    struct shard_record record; /* as it was found */
    struct listed *files;
    uint32_t file_count, capacity;
    char recipe[PREP_DIGEST_SIZE]; /* digest of the recipe */
    int fd;                        /* of the record, locked */
    uint32_t skipped, failed;
};

static void add_listed(struct run *run, const char *name, const char *folder)
{
    struct listed *file;

    if (run->file_count == run->capacity) {
        run->capacity = 2 * run->capacity + 64;
        run->files = trajd_memory_or_exit(realloc(run->files, run->capacity * sizeof *run->files));
    }
    file = &run->files[run->file_count++];
    file->name = trajd_memory_or_exit(strdup(name));
    if (asprintf(&file->path, "%s%s%s", folder ? folder : "", folder ? "/" : "", name) < 0)
        trajd_memory_or_exit(NULL);
}

static int compare_listed(const void *a, const void *b)
{
    return trajd_natural_compare(((const struct listed *)a)->name,
                                 ((const struct listed *)b)->name);
}

static enum trajd_status add_folder(struct run *run, const char *folder, struct trajd_error *error)
{
    struct trajd_file_list list = {0};
    enum trajd_status status = trajd_file_list_find_recordings(folder, RECORDINGS, &list, error);

    for (uint32_t f = 0; f < list.count && !status; f++)
        add_listed(run, list.relative_paths[f], folder);
    trajd_file_list_free(&list);
    return status;
}

/* Makes the list, and its digest. */
static enum trajd_status make_list(struct run *run, struct shard_record *head,
                                   struct trajd_error *error)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = trajd_memory_or_exit(open_memstream(&text, &size));
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < run->work->input_count && !status; i++) {
        const char *path = run->work->inputs[i], *slash = strrchr(path, '/');
        struct stat found;
        if (!stat(path, &found) && S_ISDIR(found.st_mode)) {
            status = add_folder(run, path, error);
            continue;
        }
        add_listed(run, slash ? slash + 1 : path, NULL);
        free(run->files[run->file_count - 1].path);
        run->files[run->file_count - 1].path = trajd_memory_or_exit(strdup(path));
    }
    if (!status && !run->file_count)
        status = trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                                 "%s: no *.hdf5 and no *.h5 is in it", run->work->inputs[0]);
    if (run->file_count)
        qsort(run->files, run->file_count, sizeof *run->files, compare_listed);
    for (uint32_t f = 0; f < run->file_count && !status; f++) {
        fprintf(out, "%s\n", run->files[f].name);
        if (f && !strcmp(run->files[f].name, run->files[f - 1].name))
            status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                     "%s and %s would both become %s/%s", run->files[f - 1].path,
                                     run->files[f].path, run->work->folder, run->files[f].name);
    }
    trajd_memory_close_or_exit(out, &text);
    head->file_count = run->file_count;
    prep_digest_bytes(text, size, head->list);
    free(text);
    return status;
}

/* ---- the record ---- */

/* Appends lines that are complete. */
static enum trajd_status append(struct run *run, const char *text, size_t length,
                                struct trajd_error *error)
{
    if (trajd_file_write_all(run->fd, text, length) || fdatasync(run->fd))
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "the record of shard %u/%u: %s",
                               run->work->shard.index, run->work->shard.count, strerror(errno));
    return TRAJD_OK;
}

/* Appends {"KEY":"TEXT"}, or {"KEY":NUMBER} if the text is NULL. */
static enum trajd_status append_member(struct run *run, const char *key, const char *text,
                                       uint64_t number, struct trajd_error *error)
{
    char *line = NULL;
    size_t size = 0;
    FILE *out = trajd_memory_or_exit(open_memstream(&line, &size));
    struct trajd_json json = {.out = out};
    enum trajd_status status;

    trajd_json_open_object(&json, NULL);
    if (text)
        trajd_json_string(&json, key, text);
    else
        trajd_json_u64(&json, key, number);
    trajd_json_close_object(&json);
    putc('\n', out);
    trajd_memory_close_or_exit(out, &line);
    status = append(run, line, size, error);
    free(line);
    return status;
}

/* Opens and locks the record. Cuts off the line at which an earlier run was killed. */
static enum trajd_status open_record(struct run *run, const struct shard_record *head,
                                     struct trajd_error *error)
{
    char path[PREP_PATH_SIZE], *text = NULL;
    const char *end;
    size_t length = 0;
    struct stat found;
    enum trajd_status status =
        shard_record_path(path, run->work->folder, head->index, head->count, error);

    if (status)
        return status;
    run->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (run->fd < 0 || fstat(run->fd, &found))
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", path, strerror(errno));
    if (!trajd_file_is_own(&found))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: is not a regular file of this user with a single name", path);
    if (flock(run->fd, LOCK_EX | LOCK_NB))
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                               "%s: another run is working on shard %u/%u", path, head->index,
                               head->count);
    if (trajd_file_read(path, (size_t)1 << 30, &text, &length, error))
        return error->status;
    end = memrchr(text, '\n', length);
    if (ftruncate(run->fd, end ? end + 1 - text : 0))
        status = trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", path, strerror(errno));
    free(text);
    if (!status && !end) { /* a new record */
        size_t size = 0;
        FILE *out = trajd_memory_or_exit(open_memstream(&text, &size));
        shard_record_write_head(head, out);
        trajd_memory_close_or_exit(out, &text);
        status = append(run, text, size, error);
        free(text);
    }
    return status;
}

/* Compares this shard with the first other one in the folder. `trajctl merge` compares all. */
static enum trajd_status compare_with_others(const struct run *run, const struct shard_record *head,
                                             struct trajd_error *error)
{
    struct trajd_file_list list = {0};
    enum trajd_status status =
        trajd_file_list_find(run->work->folder, "shard-*-of-*.jsonl", &list, error);

    for (uint32_t f = 0; f < list.count && !status; f++) {
        struct shard_record other;
        uint32_t index, count;
        if (!shard_record_parse_name(list.relative_paths[f], &index, &count) ||
            (index == head->index && count == head->count))
            continue;
        /* a record that is just being made has no first line yet */
        if (!shard_record_load(run->work->folder, index, count, &other, error))
            status = shard_record_compare(run->work->folder, &other, head, error);
        shard_record_clear(&other);
        break;
    }
    trajd_file_list_free(&list);
    return status;
}

static enum trajd_status begin(struct run *run, struct trajd_error *error)
{
    const struct shard_work *work = run->work;
    struct shard_record head = {
        .index = work->shard.index, .count = work->shard.count, .recipe = (char *)work->recipe};
    enum trajd_status status = make_list(run, &head, error);

    if (status)
        return status;
    if (mkdir(work->folder, 0777) && errno != EEXIST)
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: the folder cannot be made: %s",
                               work->folder, strerror(errno));
    prep_digest_bytes(work->recipe, strlen(work->recipe), run->recipe);
    status = compare_with_others(run, &head, error);
    if (!status)
        status = open_record(run, &head, error);
    if (!status)
        status = shard_record_load(work->folder, head.index, head.count, &run->record, error);
    if (!status)
        status = shard_record_compare(work->folder, &run->record, &head, error);
    return status;
}

/* ---- one file ---- */

/* Returns whether the outputs were finished and still have their size, and the input its size and
 * time. */
static bool is_finished(const struct run *run, const struct shard_entry *entry,
                        const struct prep_identity *source)
{
    char path[PREP_PATH_SIZE];
    struct stat stat;

    if (!entry || !entry->text || entry->record.source.size_bytes != source->size_bytes ||
        entry->record.source.mtime_ns != source->mtime_ns)
        return false;
    for (uint32_t i = 0; i < entry->record.output_count; i++) {
        const struct prep_output *output = &entry->record.outputs[i];
        if (prep_path(path, run->work->folder, output->name, "", NULL) || lstat(path, &stat) ||
            (uint64_t)stat.st_size != output->identity.size_bytes)
            return false;
    }
    return true;
}

static enum trajd_status identify(const char *path, bool with_digest,
                                  struct prep_identity *identity, struct trajd_error *error)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat found;
    enum trajd_status status = TRAJD_OK;

    if (fd < 0 || fstat(fd, &found)) {
        status = trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", path, strerror(errno));
    } else {
        identity->size_bytes = (uint64_t)found.st_size;
        identity->mtime_ns = prep_mtime_ns(&found);
        if (with_digest)
            status = prep_digest_file(fd, path, identity->sha256, error);
    }
    if (fd >= 0)
        close(fd);
    return status;
}

/* Writes the manifest of an output that is made. */
static enum trajd_status record_file(struct run *run, const struct listed *file,
                                     struct prep_record *record, uint32_t part_count,
                                     struct trajd_error *error)
{
    char path[PREP_PATH_SIZE], *text = NULL;
    size_t size = 0;
    FILE *out;
    enum trajd_status status = TRAJD_OK;

    record->name = file->name;
    record->outputs =
        trajd_memory_or_exit(calloc(part_count ? part_count : 1, sizeof *record->outputs));
    for (uint32_t part = 0; (part < part_count || !part) && !status; part++) {
        struct prep_output *output = &record->outputs[record->output_count++];
        if (!part_count)
            snprintf(path, sizeof path, "%s", file->name);
        else if (!trajd_convert_part_path(file->name, part, path, sizeof path))
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s: too long", file->name);
        output->name = trajd_memory_or_exit(strdup(path));
        status = prep_path(path, run->work->folder, output->name, "", error);
        if (!status)
            status = identify(path, true, &output->identity, error);
    }
    strcpy(record->recipe, run->recipe);
    out = trajd_memory_or_exit(open_memstream(&text, &size));
    if (!status)
        prep_record_write(record, out);
    trajd_memory_close_or_exit(out, &text);
    if (!status)
        status = append(run, text, size, error);
    free(text);
    return status;
}

static enum trajd_status do_file(struct run *run, const struct listed *file,
                                 struct trajd_error *error)
{
    const struct shard_work *work = run->work;
    const struct shard_entry *entry = shard_record_find(&run->record, file->name);
    struct prep_record record = {0};
    char output[PREP_PATH_SIZE];
    uint32_t part_count = 0;
    enum trajd_status status = identify(file->path, false, &record.source, error);

    if (!status)
        status = prep_path(output, work->folder, file->name, "", error);
    if (status)
        return status;
    if (is_finished(run, entry, &record.source)) {
        fprintf(stderr, "%s: is finished, skipped\n", output);
        run->skipped++;
        return TRAJD_OK;
    }
    if (!entry && !access(output, F_OK))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s is there, but shard %u/%u has not made it: it is not replaced",
                               output, work->shard.index, work->shard.count);
    status = prep_make_parents(output, error);
    if (!status)
        status = append_member(run, "begin", file->name, 0, error);
    if (status)
        return status;
    if (work->make(work->context, file->path, output, entry != NULL, &record, &part_count))
        run->failed++;
    else
        status = record_file(run, file, &record, part_count, error);
    prep_record_clear(&record);
    free((char *)record.layout);
    return status;
}

int shard_do(const struct shard_work *work)
{
    struct run run = {.work = work, .fd = -1};
    uint32_t own_count = 0;
    struct trajd_error error;
    enum trajd_status status = begin(&run, &error);
    int result = status ? cli_fail("%s", error.message) : CLI_OK;

    if (!status) {
        own_count =
            (run.file_count + work->shard.count - 1 - work->shard.index) / work->shard.count;
        fprintf(stderr, "shard %u/%u: %u of %u file%s\n", work->shard.index, work->shard.count,
                own_count, run.file_count, trajd_plural(run.file_count));
    }
    for (uint32_t f = work->shard.index;
         !status && f < run.file_count && !__atomic_load_n(work->cancel, __ATOMIC_RELAXED);
         f += work->shard.count)
        if (do_file(&run, &run.files[f], &error)) {
            run.failed++;
            cli_fail("%s", error.message);
        }
    if (!status && __atomic_load_n(work->cancel, __ATOMIC_RELAXED)) {
        result = cli_fail("shard %u/%u was ended: start it again, and it goes on",
                          work->shard.index, work->shard.count);
    } else if (!status && run.failed) {
        result = cli_fail("shard %u/%u: %u of %u file%s failed", work->shard.index,
                          work->shard.count, run.failed, own_count, trajd_plural(own_count));
    } else if (!status) {
        status = append_member(&run, "end", NULL, own_count, &error);
        result = status ? cli_fail("%s", error.message) : CLI_OK;
        fprintf(stderr, "shard %u/%u: finished, %u file%s, of which %u skipped\n",
                work->shard.index, work->shard.count, own_count, trajd_plural(own_count),
                run.skipped);
    }
    for (uint32_t f = 0; f < run.file_count; f++) {
        free(run.files[f].name);
        free(run.files[f].path);
    }
    free(run.files);
    if (run.fd >= 0)
        close(run.fd);
    shard_record_clear(&run.record);
    return result;
}

/* ---- an inbox ---- */

enum trajd_status shard_write_inbox(const struct shard *shard, const char *folder,
                                    const char *recipe, const char *const *names, uint32_t count,
                                    struct trajd_error *error)
{
    const struct shard_record head = {
        .index = shard->index, .count = shard->count, .recipe = (char *)recipe};
    char path[PREP_PATH_SIZE], *text = NULL, *manifest;
    size_t size = 0, length;
    uint64_t published = 0;
    FILE *out = trajd_memory_or_exit(open_memstream(&text, &size));
    enum trajd_status status = TRAJD_OK;

    shard_record_write_head(&head, out);
    for (uint32_t i = 0; i < count && !status; i++) {
        status = prep_path(path, folder, names[i], ".manifest.json", error);
        if (status || access(path, F_OK)) /* refused: it has a report in the quarantine */
            continue;
        status = trajd_file_read(path, MAX_MANIFEST_BYTES, &manifest, &length, error);
        for (const char *at = manifest; !status && *at; at++)
            putc(*at == '\n' ? ' ' : *at, out); /* one line */
        putc('\n', out);
        free(manifest);
        published++;
    }
    fprintf(out, "{\"end\":%ju}\n", (uintmax_t)published);
    trajd_memory_close_or_exit(out, &text);
    if (!status)
        status = shard_record_path(path, folder, shard->index, shard->count, error);
    if (!status)
        status = prep_write(path, text, size, error);
    free(text);
    return status;
}
