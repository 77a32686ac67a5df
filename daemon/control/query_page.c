#include <inttypes.h>

#include "daemon/control/query.h"

#define END_BYTES 512 /* reserved for the end of a document, after its items */

bool trajd_query_fits(FILE *out, long mark)
{
    if (ftell(out) <= (long)TRAJD_QUERY_MAX_ANSWER - END_BYTES)
        return true;
    fseek(out, mark, SEEK_SET);
    return false;
}

void trajd_query_end_page(FILE *out, uint64_t next, uint64_t total)
{
    if (next < total)
        fprintf(out, "],\"next\":%" PRIu64 "}", next);
    else
        fprintf(out, "],\"next\":null}");
}
