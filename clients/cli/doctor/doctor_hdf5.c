#include "clients/cli/doctor/doctor_hdf5.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/files.h"

enum {
    SUPERBLOCK_SIZE = 96,
    EOF_AT = 40,  /* where the superblock has the size of the file */
    ROOT_AT = 64, /* and the address of the root group */
    HEADER_PREFIX_SIZE = 16,
    MESSAGE_PREFIX_SIZE = 8,
    FILE_SIZE_MAX = 1 << 19,
    LINKS_MAX = DOCTOR_EPISODES,
    FLOAT_SIZE = 4,
};

/* Types of the messages in an object's header. */
enum {
    MESSAGE_DATASPACE = 1,
    MESSAGE_LINK_INFO = 2,
    MESSAGE_DATATYPE = 3,
    MESSAGE_FILL_VALUE = 5,
    MESSAGE_LINK = 6,
    MESSAGE_LAYOUT = 8,
    MESSAGE_GROUP_INFO = 10,
};

#define UNDEFINED UINT64_MAX /* an address of nothing */

struct image {
    uint8_t *bytes;
    size_t length;
};

struct link {
    char name[16];
    uint64_t address;
};

static void put(struct image *image, const void *data, size_t size)
{
    memcpy(image->bytes + image->length, data, size);
    image->length += size;
}

/* Puts the lowest `size` bytes of a number; all numbers of HDF5 are little-endian. */
static void put_number(struct image *image, uint64_t value, size_t size)
{
    put(image, &value, size);
}

/* Puts zeros up to a multiple of 8 bytes. */
static void align(struct image *image)
{
    while (image->length % 8)
        put_number(image, 0, 1);
}

static void put_superblock(struct image *image)
{
    const uint8_t begin[] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n', /* signature */
                             0,    0,   0,   0,   0,                      /* versions */
                             8,    8,   0,                                /* sizes of addresses */
                             4,    0,   16,  0,   0,    0,    0,    0};

    put(image, begin, sizeof begin);
    put_number(image, 0, 8); /* base address */
    put_number(image, UNDEFINED, 8);
    put_number(image, 0, 8); /* at EOF_AT */
    put_number(image, UNDEFINED, 8);
    put_number(image, 0, 8);
    put_number(image, 0, 8); /* at ROOT_AT */
    memset(image->bytes + image->length, 0, SUPERBLOCK_SIZE - image->length);
    image->length = SUPERBLOCK_SIZE;
}

static void set_number(struct image *image, size_t at, uint64_t value)
{
    memcpy(image->bytes + at, &value, sizeof value);
}

/* Begins an object's header and returns its address. end_header fills in its size. */
static uint64_t begin_header(struct image *image, uint32_t message_count)
{
    const uint64_t address = image->length;

    put_number(image, 1, 2); /* version */
    put_number(image, message_count, 2);
    put_number(image, 1, 4); /* references */
    put_number(image, 0, 8); /* size, and padding */
    return address;
}

static void end_header(struct image *image, uint64_t address)
{
    const uint32_t size = (uint32_t)(image->length - address - HEADER_PREFIX_SIZE);

    memcpy(image->bytes + address + 8, &size, sizeof size);
}

/* Begins a message and returns where it begins. end_message fills in its size. */
static size_t begin_message(struct image *image, uint32_t type)
{
    const size_t at = image->length;

    put_number(image, type, 2);
    put_number(image, 0, 6); /* size, flags */
    return at;
}

static void end_message(struct image *image, size_t at)
{
    uint16_t size;

    align(image);
    size = (uint16_t)(image->length - at - MESSAGE_PREFIX_SIZE);
    memcpy(image->bytes + at + 2, &size, sizeof size);
}

static uint64_t put_group(struct image *image, const struct link *links, uint32_t count)
{
    const uint64_t address = begin_header(image, count + 2);
    size_t at = begin_message(image, MESSAGE_LINK_INFO);

    put_number(image, 0, 2);         /* version, flags */
    put_number(image, UNDEFINED, 8); /* no heap of links: they follow here */
    put_number(image, UNDEFINED, 8);
    end_message(image, at);
    at = begin_message(image, MESSAGE_GROUP_INFO);
    put_number(image, 0, 2);
    end_message(image, at);
    for (uint32_t i = 0; i < count; i++) {
        at = begin_message(image, MESSAGE_LINK);
        put_number(image, 1, 2); /* version 1; a hard link */
        put_number(image, strlen(links[i].name), 1);
        put(image, links[i].name, strlen(links[i].name));
        put_number(image, links[i].address, 8);
        end_message(image, at);
    }
    end_header(image, address);
    return address;
}

static uint64_t put_rows(struct image *image, int episode, int width)
{
    const uint64_t address = image->length;

    for (int row = 0; row < DOCTOR_ROWS; row++)
        for (int feature = 0; feature < width; feature++) {
            const float value = doctor_value(episode, row, feature);
            put(image, &value, sizeof value);
        }
    align(image);
    return address;
}

/* Puts a dataset (DOCTOR_ROWS, width) of f32, stored contiguously. */
static uint64_t put_dataset(struct image *image, int episode, int width)
{
    static const uint8_t f32[] = {0x11, 0x20, 31, 0, FLOAT_SIZE, 0, 0, 0, /* float, its sign */
                                  0,    0,    32, 0, 23,         8, 0, 23, 127, 0, 0, 0},
                         unset_fill_value[] = {2, 2, 2, 0};
    const uint64_t data = put_rows(image, episode, width), address = begin_header(image, 4);
    size_t at = begin_message(image, MESSAGE_DATASPACE);

    put_number(image, 1 | 2 << 8, 8); /* version 1, rank 2 */
    put_number(image, DOCTOR_ROWS, 8);
    put_number(image, (uint64_t)width, 8);
    end_message(image, at);
    at = begin_message(image, MESSAGE_DATATYPE);
    put(image, f32, sizeof f32);
    end_message(image, at);
    at = begin_message(image, MESSAGE_FILL_VALUE);
    put(image, unset_fill_value, sizeof unset_fill_value);
    end_message(image, at);
    at = begin_message(image, MESSAGE_LAYOUT);
    put_number(image, 3 | 1 << 8, 2); /* version 3, contiguous */
    put_number(image, data, 8);
    put_number(image, (uint64_t)DOCTOR_ROWS * (uint64_t)width * FLOAT_SIZE, 8);
    end_message(image, at);
    end_header(image, address);
    return address;
}

static uint64_t put_episode(struct image *image, int episode)
{
    const struct link position = {"position", put_dataset(image, episode, DOCTOR_POSITIONS)};
    const struct link links[] = {{"actions", put_dataset(image, episode, DOCTOR_ACTIONS)},
                                 {"obs", put_group(image, &position, 1)}};

    return put_group(image, links, 2);
}

static void put_file(struct image *image)
{
    struct link links[LINKS_MAX], data = {"data", 0};

    put_superblock(image);
    for (int episode = 0; episode < DOCTOR_EPISODES; episode++) {
        snprintf(links[episode].name, sizeof links->name, "demo_%d", episode);
        links[episode].address = put_episode(image, episode);
    }
    data.address = put_group(image, links, DOCTOR_EPISODES);
    set_number(image, ROOT_AT, put_group(image, &data, 1));
    set_number(image, EOF_AT, image->length);
}

enum trajd_status doctor_write_hdf5(const char *path, struct trajd_error *error)
{
    struct image image = {.bytes = malloc(FILE_SIZE_MAX)};
    int fd = image.bytes ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    int failed = fd < 0;

    if (!failed) {
        put_file(&image);
        failed = trajd_file_write_all(fd, image.bytes, image.length);
    }
    if (fd >= 0 && close(fd))
        failed = -1;
    free(image.bytes);
    return failed ? trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", path, strerror(errno))
                  : TRAJD_OK;
}
