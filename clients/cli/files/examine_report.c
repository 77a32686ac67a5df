#include "clients/cli/files/examine_internal.h"

#include <stdarg.h>
#include <stdio.h>

void examine_report(struct examiner *examiner, const struct examine_finding *base,
                    const char *format, ...)
{
    struct examine_finding finding = *base;
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    finding.text = text;
    examiner->report(examiner->context, &finding);
}
