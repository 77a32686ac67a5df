/* trajctl stats: prints statistics of a feed's outputs as a table or as JSON, or writes them in a
 * format of another tool. The daemon computes them; this program polls until they are done. Numbers
 * are copied digit by digit. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clients/cli/cli.h"
#include "clients/cli/cli_query.h"
#include "clients/cli/cli_feed.h"
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

/* The document of one output, in pages. */
struct subject {
    char *name;
    uint32_t page_count;
    struct trajd_yaml *pages[MAX_PAGES];
};

struct statistics {
    uint32_t subject_count;
    struct subject *subjects[MAX_OUTPUTS];
};

static void free_statistics(struct statistics *all)
{
    for (uint32_t s = 0; s < all->subject_count; s++) {
        for (uint32_t p = 0; p < all->subjects[s]->page_count; p++)
            trajd_yaml_destroy(&all->subjects[s]->pages[p]);
        free(all->subjects[s]->name);
        free(all->subjects[s]);
    }
}

/* ---- queries ---- */

static void show_progress(const char *name, const struct trajd_yaml_node *root)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%s: %5.1f %% ", name, strtod(cli_text(root, "done"), NULL) * 100);
}

static void end_progress(const char *name)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%*s\r", (int)strlen(name) + 12, "");
}

/* Waits for one page and returns it, or NULL after it printed an error. */
static struct trajd_yaml *query_page(struct trajd_client *client,
                                     const struct trajd_question *question)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    struct trajd_yaml *yaml;
    bool shown = false;
    char *json;

    while ((yaml = cli_query(client, question, &json))) {
        free(json);
        if (strcmp(cli_text(trajd_yaml_root(yaml), "state"), "computing") != 0)
            break;
        show_progress(question->name, trajd_yaml_root(yaml));
        shown = true;
        trajd_yaml_destroy(&yaml);
        nanosleep(&pause, NULL);
    }
    if (shown)
        end_progress(question->name);
    return yaml;
}

/* Queries one output. In a mixture its name becomes DATASET:NAME. */
static bool add_subject(struct trajd_client *client, uint32_t feed_id, uint64_t dataset_index,
                        const char *dataset, const char *name, struct statistics *all)
{
    struct trajd_question question = {
        .what = "statistics", .name = name, .window = dataset_index, .feed_id = feed_id};
    struct subject *subject = calloc(1, sizeof *subject);
    bool more = true;

    if (subject &&
        asprintf(&subject->name, "%s%s%s", dataset ? dataset : "", dataset ? ":" : "", name) < 0)
        subject->name = NULL;
    if (!subject || !subject->name || all->subject_count == MAX_OUTPUTS) {
        cli_fail("no memory for %s", name);
        if (subject)
            free(subject->name);
        free(subject);
        return false;
    }
    all->subjects[all->subject_count++] = subject;
    while (more && subject->page_count < MAX_PAGES) {
        struct trajd_yaml *page = query_page(client, &question);
        if (!page)
            return false;
        subject->pages[subject->page_count++] = page;
        more = cli_next_page(trajd_yaml_root(page), &question.first);
    }
    return true;
}

static bool is_lacking(const struct trajd_yaml_node *output, uint64_t dataset_index)
{
    for (const struct trajd_yaml_node *item = cli_first(output, "lacking"); item; item = item->next)
        if (item->value && strtoull(item->value, NULL, 10) == dataset_index)
            return true;
    return false;
}

/* Queries the named output, or all outputs but images, which could take very long to read, for each
 * dataset of the feed. */
static bool add_outputs(struct trajd_client *client, uint32_t feed_id, const char *wanted,
                        struct statistics *all)
{
    const struct trajd_question question = {.what = "statistics", .feed_id = feed_id};
    const struct trajd_yaml_node *datasets;
    struct trajd_yaml *yaml;
    bool good = true;
    uint64_t d = 0;
    char *json;

    yaml = cli_query(client, &question, &json);
    if (!yaml)
        return false;
    datasets = trajd_yaml_get(trajd_yaml_root(yaml), "datasets");
    for (const struct trajd_yaml_node *dataset = datasets ? datasets->children : NULL;
         dataset && good; dataset = dataset->next, d++) {
        const char *prefix = datasets->child_count > 1 ? dataset->value : NULL;
        if (wanted) {
            good = add_subject(client, feed_id, d, prefix, wanted, all);
            continue;
        }
        for (const struct trajd_yaml_node *output = cli_first(trajd_yaml_root(yaml), "outputs");
             output && good; output = output->next)
            if (strcmp(cli_text(output, "picture"), "true") != 0 && !is_lacking(output, d))
                good = add_subject(client, feed_id, d, prefix, cli_text(output, "name"), all);
    }
    trajd_yaml_destroy(&yaml);
    free(json);
    return good;
}

/* ---- documents ---- */

/* Writes the list of that name from all pages: of the document, or of its member `within`. */
static void write_list(FILE *out, const struct subject *subject, const char *within,
                       const char *name)
{
    const char *before = "[";

    trajd_json_text(out, name);
    fputs(": ", out);
    for (uint32_t p = 0; p < subject->page_count; p++) {
        const struct trajd_yaml_node *root = trajd_yaml_root(subject->pages[p]);
        root = within ? trajd_yaml_get(root, within) : root;
        for (const struct trajd_yaml_node *item = cli_first(root, name); item;
             item = item->next, before = ", ")
            fprintf(out, "%s%s", before, item->value);
    }
    fputs(*before == '[' ? "[]" : "]", out);
}

static void write_figures(FILE *out, const struct subject *subject, const char *const *names)
{
    for (int f = 0; names[f]; f++) {
        fputs(f ? ",\n      " : "", out);
        write_list(out, subject, NULL, names[f]);
    }
}

static void write_own(FILE *out, const struct subject *subject)
{
    static const char *const numbers[] = {"windows", "rows", "steps", "valid_steps", "features"},
                             *const lists[] = {"count", "nan", "infinite"};
    const struct trajd_yaml_node *root = trajd_yaml_root(subject->pages[0]),
                                 *norm = trajd_yaml_get(root, "norm");

    fprintf(out, "\"source\": \"%s\", \"fingerprint\": \"%s\"", cli_text(root, "source"),
            cli_text(root, "fingerprint"));
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        if (trajd_yaml_get(root, numbers[i]))
            fprintf(out, ", \"%s\": %s", numbers[i], cli_text(root, numbers[i]));
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        fputs(",\n      ", out);
        write_list(out, subject, NULL, lists[i]);
    }
    fputs(",\n      ", out);
    write_figures(out, subject, figures);
    if (!norm)
        return;
    fprintf(out, ",\n      \"norm\": {\"by\": \"%s\", \"from\": ", cli_text(norm, "by"));
    trajd_json_text(out, cli_text(norm, "from"));
    fputs(", ", out);
    write_list(out, subject, "norm", "scale");
    fputs(", ", out);
    write_list(out, subject, "norm", "offset");
    fputc('}', out);
}

static void write_subject(FILE *out, const struct subject *subject, enum format format)
{
    const struct trajd_yaml_node *count = cli_first(trajd_yaml_root(subject->pages[0]), "count");

    fputs("    ", out);
    trajd_json_text(out, subject->name);
    fputs(": {\n      ", out);
    if (format == FORMAT_TRAJD)
        write_own(out, subject);
    else
        write_figures(out, subject, format == FORMAT_OPENPI ? openpi_figures : figures);
    if (format == FORMAT_LEROBOT)
        fprintf(out, ",\n      \"count\": [%s]", count ? count->value : "0");
    fputs("\n    }", out);
}

static void write_document(FILE *out, const char *feed, const struct statistics *all,
                           enum format format)
{
    if (format == FORMAT_TRAJD) {
        fputs("{\n  \"trajd_statistics\": 1, \"feed\": ", out);
        trajd_json_text(out, feed);
        fprintf(out, ", \"norm_digest\": \"%s\",\n  \"outputs\": {\n",
                all->subject_count
                    ? cli_text(trajd_yaml_root(all->subjects[0]->pages[0]), "norm_digest")
                    : "");
    } else
        fputs(format == FORMAT_OPENPI ? "{\n  \"norm_stats\": {\n" : "{\n", out);
    for (uint32_t s = 0; s < all->subject_count; s++) {
        write_subject(out, all->subjects[s], format);
        fputs(s + 1 < all->subject_count ? ",\n" : "\n", out);
    }
    fputs(format == FORMAT_LEROBOT ? "}\n" : "  }\n}\n", out);
}

/* Writes to a pipe, a terminal or a device, which cannot be replaced by a rename. */
static int write_through(const char *path, const char *feed, const struct statistics *all,
                         enum format format)
{
    FILE *out = fopen(path, "w");
    bool good;

    if (!out)
        return cli_fail("%s: %m", path);
    write_document(out, feed, all, format);
    good = fflush(out) == 0 && !ferror(out);
    return fclose(out) == 0 && good ? CLI_OK : cli_fail("%s: %m", path);
}

/* Writes a temporary file beside the target and renames it, so that the target is always complete.
 * If `name` is a link, its target is replaced. */
static int write_file(const char *name, const char *feed, const struct statistics *all,
                      enum format format)
{
    char temporary[PATH_MAX], path[PATH_MAX];
    struct stat there;
    bool good;
    FILE *out;
    int fd;

    if (stat(name, &there) == 0 && !S_ISREG(there.st_mode))
        return write_through(name, feed, all, format);
    if (!realpath(name, path) && (size_t)snprintf(path, sizeof path, "%s", name) >= sizeof path)
        return cli_fail("%s: the path is too long", name);
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.XXXXXX", path) >= sizeof temporary)
        return cli_fail("%s: the path is too long", path);
    fd = mkstemp(temporary);
    out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!out)
        return cli_fail("%s: %m", path);
    write_document(out, feed, all, format);
    good = fflush(out) == 0 && !ferror(out) && fchmod(fd, 0644) == 0;
    good = fclose(out) == 0 && good;
    if (good && rename(temporary, path) == 0)
        return CLI_OK;
    cli_fail("%s: %m", path);
    unlink(temporary);
    return CLI_FAILED;
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

static bool parse_format(const char *name, enum format *format)
{
    for (int f = 0; f < FORMAT_COUNT; f++)
        if (strcmp(name, format_names[f]) == 0) {
            *format = (enum format)f;
            return true;
        }
    cli_fail("--format %s: choose trajd, openpi or lerobot", name);
    return false;
}

int cli_stats(int argc, char **argv)
{
    static const char *const known[] = {"FEED",     "--output",   "--out", "-o",
                                        "--format", "--endpoint", "--key", "--server-key",
                                        "--json",   NULL};
    struct cli_feed_arguments arguments = {.format = "trajd"};
    struct statistics all = {0};
    struct trajd_client *client;
    int result = CLI_FAILED;
    enum format format;
    uint32_t feed_id;

    if (!cli_parse_feed(argc, argv, known, &arguments) || !parse_format(arguments.format, &format))
        return cli_usage("stats");
    client = cli_connect(&arguments, false);
    if (!client)
        return CLI_FAILED;
    if (cli_find_feed(client, arguments.feed, &feed_id) &&
        add_outputs(client, feed_id, arguments.output, &all)) {
        result = arguments.out ? write_file(arguments.out, arguments.feed, &all, format) : CLI_OK;
        if (arguments.json || (!arguments.out && format != FORMAT_TRAJD))
            write_document(stdout, arguments.feed, &all, format);
        else if (!arguments.out)
            print_table(&all);
    }
    free_statistics(&all);
    trajd_client_close(&client);
    return result;
}
