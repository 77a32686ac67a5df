/* The reader of JSON (daemon/base/json_read.h), under the name that daemon/hdf5/writer includes. */
#ifndef TRAJD_LAYOUT_JSON_FIELD_H
#define TRAJD_LAYOUT_JSON_FIELD_H

#include "daemon/base/json_read.h"

#endif
