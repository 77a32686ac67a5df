/* trajctl inspect: shows how a layout reads files. Without --layout it tries the shipped ones. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/cli.h"
#include "clients/cli/draft/draft.h"
#include "clients/cli/files/cli_files.h"
#include "clients/cli/frames/frame_show.h"
#include "clients/cli/inspect/inspect.h"
#include "proto/array_len.h"

struct inspection {
    const char *layout; /* NULL: guess */
    bool json;
    struct frame_request request; /* with `frame`: only that */
    struct trajd_json document;   /* on stdout, with `json` */
    struct cli_files files;
};

static int inspect_path(struct inspection *inspection, const char *path)
{
    struct trajd_index *index = NULL;
    struct trajd_error error;
    enum trajd_status status =
        cli_files_open(&inspection->files, inspection->layout, path, &index, &error);

    if (status == TRAJD_ERR_NOT_FOUND && !inspection->layout && !access(path, R_OK))
        return draft_explain(&inspection->files, path, error.message,
                             inspection->json ? &inspection->document : NULL);
    if (status) {
        if (inspection->json) {
            trajd_json_open_object(&inspection->document, NULL);
            trajd_json_string(&inspection->document, "path", path);
            trajd_json_string(&inspection->document, "error", error.message);
            trajd_json_close_object(&inspection->document);
        }
        return cli_fail_at(path, &error);
    }
    if (inspection->json)
        inspect_write(&inspection->document, path, index);
    else
        inspect_print(path, index);
    trajd_index_destroy(&index);
    return CLI_OK;
}

static int show_frame(const struct inspection *inspection, const char *path)
{
    struct trajd_index *index = NULL;
    struct trajd_error error;

    if (!inspection->request.output)
        return cli_fail("--frame needs -o FILE.png");
    if (cli_files_open(&inspection->files, inspection->layout, path, &index, &error) ||
        frame_show(index, &inspection->request, stdout, &error)) {
        trajd_index_destroy(&index);
        return cli_fail("%s", error.message);
    }
    trajd_index_destroy(&index);
    return CLI_OK;
}

/* Returns where the value of an option goes, or NULL. */
static const char **find_option(struct inspection *inspection, const char *name)
{
    struct frame_request *request = &inspection->request;
    const struct {
        const char *name;
        const char **value;
    } options[] = {{"--layout", &inspection->layout},
                   {"--frame", &request->frame},
                   {"-o", &request->output},
                   {"--episode", &request->episode},
                   {"--resize", &request->resize.size},
                   {"--filter", &request->resize.filter},
                   {"--fit", &request->resize.fit}};

    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        if (!strcmp(name, options[i].name))
            return options[i].value;
    return NULL;
}

/* Options may come before or after the files. Moves the files to the front of argv, after the name.
 * Returns their number, or -1 after it printed an error. */
static int parse(int argc, char **argv, struct inspection *inspection)
{
    int count = 0;

    for (int i = 1; i < argc; i++) {
        const char **value = find_option(inspection, argv[i]);
        if (argv[i][0] != '-')
            argv[1 + count++] = argv[i];
        else if (!strcmp(argv[i], "--json"))
            inspection->json = true;
        else if (value && i + 1 < argc)
            *value = argv[++i];
        else if (value)
            return cli_fail("%s needs a value", argv[i]), -1;
        else
            return cli_refuse_option(argv[0], argv[i]), -1;
    }
    if (!count)
        return cli_fail("name one or more files"), -1;
    if (inspection->request.frame && count > 1)
        return cli_fail("--frame takes one file"), -1;
    return count;
}

int cli_inspect(int argc, char **argv)
{
    struct inspection inspection = {.document.out = stdout};
    int count = parse(argc, argv, &inspection), result = CLI_OK;
    struct trajd_error error;

    if (count < 0)
        return cli_usage("inspect");
    if (cli_files_find(&inspection.files, &error))
        return cli_fail("%s", error.message);
    if (inspection.request.frame)
        return show_frame(&inspection, argv[1]);
    if (inspection.json)
        trajd_json_open_array(&inspection.document, NULL);
    for (int i = 1; i <= count; i++)
        if (inspect_path(&inspection, argv[i]))
            result = CLI_FAILED;
    if (inspection.json) {
        trajd_json_close_array(&inspection.document);
        putchar('\n');
    }
    return result;
}
