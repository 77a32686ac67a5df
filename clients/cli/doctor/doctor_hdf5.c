/* Writes the HDF5 file of the self test. It needs no libhdf5, which only the helper program links:
 * the format of version 0 with links in the headers of groups is short enough to be written by
 * hand. All is little-endian and begins at multiples of 8 bytes. */
#include "clients/cli/doctor/doctor.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/files.h"
#include "daemon/base/memory.h"

#define FILE_SIZE_MAX ((size_t)1 << 19)
#define UNDEFINED UINT64_MAX /* an address of nothing */
#define PACKED __attribute__((packed))

/* Types of the messages in an object's header. */
enum { SPACE = 1, LINK_INFO = 2, DATATYPE = 3, FILL_VALUE = 5, LINK = 6, LAYOUT = 8, GROUP = 10 };

struct image {
    uint8_t *bytes; /* zeroed */
    uint64_t length;
};

struct header {
    uint16_t version, message_count;
    uint32_t references;
    uint64_t size; /* of the messages */
};

struct message {
    uint16_t type, size;
    uint32_t flags;
};

struct PACKED superblock {
    uint8_t signature[8], versions[5], address_sizes[3], tree[8];
    uint64_t base, undefined, end, undefined_too, zero, root;
};

struct PACKED dataset {
    struct header header;
    struct message space;
    uint8_t space_version, rank, space_rest[6];
    uint64_t rows, width;
    struct message datatype;
    uint8_t f32[24];
    struct message fill;
    uint8_t unset[8];
    struct message layout;
    uint8_t layout_version, class;
    uint64_t address, size;
    uint8_t layout_rest[6];
};

/* A group, before its links. */
struct PACKED group {
    struct header header;
    struct message link_info;
    uint16_t info_version;
    uint64_t heap, index; /* none: the links follow in the header */
    uint8_t link_info_rest[6];
    struct message group_info;
    uint8_t defaults[8];
};

struct link {
    char name[16];
    uint64_t address;
};

/* Puts data, and zeros up to a multiple of 8 bytes. Returns the address. */
static uint64_t put(struct image *image, const void *data, size_t size)
{
    const uint64_t address = image->length;

    memcpy(image->bytes + address, data, size);
    image->length += (size + 7) / 8 * 8;
    return address;
}

static void put_link(struct image *image, const struct link *link)
{
    const size_t length = strlen(link->name);
    uint8_t body[32] = {1, 0, (uint8_t)length}; /* version 1, a hard link */
    const struct message message = {LINK, (uint16_t)((3 + length + 8 + 7) / 8 * 8), 0};

    memcpy(body + 3, link->name, length);
    memcpy(body + 3 + length, &link->address, sizeof link->address);
    put(image, &message, sizeof message);
    put(image, body, message.size);
}

static uint64_t put_group(struct image *image, const struct link *links, uint16_t count)
{
    struct group group = {.header = {1, (uint16_t)(count + 2), 1, 0},
                          .link_info = {LINK_INFO, 24, 0},
                          .heap = UNDEFINED,
                          .index = UNDEFINED,
                          .group_info = {GROUP, 8, 0}};
    const uint64_t address = put(image, &group, sizeof group);

    for (uint16_t i = 0; i < count; i++)
        put_link(image, &links[i]);
    group.header.size = image->length - address - sizeof group.header;
    memcpy(image->bytes + address, &group.header, sizeof group.header);
    return address;
}

/* Puts a dataset (DOCTOR_ROWS, width) of f32, stored contiguously. */
static uint64_t put_dataset(struct image *image, int episode, int width)
{
    float rows[DOCTOR_ROWS * DOCTOR_ACTIONS];
    const size_t size = (size_t)DOCTOR_ROWS * (size_t)width * sizeof *rows;
    struct dataset dataset = {
        .header = {1, 4, 1, sizeof dataset - sizeof dataset.header},
        .space = {SPACE, 24, 0},
        .space_version = 1,
        .rank = 2,
        .rows = DOCTOR_ROWS,
        .width = (uint64_t)width,
        .datatype = {DATATYPE, sizeof dataset.f32, 0},
        .f32 = {0x11, 0x20, 31, 0, 4, 0, 0, 0, 0, 0, 32, 0, 23, 8, 0, 23, 127},
        .fill = {FILL_VALUE, sizeof dataset.unset, 0},
        .unset = {2, 2, 2},
        .layout = {LAYOUT, 24, 0},
        .layout_version = 3,
        .class = 1, /* contiguous */
        .size = size,
    };

    for (int row = 0; row < DOCTOR_ROWS; row++)
        for (int feature = 0; feature < width; feature++)
            rows[row * width + feature] = doctor_value(episode, row, feature);
    dataset.address = put(image, rows, size);
    return put(image, &dataset, sizeof dataset);
}

static uint64_t put_episode(struct image *image, int episode)
{
    const struct link position = {"position", put_dataset(image, episode, DOCTOR_POSITIONS)};
    const struct link links[] = {{"actions", put_dataset(image, episode, DOCTOR_ACTIONS)},
                                 {"obs", put_group(image, &position, 1)}};

    return put_group(image, links, 2);
}

bool doctor_write_hdf5(const char *path)
{
    struct superblock begin = {.signature = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'},
                               .address_sizes = {8, 8},
                               .tree = {4, 0, 16},
                               .undefined = UNDEFINED,
                               .undefined_too = UNDEFINED};
    struct image image = {.bytes = trajd_memory_or_exit(calloc(1, FILE_SIZE_MAX)), .length = 96};
    struct link links[DOCTOR_EPISODES], data = {"data", 0};
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool is_written;

    for (int episode = 0; episode < DOCTOR_EPISODES; episode++) {
        snprintf(links[episode].name, sizeof links->name, "demo_%d", episode);
        links[episode].address = put_episode(&image, episode);
    }
    data.address = put_group(&image, links, DOCTOR_EPISODES);
    begin.root = put_group(&image, &data, 1);
    begin.end = image.length;
    memcpy(image.bytes, &begin, sizeof begin);
    is_written = fd >= 0 && !trajd_file_write_all(fd, image.bytes, image.length);
    free(image.bytes);
    return !(fd >= 0 && close(fd)) && is_written;
}
