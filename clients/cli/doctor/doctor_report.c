#include "clients/cli/doctor/doctor_report.h"
#include "proto/plural.h"

#include <stdarg.h>
#include <string.h>

enum { TEXT_SIZE = 2048, TEXT_COLUMN = 20, COLUMNS = 100 };

static const char *const level_names[DOCTOR_LEVELS] = {"ok", "slow", "fail"};

void doctor_begin(struct doctor_report *report)
{
    if (!report->is_json) {
        printf("trajctl %s\n", TRAJD_VERSION);
        return;
    }
    report->json = (struct trajd_json){.out = stdout};
    trajd_json_open_object(&report->json, NULL);
    trajd_json_string(&report->json, "version", TRAJD_VERSION);
    trajd_json_open_array(&report->json, "findings");
}

/* Prints a text from TEXT_COLUMN on, and breaks its lines between words. */
static void print_wrapped(const char *text)
{
    size_t column = TEXT_COLUMN;

    while (*text) {
        const size_t length = strcspn(text, " \n");
        if (column > TEXT_COLUMN && column + 1 + length > COLUMNS) {
            printf("\n%*s", TEXT_COLUMN, "");
            column = TEXT_COLUMN;
        }
        if (column > TEXT_COLUMN)
            column += (size_t)printf(" ");
        column += (size_t)printf("%.*s", (int)length, text);
        text += length;
        if (*text == '\n') {
            printf("\n%*s", TEXT_COLUMN, "");
            column = TEXT_COLUMN;
        }
        text += *text != '\0';
    }
    putchar('\n');
}

void doctor_add(struct doctor_report *report, enum doctor_level level, const char *topic,
                const char *format, ...)
{
    char text[TEXT_SIZE];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    report->counts[level]++;
    if (report->is_json) {
        trajd_json_open_object(&report->json, NULL);
        trajd_json_string(&report->json, "level", level_names[level]);
        trajd_json_string(&report->json, "topic", topic);
        trajd_json_string(&report->json, "text", text);
        trajd_json_close_object(&report->json);
    } else {
        printf("  %-5s %-11s ", level_names[level], topic);
        print_wrapped(text);
    }
    fflush(stdout);
}

bool doctor_end(struct doctor_report *report)
{
    const uint32_t slow = report->counts[DOCTOR_SLOW], failed = report->counts[DOCTOR_FAIL];

    if (report->is_json) {
        trajd_json_close_array(&report->json);
        trajd_json_u64(&report->json, "slow", slow);
        trajd_json_u64(&report->json, "failed", failed);
        trajd_json_close_object(&report->json);
        putchar('\n');
    } else if (failed) {
        printf("result: trajd does not work here: %u check%s failed (\"fail\")\n", failed,
               trajd_plural(failed));
    } else if (slow) {
        printf("result: trajd works here; %u finding%s it slow (\"slow\")\n", slow,
               slow == 1 ? " makes" : "s make");
    } else {
        printf("result: trajd works here\n");
    }
    return !failed;
}
