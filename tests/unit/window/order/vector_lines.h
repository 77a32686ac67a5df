/* Reads golden vectors: lines of a kind and numbers. Include it after cmocka.h. */
#ifndef TRAJD_TESTS_VECTOR_LINES_H
#define TRAJD_TESTS_VECTOR_LINES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VECTOR_WORDS_MAX 64

/* Reads a line, whose signed numbers become their two's complement. Returns how many numbers it
 * has; -1 at the end of the file. */
static inline int read_vector(FILE *file, char *kind, uint64_t *words)
{
    static char line[4096];
    char *next;
    int count = 0;

    if (!fgets(line, sizeof line, file))
        return -1;
    next = line + strcspn(line, " ");
    *next++ = '\0';
    snprintf(kind, 16, "%.15s", line);
    for (char *word = strtok_r(next, " \n", &next); word; word = strtok_r(NULL, " \n", &next)) {
        assert_true(count < VECTOR_WORDS_MAX);
        words[count++] =
            word[0] == '-' ? (uint64_t)strtoll(word, NULL, 10) : strtoull(word, NULL, 10);
    }
    return count;
}

#endif
