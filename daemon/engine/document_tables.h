/* The codec's tables of a document. */
#ifndef TRAJD_ENGINE_DOCUMENT_TABLES_H
#define TRAJD_ENGINE_DOCUMENT_TABLES_H

#include "daemon/engine/document.h"

extern const struct trajd_codec_table trajd_document_table, trajd_document_output_table;

#endif
