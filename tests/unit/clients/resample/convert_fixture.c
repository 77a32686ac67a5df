#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/array_list.h"
#include "tests/support/index_files.h"
#include "tests/unit/clients/resample/convert_fixture.h"

char convert_folder[] = "/tmp/trajd_convert_XXXXXX";

int convert_files_make(void **state)
{
    char arguments[512];

    (void)state;
    if (!mkdtemp(convert_folder))
        return 1;
    shell("mkdir %s/out", convert_folder);
    snprintf(arguments, sizeof arguments, TRAJD_SOURCE_DIR "/tests/tools/make_convert_files.py %s",
             convert_folder);
    return run_python(arguments);
}

int convert_files_remove(void **state)
{
    (void)state;
    shell("rm -r %s", convert_folder);
    return 0;
}

struct trajd_index *convert_open_input(const char *name, const char *layout)
{
    char path[256], layout_path[256];
    struct trajd_index_options options;

    snprintf(path, sizeof path, "%s/%s.hdf5", convert_folder, name);
    snprintf(layout_path, sizeof layout_path, "%s/%s.yaml", convert_folder, layout ? layout : "");
    options = options_for(path, layout ? layout_path : "robomimic");
    return must_open(&options);
}

void convert_put_line(FILE *out, const char *text)
{
    for (const char *found; (found = strstr(text, convert_folder));
         text = found + strlen(convert_folder))
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
             convert_folder, names, convert_folder, text);
    assert_int_equal(run_python(command), 0);
}
