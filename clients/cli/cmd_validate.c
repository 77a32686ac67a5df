/* trajctl validate: prints every fault in files that can be found, with row numbers. */
#include <inttypes.h>
#include <string.h>

#include "clients/cli/cli.h"
#include "clients/cli/files/cli_files.h"
#include "clients/cli/files/examine.h"
#include "daemon/base/json.h"

struct validation {
    const char *layout; /* NULL: guess */
    bool json;
    struct trajd_json document; /* on stdout, with `json` */
    bool is_ignored[EXAMINE_RULE_COUNT];
    struct cli_files files;
    const char *path; /* the path that is being examined */
    uint64_t findings;
};

static void print_finding(struct validation *validation, const struct examine_finding *finding)
{
    const char *const parts[] = {finding->file, finding->episode, finding->stream};
    const char *separator = "";

    printf("%-12s ", examine_rule_names[finding->rule]);
    /* the messages of the others name the file themselves */
    if (finding->rule > EXAMINE_LEFT_OUT) {
        for (int i = 0; i < 3; i++)
            if (parts[i]) {
                printf("%s%s", separator, parts[i]);
                separator = i ? "/" : ": ";
            }
        printf(": ");
        if (!finding->file)
            printf("in %s: ", validation->path);
    }
    printf("%s\n", finding->text);
}

static void json_finding(struct validation *validation, const struct examine_finding *finding)
{
    struct trajd_json *json = &validation->document;

    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "rule", examine_rule_names[finding->rule]);
    trajd_json_string(json, "path", validation->path);
    trajd_json_string(json, "file", finding->file);
    trajd_json_string(json, "episode", finding->episode);
    trajd_json_string(json, "stream", finding->stream);
    if (finding->row >= 0)
        trajd_json_i64(json, "row", finding->row);
    else
        trajd_json_null(json, "row");
    trajd_json_u64(json, "count", finding->count);
    trajd_json_string(json, "message", finding->text);
    trajd_json_close_object(json);
}

static void on_finding(void *context, const struct examine_finding *finding)
{
    struct validation *validation = context;

    if (validation->is_ignored[finding->rule])
        return;
    validation->findings++;
    (validation->json ? json_finding : print_finding)(validation, finding);
}

/* Examines one path. A path that cannot be indexed is a finding, too. */
static void validate_path(struct validation *validation, const char *path)
{
    struct trajd_index *index = NULL;
    struct trajd_error error;

    validation->path = path;
    if (!cli_files_open(&validation->files, validation->layout, path, &index, &error)) {
        if (!validation->json)
            printf("%s: layout %s, %u of %u episodes\n", path, index->layout->name,
                   index->kept_count, index->episode_count + index->refused_file_count);
        if (examine_index(index, on_finding, validation, &error))
            on_finding(validation, &(struct examine_finding){EXAMINE_UNREADABLE, path, NULL, NULL,
                                                             -1, 1, error.message});
        trajd_index_destroy(&index);
        return;
    }
    on_finding(validation,
               &(struct examine_finding){EXAMINE_REFUSED, path, NULL, NULL, -1, 1, error.message});
}

static int ignore(struct validation *validation, const char *name)
{
    for (int r = 0; r < EXAMINE_RULE_COUNT; r++)
        if (!strcmp(examine_rule_names[r], name)) {
            validation->is_ignored[r] = true;
            return CLI_OK;
        }
    cli_fail("--ignore %s: unknown rule; the rules are:", name);
    for (int r = 0; r < EXAMINE_RULE_COUNT; r++)
        fprintf(stderr, " %s", examine_rule_names[r]);
    fprintf(stderr, "\n");
    return CLI_FAILED;
}

/* Moves the files to the front of argv, after the name, as in inspect. Returns their number, or -1
 * after it printed an error. */
static int parse(int argc, char **argv, struct validation *validation)
{
    int count = 0;

    for (int i = 1; i < argc; i++) {
        const bool takes_value = !strcmp(argv[i], "--layout") || !strcmp(argv[i], "--ignore");
        if (argv[i][0] != '-')
            argv[1 + count++] = argv[i];
        else if (!strcmp(argv[i], "--json"))
            validation->json = true;
        else if (takes_value && i + 1 == argc)
            return cli_fail("%s needs a value", argv[i]), -1;
        else if (!strcmp(argv[i], "--layout"))
            validation->layout = argv[++i];
        else if (!strcmp(argv[i], "--ignore")) {
            if (ignore(validation, argv[++i]))
                return -1;
        } else
            return cli_fail("unknown option: %s", argv[i]), -1;
    }
    if (!count)
        return cli_fail("name one or more files"), -1;
    return count;
}

int cli_validate(int argc, char **argv)
{
    struct validation validation = {.document.out = stdout};
    int count = parse(argc, argv, &validation);
    struct trajd_error error;

    if (count < 0)
        return cli_usage("validate");
    if (cli_files_find(&validation.files, &error))
        return cli_fail("%s", error.message);
    if (validation.json)
        trajd_json_open_array(&validation.document, NULL);
    for (int i = 1; i <= count; i++)
        validate_path(&validation, argv[i]);
    if (validation.json) {
        trajd_json_close_array(&validation.document);
        putchar('\n');
    } else {
        printf(validation.findings ? "%" PRIu64 " findings\n" : "no findings\n",
               validation.findings);
    }
    return validation.findings ? CLI_FAILED : CLI_OK;
}
