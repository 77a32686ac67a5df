/* A folder of journals for the tests of one program. */
#ifndef TRAJD_TESTS_JOURNAL_FOLDER_H
#define TRAJD_TESTS_JOURNAL_FOLDER_H

extern char journal_folder[]; /* its path, from the set-up to the tear-down */

/* Set-up and tear-down of a cmocka test: an empty folder, and its removal with all files. */
int journal_folder_make(void **state);
int journal_folder_remove(void **state);

#endif
