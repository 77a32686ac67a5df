/* trajctl stats: prints statistics of a feed's outputs as a table or as JSON, or writes them in a
 * format of another tool. The daemon computes them; this program polls until they are done. Numbers
 * are copied digit by digit. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clients/cli/cli_feed.h"
#include "daemon/base/files.h"
#include "daemon/base/memory.h"
#include "daemon/base/progress/progress.h"
#include "daemon/base/json.h"
#include "proto/array_len.h"

#define PAUSE_NS 100000000
#define MAX_OUTPUTS 1024 /* over all datasets of a mixture */

enum format { FORMAT_TRAJD, FORMAT_OPENPI, FORMAT_LEROBOT, FORMAT_COUNT };

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

/* The document of one output. */
struct subject {
    char *name;
    const char *written; /* its name in a file of others; NULL: openpi has none, LeRobot its own */
    const struct trajd_yaml_node *root;
};

struct statistics {
    struct trajd_yaml **pages; /* of all answers; they stay to the end of the program */
    uint32_t page_count;
    uint32_t subject_count;
    struct subject subjects[MAX_OUTPUTS];
};

/* ---- queries ---- */

/* Waits for one page and returns it. */
static const struct trajd_yaml_node *query_page(struct trajd_client *client,
                                                const struct trajd_question *question,
                                                struct statistics *all)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};

    while (true) {
        struct trajd_yaml *yaml = cli_query(client, question, NULL);
        const struct trajd_yaml_node *root = trajd_yaml_root(yaml);
        const bool is_done = strcmp(cli_text(root, "state"), "computing") != 0;
        const double done = is_done ? 1 : strtod(cli_text(root, "done"), NULL);
        trajd_progress_report(question->name, "permille", (uint64_t)(done * 1000), 1000);
        if (is_done) {
            all->pages = trajd_memory_or_exit(
                realloc(all->pages, (all->page_count + 1) * sizeof(*all->pages)));
            all->pages[all->page_count++] = yaml;
            return root;
        }
        trajd_yaml_destroy(&yaml);
        nanosleep(&pause, NULL);
    }
}

/* Appends the lists of a page, and of its scales, to those of the first page. */
static void append_page(const struct trajd_yaml_node *first, const struct trajd_yaml_node *page)
{
    for (const struct trajd_yaml_node *list = page->children; list; list = list->next) {
        struct trajd_yaml_node *known = first->children, **end;
        while (known && strcmp(known->key, list->key))
            known = known->next;
        if (known && !strcmp(list->key, "norm"))
            append_page(known, list);
        if (!known || list->kind != TRAJD_YAML_SEQUENCE)
            continue;
        for (end = &known->children; *end; end = &(*end)->next)
            continue;
        *end = list->children;
    }
}

/* Queries one output. In a mixture its name becomes DATASET:NAME. */
static void add_subject(struct trajd_client *client, uint32_t feed_id, uint64_t dataset_index,
                        const char *dataset, const char *name, struct statistics *all)
{
    struct trajd_question question = {
        .what = "statistics", .name = name, .window = dataset_index, .feed_id = feed_id};
    struct subject *subject = &all->subjects[all->subject_count];
    const struct trajd_yaml_node *page;

    if (all->subject_count++ == MAX_OUTPUTS ||
        asprintf(&subject->name, "%s%s%s", dataset ? dataset : "", dataset ? ":" : "", name) < 0)
        cli_die("no memory for %s", name);
    subject->root = page = query_page(client, &question, all);
    while (cli_next_page(page, &question.first)) {
        page = query_page(client, &question, all);
        append_page(subject->root, page);
    }
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
            if (is_called(format, n, all->subjects[s].name)) {
                all->subjects[s].written = name;
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

/* Copies those of the members that are there. The last name is NULL. */
static void write_members(struct trajd_json *json, const struct trajd_yaml_node *mapping,
                          const char *const *names)
{
    for (; *names; names++)
        if (trajd_yaml_get(mapping, *names))
            write_node(json, *names, trajd_yaml_get(mapping, *names));
}

static void write_own(struct trajd_json *json, const struct trajd_yaml_node *root)
{
    static const char *const facts[] = {"source", "fingerprint", "windows",  "rows",
                                        "steps",  "valid_steps", "features", "norm_steps",
                                        "count",  "nan",         "infinite", NULL};
    static const char *const chain[] = {"chain", NULL};
    static const char *const norms[] = {"by", "over", "min_std", "from", "scale", "offset", NULL};
    const struct trajd_yaml_node *norm = trajd_yaml_get(root, "norm");

    write_members(json, root, facts);
    write_members(json, root, figures);
    write_members(json, root, chain);
    if (!norm)
        return;
    trajd_json_open_object(json, "norm");
    write_members(json, norm, norms);
    trajd_json_close_object(json);
}

static void write_subject(struct trajd_json *json, const struct subject *subject,
                          enum format format)
{
    const struct trajd_yaml_node *count = cli_first(subject->root, "count");

    trajd_json_open_object(json, subject->written ? subject->written : subject->name);
    if (format == FORMAT_TRAJD) {
        write_own(json, subject->root);
    } else if (format == FORMAT_OPENPI) {
        write_members(json, subject->root, openpi_figures);
    } else {
        write_members(json, subject->root, figures);
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
        trajd_json_string(&json, "norm_digest", cli_text(all->subjects[0].root, "norm_digest"));
    }
    if (format != FORMAT_LEROBOT)
        trajd_json_open_object(&json, format == FORMAT_OPENPI ? "norm_stats" : "outputs");
    for (uint32_t s = 0; s < all->subject_count; s++)
        if (all->subjects[s].written || format != FORMAT_OPENPI)
            write_subject(&json, &all->subjects[s], format);
    if (format != FORMAT_LEROBOT)
        trajd_json_close_object(&json);
    trajd_json_close_object(&json);
    putc('\n', out);
}

/* Opens a pipe, a terminal or a device, which cannot be replaced by a rename. Returns -1 for others. */
static int open_special(const char *name)
{
    struct stat there;

    return stat(name, &there) == 0 && !S_ISREG(there.st_mode) ? cli_create(name) : -1;
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

/* Writes the document into the file, or to `special` where that is not -1. If the name is a link, its
 * target is replaced. */
static void write_file(const char *name, int special, const char *feed,
                       const struct statistics *all, enum format format)
{
    char *text = NULL, path[PATH_MAX];
    size_t length = 0;
    FILE *out = trajd_memory_or_exit(open_memstream(&text, &length));
    bool good;

    write_document(out, feed, all, format);
    trajd_memory_close_or_exit(out, &text);
    if (!realpath(name, path) && (size_t)snprintf(path, sizeof path, "%s", name) >= sizeof path)
        cli_die("%s: the path is too long", name);
    if (special >= 0)
        good = trajd_file_write_all(special, text, length) == 0 && close(special) == 0;
    else
        good = replace(path, text, length);
    if (!good)
        cli_die("%s: %m", special >= 0 ? name : path);
    free(text);
}

static void print_table(const struct subject *subject)
{
    const struct trajd_yaml_node *root = subject->root, *columns[ARRAY_LEN(figures)];
    const char *by = cli_text(root, "norm.by");
    int64_t feature = cli_number(root, "first");

    printf("%s: %s of %s %s%s%s\n%8s %12s", subject->name, cli_text(root, "valid_steps"),
           cli_text(root, "steps"), cli_find(root, "rows") ? "rows" : "steps are valid",
           *by ? ", norm " : "", by, "feature", "count");
    columns[0] = cli_first(root, "count");
    for (int f = 0; figures[f]; f++) {
        printf(" %11s", figures[f]);
        columns[f + 1] = cli_first(root, figures[f]);
    }
    putchar('\n');
    for (; columns[0]; feature++) {
        printf("%8" PRId64 " %12s", feature, columns[0]->value);
        for (size_t c = 1; c < ARRAY_LEN(columns) && columns[c]; c++)
            printf(" %11.5g",
                   strcmp(columns[c]->value, "null") ? strtod(columns[c]->value, NULL) : 0.0 / 0.0);
        putchar('\n');
        for (size_t c = 0; c < ARRAY_LEN(columns); c++)
            columns[c] = columns[c] ? columns[c]->next : NULL;
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
        const struct subject *subject = &all->subjects[s];
        const struct trajd_yaml_node *chain = trajd_yaml_get(subject->root, "chain");
        if (format == FORMAT_OPENPI && !subject->written)
            continue;
        if (!trajd_yaml_get(subject->root, "norm_steps") && (!chain || is_plain(chain)))
            continue;
        cli_die("--format %s: it cannot say how %s is made of the recording (rotation, "
                "relative_to, norm.per): use --format trajd, or select outputs with --output",
                format == FORMAT_OPENPI ? "openpi" : "lerobot", subject->name);
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
    int special;

    cli_parse(argc, argv, &asking);
    special = asking.file ? open_special(asking.file) : -1; /* before the work */
    client = cli_connect(&asking.connection);
    add_outputs(client, cli_find_feed(client, argv[1]), asking.output, &all);
    if (asking.format != FORMAT_TRAJD)
        name_for_others(&all, argv[1], asking.format);
    check_format(&all, asking.format);
    if (asking.file)
        write_file(asking.file, special, argv[1], &all, asking.format);
    if (asking.json || (!asking.file && asking.format != FORMAT_TRAJD))
        write_document(stdout, argv[1], &all, asking.format);
    for (uint32_t s = 0;
         s < all.subject_count && !asking.file && !asking.json && asking.format == FORMAT_TRAJD;
         s++) {
        if (s)
            putchar('\n');
        print_table(&all.subjects[s]);
    }
    return CLI_OK;
}
