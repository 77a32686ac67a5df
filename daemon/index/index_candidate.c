#include "daemon/index/index_candidate.h"

#include <stdarg.h>
#include <stdio.h>

static void set_reason(struct trajd_candidate *c, bool is_misfit, const char *format,
                       va_list arguments)
{
    char rule[768];

    if (c->reason)
        return;
    vsnprintf(rule, sizeof rule, format, arguments);
    c->is_misfit = is_misfit;
    c->reason = trajd_arena_format(c->validation->arena, "%s%s", c->label, rule);
    if (!c->reason) {
        c->no_memory = true;
        c->reason = "no memory";
    }
}

void trajd_candidate_fault(struct trajd_candidate *c, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    set_reason(c, false, format, arguments);
    va_end(arguments);
}

void trajd_candidate_misfit(struct trajd_candidate *c, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    set_reason(c, true, format, arguments);
    va_end(arguments);
}

void trajd_candidate_no_memory(struct trajd_candidate *c)
{
    c->no_memory = true;
    trajd_candidate_fault(c, "no memory");
}

void *trajd_candidate_alloc(struct trajd_candidate *c, uint64_t count, size_t size)
{
    void *memory = trajd_arena_alloc(c->validation->arena, count * size);

    if (!memory)
        trajd_candidate_no_memory(c);
    return memory;
}
