/* The loop of the writer: opens files and handles one frame after another. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/hdf5/helper_socket.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/hdf5/scan.h"
#include "daemon/hdf5/writer/writer.h"

enum { TEXTS_MAX = 1 << 20, CACHE_BYTES = 2 << 20 };

/* The size by which the space for metadata grows. In large blocks, few seeks lead to all objects. A
 * small file would be little else than one such block. */
enum { META_BLOCK_BYTES = 256 << 10, SMALL_META_BLOCK_BYTES = 4 << 10 };

/* ---- files ---- */

/* Fixes the size of libhdf5's metadata cache, for files that are passed once. In a larger cache
 * every object takes new memory, and all are freed one by one at the end: with 64 MiB, 35,000
 * objects take a third longer. */
static void fix_cache(hid_t access)
{
    H5AC_cache_config_t config = {.version = H5AC__CURR_CACHE_CONFIG_VERSION};

    if (H5Pget_mdc_config(access, &config) < 0)
        return;
    config.set_initial_size = true;
    config.initial_size = config.max_size = config.min_size = CACHE_BYTES;
    config.incr_mode = H5C_incr__off;
    config.flash_incr_mode = H5C_flash_incr__off;
    config.decr_mode = H5C_decr__off;
    H5Pset_mdc_config(access, &config);
}

/* Creates the output, or opens it again. It has the oldest format that can hold it, so that every
 * reader opens it, and no times, so that equal inputs give equal files. */
static bool begin_output(struct trajd_writer *writer, struct trajd_writer_frame *frame, int fd)
{
    const bool is_new = trajd_writer_u8(frame), is_small = trajd_writer_u8(frame);
    const hid_t creation = H5Pcreate(H5P_FILE_CREATE);
    hid_t access;

    writer->output_file = (struct trajd_descriptor_file){
        .fd = fd, .name = "the output", .on_error = trajd_writer_end_after_io_error};
    access = trajd_descriptor_access(&writer->output_file);
    fix_cache(access);
    H5Pset_meta_block_size(access, is_small ? SMALL_META_BLOCK_BYTES : META_BLOCK_BYTES);
    H5Pset_obj_track_times(creation, 0);
    writer->output = is_new ? H5Fcreate(TRAJD_DESCRIPTOR_NAME, H5F_ACC_TRUNC, creation, access)
                            : H5Fopen(TRAJD_DESCRIPTOR_NAME, H5F_ACC_RDWR, access);
    H5Pclose(access);
    H5Pclose(creation);
    if (writer->output < 0)
        return trajd_writer_fail(is_new ? "the output cannot be begun"
                                        : "the output cannot be opened again");
    return trajd_helper_send(TRAJD_WRITER_READY, NULL, 0);
}

static void clear_texts(char ***texts, uint32_t *count)
{
    for (uint32_t i = 0; i < *count; i++)
        free((*texts)[i]);
    free(*texts);
    *texts = NULL;
    *count = 0;
}

static void read_texts(struct trajd_writer_frame *frame, char ***texts, uint32_t *text_count)
{
    const uint32_t count = trajd_writer_u32(frame);
    char text[TRAJD_WRITER_PATH_SIZE];

    clear_texts(texts, text_count);
    *texts = count <= TEXTS_MAX ? calloc((size_t)count + 1, sizeof **texts) : NULL;
    frame->failed = frame->failed || !*texts;
    for (uint32_t i = 0; i < count && !frame->failed; i++) {
        trajd_writer_text(frame, text, sizeof text);
        (*texts)[i] = strdup(text);
        frame->failed = frame->failed || !(*texts)[i];
        *text_count += (*texts)[i] != NULL;
    }
}

/* Opens the file behind the descriptor in place of the input that is open. */
static bool open_file(struct trajd_writer *writer, const struct trajd_writer_frame *frame, int fd)
{
    hid_t access;

    if (writer->input >= 0) {
        H5Fclose(writer->input);
        close(writer->input_file.fd);
    }
    writer->input_file = (struct trajd_descriptor_file){
        .fd = fd, .name = writer->label, .on_error = trajd_writer_end_after_io_error};
    access = trajd_descriptor_access(&writer->input_file);
    fix_cache(access);
    writer->input = frame->failed ? -1 : H5Fopen(TRAJD_DESCRIPTOR_NAME, H5F_ACC_RDONLY, access);
    H5Pclose(access);
    return writer->input >= 0 || trajd_writer_fail(writer->label);
}

static bool open_input(struct trajd_writer *writer, struct trajd_writer_frame *frame, int fd)
{
    trajd_writer_text(frame, writer->label, sizeof writer->label);
    trajd_writer_text(frame, writer->groups, sizeof writer->groups);
    trajd_writer_text(frame, writer->filter_folder, sizeof writer->filter_folder);
    writer->is_first = trajd_writer_u8(frame);
    read_texts(frame, &writer->known, &writer->known_count);
    read_texts(frame, &writer->tables, &writer->table_count);
    return open_file(writer, frame, fd) && trajd_writer_copy_surroundings(writer) &&
           trajd_helper_send(TRAJD_WRITER_READY, NULL, 0);
}

static bool pack_frames(struct trajd_writer *writer, struct trajd_writer_frame *frame, int fd)
{
    trajd_writer_text(frame, writer->label, sizeof writer->label);
    return open_file(writer, frame, fd) && trajd_writer_frames(writer, frame);
}

static bool serve(struct trajd_writer *writer, uint32_t kind, struct trajd_writer_frame *frame,
                  int fd)
{
    switch (kind) {
    case TRAJD_WRITER_OUTPUT:
        return writer->output < 0 && fd >= 0 && begin_output(writer, frame, fd);
    case TRAJD_WRITER_INPUT:
        return writer->output >= 0 && fd >= 0 && open_input(writer, frame, fd);
    case TRAJD_WRITER_DATASETS:
        return writer->output >= 0 && trajd_writer_datasets(writer, frame);
    case TRAJD_WRITER_EPISODES:
        return writer->input >= 0 && trajd_writer_episodes(writer, frame);
    case TRAJD_WRITER_MASKS:
        return writer->output >= 0 && trajd_writer_masks(writer, frame);
    case TRAJD_WRITER_FINISH:
        return writer->output >= 0 && trajd_writer_finish(writer, frame);
    case TRAJD_WRITER_PACK:
        return writer->output >= 0 && fd >= 0 && pack_frames(writer, frame, fd);
    case TRAJD_WRITER_CHUNKS:
        return writer->output >= 0 && fd >= 0 && trajd_writer_chunks(writer, frame, fd);
    default:
        return false;
    }
}

static bool receive_body(size_t length, uint8_t **body)
{
    size_t have = 0;

    *body = length <= TRAJD_WRITER_FRAME_BYTES_MAX ? malloc(length + 1) : NULL;
    while (*body && have < length) {
        const ssize_t got = recv(TRAJD_HELPER_SOCKET, *body + have, length - have, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        have += (size_t)got;
    }
    return *body != NULL;
}

int trajd_writer_run(void)
{
    struct trajd_writer writer = {.output = -1, .input = -1};
    struct trajd_helper_header header;
    /* ends with its parent, because the next run begins the same file anew */
    bool ok = !prctl(PR_SET_PDEATHSIG, SIGKILL) && trajd_sandbox_limit(true) &&
              trajd_scan_start_library() && trajd_sandbox_filter(true);
    int fd;

    /* does not free memory between episodes: this process ends soon, and freeing takes longer */
    H5set_free_list_limits(-1, -1, -1, -1, -1, -1);
    while (ok && trajd_helper_receive(&header, &fd)) {
        uint8_t *body = NULL;
        ok = receive_body(header.length, &body);
        if (ok) {
            struct trajd_writer_frame frame = {body, body + header.length, false};
            ok = serve(&writer, header.kind, &frame, fd);
        }
        free(body);
        /* libhdf5 uses the descriptors of the files. That of the output also holds the lock while
         * this process can write. */
        if (fd >= 0 && header.kind != TRAJD_WRITER_OUTPUT && header.kind != TRAJD_WRITER_INPUT &&
            header.kind != TRAJD_WRITER_PACK)
            close(fd);
    }
    for (uint32_t i = 0; i < writer.reported_count; i++)
        free(writer.reported[i]);
    for (uint32_t i = 0; i < writer.axis_count; i++)
        free(writer.axes[i].path);
    clear_texts(&writer.known, &writer.known_count);
    clear_texts(&writer.tables, &writer.table_count);
    trajd_writer_clear_datasets(&writer);
    return ok ? 0 : 1;
}
