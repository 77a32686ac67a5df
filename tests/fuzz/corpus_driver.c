/* Runs a fuzz target over a corpus and then over mutations of it: a short test that needs no
 * fuzzer. libFuzzer goes further (.ci/fuzz). Mutation n depends on n only, so that findings can be
 * reproduced.
 *
 *     corpus_driver FOLDER [MUTATIONS] */
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INPUTS 4096
#define MAX_SIZE (1u << 20)
/* only the first bytes of larger inputs are mutated, so that a run takes seconds */
#define MAX_MUTATED 8192u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    uint8_t *data;
    size_t size;
};

struct corpus {
    struct input inputs[MAX_INPUTS];
    uint32_t count;
};

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static bool read_input(const char *folder, const char *name, struct input *input)
{
    char path[4096];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "rb");
    if (!file)
        return false;
    input->data = malloc(MAX_SIZE);
    input->size = input->data ? fread(input->data, 1, MAX_SIZE, file) : 0;
    fclose(file);
    return input->data != NULL;
}

static bool read_corpus(const char *folder, struct corpus *corpus)
{
    DIR *entries = opendir(folder);

    if (!entries)
        return false;
    for (struct dirent *entry; (entry = readdir(entries)) && corpus->count < MAX_INPUTS;)
        if (entry->d_name[0] != '.')
            corpus->count += read_input(folder, entry->d_name, &corpus->inputs[corpus->count]);
    closedir(entries);
    return corpus->count > 0;
}

static size_t mutate(const struct corpus *corpus, uint8_t *data, size_t size, uint64_t *random)
{
    const struct input *other = &corpus->inputs[next_random(random) % corpus->count];
    const size_t at = size ? next_random(random) % size : 0;
    size_t length;

    switch (next_random(random) % 6) {
    case 0: /* flips a bit */
        if (size)
            data[at] ^= (uint8_t)(1u << next_random(random) % 8);
        return size;
    case 1: /* sets a byte that breaks parsers */
        if (size)
            data[at] = "\x00\xff\x7f\x80\"{[:\n\xdf"[next_random(random) % 10];
        return size;
    case 2: /* cuts the end off */
        return at;
    case 3: /* removes a stretch */
        length = next_random(random) % (size - at + 1);
        memmove(data + at, data + at + length, size - at - length);
        return size - length;
    case 4: /* repeats a stretch */
        length = next_random(random) % (size - at + 1);
        length = length < MAX_MUTATED - size ? length : MAX_MUTATED - size;
        memmove(data + at + length, data + at, size - at);
        return size + length;
    default: /* appends the end of another input */
        length = other->size < MAX_MUTATED - at ? other->size : MAX_MUTATED - at;
        memcpy(data + at, other->data, length);
        return at + length;
    }
}

static void run_mutated(const struct corpus *corpus, uint64_t seed)
{
    static uint8_t buffer[MAX_MUTATED];
    uint64_t random = seed;
    const struct input *from = &corpus->inputs[next_random(&random) % corpus->count];
    size_t size = from->size < MAX_MUTATED / 2 ? from->size : MAX_MUTATED / 2;
    uint8_t *exact;

    memcpy(buffer, from->data, size);
    for (uint64_t steps = 1 + next_random(&random) % 4; steps; steps--)
        size = mutate(corpus, buffer, size, &random);
    exact = malloc(size ? size : 1); /* the allocation ends with it: overruns are found */
    if (exact) {
        memcpy(exact, buffer, size);
        LLVMFuzzerTestOneInput(exact, size);
    }
    free(exact);
}

int main(int argc, char **argv)
{
    static struct corpus corpus;
    const uint64_t mutations = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;

    if (argc < 2 || !read_corpus(argv[1], &corpus)) {
        fprintf(stderr, "no corpus at %s\n", argc < 2 ? "(no folder named)" : argv[1]);
        return 1;
    }
    for (uint32_t i = 0; i < corpus.count; i++)
        LLVMFuzzerTestOneInput(corpus.inputs[i].data, corpus.inputs[i].size);
    for (uint64_t seed = 1; seed <= mutations; seed++)
        run_mutated(&corpus, seed);
    for (uint32_t i = 0; i < corpus.count; i++)
        free(corpus.inputs[i].data);
    printf("%u inputs, %llu mutations\n", corpus.count, (unsigned long long)mutations);
    return 0;
}
