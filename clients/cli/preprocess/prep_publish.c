/* Publishes the output with the documents beside it, or moves a refused file to the quarantine with
 * its report. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/preprocess/prep_file.h"
#include "clients/cli/resample/convert.h"
#include "daemon/base/files.h"
#include "daemon/base/memory.h"
#include "proto/plural.h"

void prep_note(void *context, const char *text)
{
    struct trajd_json *notes = &((struct prep_job *)context)->notes;
    const long at = ftell(notes->out);

    if (at >= 0 && at <= PREP_KEPT_BYTES)
        trajd_json_string(notes, NULL, text);
}

/* Returns the record as text. The caller frees it. */
static char *document(struct prep_job *p, size_t *size)
{
    char *text = NULL;
    FILE *out = trajd_memory_or_exit(open_memstream(&text, size));

    if (fflush(p->findings.out) || fflush(p->notes.out) || ferror(p->findings.out) ||
        ferror(p->notes.out))
        trajd_memory_or_exit(NULL);
    p->record.findings = p->findings_text;
    p->record.notes = p->notes_text;
    prep_record_write(&p->record, out);
    trajd_memory_close_or_exit(out, &text);
    return text;
}

static enum trajd_status write_record(struct prep_job *p, const char *path)
{
    size_t size = 0;
    char *text = document(p, &size);
    enum trajd_status status = prep_write(path, text, size, p->error);

    free(text);
    return status;
}

/* A file on its way to the outbox. */
struct publication {
    char name[PREP_PATH_SIZE], staged[PREP_PATH_SIZE], path[PREP_PATH_SIZE];
    bool is_new; /* no file is in its place */
};

/* Names the output, or a part of it. */
static enum trajd_status name_publication(struct prep_job *p, uint32_t part,
                                          struct publication *file)
{
    bool fits = snprintf(file->name, sizeof file->name, "%s", p->name) < PREP_PATH_SIZE &&
                snprintf(file->staged, sizeof file->staged, "%s", p->staged) < PREP_PATH_SIZE;
    struct stat stat;
    enum trajd_status status;

    if (p->part_count)
        fits = trajd_convert_part_path(p->name, part, file->name, sizeof file->name) &&
               trajd_convert_part_path(p->staged, part, file->staged, sizeof file->staged);
    if (!fits)
        return trajd_error_set(p->error, TRAJD_ERR_ARGUMENT, ENAMETOOLONG,
                               "%.200s...: the path is too long", p->name);
    status = prep_path(file->path, p->run->config->outbox, file->name, "", p->error);
    file->is_new = !status && lstat(file->path, &stat) != 0;
    return status;
}

/* Returns whether the checksum beside the output matches the output. Then a run published it and
 * was killed before it wrote the manifest. */
static bool has_checksum(const struct prep_job *p, const struct publication *place)
{
    char path[PREP_PATH_SIZE], expected[PREP_DIGEST_SIZE] = "", digest[PREP_DIGEST_SIZE] = "";
    struct trajd_error error;
    FILE *file = prep_path(path, p->run->config->outbox, place->name, PREP_CHECKSUM_SUFFIX, &error)
                     ? NULL
                     : fopen(path, "re");
    const int fd = open(place->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool both = file && fd >= 0 &&
                      fread(expected, 1, sizeof expected - 1, file) == sizeof expected - 1 &&
                      !prep_digest_file(fd, place->path, digest, &error);

    if (file)
        fclose(file);
    if (fd >= 0)
        close(fd);
    return both && strcmp(expected, digest) == 0;
}

static bool lists(const struct prep_record *record, const char *name)
{
    for (uint32_t i = 0; i < record->output_count; i++)
        if (!strcmp(record->outputs[i].name, name))
            return true;
    return false;
}

/* An existing file is replaced only if it was published here. */
static enum trajd_status check_place(struct prep_job *p, const struct publication *place)
{
    struct prep_record record = {0};
    struct trajd_error error;
    const bool is_ours =
        place->is_new ||
        (!prep_record_load(p->manifest, &record, &error) && lists(&record, place->name)) ||
        has_checksum(p, place);

    prep_record_clear(&record);
    return is_ours ? TRAJD_OK
                   : trajd_error_set(p->error, TRAJD_ERR_IO, EEXIST,
                                     "%s exists, but no manifest shows that it was published here: "
                                     "it is not replaced",
                                     place->path);
}

enum trajd_status prep_check_place(struct prep_job *p)
{
    struct publication place;
    enum trajd_status status = name_publication(p, 0, &place);

    return status ? status : check_place(p, &place);
}

/* Writes the checksum in the format of `sha256sum --check`. */
static enum trajd_status write_checksum(struct prep_job *p, const struct prep_output *output)
{
    char path[PREP_PATH_SIZE], line[PREP_DIGEST_SIZE + PREP_PATH_SIZE];
    const char *base = strrchr(output->name, '/');
    enum trajd_status status =
        prep_path(path, p->run->config->outbox, output->name, PREP_CHECKSUM_SUFFIX, p->error);
    const int length = snprintf(line, sizeof line, "%s  %s\n", output->identity.sha256,
                                base ? base + 1 : output->name);

    return status ? status : prep_write(path, line, (size_t)length, p->error);
}

/* Opens the staged file and finds its size, time and digest. The caller closes *fd in any case. */
static enum trajd_status identify(struct prep_job *p, const struct publication *file, int *fd,
                                  struct stat *staged, struct prep_identity *identity)
{
    *fd = open(file->staged, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (*fd < 0 || fstat(*fd, staged))
        return trajd_error_set(p->error, TRAJD_ERR_IO, errno, "%s, staged: %s", file->name,
                               strerror(errno));
    if (!trajd_file_is_own(staged))
        return trajd_error_set(p->error, TRAJD_ERR_IO, 0,
                               "%s, staged: is not a regular file of this user with a single name",
                               file->name);
    identity->size_bytes = (uint64_t)staged->st_size;
    identity->mtime_ns = prep_mtime_ns(staged);
    return prep_digest_file(*fd, file->name, identity->sha256, p->error);
}

/* The checksum is written before the output, and the manifest after it. So the next run can tell
 * whose file it is, whenever a run is killed. The file that was published must be the one whose
 * digest was taken. */
static enum trajd_status publish_file(struct prep_job *p, const struct publication *file,
                                      struct prep_output *output)
{
    bool is_sure = true;
    struct stat staged, published;
    int fd = -1;
    enum trajd_status status;

    output->name = trajd_memory_or_exit(strdup(file->name));
    status = identify(p, file, &fd, &staged, &output->identity);
    if (!status)
        status = write_checksum(p, output);
    if (!status)
        status = prep_publish(file->staged, file->path, file->is_new ? &is_sure : NULL, p->error);
    if (!status && (lstat(file->path, &published) || published.st_ino != staged.st_ino ||
                    published.st_dev != staged.st_dev))
        status = trajd_error_set(p->error, TRAJD_ERR_IO, 0,
                                 "%s: another process put its own file in the place of this one",
                                 file->path);
    if (fd >= 0)
        close(fd);
    if (!status && !is_sure)
        prep_note(p, "the filesystem of the outbox can neither rename without replacing nor link: "
                     "a file of that name that appeared at that moment was replaced");
    return status;
}

/* Removes the files that the last manifest of this source lists and the new one does not. */
static void remove_earlier(const struct prep_job *p)
{
    struct prep_record earlier;
    struct trajd_error error;
    char path[PREP_PATH_SIZE];

    if (!prep_record_load(p->manifest, &earlier, &error))
        for (uint32_t i = 0; i < earlier.output_count; i++) {
            const char *name = earlier.outputs[i].name;
            if (lists(&p->record, name))
                continue;
            if (!prep_path(path, p->run->config->outbox, name, "", NULL))
                unlink(path);
            if (!prep_path(path, p->run->config->outbox, name, PREP_CHECKSUM_SUFFIX, NULL))
                unlink(path);
        }
    prep_record_clear(&earlier);
}

/* Checks the places of all files before the first one is published. A file that appears after its
 * check is not replaced. */
static enum trajd_status publish_files(struct prep_job *p)
{
    const uint32_t count = p->part_count ? p->part_count : 1;
    struct publication *files = trajd_memory_or_exit(calloc(count, sizeof *files));
    enum trajd_status status = TRAJD_OK;

    p->record.outputs = trajd_memory_or_exit(calloc(count, sizeof *p->record.outputs));
    for (uint32_t i = 0; i < count && !status; i++) {
        status = name_publication(p, i, &files[i]);
        if (!status)
            status = check_place(p, &files[i]);
    }
    for (uint32_t i = 0; i < count && !status; i++)
        status = publish_file(p, &files[i], &p->record.outputs[p->record.output_count++]);
    free(files);
    return status;
}

enum trajd_status prep_publish_job(struct prep_job *p)
{
    enum trajd_status status = publish_files(p);
    char rates[TRAJD_RATES_TEXT_SIZE];

    if (!status) {
        remove_earlier(p);
        status = write_record(p, p->manifest);
    }
    if (!status)
        LOG(p->run->log, INFO,
            "%s: published, %" PRIu64 " episode%s, %" PRIu64 " left out, %" PRIu64 " finding%s%s%s",
            p->name, p->record.episodes, trajd_plural(p->record.episodes), p->record.left_out,
            p->record.finding_count, trajd_plural(p->record.finding_count),
            p->record.rates.highest_hz ? ", from " : "",
            trajd_index_rates_text(&p->record.rates, rates));
    return status;
}

/* ---- the quarantine ---- */

enum trajd_status prep_put_aside(struct prep_job *p, enum prep_outcome *outcome)
{
    enum trajd_status status = prep_move(p->source, p->aside, p->error);

    *outcome = PREP_QUARANTINED;
    if (status != TRAJD_ERR_UNSUPPORTED)
        return status;
    *outcome = PREP_KNOWN;
    LOG(p->run->log, WARNING, "%s: the file stays in the inbox and is ignored until it changes",
        p->error->message);
    return TRAJD_OK;
}

/* Renames an earlier file of that name in the quarantine, and its report, to NAME.1, NAME.2, ... */
static enum trajd_status make_way(const struct prep_job *p)
{
    char path[PREP_PATH_SIZE], suffix[64];
    struct stat stat;
    enum trajd_status status = TRAJD_OK;

    if (lstat(p->aside, &stat))
        return TRAJD_OK;
    for (unsigned int number = 1; !status; number++) {
        snprintf(suffix, sizeof suffix, ".%u", number);
        status = prep_path(path, p->run->config->quarantine, p->name, suffix, p->error);
        if (!status && lstat(path, &stat))
            break;
    }
    if (!status && rename(p->aside, path))
        status =
            trajd_error_set(p->error, TRAJD_ERR_IO, errno, "%s: %s", p->aside, strerror(errno));
    strcat(suffix, PREP_REPORT_SUFFIX);
    if (!status)
        status = prep_path(path, p->run->config->quarantine, p->name, suffix, p->error);
    if (!status && rename(p->report, path) && errno != ENOENT)
        status =
            trajd_error_set(p->error, TRAJD_ERR_IO, errno, "%s: %s", p->report, strerror(errno));
    return status;
}

/* The report is written first, so that a file in the quarantine always has one. */
enum trajd_status prep_quarantine(struct prep_job *p, enum prep_outcome *outcome)
{
    enum trajd_status status;

    p->record.is_refused = true;
    p->record.reason = p->reason;
    status = make_way(p);
    if (!status)
        status = write_record(p, p->report);
    if (status)
        return status;
    LOG(p->run->log, WARNING, "%s: quarantined: %s", p->name, p->reason);
    return prep_put_aside(p, outcome);
}
