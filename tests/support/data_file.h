/* A file of rows for tests whose index is made by hand, in a folder of its own. */
#ifndef TRAJD_TESTS_DATA_FILE_H
#define TRAJD_TESTS_DATA_FILE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/index/index.h"

struct data_file {
    char folder[64], path[96];
    struct trajd_index_file file; /* as the index knows it */
};

/* Makes the folder and an empty file, and returns a descriptor to write its rows. Fails the test where
 * it cannot. */
static inline int data_file_begin(struct data_file *made)
{
    int fd;

    strcpy(made->folder, "/tmp/trajd_rows_XXXXXX");
    assert_non_null(mkdtemp(made->folder));
    snprintf(made->path, sizeof made->path, "%s/rows.h5", made->folder);
    fd = open(made->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    return fd;
}

/* Ends the writing: closes the descriptor and notes the file's size and times. */
static inline void data_file_end(struct data_file *made, int fd)
{
    struct stat status;

    assert_int_equal(fstat(fd, &status), 0);
    close(fd);
    made->file = (struct trajd_index_file){
        .path = made->path, .relative_path = "rows.h5", .stat = trajd_file_stat_from(&status)};
}

#endif
