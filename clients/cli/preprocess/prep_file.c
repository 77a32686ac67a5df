/* Examines, resamples and publishes one file of the inbox, or moves it to quarantine. */
#include "clients/cli/preprocess/prep_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/memory.h"
#include "daemon/base/progress/progress.h"

/* ---- earlier results ---- */

/* Loads a record, which the caller clears in any case. Returns whether it has the same size and
 * recipe. */
static bool load_record(const struct prep_run *run, const char *path, uint64_t size_bytes,
                        struct prep_record *record)
{
    struct trajd_error error;
    const enum trajd_status status = prep_record_load(path, record, &error);

    /* truncated by a disk failure, or not a record: it is made again */
    if (status == TRAJD_ERR_ARGUMENT)
        LOG(run->log, WARNING, "%s", error.message);
    return !status && record->source.size_bytes == size_bytes &&
           strcmp(record->recipe, run->config->recipe) == 0;
}

/* A file that was written to has another ctime, even where its time of modification was restored. */
static bool has_same_times(const struct prep_identity *a, const struct prep_identity *b)
{
    return a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

bool prep_file_is_known(const struct prep_run *run, const char *name,
                        const struct prep_identity *source)
{
    char path[PREP_PATH_SIZE];
    struct prep_record record;
    bool is_known;

    if (prep_path(path, run->config->outbox, name, PREP_MANIFEST_SUFFIX, NULL))
        return false;
    is_known = load_record(run, path, source->size_bytes, &record) && !record.is_refused &&
               has_same_times(&record.source, source) &&
               prep_record_has_outputs(&record, run->config->outbox);
    prep_record_clear(&record);
    return is_known;
}

/* Recognises a published file that only got other times (copied again, touched), or whose record
 * has no ctime. Updates the times in its manifest. */
static enum trajd_status recognise(struct prep_job *p, bool *known)
{
    struct prep_record record;
    char digest[PREP_DIGEST_SIZE];
    enum trajd_status status;
    bool is_same;

    *known = false;
    is_same = load_record(p->run, p->manifest, (uint64_t)p->stat.st_size, &record) &&
              !record.is_refused && prep_record_has_outputs(&record, p->run->config->outbox);
    prep_record_clear(&record); /* the source's members stay */
    if (!is_same)
        return TRAJD_OK;
    *known = has_same_times(&record.source, &p->record.source);
    if (*known)
        return TRAJD_OK;
    status = prep_digest_file(p->fd, p->source, digest, p->error);
    *known = !status && strcmp(digest, record.source.sha256) == 0;
    return *known ? prep_record_retime(p->manifest, &record.source, &p->record.source, p->error)
                  : status;
}

/* Returns whether the file was refused before, by a run that was killed then or could not move it
 * out of the inbox. */
static bool was_refused(const struct prep_job *p)
{
    struct prep_record record;
    const bool is_same = load_record(p->run, p->report, (uint64_t)p->stat.st_size, &record) &&
                         record.is_refused && has_same_times(&record.source, &p->record.source);

    prep_record_clear(&record);
    return is_same;
}

/* ---- lock ---- */

/* Locks the file's name against other runs. Takes over the lock file of a killed run, but not one
 * that its owner removes at the same time. */
static enum trajd_status lock(struct prep_job *p, bool *taken)
{
    struct stat held, named;

    *taken = false;
    p->lock_fd = open(p->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (p->lock_fd < 0)
        return trajd_error_set(p->error, TRAJD_ERR_IO, errno, "%s: %s", p->lock_path,
                               strerror(errno));
    *taken = flock(p->lock_fd, LOCK_EX | LOCK_NB) == 0 && fstat(p->lock_fd, &held) == 0 &&
             stat(p->lock_path, &named) == 0 && held.st_ino == named.st_ino;
    return TRAJD_OK;
}

/* Removes the staged files of this name, which a killed run may have left. */
static void clear_staging(const struct prep_job *p)
{
    const int fd = openat(p->staging_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);

    if (!entries) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(entries));)
        if (strncmp(entry->d_name, p->id, PREP_ID_CHARACTERS) == 0 &&
            strstr(entry->d_name, ".staged"))
            unlinkat(p->staging_fd, entry->d_name, 0);
    closedir(entries);
}

/* ---- validation and resampling ---- */

static void on_finding(void *context, const struct examine_finding *finding)
{
    struct prep_job *p = context;
    struct trajd_json *json = &p->findings;
    const enum prep_verdict verdict = p->run->config->verdicts[finding->rule];
    const long at = ftell(p->findings.out);

    if (verdict == PREP_IGNORE)
        return;
    p->record.finding_count++;
    if (verdict == PREP_REFUSE && !*p->reason)
        snprintf(p->reason, sizeof p->reason, "%s: %.400s", examine_rule_names[finding->rule],
                 finding->text);
    if (at < 0 || at > PREP_KEPT_BYTES)
        return;
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "rule", examine_rule_names[finding->rule]);
    trajd_json_bool(json, "refuses", verdict == PREP_REFUSE);
    trajd_json_string(json, "episode", finding->episode);
    trajd_json_string(json, "stream", finding->stream);
    trajd_json_i64(json, "row", finding->row);
    trajd_json_u64(json, "count", finding->count);
    trajd_json_string(json, "message", finding->text);
    trajd_json_close_object(json);
}

/* Returns whether the error is a fault of the file, not of the machine. */
static bool is_of_the_file(enum trajd_status status)
{
    return status == TRAJD_ERR_ARGUMENT || status == TRAJD_ERR_NOT_FOUND ||
           status == TRAJD_ERR_DATA || status == TRAJD_ERR_UNSUPPORTED;
}

/* Turns a fault of the file into a reason for refusal. TRAJD_OK with a reason means that the file
 * is refused. */
static enum trajd_status validation(struct prep_job *p, enum trajd_status status)
{
    if (!is_of_the_file(status))
        return status;
    if (!*p->reason)
        snprintf(p->reason, sizeof p->reason, "%s", p->error->message);
    return TRAJD_OK;
}

/* Finds the rates of one clock: of one that is assumed, else of one that is declared. */
static void find_rates(const struct trajd_index *index, struct trajd_index_rates *rates)
{
    for (uint32_t c = 0; c < index->clock_count; c++) {
        struct trajd_index_rates other = {0};
        trajd_index_rates_add(index, c, &other);
        if (!c || other.source > rates->source)
            *rates = other;
    }
}

static enum trajd_status examine(struct prep_job *p, struct trajd_index **index)
{
    struct examiner examiner = {.report = on_finding, .context = p};
    enum trajd_status status =
        cli_files_open(p->run->files, p->run->config->layout, p->source, index, p->error);

    if (status)
        return validation(p, status);
    free((void *)p->record.layout);
    p->record.layout = trajd_memory_or_exit(strdup((*index)->layout->name));
    examiner.index = *index;
    find_rates(*index, &p->record.rates);
    for (uint32_t n = 0; n < (*index)->note_count; n++)
        prep_note(p, (*index)->notes[n]);
    return validation(p, examine_index(&examiner, p->error));
}

static void report_progress(void *context, const struct trajd_convert_progress *progress)
{
    const struct prep_job *p = context;

    trajd_progress_report(p->name, TRAJD_PROGRESS_BYTES, progress->bytes_done,
                          progress->byte_count);
}

static enum trajd_status resample(struct prep_job *p, const struct trajd_index *index)
{
    struct trajd_convert_options options = p->run->config->convert;
    struct trajd_convert_report report;
    enum trajd_status status;

    options.indexes = &index;
    options.index_count = 1;
    options.output = p->staged;
    options.output_name = p->name;
    options.helper_path = p->run->files->helper;
    options.force = true;
    options.cancel = p->run->cancel;
    options.on_note = prep_note;
    options.on_progress = report_progress;
    options.context = p;
    status = trajd_convert_file(&options, &report, p->error);
    p->record.episodes = report.episodes_written;
    p->record.left_out = report.episodes_left_out;
    p->record.cut = report.episodes_cut;
    p->part_count = report.part_count;
    trajd_convert_report_clear(&report);
    return validation(p, status);
}

/* Returns whether the path leads to another file now, or the file was written to. */
static bool has_changed(const struct prep_job *p)
{
    struct stat now;
    return lstat(p->source, &now) != 0 || now.st_ino != p->stat.st_ino ||
           now.st_dev != p->stat.st_dev || now.st_size != p->stat.st_size ||
           prep_mtime_ns(&now) != prep_mtime_ns(&p->stat) ||
           prep_ctime_ns(&now) != prep_ctime_ns(&p->stat);
}

static enum trajd_status work(struct prep_job *p, enum prep_outcome *outcome)
{
    struct trajd_index *index = NULL;
    enum trajd_status status;

    clear_staging(p);
    status = prep_check_place(p);
    if (!status)
        status = examine(p, &index);
    if (!status && !*p->reason)
        status = prep_digest_file(p->fd, p->source, p->record.source.sha256, p->error);
    if (!status && !*p->reason)
        status = resample(p, index);
    if (has_changed(p)) {
        LOG(p->run->log, INFO, "%s: changed while it was read", p->name);
        clear_staging(p);
        *outcome = PREP_CHANGED;
        status = TRAJD_OK;
    } else if (!status && *p->reason) {
        status = prep_quarantine(p, outcome);
        clear_staging(p);
    } else if (!status) {
        *outcome = PREP_PUBLISHED;
        status = prep_publish_job(p);
    }
    trajd_index_destroy(&index);
    return status;
}

/* ---- one file ---- */

static enum trajd_status name_paths(struct prep_job *p)
{
    const struct prep_config *config = p->run->config;
    char digest[PREP_DIGEST_SIZE];
    enum trajd_status status;

    prep_digest_bytes(p->name, strlen(p->name), digest);
    memcpy(p->id, digest, PREP_ID_CHARACTERS);
    if ((status = prep_path(p->source, config->inbox, p->name, "", p->error)) ||
        (status =
             prep_path(p->manifest, config->outbox, p->name, PREP_MANIFEST_SUFFIX, p->error)) ||
        (status = prep_path(p->report, config->quarantine, p->name, PREP_REPORT_SUFFIX, p->error)))
        return status;
    return prep_path(p->aside, config->quarantine, p->name, "", p->error);
}

/* Opens the staging folder and names the files in it. Its files get the name of the result, so no
 * other user may write to it. */
static enum trajd_status open_staging(struct prep_job *p)
{
    char folder[PREP_PATH_SIZE];
    struct stat found;
    enum trajd_status status =
        prep_path(folder, p->run->config->outbox, PREP_STAGING, "", p->error);

    if (!status)
        status = prep_make_parents(folder, p->error);
    if (status)
        return status;
    if (mkdir(folder, 0700) && errno != EEXIST)
        return trajd_error_set(p->error, TRAJD_ERR_IO, errno, "%s: %s", folder, strerror(errno));
    p->staging_fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (p->staging_fd < 0 || fstat(p->staging_fd, &found) || found.st_uid != geteuid() ||
        (found.st_mode & (S_IWGRP | S_IWOTH)))
        return trajd_error_set(p->error, TRAJD_ERR_IO, 0,
                               "%s: is not a folder of this user that no other user may write to: "
                               "remove it",
                               folder);
    snprintf(p->lock_path, sizeof p->lock_path, "/proc/self/fd/%d/%s.lock", p->staging_fd, p->id);
    snprintf(p->staged, sizeof p->staged, "/proc/self/fd/%d/%s.staged", p->staging_fd, p->id);
    return TRAJD_OK;
}

static enum trajd_status open_source(struct prep_job *p)
{
    const struct trajd_rate rate = p->run->config->convert.rate;

    p->fd = open(p->source, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (p->fd < 0 || fstat(p->fd, &p->stat) || !S_ISREG(p->stat.st_mode))
        return trajd_error_set(p->error, TRAJD_ERR_IO, errno, "%s: %s", p->source,
                               p->fd < 0 ? strerror(errno) : "not a regular file");
    p->record.name = trajd_memory_or_exit(strdup(p->name));
    if (p->run->config->layout)
        p->record.layout = trajd_memory_or_exit(strdup(p->run->config->layout));
    p->record.source.size_bytes = (uint64_t)p->stat.st_size;
    p->record.source.mtime_ns = prep_mtime_ns(&p->stat);
    p->record.source.ctime_ns = prep_ctime_ns(&p->stat);
    strcpy(p->record.recipe, p->run->config->recipe);
    p->record.rate_hz = (double)rate.num / (double)rate.den;
    return TRAJD_OK;
}

static enum trajd_status run_job(struct prep_job *p, enum prep_outcome *outcome)
{
    bool known = false, taken = false;
    enum trajd_status status = name_paths(p);

    if (!status)
        status = open_staging(p);
    if (!status)
        status = open_source(p);
    if (!status)
        status = lock(p, &taken);
    if (!status && taken)
        status = recognise(p, &known);
    *outcome = !taken ? PREP_ELSEWHERE : PREP_KNOWN;
    if (!status && taken && !known)
        status = was_refused(p) ? prep_put_aside(p, outcome) : work(p, outcome);
    if (taken && !status)
        unlink(p->lock_path);
    return status;
}

enum trajd_status prep_file_do(const struct prep_run *run, const char *name,
                               enum prep_outcome *outcome, struct trajd_error *error)
{
    struct prep_job *p = trajd_memory_or_exit(calloc(1, sizeof *p));
    enum trajd_status status;

    *outcome = PREP_KNOWN;
    *p = (struct prep_job){
        .run = run, .name = name, .fd = -1, .lock_fd = -1, .staging_fd = -1, .error = error};
    p->findings.out = trajd_memory_or_exit(open_memstream(&p->findings_text, &p->findings_size));
    p->notes.out = trajd_memory_or_exit(open_memstream(&p->notes_text, &p->notes_size));
    status = run_job(p, outcome);
    trajd_memory_close_or_exit(p->findings.out, &p->findings_text);
    trajd_memory_close_or_exit(p->notes.out, &p->notes_text);
    prep_record_clear(&p->record);
    free(p->findings_text);
    free(p->notes_text);
    if (p->lock_fd >= 0)
        close(p->lock_fd);
    if (p->fd >= 0)
        close(p->fd);
    if (p->staging_fd >= 0)
        close(p->staging_fd);
    free(p);
    return status;
}
