/* The work of one shard: a list of inputs -> which are mine -> which are finished -> make the others
 * -> record them. */
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
#include "daemon/base/memory.h"
#include "daemon/base/progress/progress.h"
#include "proto/plural.h"

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
        char path[PREP_PATH_SIZE];
        struct prep_identity file;
        bool counts = name != NULL;
        for (const char *const *other = but; *other && counts; other++)
            counts = strcmp(*other, name) != 0;
        if (!counts)
            continue;
        fprintf(out, " %s%s%s", name, value ? " " : "", value ? value : "");
        if (!value)
            continue;
        snprintf(path, sizeof path, "%.*s", (int)strcspn(value, ":"), value);
        if (!prep_identify(path, true, &file, NULL)) /* it names a file */
            fprintf(out, " (%.12s)", file.sha256);
    }
    trajd_memory_close_or_exit(out, &text);
    return text;
}

/* ---- the list ---- */

struct listed {
    char *path; /* of the input */
    char *name; /* of the output, relative to the folder: the end of the path */
};

struct run {
    const struct shard_work *work;
    struct listed *files;
    uint32_t file_count;
    struct shard_record record;    /* as it was found */
    char recipe[PREP_DIGEST_SIZE]; /* digest of the recipe */
    int fd;                        /* of the record, locked */
    uint32_t skipped, failed;
};

/* Takes over `path`. */
static void add_file(struct run *run, char *path, size_t folder_length)
{
    const struct listed file = {trajd_memory_or_exit(path), path + folder_length};

    if ((run->file_count & (run->file_count - 1)) == 0)
        run->files = trajd_memory_or_exit(
            realloc(run->files, ((size_t)2 * run->file_count + 1) * sizeof file));
    run->files[run->file_count++] = file;
}

static void add_input(struct run *run, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct trajd_file_list list = {0};
    struct trajd_error error;
    struct stat found;

    if (stat(path, &found) || !S_ISDIR(found.st_mode)) {
        add_file(run, strdup(path), slash ? (size_t)(slash + 1 - path) : 0);
        return;
    }
    if (trajd_file_list_find_recordings(path, "**/*.hdf5", &list, &error))
        cli_die("%s", error.message);
    for (uint32_t f = 0; f < list.count; f++) {
        char *file = NULL;
        if (asprintf(&file, "%s/%s", path, list.relative_paths[f]) < 0)
            file = NULL;
        add_file(run, file, strlen(path) + 1);
    }
    trajd_file_list_free(&list);
}

static int compare_files(const void *a, const void *b)
{
    return trajd_natural_compare(((const struct listed *)a)->name,
                                 ((const struct listed *)b)->name);
}

/* Makes the list, and its digest. */
static void make_list(struct run *run, char digest[PREP_DIGEST_SIZE])
{
    const struct shard_work *work = run->work;
    char *text;
    size_t size;
    FILE *out = trajd_memory_or_exit(open_memstream(&text, &size));

    for (uint32_t i = 0; i < work->input_count; i++)
        add_input(run, work->inputs[i]);
    if (!run->file_count)
        cli_die("%s: no *.hdf5 and no *.h5 is in it", work->inputs[0]);
    qsort(run->files, run->file_count, sizeof *run->files, compare_files);
    for (uint32_t f = 0; f < run->file_count; f++) {
        fprintf(out, "%s\n", run->files[f].name);
        if (f && !strcmp(run->files[f].name, run->files[f - 1].name))
            cli_die("%s and %s would both become %s/%s", run->files[f - 1].path, run->files[f].path,
                    work->folder, run->files[f].name);
    }
    trajd_memory_close_or_exit(out, &text);
    prep_digest_bytes(text, size, digest);
    free(text);
}

/* ---- the record ---- */

/* Appends a line. Without a record of what is made, to go on makes no sense. */
static void append(const struct run *run, const char *line)
{
    if (trajd_file_write_all(run->fd, line, strlen(line)) || fdatasync(run->fd))
        cli_die("the record of shard %u/%u: %s", run->work->shard.index, run->work->shard.count,
                strerror(errno));
}

static void append_record(const struct run *run, const struct prep_record *record)
{
    char *line;
    size_t size;
    FILE *out = trajd_memory_or_exit(open_memstream(&line, &size));

    prep_record_write(record, out);
    trajd_memory_close_or_exit(out, &line);
    append(run, line);
    free(line);
}

/* Compares this shard with the first other one in the folder. `trajctl merge` compares all. */
static void compare_with_another(const char *folder, const struct shard_record *head)
{
    struct trajd_file_list list = shard_record_list(folder);
    bool is_compared = false;

    for (uint32_t f = 0; f < list.count && !is_compared; f++) {
        struct shard_record other;
        is_compared = shard_record_load(folder, list.relative_paths[f], false, &other) &&
                      (other.index != head->index || other.count != head->count);
        if (is_compared)
            shard_record_compare(folder, &other, head);
        shard_record_clear(&other);
    }
    trajd_file_list_free(&list);
}

/* Opens, locks and reads the record, or begins it. Cuts off the line at which an earlier run was
 * killed. */
static void open_record(struct run *run, const struct shard_record *head)
{
    const char *folder = run->work->folder;
    char name[SHARD_NAME_SIZE], path[PREP_PATH_SIZE], *text;
    struct trajd_error error;
    struct stat found;

    shard_record_name(head->index, head->count, name);
    if (prep_path(path, folder, name, "", &error))
        cli_die("%s", error.message);
    run->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (run->fd < 0 || fstat(run->fd, &found))
        cli_die("%s: %s", path, strerror(errno));
    if (!trajd_file_is_own(&found))
        cli_die("%s: is not a regular file of this user with a single name", path);
    if (flock(run->fd, LOCK_EX | LOCK_NB))
        cli_die("%s: another run is working on shard %u/%u", path, head->index, head->count);
    if (shard_record_load(folder, name, true, &run->record))
        shard_record_compare(folder, &run->record, head);
    if (ftruncate(run->fd, (off_t)run->record.size_bytes))
        cli_die("%s: %s", path, strerror(errno));
    if (!run->record.recipe) {
        text = shard_record_head(head);
        append(run, text);
        free(text);
    }
}

static void begin(struct run *run)
{
    const struct shard_work *work = run->work;
    struct shard_record head = {
        .index = work->shard.index, .count = work->shard.count, .recipe = (char *)work->recipe};

    make_list(run, head.list);
    head.file_count = run->file_count;
    head.own_count = (run->file_count + head.count - 1 - head.index) / head.count;
    if (mkdir(work->folder, 0777) && errno != EEXIST)
        cli_die("%s: the folder cannot be made: %s", work->folder, strerror(errno));
    prep_digest_bytes(work->recipe, strlen(work->recipe), run->recipe);
    compare_with_another(work->folder, &head);
    open_record(run, &head);
    fprintf(stderr, "shard %u/%u: %ju of %u file%s\n", head.index, head.count,
            (uintmax_t)head.own_count, run->file_count, trajd_plural(run->file_count));
}

/* ---- one file ---- */

/* Finds the outputs that were made, and their digests. */
static enum trajd_status list_outputs(const struct run *run, struct prep_record *record,
                                      uint32_t part_count, struct trajd_error *error)
{
    const uint32_t count = part_count ? part_count : 1;
    char name[PREP_PATH_SIZE], path[PREP_PATH_SIZE];
    enum trajd_status status = TRAJD_OK;

    record->outputs = trajd_memory_or_exit(calloc(count, sizeof *record->outputs));
    for (uint32_t part = 0; part < count && !status; part++) {
        struct prep_output *output = &record->outputs[record->output_count++];
        snprintf(name, sizeof name, "%s", record->name);
        if (part_count && !trajd_convert_part_path(record->name, part, name, sizeof name))
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s: too long", record->name);
        output->name = trajd_memory_or_exit(strdup(name));
        status = prep_path(path, run->work->folder, name, "", error);
        if (!status)
            status = prep_identify(path, true, &output->identity, error);
    }
    return status;
}

/* Makes the output of a file, unless it is finished, and fills in its record. TRAJD_ERR_CLOSED: the
 * error is printed. */
static enum trajd_status do_file(struct run *run, const struct listed *file,
                                 struct prep_record *record, struct trajd_error *error)
{
    const struct shard_work *work = run->work;
    const struct shard_entry *entry = shard_record_find(&run->record, file->name);
    char output[PREP_PATH_SIZE];
    uint32_t part_count = 0;
    enum trajd_status status = prep_identify(file->path, false, &record->source, error);

    if (!status)
        status = prep_path(output, work->folder, file->name, "", error);
    if (status)
        return status;
    if (entry && entry->record.source.size_bytes == record->source.size_bytes &&
        entry->record.source.mtime_ns == record->source.mtime_ns &&
        prep_record_has_outputs(&entry->record, work->folder)) {
        fprintf(stderr, "%s: is finished, skipped\n", output);
        run->skipped++;
        return TRAJD_OK;
    }
    if (!entry && !access(output, F_OK))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s is there, but shard %u/%u has not made it: it is not replaced",
                               output, work->shard.index, work->shard.count);
    status = prep_make_parents(output, error);
    if (status)
        return status;
    record->name = trajd_memory_or_exit(strdup(file->name));
    strcpy(record->recipe, run->recipe);
    append_record(run, record);
    if (work->make(work->context, file->path, output, entry != NULL, record, &part_count))
        return TRAJD_ERR_CLOSED;
    status = list_outputs(run, record, part_count, error);
    if (!status)
        append_record(run, record);
    return status;
}

int shard_do(const struct shard_work *work)
{
    struct run run = {.work = work};
    const struct shard shard = work->shard;
    uint32_t own_count = 0;
    int result = CLI_OK;

    begin(&run);
    for (uint32_t f = shard.index; f < run.file_count; f += shard.count) {
        struct prep_record record = {0};
        struct trajd_error error;
        enum trajd_status status;
        if (__atomic_load_n(&cli_is_interrupted, __ATOMIC_RELAXED))
            break;
        status = do_file(&run, &run.files[f], &record, &error);
        if (status && status != TRAJD_ERR_CLOSED)
            cli_fail("%s", error.message);
        run.failed += status != TRAJD_OK;
        own_count++;
        prep_record_clear(&record);
    }
    if (__atomic_load_n(&cli_is_interrupted, __ATOMIC_RELAXED))
        result = cli_fail("shard %u/%u was ended: start it again, and it goes on", shard.index,
                          shard.count);
    else if (run.failed)
        result = cli_fail("shard %u/%u: %u of %u file%s failed", shard.index, shard.count,
                          run.failed, own_count, trajd_plural(own_count));
    else
        fprintf(stderr, "shard %u/%u: finished, %u file%s, of which %u skipped\n", shard.index,
                shard.count, own_count, trajd_plural(own_count), run.skipped);
    for (uint32_t f = 0; f < run.file_count; f++)
        free(run.files[f].path);
    free(run.files);
    close(run.fd);
    shard_record_clear(&run.record);
    return result;
}

/* ---- an inbox ---- */

enum trajd_status shard_write_inbox(const struct shard *shard, const char *folder,
                                    const char *recipe, const char *const *names, uint32_t count,
                                    struct trajd_error *error)
{
    struct shard_record head = {
        .index = shard->index, .count = shard->count, .recipe = (char *)recipe};
    char path[PREP_PATH_SIZE], name[SHARD_NAME_SIZE], *lines, *first, *text = NULL, *manifest;
    size_t size, length;
    FILE *out = trajd_memory_or_exit(open_memstream(&lines, &size));
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < count && !status; i++) {
        status = prep_path(path, folder, names[i], ".manifest.json", error);
        if (status || access(path, F_OK)) /* refused: it has a report in the quarantine */
            continue;
        status = trajd_file_read(path, MAX_MANIFEST_BYTES, &manifest, &length, error);
        for (const char *at = manifest; !status && *at; at++)
            putc(*at == '\n' ? ' ' : *at, out); /* one line */
        putc('\n', out);
        free(manifest);
        head.own_count++;
    }
    trajd_memory_close_or_exit(out, &lines);
    head.file_count = head.own_count;
    first = shard_record_head(&head);
    if (asprintf(&text, "%s%s", first, lines) < 0)
        trajd_memory_or_exit(NULL);
    shard_record_name(shard->index, shard->count, name);
    if (!status)
        status = prep_path(path, folder, name, "", error);
    if (!status)
        status = prep_write(path, text, strlen(text), error);
    free(first);
    free(lines);
    free(text);
    return status;
}
