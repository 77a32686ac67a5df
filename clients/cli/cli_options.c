/* Reads a command line by the table of its command; argp of glibc formats --help. argp does not read
 * it: it takes beginnings of names, which would change their meaning when an option is added, and
 * its messages know no nearest name. */
#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/cli.h"
#include "daemon/base/quantity.h"
#include "daemon/base/yaml.h"

enum { LONG_KEY = 256, LAST_GROUP = -1 }; /* keys of argp: from 256 on where there is no letter */

/* ---- the table ---- */

/* Appends the options of a table. Returns the number of rows. */
static size_t add_options(const struct cli_option *table, size_t offset, struct cli_option *rows,
                          size_t count)
{
    for (; table && table->kind && count + 1 < CLI_OPTIONS_MAX; table++) {
        if (table->kind == CLI_TABLE) {
            count = add_options(table->table, offset + table->offset, rows, count);
            continue;
        }
        rows[count] = *table;
        rows[count++].offset += offset;
    }
    return count;
}

void cli_list_options(const struct cli_command *command, struct cli_option rows[CLI_OPTIONS_MAX])
{
    rows[add_options(command->options, 0, rows, 0)] = (struct cli_option){.kind = CLI_END};
}

/* Returns whether the option may have a value and may lack it, which brackets show. */
static bool is_optional(const struct cli_option *row)
{
    return row->value && *row->value == '[' && row->value[strlen(row->value) - 1] == ']';
}

/* Prints what the command does, and a line for each option. */
static void print_help(const struct cli_option *rows)
{
    struct argp_option known[CLI_OPTIONS_MAX + 1] = {{0}};
    char values[CLI_OPTIONS_MAX][128], doc[512]; /* the values' names for people */
    const struct argp argp = {.options = known, .doc = doc};
    int count = 0;

    for (const struct cli_option *row = rows; row->kind; row++, count++) {
        const bool is_long = row->name[1] == '-';
        const int brackets = is_optional(row);
        if (row->value)
            snprintf(values[count], sizeof *values, "%.*s", (int)strlen(row->value) - 2 * brackets,
                     row->value + brackets);
        known[count] = (struct argp_option){.name = is_long ? row->name + 2 : NULL,
                                            .key = is_long ? LONG_KEY + count : row->name[1],
                                            .arg = row->value ? values[count] : NULL,
                                            .flags = brackets ? OPTION_ARG_OPTIONAL : 0,
                                            .doc = row->help};
    }
    known[count] = (struct argp_option){
        .name = "help", .key = 'h', .doc = "print this text", .group = LAST_GROUP};
    snprintf(doc, sizeof doc, "%s\v`man trajctl` says more.", cli_running->help);
    cli_print_usage(stdout);
    argp_help(&argp, stdout, ARGP_HELP_LONG | ARGP_HELP_DOC, (char *)cli_running->name);
    cli_end(CLI_OK);
}

/* ---- names ---- */

/* Returns the length of the name in "--rate=10", "--rate", "-o" or "-oFILE". */
static size_t name_length(const char *word)
{
    return word[1] == '-' ? strcspn(word, "=") : 2;
}

static const struct cli_option *find_option(const struct cli_option *rows, const char *word)
{
    const size_t length = name_length(word);

    for (; rows->kind; rows++)
        if (!strncmp(rows->name, word, length) && !rows->name[length])
            return rows;
    return NULL;
}

static void refuse_name(const struct cli_option *rows, const char *word)
{
    const char *names[CLI_OPTIONS_MAX + 1] = {"--help"}, *value = strchr(word, '='), *nearest;
    char name[64];
    size_t count = 1;

    for (; rows->kind; rows++)
        names[count++] = rows->name;
    snprintf(name, sizeof name, "%.*s", value ? (int)(value - word) : (int)sizeof name - 1, word);
    nearest = trajd_yaml_nearest(name, names, count);
    if (nearest)
        cli_refuse("unknown option: %s (did you mean %s%s?)", word, nearest, value ? value : "");
    cli_refuse("unknown option: %s", word);
}

/* ---- values ---- */

static uint64_t read_number(const struct cli_option *option, const char *text, uint64_t limit)
{
    uint64_t value;
    char *end;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end)
        cli_refuse("%s: \"%s\" is not a whole number", option->name, text);
    if (errno || value > limit)
        cli_refuse("%s: \"%s\" is too large", option->name, text);
    if (option->most && (value < option->least || value > option->most))
        cli_refuse("%s %s: choose %ju to %ju", option->name, text, (uintmax_t)option->least,
                   (uintmax_t)option->most);
    if (value < option->least)
        cli_refuse("%s must be at least %ju", option->name, (uintmax_t)option->least);
    return value;
}

/* Returns the index of the word among those of the option's value. */
static unsigned read_choice(const struct cli_option *option, const char *text)
{
    char list[256] = "";
    const char *word = option->value;
    unsigned index = 0;

    for (size_t length; *word; word += length + (word[length] == '|'), index++) {
        length = strcspn(word, "|");
        if (!strncmp(word, text, length) && !text[length])
            return index;
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%.*s",
                 !index         ? ""
                 : word[length] ? ", "
                                : " or ",
                 (int)length, word);
    }
    cli_refuse("%s %s: choose %s", option->name, text, list);
}

void cli_read(const struct cli_option *option, enum cli_kind kind, const char *text, void *place)
{
    if (kind == CLI_FLAG)
        *(bool *)place = true;
    else if (kind == CLI_TEXT)
        *(const char **)place = text;
    else if (kind == CLI_U32)
        *(uint32_t *)place = (uint32_t)read_number(option, text, UINT32_MAX);
    else if (kind == CLI_U64)
        *(uint64_t *)place = read_number(option, text, UINT64_MAX);
    else if (kind == CLI_CHOICE)
        *(unsigned *)place = read_choice(option, text);
    else if (kind == CLI_RATE && !trajd_parse_rate(text, place))
        cli_refuse("%s: \"%s\" is not a rate above 0 (such as 20, 29.97 or 30000/1001)",
                   option->name, text);
    else if (kind == CLI_TIME && (!trajd_parse_duration(text, place) ||
                                  (option->least && *(int64_t *)place < (int64_t)option->least)))
        cli_refuse("%s: \"%s\" is not a time%s (such as 50ms, 1.5s or 200us)", option->name, text,
                   option->least ? " above 0" : "");
}

/* ---- the parser ---- */

const char *cli_option_at(int argc, char **argv, int *i, const char **value)
{
    struct cli_option rows[CLI_OPTIONS_MAX];
    const struct cli_option *row;
    const char *word = argv[*i];

    *value = NULL;
    if (word[0] != '-' || !word[1])
        return NULL;
    cli_list_options(cli_running, rows);
    row = find_option(rows, word);
    if (!row)
        return NULL;
    word += name_length(word);
    if (*word)
        *value = word + (*word == '=');
    else if (row->value && !is_optional(row) && *i + 1 < argc)
        *value = argv[++*i];
    return row->name;
}

/* Walks through the words: checks names, and that there are values where they are needed, or sets
 * the options and moves the operands to argv[1] and on. Returns the number of operands. */
static int walk(const struct cli_option *rows, int argc, char **argv, bool is_check, char *options)
{
    bool has_ended = false; /* by "--" */
    int count = 0;

    for (int i = 1; i < argc; i++) {
        char *word = argv[i], *value;
        if (has_ended || word[0] != '-' || !word[1]) {
            count++;
            if (!is_check)
                argv[count] = word;
            continue;
        }
        has_ended = !strcmp(word, "--");
        if (has_ended)
            continue;
        if (!strcmp(word, "--help") || !strcmp(word, "-h"))
            print_help(rows);
        const struct cli_option *row = find_option(rows, word);
        value = word + name_length(word);
        if (!row)
            refuse_name(rows, word);
        if (*value && !row->value)
            cli_refuse("%s takes no value", row->name);
        if (*value)
            value += word[1] == '-';
        else if (!row->value || is_optional(row))
            value = NULL;
        else if (++i < argc)
            value = argv[i];
        else
            cli_refuse("%s needs a value", row->name);
        if (is_check)
            continue;
        if (row->kind == CLI_CALL)
            row->set(options, row, value);
        else
            cli_read(row, row->kind, value, options + row->offset);
    }
    return count;
}

int cli_parse(int argc, char **argv, void *options)
{
    struct cli_option rows[CLI_OPTIONS_MAX];
    int count;

    cli_list_options(cli_running, rows);
    walk(rows, argc, argv, true, NULL);
    count = walk(rows, argc, argv, false, options);
    if (count < cli_running->least)
        cli_refuse("name %s", cli_running->missing);
    if (count > cli_running->most)
        cli_refuse("unexpected argument: %s", argv[1 + cli_running->most]);
    return count;
}
