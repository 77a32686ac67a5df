/* Runs a fuzz target once over every file of the folders named, so that the corpus is a test without libFuzzer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *folder, const char *name)
{
    char path[4096];
    uint8_t *data = NULL;
    size_t size = 0;
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "rb");
    if (!file)
        return 0;
    data = malloc(1 << 20);
    if (data)
        size = fread(data, 1, 1 << 20, file);
    fclose(file);
    if (data)
        LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 1;
}

int main(int argc, char **argv)
{
    int files = 0;

    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (!folder) {
            fprintf(stderr, "no corpus at %s\n", argv[i]);
            return 1;
        }
        for (struct dirent *entry; (entry = readdir(folder));)
            if (entry->d_name[0] != '.')
                files += run_file(argv[i], entry->d_name);
        closedir(folder);
    }
    printf("%d inputs\n", files);
    return files ? 0 : 1;
}
