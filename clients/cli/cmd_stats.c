/* trajctl stats: prints statistics of a feed's outputs as a table or as JSON, or writes them in a
 * format of another tool. The daemon computes them; this program polls until they are done. Numbers
 * are copied digit by digit. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clients/cli/cli_feed.h"
#include "daemon/base/files.h"
#include "daemon/base/progress/progress.h"
#include "daemon/base/json.h"
#include "proto/array_len.h"

#define PAUSE_NS 100000000
#define MAX_OUTPUTS 1024 /* over all datasets of a mixture */
#define MAX_PAGES 1024

enum format { FORMAT_TRAJD, FORMAT_OPENPI, FORMAT_LEROBOT, FORMAT_COUNT };

static const char *const format_names[FORMAT_COUNT] = {"trajd", "openpi", "lerobot"};
static const char *const figures[] = {"mean", "std", "min", "max", "q01",
                                      "q10",  "q50", "q90", "q99", NULL};
static const char *const openpi_figures[] = {"mean", "std", "q01", "q99", NULL};

/* The names in files of others, and what outputs are called that are written under them, as in the
 * styles of the Python package. */
#define STATES "state", "robot_state", "qpos", "robot_qpos"
static const struct {
    const char *title;
    struct {
        const char *name, *outputs[5];
    } names[2];
} others[FORMAT_COUNT] = {
    [FORMAT_OPENPI] = {"openpi", {{"state", {STATES}}, {"actions", {"actions", "action"}}}},
    [FORMAT_LEROBOT] = {"LeRobot",
                        {{"observation.state", {STATES, "observation.state"}},
                         {"action", {"actions", "action"}}}},
};

/* The document of one output, in pages. */
struct subject {
    char *name;
    const char *written; /* its name in a file of others; NULL: openpi has none, LeRobot its own */
    uint32_t page_count;
    struct trajd_yaml *pages[MAX_PAGES];
};

struct statistics {
    uint32_t subject_count;
    struct subject *subjects[MAX_OUTPUTS];
};

/* ---- queries ---- */

/* Waits for one page and returns it. */
static struct trajd_yaml *query_page(struct trajd_client *client,
                                     const struct trajd_question *question)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    struct trajd_yaml *yaml = cli_query(client, question, NULL);

    while (strcmp(cli_text(trajd_yaml_root(yaml), "state"), "computing") == 0) {
        trajd_progress_report(
            question->name, "permille",
            (uint64_t)(strtod(cli_text(trajd_yaml_root(yaml), "done"), NULL) * 1000), 1000);
        trajd_yaml_destroy(&yaml);
        nanosleep(&pause, NULL);
        yaml = cli_query(client, question, NULL);
    }
    trajd_progress_report(question->name, "permille", 1000, 1000);
    return yaml;
}

/* Queries one output. In a mixture its name becomes DATASET:NAME. */
static void add_subject(struct trajd_client *client, uint32_t feed_id, uint64_t dataset_index,
                        const char *dataset, const char *name, struct statistics *all)
{
    struct trajd_question question = {
        .what = "statistics", .name = name, .window = dataset_index, .feed_id = feed_id};
    struct subject *subject = calloc(1, sizeof *subject);

    if (!subject || all->subject_count == MAX_OUTPUTS ||
        asprintf(&subject->name, "%s%s%s", dataset ? dataset : "", dataset ? ":" : "", name) < 0)
        cli_die("no memory for %s", name);
    all->subjects[all->subject_count++] = subject;
    do
        subject->pages[subject->page_count++] = query_page(client, &question);
    while (
        subject->page_count < MAX_PAGES &&
        cli_next_page(trajd_yaml_root(subject->pages[subject->page_count - 1]), &question.first));
}

static bool is_lacking(const struct trajd_yaml_node *output, uint64_t dataset_index)
{
    for (const struct trajd_yaml_node *item = cli_first(output, "lacking"); item; item = item->next)
        if (item->value && strtoull(item->value, NULL, 10) == dataset_index)
            return true;
    return false;
}

/* Queries the named output, or all outputs but images, which could take very long to read, for each
 * dataset of the feed that has the output. */
static void add_outputs(struct trajd_client *client, uint32_t feed_id, const char *wanted,
                        struct statistics *all)
{
    const struct trajd_question question = {.what = "statistics", .feed_id = feed_id};
    struct trajd_yaml *yaml = cli_query(client, &question, NULL);
    const struct trajd_yaml_node *root = trajd_yaml_root(yaml),
                                 *first = cli_first(root, "datasets");
    uint64_t d = 0;

    for (const struct trajd_yaml_node *dataset = first; dataset; dataset = dataset->next, d++) {
        const char *prefix = first->next ? dataset->value : NULL;
        bool listed = false;
        for (const struct trajd_yaml_node *output = cli_first(root, "outputs"); output;
             output = output->next) {
            const char *name = cli_text(output, "name");
            const bool chosen =
                wanted ? strcmp(name, wanted) == 0 : strcmp(cli_text(output, "picture"), "true");
            listed = listed || chosen;
            if (chosen && !is_lacking(output, d))
                add_subject(client, feed_id, d, prefix, name, all);
        }
        if (wanted && !listed) /* a stream, or an unknown name, which the daemon explains */
            add_subject(client, feed_id, d, prefix, wanted, all);
    }
    trajd_yaml_destroy(&yaml);
}

/* ---- documents ---- */

static bool is_called(enum format format, size_t n, const char *output)
{
    const char *const *outputs = others[format].names[n].outputs;
    const char *name = strncmp(output, "obs/", 4) == 0 ? output + 4 : output;

    for (size_t i = 0; i < ARRAY_LEN(others[format].names[n].outputs) && outputs[i]; i++)
        if (strcmp(outputs[i], name) == 0)
            return true;
    return false;
}

/* Gives outputs the names by which openpi or LeRobot finds them. openpi refuses a file with further
 * names, so other outputs are left out there. */
static void name_for_others(struct statistics *all, const char *feed, enum format format)
{
    const char *title = others[format].title;
    uint32_t found = 0;

    for (size_t n = 0; n < ARRAY_LEN(others[format].names); n++) {
        const char *name = others[format].names[n].name;
        uint32_t count = 0;
        for (uint32_t s = 0; s < all->subject_count; s++)
            if (is_called(format, n, all->subjects[s]->name)) {
                all->subjects[s]->written = name;
                count++;
            }
        if (count > 1)
            cli_die("feed %s: %u outputs would be called %s in %s's file: choose one with --output",
                    feed, count, name, title);
        if (!count)
            fprintf(stderr, "trajctl: feed %s has no output called %s: %s will not normalise it\n",
                    feed, name, title);
        found += count;
    }
    if (!found && format == FORMAT_OPENPI)
        cli_die(
            "feed %s: openpi's file has the names state and actions: give the feed one dataset, "
            "and outputs that are called state (or qpos) and actions",
            feed);
}

/* Writes the list of that name from all pages: of the document, or of its member `within`. */
static void write_list(struct trajd_json *json, const struct subject *subject, const char *within,
                       const char *name)
{
    trajd_json_open_array(json, name);
    for (uint32_t p = 0; p < subject->page_count; p++) {
        const struct trajd_yaml_node *root = trajd_yaml_root(subject->pages[p]);
        root = within ? trajd_yaml_get(root, within) : root;
        for (const struct trajd_yaml_node *item = cli_first(root, name); item; item = item->next)
            trajd_json_raw(json, NULL, item->value);
    }
    trajd_json_close_array(json);
}

static void write_figures(struct trajd_json *json, const struct subject *subject,
                          const char *const *names)
{
    for (int f = 0; names[f]; f++)
        write_list(json, subject, NULL, names[f]);
}

/* Copies a value of any kind. */
static void write_node(struct trajd_json *json, const char *key, const struct trajd_yaml_node *node)
{
    if (node->kind == TRAJD_YAML_SCALAR && node->quoted)
        trajd_json_string(json, key, node->value);
    else if (node->kind == TRAJD_YAML_SCALAR)
        trajd_json_raw(json, key, node->value);
    else if (node->kind == TRAJD_YAML_MAPPING)
        trajd_json_open_object(json, key);
    else
        trajd_json_open_array(json, key);
    for (const struct trajd_yaml_node *child = node->children; child; child = child->next)
        write_node(json, child->key, child);
    if (node->kind == TRAJD_YAML_MAPPING)
        trajd_json_close_object(json);
    else if (node->kind == TRAJD_YAML_SEQUENCE)
        trajd_json_close_array(json);
}

static void write_own(struct trajd_json *json, const struct subject *subject)
{
    static const char *const numbers[] = {"windows",     "rows",     "steps",
                                          "valid_steps", "features", "norm_steps"},
                             *const lists[] = {"count", "nan", "infinite"};
    const struct trajd_yaml_node *root = trajd_yaml_root(subject->pages[0]),
                                 *norm = trajd_yaml_get(root, "norm");

    trajd_json_string(json, "source", cli_text(root, "source"));
    trajd_json_string(json, "fingerprint", cli_text(root, "fingerprint"));
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        if (trajd_yaml_get(root, numbers[i]))
            trajd_json_raw(json, numbers[i], cli_text(root, numbers[i]));
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        write_list(json, subject, NULL, lists[i]);
    write_figures(json, subject, figures);
    if (trajd_yaml_get(root, "chain"))
        write_node(json, "chain", trajd_yaml_get(root, "chain"));
    if (!norm)
        return;
    trajd_json_open_object(json, "norm");
    trajd_json_string(json, "by", cli_text(norm, "by"));
    if (trajd_yaml_get(norm, "over"))
        trajd_json_string(json, "over", cli_text(norm, "over"));
    if (trajd_yaml_get(norm, "min_std"))
        trajd_json_raw(json, "min_std", cli_text(norm, "min_std"));
    trajd_json_string(json, "from", cli_text(norm, "from"));
    write_list(json, subject, "norm", "scale");
    write_list(json, subject, "norm", "offset");
    trajd_json_close_object(json);
}

static void write_subject(struct trajd_json *json, const struct subject *subject,
                          enum format format)
{
    const struct trajd_yaml_node *count = cli_first(trajd_yaml_root(subject->pages[0]), "count");

    trajd_json_open_object(json, subject->written ? subject->written : subject->name);
    if (format == FORMAT_TRAJD)
        write_own(json, subject);
    else
        write_figures(json, subject, format == FORMAT_OPENPI ? openpi_figures : figures);
    if (format == FORMAT_LEROBOT) {
        trajd_json_open_array(json, "count");
        trajd_json_raw(json, NULL, count ? count->value : "0");
        trajd_json_close_array(json);
    }
    trajd_json_close_object(json);
}

static void write_document(FILE *out, const char *feed, const struct statistics *all,
                           enum format format)
{
    struct trajd_json json = {.out = out};

    trajd_json_open_object(&json, NULL);
    if (format == FORMAT_TRAJD) {
        trajd_json_u64(&json, "trajd_statistics", 1);
        trajd_json_string(&json, "feed", feed);
        trajd_json_string(&json, "norm_digest",
                          all->subject_count
                              ? cli_text(trajd_yaml_root(all->subjects[0]->pages[0]), "norm_digest")
                              : "");
    }
    if (format != FORMAT_LEROBOT)
        trajd_json_open_object(&json, format == FORMAT_OPENPI ? "norm_stats" : "outputs");
    for (uint32_t s = 0; s < all->subject_count; s++)
        if (all->subjects[s]->written || format != FORMAT_OPENPI)
            write_subject(&json, all->subjects[s], format);
    if (format != FORMAT_LEROBOT)
        trajd_json_close_object(&json);
    trajd_json_close_object(&json);
    putc('\n', out);
}

/* Writes to a pipe, a terminal or a device, which cannot be replaced by a rename. */
static bool write_through(const char *path, const char *text, size_t length)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    return fd >= 0 && trajd_file_write_all(fd, text, length) == 0 && close(fd) == 0;
}

/* Replaces the file, so that it is always complete. */
static bool replace(const char *path, const char *text, size_t length)
{
    struct trajd_file_replacement file;
    bool good;
    int code;

    if (trajd_file_replace_begin(&file, path))
        return false;
    good = trajd_file_write_all(file.fd, text, length) == 0 && fchmod(file.fd, 0644) == 0;
    code = errno;
    if (trajd_file_replace_end(&file, path, good) == 0 && good)
        return true;
    errno = good ? errno : code;
    return false;
}

/* Writes the document into the file. If its name is a link, its target is replaced. */
static void write_file(const char *name, const char *feed, const struct statistics *all,
                       enum format format)
{
    char *text = NULL, path[PATH_MAX];
    size_t length = 0;
    struct stat there;
    FILE *out = open_memstream(&text, &length);
    const bool is_special = stat(name, &there) == 0 && !S_ISREG(there.st_mode);

    if (out)
        write_document(out, feed, all, format);
    if (!out || fclose(out))
        cli_die("%s: no memory for the document", name);
    if (!realpath(name, path) && (size_t)snprintf(path, sizeof path, "%s", name) >= sizeof path)
        cli_die("%s: the path is too long", name);
    if (!(is_special ? write_through(name, text, length) : replace(path, text, length)))
        cli_die("%s: %m", is_special ? name : path);
    free(text);
}

static void print_table(const struct statistics *all)
{
    for (uint32_t s = 0; s < all->subject_count; s++) {
        const struct subject *subject = all->subjects[s];
        const struct trajd_yaml_node *head = trajd_yaml_root(subject->pages[0]),
                                     *norm = trajd_yaml_get(head, "norm");
        const bool rows = trajd_yaml_get(head, "rows") != NULL;
        printf("%s%s: %s of %s %s%s%s\n%8s %12s", s ? "\n" : "", subject->name,
               cli_text(head, "valid_steps"), cli_text(head, "steps"),
               rows ? "rows" : "steps are valid", norm ? ", norm " : "",
               norm ? cli_text(norm, "by") : "", "feature", "count");
        for (int f = 0; figures[f]; f++)
            printf(" %11s", figures[f]);
        putchar('\n');
        for (uint32_t p = 0; p < subject->page_count; p++) {
            const struct trajd_yaml_node *root = trajd_yaml_root(subject->pages[p]), *columns[10];
            long long feature = cli_number(root, "first");
            for (int f = 0; f < 10; f++)
                columns[f] = cli_first(root, f ? figures[f - 1] : "count");
            for (; columns[0]; feature++) {
                printf("%8lld %12s", feature, columns[0]->value);
                for (int f = 1; f < 10 && columns[f]; f++)
                    printf(" %11.5g", strcmp(columns[f]->value, "null")
                                          ? strtod(columns[f]->value, NULL)
                                          : 0.0 / 0.0);
                putchar('\n');
                for (int f = 0; f < 10; f++)
                    columns[f] = columns[f] ? columns[f]->next : NULL;
            }
        }
    }
}

/* Returns whether a chain only subtracts the same columns of a state, as openpi's DeltaActions. */
static bool is_plain(const struct trajd_yaml_node *chain)
{
    for (const struct trajd_yaml_node *part = cli_first(chain, "parts"); part; part = part->next)
        if (strcmp(cli_text(part, "kind"), "plain") != 0 || trajd_yaml_get(part, "turned_by") ||
            (strcmp(cli_text(part, "relative"), "true") == 0 &&
             strcmp(cli_text(part, "reference_first"), cli_text(part, "first")) != 0))
            return false;
    return strcmp(cli_text(chain, "step"), "anchor") == 0;
}

/* Refuses a format that cannot say what its figures are of. */
static void check_format(const struct statistics *all, enum format format)
{
    for (uint32_t s = 0; s < all->subject_count && format != FORMAT_TRAJD; s++) {
        const struct subject *subject = all->subjects[s];
        const struct trajd_yaml_node *root = trajd_yaml_root(subject->pages[0]),
                                     *chain = trajd_yaml_get(root, "chain");
        if (format == FORMAT_OPENPI && !subject->written)
            continue;
        if (!trajd_yaml_get(root, "norm_steps") && (!chain || is_plain(chain)))
            continue;
        cli_die("--format %s: it cannot say how %s is made of the recording (rotation, "
                "relative_to, norm.per): use --format trajd, or select outputs with --output",
                format_names[format], subject->name);
    }
}

struct asking {
    struct cli_connection connection;
    const char *output, *file;
    enum format format;
    bool json;
};

const struct cli_option cli_stats_options[] = {
    {"-o", "FILE", "write them to a file", CLI_TEXT, offsetof(struct asking, file)},
    {"--out", "FILE", "the same as -o", CLI_TEXT, offsetof(struct asking, file)},
    {"--format", "trajd|openpi|lerobot", "the format of the file (trajd)", CLI_CHOICE,
     offsetof(struct asking, format)},
    {"--output", "NAME|stream:NAME", "one output, or the rows of one stream", CLI_TEXT,
     offsetof(struct asking, output)},
    {"--json", NULL, "print one JSON document", CLI_FLAG, offsetof(struct asking, json)},
    {NULL, NULL, NULL, CLI_TABLE, offsetof(struct asking, connection), .table = cli_daemon_options},
    {0}};

int cli_stats(int argc, char **argv)
{
    static struct statistics all; /* to the end of the program */
    struct asking asking = {0};
    struct trajd_client *client;

    cli_parse(argc, argv, &asking);
    client = cli_connect(&asking.connection);
    add_outputs(client, cli_find_feed(client, argv[1]), asking.output, &all);
    if (asking.format != FORMAT_TRAJD)
        name_for_others(&all, argv[1], asking.format);
    check_format(&all, asking.format);
    if (asking.file)
        write_file(asking.file, argv[1], &all, asking.format);
    if (asking.json || (!asking.file && asking.format != FORMAT_TRAJD))
        write_document(stdout, argv[1], &all, asking.format);
    else if (!asking.file)
        print_table(&all);
    return CLI_OK;
}
