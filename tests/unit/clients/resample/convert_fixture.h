/* What the files of tests/tools/make_convert_files.py hold as text after a conversion into
 * index_folder/out. All functions fail the running test where they cannot do their work. */
#ifndef TRAJD_TESTS_CONVERT_FIXTURE_H
#define TRAJD_TESTS_CONVERT_FIXTURE_H

#include <stdio.h>

#include "clients/cli/resample/convert.h"

/* Indexes index_folder/name.hdf5. `layout`: a file in the folder, without its ending; NULL:
 * robomimic. The caller destroys the index. */
struct trajd_index *convert_open_input(const char *name, const char *layout);
/* Writes a line in which the name of the folder is FOLDER. */
void convert_put_line(FILE *out, const char *text);
/* Appends to the file `text` what the files hold. They are names in the folder out, separated by
 * blanks. */
void convert_print_outputs(const char *names, const char *text);

#endif
