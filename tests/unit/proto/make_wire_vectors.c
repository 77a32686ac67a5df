/* `make_wire_vectors DIRECTORY` writes NAME.hex for every vector. Run it by hand when the protocol
 * gets a new message. */
#include <stdio.h>

#include "wire_vectors.h"

static int write_vector(const char *directory, const struct wire_vector *vector)
{
    static uint8_t frame[TRAJD_WIRE_MAX_FRAME];
    struct trajd_error error;
    char path[4096];
    size_t size;
    FILE *file;

    if (trajd_wire_encode(&vector->message, frame, sizeof frame, &size, &error)) {
        fprintf(stderr, "%s: %s\n", vector->name, error.message);
        return 1;
    }
    snprintf(path, sizeof path, "%s/%s.hex", directory, vector->name);
    file = fopen(path, "w");
    if (!file) {
        perror(path);
        return 1;
    }
    for (size_t i = 0; i < size; i++)
        fprintf(file, "%02x%s", frame[i], i % 32 == 31 || i + 1 == size ? "\n" : "");
    return fclose(file) != 0;
}

int main(int argc, char **argv)
{
    int failed = argc != 2;

    for (size_t i = 0; !failed && i < wire_vector_count; i++)
        failed = write_vector(argv[1], &wire_vectors[i]);
    return failed;
}
