/* Runs the script that writes the test files, and indexes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/array_list.h"
#include "tests/support/index_files.h"

char index_folder[] = "/tmp/trajd_index_XXXXXX";

static const char *writer;

bool index_files_choose(const char *script)
{
    writer = script;
    return run_python("-c 'import h5py, numpy'") == 0;
}

int index_files_make(void **state)
{
    char arguments[1024];

    (void)state;
    if (!mkdtemp(index_folder))
        return 1;
    snprintf(arguments, sizeof arguments, TRAJD_SOURCE_DIR "/tests/tools/%s %s", writer,
             index_folder);
    return run_python(arguments);
}

int index_files_remove(void **state)
{
    (void)state;
    shell("rm -r %s", index_folder);
    return 0;
}

void shell(const char *format, ...)
{
    char command[2048];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    assert_int_equal(system(command), 0);
}

struct trajd_index_options options_for(const char *path, const char *layout)
{
    return (struct trajd_index_options){.path = path,
                                        .layout = layout,
                                        .layout_directory = TRAJD_SOURCE_DIR "/configs/layouts",
                                        .helper_path =
                                            TRAJD_BINARY_DIR "/daemon/hdf5/trajd-indexer",
                                        .child_count = 2,
                                        .file_timeout_ms = 600000,
                                        /* the files of version 0.1.0 have such rows */
                                        .allows_uneven_rows = true};
}

enum trajd_status try_open(const char *name, const char *layout, struct trajd_index **index,
                           struct trajd_error *error)
{
    char path[512];
    struct trajd_index_options options = options_for(path, layout);

    snprintf(path, sizeof path, "%s/%s", index_folder, name);
    return trajd_index_open(&options, index, error);
}

struct trajd_index *must_open(const struct trajd_index_options *options)
{
    struct trajd_index *index;
    struct trajd_error error;

    if (trajd_index_open(options, &index, &error))
        fail_msg("%s: %s", options->path, error.message);
    return index;
}

struct trajd_index *open_named(const char *name, const char *layout)
{
    struct trajd_index *index;
    struct trajd_error error;

    if (try_open(name, layout, &index, &error))
        fail_msg("%s: %s", name, error.message);
    return index;
}

const struct trajd_index_stream *stream_of(const struct trajd_index *index, const char *name)
{
    int64_t number = trajd_index_find_stream(index, name);

    if (number < 0)
        fail_msg("no stream %s", name);
    return &index->streams[number];
}

void make_folder(const char *name, const char *files)
{
    shell("mkdir %s/%s && cd %s && cp %s %s/ && touch -d '1 hour ago' %s/*", index_folder, name,
          index_folder, files, name, name);
    usleep(200000); /* the cache keeps no record of a file whose ctime may still be given again */
}
