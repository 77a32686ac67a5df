/* Looks for the installation's files from /proc/self/exe. */
#include "daemon/base/paths.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 4096, LEVELS_UP = 6 };

/* Writes the folder of the running program. */
static bool program_folder(char *folder, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", folder, size - 1);
    char *slash;

    if (length <= 0)
        return false;
    folder[length] = '\0';
    slash = strrchr(folder, '/');
    if (!slash)
        return false;
    *slash = '\0';
    return true;
}

static bool try_path(const char *folder, const char *below, int mode, char *path, size_t size)
{
    return (size_t)snprintf(path, size, "%s/%s", folder, below) < size && !access(path, mode);
}

/* Tries `installed` in the program's folder, then `built` in that folder and each folder above it.
 */
static bool find(const char *installed, const char *built, int mode, char *path, size_t size)
{
    char folder[PATH_SIZE], *slash;

    if (!program_folder(folder, sizeof folder))
        return false;
    if (try_path(folder, installed, mode, path, size))
        return true;
    for (int i = 0; i < LEVELS_UP; i++) {
        if (try_path(folder, built, mode, path, size))
            return true;
        slash = strrchr(folder, '/');
        if (!slash)
            break;
        *slash = '\0';
    }
    return false;
}

bool trajd_paths_helper(char *path, size_t size)
{
    return find("trajd-indexer", "daemon/hdf5/trajd-indexer", X_OK, path, size) ||
           find("../libexec/trajd/trajd-indexer", "libexec/trajd/trajd-indexer", X_OK, path, size);
}

bool trajd_paths_decoder(char *path, size_t size)
{
    return find("trajd-decoder", "daemon/decode/trajd-decoder", X_OK, path, size) ||
           find("../libexec/trajd/trajd-decoder", "libexec/trajd/trajd-decoder", X_OK, path, size);
}

bool trajd_paths_avcodec(char *path, size_t size)
{
    return find("trajd-decoder-avcodec.so", "daemon/decode/trajd-decoder-avcodec.so", R_OK, path,
                size);
}

bool trajd_paths_layouts(char *path, size_t size)
{
    return find("../share/trajd/layouts", "configs/layouts", R_OK, path, size);
}

bool trajd_paths_daemon(char *path, size_t size)
{
    return find("trajd", "daemon/trajd", X_OK, path, size);
}
