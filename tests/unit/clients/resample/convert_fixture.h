/* Small files to convert, and what their outputs hold as text. All functions fail the running test
 * where they cannot do their work. */
#ifndef TRAJD_TESTS_CONVERT_FIXTURE_H
#define TRAJD_TESTS_CONVERT_FIXTURE_H

#include <stdio.h>

#include "clients/cli/resample/convert.h"

/* The folder of the files that tests/tools/make_convert_files.py writes. Outputs go to its folder
 * out. */
extern char convert_folder[];

/* For cmocka_run_group_tests. */
int convert_files_make(void **state);
int convert_files_remove(void **state);

/* Indexes FOLDER/name.hdf5. `layout`: a file in the folder, without its ending; NULL: robomimic. The
 * caller destroys the index. */
struct trajd_index *convert_open_input(const char *name, const char *layout);
/* Writes a line in which the name of the folder is FOLDER. */
void convert_put_line(FILE *out, const char *text);
/* Appends to the file `text` what the files hold. They are names in the folder out, separated by
 * blanks. */
void convert_print_outputs(const char *names, const char *text);

#endif
