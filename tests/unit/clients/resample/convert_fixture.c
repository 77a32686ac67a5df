/* Opens test files for a conversion, and prints the outputs as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "tests/support/array_list.h"
#include "tests/support/index_files.h"
#include "tests/unit/clients/resample/convert_fixture.h"

struct trajd_index *convert_open_input(const char *name, const char *layout)
{
    char path[256], layout_path[256];
    struct trajd_index_options options;

    snprintf(path, sizeof path, "%s/%s.hdf5", index_folder, name);
    snprintf(layout_path, sizeof layout_path, "%s/%s.yaml", index_folder, layout ? layout : "");
    options = options_for(path, layout ? layout_path : "robomimic");
    return must_open(&options);
}

void convert_put_line(FILE *out, const char *text)
{
    for (const char *found; (found = strstr(text, index_folder));
         text = found + strlen(index_folder))
        fprintf(out, "%.*sFOLDER", (int)(found - text), text);
    fprintf(out, "%s\n", text);
}

void convert_print_outputs(const char *names, const char *text)
{
    char command[2048];

    /* the shell puts the folder in front of each name */
    snprintf(command, sizeof command,
             TRAJD_SOURCE_DIR "/tests/tools/print_hdf5.py $(printf '%s/out/%%s ' %s) |"
                              " sed 's,%s,FOLDER,g; s/trajd " TRAJD_VERSION "/trajd VERSION/' >>%s",
             index_folder, names, index_folder, text);
    assert_int_equal(run_python(command), 0);
}
