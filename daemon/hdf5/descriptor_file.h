/* Lets libhdf5 read and write a file through a descriptor that is open already, so that the sandbox
 * can forbid to open files. One thread. */
#ifndef TRAJD_HDF5_DESCRIPTOR_FILE_H
#define TRAJD_HDF5_DESCRIPTOR_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hdf5.h>

/* The name to pass to H5Fopen and H5Fcreate. libhdf5 never uses it to open a file. */
#define TRAJD_DESCRIPTOR_NAME "/descriptor"

/* Pieces of a file that is only read, kept because libhdf5 asks for hundreds of bytes at a time. */
enum { TRAJD_DESCRIPTOR_BLOCKS = 256, TRAJD_DESCRIPTOR_BLOCK_BYTES = 4096 };
struct trajd_descriptor_blocks {
    uint64_t numbers[TRAJD_DESCRIPTOR_BLOCKS]; /* of the block in each place, from 1; 0: none */
    uint8_t bytes[TRAJD_DESCRIPTOR_BLOCKS][TRAJD_DESCRIPTOR_BLOCK_BYTES];
};

struct trajd_descriptor_file {
    int fd;           /* borrowed; stays open when libhdf5 closes the file */
    const char *name; /* for messages; may be NULL */
    int error;        /* errno of the first read or write that failed; 0: none did */
    struct trajd_descriptor_blocks *blocks; /* of this file alone; NULL: none are kept */
    /* Called right after a read or write failed, before libhdf5 notices. It may end the process.
     * NULL: libhdf5 reports the failure. */
    void (*on_error)(const struct trajd_descriptor_file *file);
};

/* Reads bytes as libhdf5 gets them; zeros behind the end of the file. False where a read fails. */
bool trajd_descriptor_read(struct trajd_descriptor_file *file, uint64_t offset, size_t size,
                           void *buffer);

/* Returns a file access list for H5Fopen or H5Fcreate, below 0 where libhdf5 fails. The caller closes
 * it with H5Pclose before the next call. *file must outlive the HDF5 file that is opened with it. */
hid_t trajd_descriptor_access(struct trajd_descriptor_file *file);

#endif
