/* One child process, which runs trajd-indexer: its start, its end and its frames. Private to
 * index/. The caller decides what an end means for the file that the child was reading. */
#ifndef TRAJD_INDEX_INDEX_CHILD_H
#define TRAJD_INDEX_INDEX_CHILD_H

#include <sys/types.h>

#include "daemon/index/helper.h"
#include "daemon/index/index_internal.h"

/* What a child had done when its progress was checked last. Zero when it gets a file. */
struct trajd_index_progress {
    int64_t at_ns, cpu_ns;
    uint64_t read_bytes;
    uint32_t looks; /* how often it was checked */
};

struct trajd_index_child {
    pid_t pid; /* 0: none */
    int socket;
    bool ready;
    struct trajd_index_entry *entry; /* NULL: idle */
    int fd;                          /* of the entry, or -1 */
    /* when it must be ready; with an entry: when its progress is checked next */
    int64_t deadline_ns;
    struct trajd_index_progress progress;
    int64_t
        waited_ns; /* for its end, before it is killed: the storage has not answered for so long */
    struct trajd_helper_header header;
    size_t header_length; /* bytes received of the header */
    uint8_t *data;        /* of the frame; owned */
    size_t data_length, data_capacity;
};

enum trajd_index_child_event {
    TRAJD_CHILD_WAITS,     /* the frame is not complete yet */
    TRAJD_CHILD_FRAME,     /* header and data are complete; the caller resets them */
    TRAJD_CHILD_CLOSED,    /* the child closed its socket */
    TRAJD_CHILD_BROKEN,    /* the bytes are not a frame */
    TRAJD_CHILD_NO_MEMORY, /* for the frame's data */
};

/* Sets the child to none, with no descriptor open. */
void trajd_index_child_init(struct trajd_index_child *child);

/* Starts the program at `path`. TRAJD_ERR_SYSTEM where it cannot be started; then there is no
 * child. */
enum trajd_status trajd_index_child_start(struct trajd_index_child *child, const char *path,
                                          struct trajd_error *error);

/* Sends the layout's text, the first frame. Blocks. False where the child is gone. */
bool trajd_index_child_send_layout(const struct trajd_index_child *child,
                                   const struct trajd_layout *layout);

/* Sends the descriptor child->fd and the slice of child->entry. Blocks. False where the child is
 * gone. */
bool trajd_index_child_send_file(const struct trajd_index_child *child);

/* Receives what is there of the next frame. Does not block. */
enum trajd_index_child_event trajd_index_child_receive(struct trajd_index_child *child);

/* Whether the child may go on with its file. Meant to be called each half of file_timeout. From the
 * second call on it returns false, unless the child has read bytes since the last call and was busy
 * on a processor for less than half of that time. So slow storage gets up to ten times
 * file_timeout. */
bool trajd_index_child_may_go_on(struct trajd_index_child *child, int64_t now_ns);

/* Closes the entry's file. The child is idle afterwards. */
void trajd_index_child_release(struct trajd_index_child *child);

/* Kills the child, waits for its end and frees what it has. Returns its exit status as of waitpid,
 * 0 where there was no child. */
int trajd_index_child_end(struct trajd_index_child *child);

#endif
