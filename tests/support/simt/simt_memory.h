/* What tests in C call: see simt.h. */
#ifndef TRAJD_TESTS_SIMT_MEMORY_H
#define TRAJD_TESTS_SIMT_MEMORY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Declares memory that bulk loads may read. */
void simt_allow(const void *begin, uint64_t bytes);
void simt_forget_all(void);

#ifdef __cplusplus
}
#endif
#endif
