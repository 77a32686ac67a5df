/* The loop of the writer: opens files and handles one frame after another. */
#include "daemon/hdf5/writer/writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/sandbox/sandbox.h"

enum { CACHE_BYTES = 2 << 20 };

/* The size by which the space for metadata grows. In large blocks, few seeks lead to all objects. A
 * small file would be little else than one such block. */
enum { META_BLOCK_BYTES = 256 << 10, SMALL_META_BLOCK_BYTES = 4 << 10 };

/* ---- files ---- */

/* Ends the process after a read or write that failed. libhdf5 must not go on then: it can crash
 * where a write fails while objects are copied. */
static void end_after_io_error(const struct trajd_descriptor_file *file)
{
    if (file->error == EINVAL) /* an offset in a damaged file that no file can have */
        return;
    trajd_writer_send_failed((uint32_t)file->error, file->name, strerror(file->error));
    _exit(1);
}

/* Returns the properties with which a file is opened. Fixes the size of libhdf5's metadata cache,
 * for files that are passed once. In a larger cache every object takes new memory, and all are
 * freed one by one at the end: with 64 MiB, 35,000 objects take a third longer. Rows are written
 * past libhdf5's buffer for small pieces, because each piece comes once. */
static hid_t access_of(struct trajd_descriptor_file *file, int fd, const char *name)
{
    H5AC_cache_config_t config = {.version = H5AC__CURR_CACHE_CONFIG_VERSION};
    hid_t access;

    *file = (struct trajd_descriptor_file){.fd = fd, .name = name, .on_error = end_after_io_error};
    access = trajd_descriptor_access(file);
    H5Pset_sieve_buf_size(access, 0);
    if (H5Pget_mdc_config(access, &config) < 0)
        return access;
    config.set_initial_size = true;
    config.initial_size = config.max_size = config.min_size = CACHE_BYTES;
    config.incr_mode = H5C_incr__off;
    config.flash_incr_mode = H5C_flash_incr__off;
    config.decr_mode = H5C_decr__off;
    H5Pset_mdc_config(access, &config);
    return access;
}

/* Creates the output. It has the oldest format that can hold it, so that every reader opens it, and
 * no times, so that equal inputs give equal files. */
static bool begin_output(struct trajd_writer *writer, struct trajd_writer_frame *frame, int fd)
{
    const hid_t creation = H5Pcreate(H5P_FILE_CREATE),
                access = access_of(&writer->output_file, fd, "the output");

    H5Pset_meta_block_size(access,
                           trajd_writer_u8(frame) ? SMALL_META_BLOCK_BYTES : META_BLOCK_BYTES);
    H5Pset_obj_track_times(creation, 0);
    writer->output = H5Fcreate(TRAJD_DESCRIPTOR_NAME, H5F_ACC_TRUNC, creation, access);
    H5Pclose(access);
    H5Pclose(creation);
    return writer->output >= 0 || trajd_writer_fail("the output cannot be begun");
}

/* Maps the memory through which rows come. */
static bool map_memory(struct trajd_writer *writer, struct trajd_writer_frame *frame, int fd)
{
    void *memory;

    writer->memory_bytes = trajd_writer_u64(frame);
    memory = mmap(NULL, writer->memory_bytes, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED)
        return trajd_writer_fail("%llu bytes of rows cannot be mapped: %s",
                                 (unsigned long long)writer->memory_bytes, strerror(errno));
    writer->memory = memory;
    return true;
}

/* Opens the file behind the descriptor in place of the input that is open. */
static bool open_file(struct trajd_writer *writer, struct trajd_writer_frame *frame, int fd)
{
    hid_t access;

    if (writer->input >= 0) {
        H5Fclose(writer->input);
        close(writer->input_file.fd);
    }
    trajd_writer_text(frame, writer->label, sizeof writer->label);
    access = access_of(&writer->input_file, fd, writer->label);
    writer->input = frame->failed ? -1 : H5Fopen(TRAJD_DESCRIPTOR_NAME, H5F_ACC_RDONLY, access);
    H5Pclose(access);
    return writer->input >= 0 || trajd_writer_fail("%s", writer->label);
}

static bool open_input(struct trajd_writer *writer, struct trajd_writer_frame *frame, int fd)
{
    if (!open_file(writer, frame, fd))
        return false;
    trajd_writer_text(frame, writer->groups, sizeof writer->groups);
    trajd_writer_text(frame, writer->filter_folder, sizeof writer->filter_folder);
    writer->is_first = trajd_writer_u8(frame);
    *writer->shared_source = '\0';
    writer->known = trajd_writer_texts(frame, &writer->known_count);
    writer->tables = trajd_writer_texts(frame, &writer->table_count);
    return frame->failed ? trajd_writer_fail("an input of the recipe cannot be read")
                         : trajd_writer_copy_surroundings(writer);
}

/* ---- frames ---- */

static bool serve(struct trajd_writer *writer, uint32_t kind, struct trajd_writer_frame *frame,
                  int fd)
{
    const bool takes_file = kind == TRAJD_WRITER_OUTPUT || kind == TRAJD_WRITER_MEMORY ||
                            kind == TRAJD_WRITER_INPUT || kind == TRAJD_WRITER_COPY;

    if (takes_file != (fd >= 0) || (kind == TRAJD_WRITER_OUTPUT) != (writer->output < 0))
        return false;
    switch (kind) {
    case TRAJD_WRITER_OUTPUT:
        return begin_output(writer, frame, fd);
    case TRAJD_WRITER_MEMORY:
        return map_memory(writer, frame, fd);
    case TRAJD_WRITER_INPUT:
        return open_input(writer, frame, fd);
    case TRAJD_WRITER_DATASETS:
        return trajd_writer_datasets(writer, frame);
    case TRAJD_WRITER_EPISODES:
        return trajd_writer_episodes(writer, frame);
    case TRAJD_WRITER_ROWS:
        return trajd_writer_rows(writer, frame);
    case TRAJD_WRITER_MASKS:
        return trajd_writer_masks(writer, frame);
    case TRAJD_WRITER_SUMMARY:
        return trajd_writer_summary(writer, frame);
    case TRAJD_WRITER_CLOSE:
        return trajd_writer_close_output(writer);
    case TRAJD_WRITER_COPY:
        return open_file(writer, frame, fd) && trajd_writer_copy_file(writer, frame);
    case TRAJD_WRITER_FRAMES:
        return trajd_writer_frames(writer, frame);
    default:
        return false;
    }
}

static uint8_t *receive_body(size_t length)
{
    uint8_t *body;

    if (length > TRAJD_WRITER_FRAME_BYTES_MAX)
        return NULL;
    body = trajd_helper_memory(malloc(length + 1));
    for (size_t have = 0; have < length;) {
        const ssize_t got = recv(TRAJD_HELPER_SOCKET, body + have, length - have, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            free(body);
            return NULL;
        }
        have += (size_t)got;
    }
    return body;
}

int trajd_writer_run(void)
{
    static struct trajd_writer writer = {.output = -1, .input = -1};
    struct trajd_helper_header header;
    /* ends with its parent, because the next run begins the same file again */
    bool ok = trajd_sandbox_end_with_parent() && trajd_sandbox_limit(true) &&
              trajd_scan_start_library() && trajd_sandbox_filter(true);
    int fd;

    /* does not free memory between episodes: this process ends soon, and freeing takes longer */
    H5set_free_list_limits(-1, -1, -1, -1, -1, -1);
    while (ok && trajd_helper_receive(&header, &fd)) {
        uint8_t *body = receive_body(header.length);
        struct trajd_writer_frame frame = {body, body + header.length, false};
        ok = body && serve(&writer, header.kind, &frame, fd) &&
             trajd_helper_send(TRAJD_WRITER_DONE, NULL, 0);
        free(body);
    }
    return ok ? 0 : 1;
}
