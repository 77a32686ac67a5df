/* `trajd-decoder describe`: what is in an MP4 file, for a caller that does not read it itself. */
#ifndef TRAJD_DECODE_MP4_DESCRIBE_H
#define TRAJD_DECODE_MP4_DESCRIBE_H

#include <stdio.h>

#include "proto/error.h"

/* Writes one line of JSON and then arrays of little-endian int64, without gaps:
 *
 *     {"codec":"h264","height":480,"width":640,"pixel_format":"yuv420p","matrix":"bt709",
 *      "range":"limited","timescale":15360,"rows":T,"packets":P,"units":U,"extradata_ends":[45],
 *      "file_bytes":12345}
 *     rows (T)       the packet whose frame row t shows; a packet without a row shows none
 *     pts (T)        when, in 1/timescale s since the first row
 *     packets (P,3)  position in the file, bytes, zlib's crc32 of them; in decode order
 *     units (U,3)    first packet, first row, number of its extradata
 *     extradata      bytes: payloads of avcC, hvcC or av1C with the parameter sets that are in force
 *                    where the unit begins; extradata_ends says where each ends
 *
 * Nothing is written after an error, but where the output itself fails. */
enum trajd_status trajd_describe(int fd, FILE *out, struct trajd_error *error);

/* The command: enters the sandbox, reads from descriptor 0 and writes to descriptor 1. Returns the
 * exit status; where it is 1, there is a sentence on standard error. */
int trajd_describe_main(void);

#endif
