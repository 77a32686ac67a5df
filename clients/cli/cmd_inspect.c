/* trajctl inspect: shows how a layout reads files. Without --layout it tries the shipped ones. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/cli.h"
#include "clients/cli/draft/draft.h"
#include "clients/cli/files/cli_files.h"
#include "clients/cli/frames/frame_show.h"
#include "clients/cli/inspect/inspect.h"

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

const struct cli_option cli_resize_options[] = {
    {"--resize", "HEIGHTxWIDTH", "resize the image", CLI_TEXT, offsetof(struct frame_resize, size)},
    {"--filter", "NAME",
     "how it is resized: pillow-bilinear (the default), pillow-box, "
     "pillow-bicubic, pillow-lanczos, tf-lanczos3, area, linear or nearest",
     CLI_TEXT, offsetof(struct frame_resize, filter)},
    {"--fit", "stretch|pad|pad_topleft|cover", "how it fits (stretch)", CLI_TEXT,
     offsetof(struct frame_resize, fit)},
    {0}};

const struct cli_option cli_inspect_options[] = {
    {"--layout", "NAME",
     "how the files map to episodes, streams and clocks (tries the installed ones)", CLI_TEXT,
     offsetof(struct inspection, layout)},
    {"--json", NULL, "print one JSON document", CLI_FLAG, offsetof(struct inspection, json)},
    {"--frame", "STREAM:ROW", "write one frame as an image, stored and as described by the layout",
     CLI_TEXT, offsetof(struct inspection, request.frame)},
    {"-o", "FILE.png", "the file of --frame", CLI_TEXT,
     offsetof(struct inspection, request.output)},
    {"--episode", "ID", "the episode of --frame (the first one)", CLI_TEXT,
     offsetof(struct inspection, request.episode)},
    {NULL, NULL, NULL, CLI_TABLE, offsetof(struct inspection, request.resize),
     .table = cli_resize_options},
    {0}};

int cli_inspect(int argc, char **argv)
{
    struct inspection inspection = {.document.out = stdout};
    const int count = cli_parse(argc, argv, &inspection);
    struct trajd_error error;
    int result = CLI_OK;

    if (inspection.request.frame && count > 1)
        cli_refuse("--frame takes one file");
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
