/* Notes, and the names of backends and kinds. */
#include "clients/cli/resample/plan/convert_options.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/yaml.h"
#include "daemon/window/window_report.h"
#include "proto/array_len.h"

enum { NOTE_SIZE = 1024 };

void convert_note(const struct trajd_convert_options *options, const char *format, ...)
{
    char text[NOTE_SIZE];
    va_list arguments;

    if (!options->on_note)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    options->on_note(options->context, text);
}

const char *trajd_convert_backend_name(enum trajd_convert_backend backend)
{
    static const char *const names[] = {"cpu", "auto", "cuda", "daemon"};

    return names[backend];
}

const char *trajd_convert_kind_name(const struct trajd_convert_stream *stream)
{
    return stream->adds ? "sum" : trajd_window_kind_name(stream->kind);
}

enum trajd_status trajd_convert_rule_set_kind(struct trajd_convert_rule *rule, const char *word,
                                              struct trajd_error *error)
{
    static const char *const words[] = {"linear",     "previous",   "nearest", "slerp",
                                        "slerp_xyzw", "slerp_wxyz", "angle",   "mean"};
    static const enum trajd_kind kinds[] = {
        TRAJD_KIND_LINEAR,     TRAJD_KIND_PREVIOUS,   TRAJD_KIND_NEAREST, TRAJD_KIND_SLERP_XYZW,
        TRAJD_KIND_SLERP_XYZW, TRAJD_KIND_SLERP_WXYZ, TRAJD_KIND_ANGLE,   TRAJD_KIND_MEAN};

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (!strcmp(words[i], word)) {
            rule->kind = kinds[i];
            rule->layout_order = !strcmp(word, "slerp");
            return TRAJD_OK;
        }
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "\"%s\" is not a kind%s; the kinds are linear, previous, nearest, slerp "
                           "(or slerp_xyzw, slerp_wxyz), angle, mean",
                           word, trajd_yaml_suggest(" (", word, words, ARRAY_LEN(words), ")").text);
}
