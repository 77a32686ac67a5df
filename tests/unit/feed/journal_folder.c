/* Makes and removes a folder of journals. */
#include "journal_folder.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char pattern[] = "/tmp/trajd-journal-XXXXXX";
char journal_folder[sizeof pattern];

int journal_folder_make(void **state)
{
    (void)state;
    strcpy(journal_folder, pattern);
    return mkdtemp(journal_folder) ? 0 : -1;
}

int journal_folder_remove(void **state)
{
    DIR *folder = opendir(journal_folder);

    (void)state;
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    return rmdir(journal_folder);
}
