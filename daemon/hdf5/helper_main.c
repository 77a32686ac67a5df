/* trajd-indexer, the helper program: reads the structure of HDF5 files for a parent that trusts
 * none of it (daemon/index/helper.h). As "trajd-indexer write" it makes the structure of new files
 * (daemon/index/writer_protocol.h). Only trajd and trajctl start it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/hdf5/helper_socket.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/hdf5/scan.h"
#include "daemon/hdf5/writer/writer.h"

enum { LAYOUT_LENGTH_MAX = 1 << 20 };
static const size_t record_bytes_max = 512u << 20;

static bool receive_layout(uint64_t length, struct trajd_layout **layout)
{
    struct trajd_error error;
    enum trajd_status status;
    char *text;

    if (length > LAYOUT_LENGTH_MAX)
        return false;
    text = trajd_helper_memory(malloc(length + 1));
    if (recv(TRAJD_HELPER_SOCKET, text, length, MSG_WAITALL) != (ssize_t)length) {
        free(text);
        return false;
    }
    status = trajd_layout_parse("layout", text, length, layout, &error);
    if (status == TRAJD_ERR_MEMORY)
        trajd_helper_memory(NULL);
    if (status)
        fprintf(stderr, "trajd-indexer: %s\n", error.message);
    free(text);
    return !status;
}

static bool receive_slice(struct trajd_scan_slice *slice)
{
    uint32_t numbers[2];

    if (recv(TRAJD_HELPER_SOCKET, numbers, sizeof numbers, MSG_WAITALL) != sizeof numbers ||
        numbers[0] >= numbers[1])
        return false;
    *slice = (struct trajd_scan_slice){numbers[0], numbers[1]};
    return true;
}

static bool serve_file(const struct trajd_layout *layout, int fd)
{
    struct trajd_arena arena = {.limit_bytes = record_bytes_max};
    struct trajd_bytes bytes = {0};
    struct trajd_record record = {0};
    struct trajd_scan_slice slice;
    bool sent;

    if (!receive_slice(&slice))
        return false;
    trajd_scan_file(layout, fd, slice, &arena, &record);
    if (arena.is_starved || !trajd_record_encode(&record, &bytes))
        trajd_helper_memory(NULL);
    sent = trajd_helper_send(TRAJD_HELPER_RECORD, bytes.data, bytes.length);
    trajd_bytes_free(&bytes);
    trajd_arena_free(&arena);
    return sent;
}

static bool serve_tree(int fd)
{
    struct trajd_bytes bytes = {0};
    bool sent;

    trajd_scan_tree(fd, &bytes);
    sent = trajd_helper_send(TRAJD_HELPER_TREE, bytes.data, bytes.length);
    trajd_bytes_free(&bytes);
    return sent;
}

/* Serves files under one layout until the parent closes the socket. */
static bool serve_files(uint64_t layout_length)
{
    struct trajd_helper_header header;
    struct trajd_layout *layout = NULL;
    bool ok = receive_layout(layout_length, &layout);
    int fd;

    while (ok && trajd_helper_receive(&header, &fd)) {
        ok = header.kind == TRAJD_HELPER_FILE && header.length == 2 * sizeof(uint32_t) && fd >= 0 &&
             serve_file(layout, fd);
        if (fd >= 0)
            close(fd);
    }
    trajd_layout_destroy(&layout);
    return ok;
}

int main(int argc, char **argv)
{
    struct trajd_helper_header header;
    int fd;

    /* Exceeding the file size limit becomes an error of the write. A reader may write nothing, also
     * not to standard error where that is a file. */
    signal(SIGXFSZ, SIG_IGN);
    if (argc > 1 && !strcmp(argv[1], "write"))
        return trajd_writer_run();
    if (!trajd_sandbox_end_with_parent() || !trajd_sandbox_limit(false) ||
        !trajd_sandbox_limit_time() || !trajd_scan_start_library() ||
        !trajd_sandbox_filter(false)) {
        fprintf(stderr,
                "trajd-indexer: cannot start (is it run by hand? trajd and trajctl run it)\n");
        return 1;
    }
    if (!trajd_helper_send(TRAJD_HELPER_READY, NULL, 0) || !trajd_helper_receive(&header, &fd))
        return 1;
    if (header.kind == TRAJD_HELPER_TREE && header.length == 0 && fd >= 0)
        return serve_tree(fd) ? 0 : 1;
    return header.kind == TRAJD_HELPER_LAYOUT && serve_files(header.length) ? 0 : 1;
}
