/* A file driver of libhdf5 that reads and writes an open descriptor. */
#include "daemon/hdf5/descriptor_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/sandbox/sandbox.h"

/* libhdf5 knows an open file by `base`, which comes first. */
struct open_file {
    H5FD_t base;
    struct trajd_descriptor_file *file;
    haddr_t end_of_allocated, end_of_file;
    dev_t device;
    ino_t inode;
};

static herr_t fail(struct trajd_descriptor_file *file, int code)
{
    if (!file->error)
        file->error = code;
    if (file->on_error)
        file->on_error(file);
    return -1;
}

static H5FD_t *open_descriptor(const char *name, unsigned flags, hid_t access, haddr_t end)
{
    struct trajd_descriptor_file *const *file = H5Pget_driver_info(access);
    struct open_file *made;
    struct stat status;

    (void)end;
    /* no other name: a link in a file must not lead anywhere */
    if (!file || strcmp(name, TRAJD_DESCRIPTOR_NAME) != 0)
        return NULL;
    if (trajd_sandbox_fstat((*file)->fd, &status) ||
        ((flags & H5F_ACC_TRUNC) && ftruncate((*file)->fd, 0))) {
        fail(*file, errno);
        return NULL;
    }
    made = calloc(1, sizeof *made);
    if (!made) {
        fail(*file, ENOMEM);
        return NULL;
    }
    made->file = *file;
    if ((*file)->blocks)
        memset((*file)->blocks->numbers, 0, sizeof(*file)->blocks->numbers);
    made->end_of_file = flags & H5F_ACC_TRUNC ? 0 : (haddr_t)status.st_size;
    made->device = status.st_dev;
    made->inode = status.st_ino;
    return &made->base;
}

static herr_t close_descriptor(H5FD_t *base)
{
    free(base);
    return 0;
}

static int compare(const H5FD_t *a, const H5FD_t *b)
{
    const struct open_file *first = (const struct open_file *)a;
    const struct open_file *second = (const struct open_file *)b;

    if (first->device != second->device)
        return first->device < second->device ? -1 : 1;
    return first->inode < second->inode ? -1 : first->inode > second->inode;
}

/* Has the features of libhdf5's own driver for files, so that outputs are laid out alike. */
static herr_t query(const H5FD_t *base, unsigned long *features)
{
    (void)base;
    *features = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA |
                H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_AGGREGATE_SMALLDATA |
                H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
    return 0;
}

static haddr_t get_end_of_allocated(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return ((const struct open_file *)base)->end_of_allocated;
}

static herr_t set_end_of_allocated(H5FD_t *base, H5FD_mem_t type, haddr_t end)
{
    (void)type;
    ((struct open_file *)base)->end_of_allocated = end;
    return 0;
}

static haddr_t get_end_of_file(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return ((const struct open_file *)base)->end_of_file;
}

/* Bytes behind the end of the file are zeros, as with libhdf5's own driver. Returns 0 or an errno. */
static int read_file(int fd, haddr_t offset, size_t size, uint8_t *buffer)
{
    while (size) {
        const ssize_t got = pread(fd, buffer, size, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return errno;
        if (!got) {
            memset(buffer, 0, size);
            break;
        }
        buffer += got;
        offset += (haddr_t)got;
        size -= (size_t)got;
    }
    return 0;
}

/* Returns a block of the file, or NULL where all of it cannot be read. */
static const uint8_t *find_block(struct trajd_descriptor_file *file, uint64_t number)
{
    const uint64_t place = number % TRAJD_DESCRIPTOR_BLOCKS;
    uint8_t *block = file->blocks->bytes[place];

    if (file->blocks->numbers[place] == number + 1)
        return block;
    file->blocks->numbers[place] = 0;
    if (read_file(file->fd, number * TRAJD_DESCRIPTOR_BLOCK_BYTES, TRAJD_DESCRIPTOR_BLOCK_BYTES,
                  block))
        return NULL;
    file->blocks->numbers[place] = number + 1;
    return block;
}

/* Returns 0 or an errno. */
static int read_pieces(struct trajd_descriptor_file *file, uint64_t offset, size_t size,
                       void *buffer)
{
    const size_t within = offset % TRAJD_DESCRIPTOR_BLOCK_BYTES;
    const bool is_small = file->blocks && size <= TRAJD_DESCRIPTOR_BLOCK_BYTES - within;
    const uint8_t *block =
        is_small ? find_block(file, offset / TRAJD_DESCRIPTOR_BLOCK_BYTES) : NULL;

    if (!block)
        return read_file(file->fd, offset, size, buffer);
    memcpy(buffer, block + within, size);
    return 0;
}

bool trajd_descriptor_read(struct trajd_descriptor_file *file, uint64_t offset, size_t size,
                           void *buffer)
{
    return offset <= INT64_MAX - size && !read_pieces(file, offset, size, buffer);
}

static herr_t read_bytes(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t offset, size_t size,
                         void *buffer)
{
    struct trajd_descriptor_file *file = ((struct open_file *)base)->file;
    const int code = read_pieces(file, offset, size, buffer);

    (void)type, (void)transfer;
    return code ? fail(file, code) : 0;
}

static herr_t write_bytes(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t offset,
                          size_t size, const void *buffer)
{
    struct open_file *open_file = (struct open_file *)base;
    const char *next = buffer;

    (void)type, (void)transfer;
    while (size) {
        const ssize_t done = pwrite(open_file->file->fd, next, size, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return fail(open_file->file, done < 0 ? errno : EIO);
        next += done;
        offset += (haddr_t)done;
        size -= (size_t)done;
    }
    if (offset > open_file->end_of_file)
        open_file->end_of_file = offset;
    return 0;
}

/* Makes the file as long as libhdf5 has allocated it. */
static herr_t set_length(H5FD_t *base, hid_t transfer, hbool_t is_closing)
{
    struct open_file *open_file = (struct open_file *)base;

    (void)transfer, (void)is_closing;
    if (open_file->end_of_allocated == open_file->end_of_file)
        return 0;
    if (ftruncate(open_file->file->fd, (off_t)open_file->end_of_allocated))
        return fail(open_file->file, errno);
    open_file->end_of_file = open_file->end_of_allocated;
    return 0;
}

hid_t trajd_descriptor_access(struct trajd_descriptor_file *file)
{
    static const H5FD_class_t driver = {
#ifdef H5FD_CLASS_VERSION
        .version = H5FD_CLASS_VERSION,
        .value = 600, /* any number that no registered driver has */
#endif
        .name = "descriptor",
        .maxaddr = (haddr_t)INT64_MAX,
        .fc_degree = H5F_CLOSE_WEAK,
        .fapl_size = sizeof file,
        .open = open_descriptor,
        .close = close_descriptor,
        .cmp = compare,
        .query = query,
        .get_eoa = get_end_of_allocated,
        .set_eoa = set_end_of_allocated,
        .get_eof = get_end_of_file,
        .read = read_bytes,
        .write = write_bytes,
        .truncate = set_length,
        .fl_map = H5FD_FLMAP_DICHOTOMY,
    };
    static hid_t id = -1, access = -1;

    if (id < 0)
        id = H5FDregister(&driver);
    if (access < 0 && id >= 0) {
        access = H5Pcreate(H5P_FILE_ACCESS);
        if (access >= 0 && H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) < 0)
            access = -1;
    }
    /* one list for all files: making it takes longer than many a read */
    if (access < 0 || H5Pset_driver(access, id, &file) < 0 || H5Iinc_ref(access) < 0)
        return -1;
    return access;
}
