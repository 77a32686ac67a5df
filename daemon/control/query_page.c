#include "daemon/control/query.h"

#define END_BYTES 512 /* reserved for the end of a document, after its items */

bool trajd_query_fits(struct trajd_json *json, struct trajd_json_mark mark)
{
    return trajd_json_fits(json, mark, TRAJD_QUERY_MAX_ANSWER - END_BYTES);
}

void trajd_query_end_page(struct trajd_json *json, uint64_t next, uint64_t total)
{
    trajd_json_close_array(json);
    if (next < total)
        trajd_json_u64(json, "next", next);
    else
        trajd_json_null(json, "next");
    trajd_json_close_object(json);
}
