/* Publishes the output and writes the documents beside it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/preprocess/prep_job.h"

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
    FILE *out;

    fflush(p->findings.out);
    fflush(p->notes.out);
    p->record.findings = p->findings_text;
    p->record.notes = p->notes_text;
    if (!(out = open_memstream(&text, size)))
        return NULL;
    prep_record_write(&p->record, out);
    return fclose(out) == 0 ? text : NULL;
}

enum trajd_status prep_write_job_record(struct prep_job *p, const char *path)
{
    size_t size = 0;
    char *text = document(p, &size);
    enum trajd_status status = text ? prep_write(path, text, size, p->error)
                                    : trajd_error_set(p->error, TRAJD_ERR_MEMORY, 0, "no memory");

    free(text);
    return status;
}

/* Returns whether the checksum beside the output matches the output. Then a run published it and
 * was killed before it wrote the manifest. */
static bool has_checksum(const struct prep_job *p)
{
    char path[PREP_PATH_SIZE], expected[PREP_DIGEST_SIZE] = "", digest[PREP_DIGEST_SIZE] = "";
    struct trajd_error error;
    FILE *file = prep_path(path, p->run->config->outbox, p->name, PREP_CHECKSUM_SUFFIX, &error)
                     ? NULL
                     : fopen(path, "re");
    const int fd = open(p->output, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool both = file && fd >= 0 &&
                      fread(expected, 1, sizeof expected - 1, file) == sizeof expected - 1 &&
                      !prep_digest_file(fd, p->output, digest, &error);

    if (file)
        fclose(file);
    if (fd >= 0)
        close(fd);
    return both && strcmp(expected, digest) == 0;
}

/* An existing file is replaced only if it was published here. */
enum trajd_status prep_check_place(struct prep_job *p)
{
    struct prep_record record;
    struct trajd_error error;
    struct stat stat;

    p->is_new = lstat(p->output, &stat) != 0;
    if (p->is_new || (!prep_record_load(p->manifest, &record, &error) && !record.is_refused) ||
        has_checksum(p))
        return TRAJD_OK;
    return trajd_error_set(
        p->error, TRAJD_ERR_IO, EEXIST,
        "%s exists, but no manifest shows that it was published here: it is not replaced",
        p->output);
}

/* Writes the checksum in the format of `sha256sum --check`. */
static enum trajd_status write_checksum(struct prep_job *p)
{
    char path[PREP_PATH_SIZE], line[PREP_DIGEST_SIZE + PREP_PATH_SIZE];
    const char *base = strrchr(p->name, '/');
    enum trajd_status status =
        prep_path(path, p->run->config->outbox, p->name, PREP_CHECKSUM_SUFFIX, p->error);
    const int length =
        snprintf(line, sizeof line, "%s  %s\n", p->record.output.sha256, base ? base + 1 : p->name);

    return status ? status : prep_write(path, line, (size_t)length, p->error);
}

static enum trajd_status identify_output(struct prep_job *p)
{
    const int fd = open(p->staged, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat stat;
    enum trajd_status status;

    if (fd < 0 || fstat(fd, &stat)) {
        status =
            trajd_error_set(p->error, TRAJD_ERR_IO, errno, "%s: %s", p->staged, strerror(errno));
    } else {
        p->record.output.size_bytes = (uint64_t)stat.st_size;
        p->record.output.mtime_ns = prep_mtime_ns(&stat);
        status = prep_digest_file(fd, p->staged, p->record.output.sha256, p->error);
    }
    if (fd >= 0)
        close(fd);
    return status;
}

/* The checksum is written before the output, and the manifest after it. So the next run can tell
 * whose file it is, whenever a run is killed. */
enum trajd_status prep_publish_job(struct prep_job *p)
{
    enum trajd_status status = identify_output(p);
    char rates[TRAJD_RATES_TEXT_SIZE];
    bool is_sure = true;

    if (!status)
        status = write_checksum(p);
    if (!status)
        status = p->is_new ? prep_publish_new(p->staged, p->output, &is_sure, p->error)
                           : prep_publish(p->staged, p->output, p->error);
    if (!status && !is_sure)
        prep_note(p, "the filesystem of the outbox can neither rename without replacing nor link: "
                     "a file of that name that appeared at that moment was replaced");
    if (!status)
        status = prep_write_job_record(p, p->manifest);
    if (!status)
        LOG(p->run->log, INFO,
            "%s: published, %" PRIu64 " episodes, %" PRIu64 " left out, %" PRIu64 " findings%s%s",
            p->name, p->record.episodes, p->record.left_out, p->record.finding_count,
            p->record.rates.highest_hz ? ", from " : "",
            trajd_index_rates_text(&p->record.rates, rates));
    return status;
}
