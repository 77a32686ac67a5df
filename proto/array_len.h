/* The number of elements of an array. */
#ifndef TRAJD_PROTO_ARRAY_LEN_H
#define TRAJD_PROTO_ARRAY_LEN_H

#define ARRAY_LEN(array) (sizeof(array) / sizeof(array)[0])

#endif
