/* Packed video: where the frames of rows are, the packets of units, and media files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/index/rows/packed_video.h"

enum { ROWS = 6, PACKETS = 8, UNITS = 3, ENDS = 2, EXTRADATA = 7, PAYLOAD = 100 };

/* A file with the tables one after another. Packets 2 and 5 are not shown; there is a gap between
 * packets 3 and 4. */
struct made {
    int64_t rows[ROWS], packets[PACKETS][3], units[UNITS][3], ends[ENDS];
    uint8_t extradata[EXTRADATA], payload[PAYLOAD];
};

static const struct made places = {
    .rows = {1, 0, 4, 3, 6, 7},
    .packets = {{0, 10}, {10, 5}, {15, 1}, {20, 10}, {31, 9}, {40, 20}, {60, 40}, {0, 3}},
    .units = {{0, 0, 0}, {3, 2, 1}, {6, 4, 0}},
    .ends = {4, 7},
    .extradata = {9, 8, 7, 6, 5, 4, 3}};

struct opened {
    struct trajd_video video;
    struct trajd_array array;
    int fd;
};

static struct opened open_made(const struct made *made)
{
    struct opened o = {
        .video = {.format = {TRAJD_VIDEO_AV1, TRAJD_MATRIX_UNSPECIFIED, TRAJD_RANGE_UNSPECIFIED},
                  .pixel_format = "yuv420p",
                  .row_count = ROWS,
                  .packets_offset = offsetof(struct made, packets),
                  .packet_count = PACKETS,
                  .units_offset = offsetof(struct made, units),
                  .unit_count = UNITS,
                  .extradata_offset = offsetof(struct made, extradata),
                  .extradata_bytes = EXTRADATA,
                  .ends_offset = offsetof(struct made, ends),
                  .extradata_count = ENDS,
                  .largest_unit_packets = 3,
                  .largest_unit_bytes = 43},
        .array = {.storage = TRAJD_STORAGE_CONTIGUOUS,
                  .dtype = TRAJD_I64,
                  .form = TRAJD_ROWS_VIDEO,
                  .rank = 1,
                  .shape = {ROWS},
                  .size_bytes = sizeof made->rows,
                  .payload_offset = offsetof(struct made, payload),
                  .payload_bytes = PAYLOAD},
        .fd = memfd_create("video", MFD_CLOEXEC)};

    assert_int_equal(write(o.fd, made, sizeof *made), sizeof *made);
    return o;
}

/* Returns the file with payload bytes that are their own positions. */
static struct made make(void)
{
    struct made made = places;

    for (int i = 0; i < PAYLOAD; i++)
        made.payload[i] = (uint8_t)i;
    for (int p = 0; p < PACKETS; p++)
        made.packets[p][2] =
            libdeflate_crc32(0, made.payload + made.packets[p][0], (size_t)made.packets[p][1]);
    return made;
}

static enum trajd_status examine(struct opened *o, uint64_t *digest, struct trajd_error *error)
{
    struct trajd_digest made;
    enum trajd_status status;

    o->array.video = &o->video;
    trajd_digest_init(&made);
    status = trajd_video_examine(o->fd, &o->array, &made, error);
    *digest = trajd_digest_end(&made);
    return status;
}

static void places_are_checked(void **state)
{
    const uint64_t file = sizeof(struct made);
    struct made made = make();
    struct opened o = open_made(&made);
    struct trajd_video *video = &o.video;

    (void)state;
    o.array.video = video;
#define EXPECT_BAD(change)                                                                         \
    do {                                                                                           \
        const struct opened before = o;                                                            \
        assert_int_equal(trajd_array_check(&o.array, file, 0, NULL), TRAJD_OK);                    \
        change;                                                                                    \
        assert_int_equal(trajd_array_check(&o.array, file, 0, NULL), TRAJD_ERR_DATA);              \
        o = before;                                                                                \
    } while (0)
    EXPECT_BAD(o.array.video = NULL);
    EXPECT_BAD(o.array.dtype = TRAJD_U64);
    EXPECT_BAD((o.array.rank = 2, o.array.shape[1] = 1));
    EXPECT_BAD(o.array.storage = TRAJD_STORAGE_EMPTY);
    EXPECT_BAD(o.array.offset = 8);
    EXPECT_BAD((o.array.shape[0] = ROWS + 1, o.array.size_bytes += 8));
    EXPECT_BAD((o.array.offset = 4, o.array.shape[0] = 2, o.array.size_bytes = 16));
    EXPECT_BAD(video->rows_offset = 8);
    EXPECT_BAD(video->row_count = UINT64_MAX / 8 + 2);
    EXPECT_BAD(video->packets_offset = file - 16);
    EXPECT_BAD(video->packet_count = UINT64_MAX / 24 + 2);
    EXPECT_BAD(video->packet_count = 2);
    EXPECT_BAD(video->units_offset = UINT64_MAX - 8);
    EXPECT_BAD(video->unit_count = 0);
    EXPECT_BAD(video->ends_offset = file);
    EXPECT_BAD(video->extradata_count = 0);
    EXPECT_BAD(video->extradata_bytes = file);
    EXPECT_BAD(o.array.payload_bytes = file);
    EXPECT_BAD(video->largest_unit_packets = 4097);
    EXPECT_BAD(video->largest_unit_bytes = UINT64_MAX);
    EXPECT_BAD(video->largest_unit_packets = 0);
    EXPECT_BAD(video->media = "a.mp4"); /* and a payload */
    o.array.payload_bytes = 0;
    video->media = "a/b.mp4";
    video->media_size = 100;
    EXPECT_BAD(video->media = "../b.mp4");
    EXPECT_BAD(video->media_size = UINT64_MAX);
    close(o.fd);
}

static void the_digest_is_of_the_frames(void **state)
{
    struct made made = make(), other = made;
    struct opened o = open_made(&made);
    uint64_t digest, same;

    (void)state;
    assert_int_equal(examine(&o, &digest, NULL), TRAJD_OK);
    close(o.fd);
    other.packets[7][0] = 50; /* at another place, the same frame */
    o = open_made(&other);
    assert_int_equal(examine(&o, &same, NULL), TRAJD_OK);
    assert_true(same == digest);
    close(o.fd);
    for (int change = 0; change < 4; change++) {
        other = made;
        other.packets[2][change == 0 ? 1 : 2] += change < 2;
        other.rows[3] += change == 2;
        other.extradata[6] += change == 3;
        o = open_made(&other);
        assert_int_equal(examine(&o, &same, NULL), TRAJD_OK);
        assert_true(same != digest);
        close(o.fd);
    }
}

static void rows_are_found(void **state)
{
    struct made made = make();
    struct opened o = open_made(&made);
    uint64_t unit, first, count;
    uint32_t packets[ROWS];

    (void)state;
    o.array.video = &o.video;
    for (uint64_t row = 0; row < ROWS; row++) {
        assert_int_equal(trajd_video_rows_of_unit(o.fd, &o.array, row, &unit, &first, &count, NULL),
                         TRAJD_OK);
        assert_int_equal(unit, row / 2);
        assert_int_equal(first, row / 2 * 2);
        assert_int_equal(count, 2);
    }
    assert_int_equal(trajd_video_locate(o.fd, &o.array, 0, 2, 0, packets, NULL), TRAJD_OK);
    assert_true(packets[0] == 1 && packets[1] == 0);
    assert_int_equal(trajd_video_locate(o.fd, &o.array, 2, 2, 1, packets, NULL), TRAJD_OK);
    assert_true(packets[0] == 1 && packets[1] == 0);
    assert_int_equal(trajd_video_locate(o.fd, &o.array, 1, 2, 0, packets, NULL),
                     TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_video_locate(o.fd, &o.array, 5, 2, 2, packets, NULL),
                     TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_video_locate(o.fd, &o.array, 5, 1, 3, packets, NULL),
                     TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_video_rows_of_unit(o.fd, &o.array, ROWS, &unit, &first, &count, NULL),
                     TRAJD_ERR_ARGUMENT);
    /* a part of the rows, as of a file that holds several episodes */
    trajd_array_slice(&o.array, 3, 2);
    assert_int_equal(trajd_array_check(&o.array, sizeof made, 0, NULL), TRAJD_OK);
    for (uint64_t row = 0; row < 2; row++) {
        assert_int_equal(trajd_video_rows_of_unit(o.fd, &o.array, row, &unit, &first, &count, NULL),
                         TRAJD_OK);
        assert_true(unit == 1 + row && first == row && count == 1);
    }
    assert_int_equal(trajd_video_locate(o.fd, &o.array, 0, 1, 1, packets, NULL), TRAJD_OK);
    assert_int_equal(packets[0], 0);
    close(o.fd);
}

/* More rows, packets and units than a block of a table has. */
static void long_tables(void **state)
{
    enum { COUNT = 3000, GOP = 3, PACKETS_AT = COUNT * 8, UNITS_AT = COUNT * 32 };
    const int64_t ends_at = UNITS_AT + COUNT / GOP * 24, crc32 = libdeflate_crc32(0, "\0", 1);
    const struct trajd_video video = {.row_count = COUNT,
                                      .packets_offset = PACKETS_AT,
                                      .packet_count = COUNT,
                                      .units_offset = UNITS_AT,
                                      .unit_count = COUNT / GOP,
                                      .ends_offset = (uint64_t)ends_at,
                                      .extradata_count = 1,
                                      .largest_unit_packets = GOP,
                                      .largest_unit_bytes = GOP,
                                      .pixel_format = "yuv420p"};
    struct opened o = {
        .video = video,
        .array = {.shape = {COUNT}, .payload_offset = (uint64_t)ends_at, .payload_bytes = COUNT},
        .fd = memfd_create("video", MFD_CLOEXEC)};
    uint64_t unit, first, count, digest;

    (void)state;
    assert_int_equal(ftruncate(o.fd, ends_at + COUNT), 0); /* also one empty extradata */
    for (int64_t i = 0; i < COUNT; i++) {
        assert_int_equal(pwrite(o.fd, &i, 8, i * 8), 8);
        assert_int_equal(pwrite(o.fd, (int64_t[]){i, 1, crc32}, 24, PACKETS_AT + i * 24), 24);
    }
    for (int64_t i = 0; i < COUNT / GOP; i++)
        assert_int_equal(pwrite(o.fd, (int64_t[]){i * GOP, i * GOP, 0}, 24, UNITS_AT + i * 24), 24);
    assert_int_equal(examine(&o, &digest, NULL), TRAJD_OK);
    for (uint64_t row = 0; row < COUNT; row++) {
        assert_int_equal(trajd_video_rows_of_unit(o.fd, &o.array, row, &unit, &first, &count, NULL),
                         TRAJD_OK);
        assert_true(unit == row / GOP && first == row / GOP * GOP && count == GOP);
    }
    close(o.fd);
}

static void units_are_read(void **state)
{
    struct made made = make();
    struct opened o = open_made(&made);
    struct trajd_video_reader *reader;
    struct trajd_unit_bytes bytes;

    (void)state;
    o.array.video = &o.video;
    assert_int_equal(trajd_video_reader_create(&reader, NULL), TRAJD_OK);
    assert_int_equal(trajd_video_read_unit(reader, o.fd, -1, &o.array, 1, 2, &bytes, NULL),
                     TRAJD_OK);
    assert_int_equal(bytes.packet_count, 3);
    assert_true(bytes.sizes[0] == 10 && bytes.sizes[1] == 9 && bytes.sizes[2] == 20);
    assert_true(bytes.bytes[0] == 20 && bytes.bytes[10] == 31 && bytes.bytes[38] == 59);
    assert_int_equal(bytes.extradata_size, 3);
    assert_memory_equal(bytes.extradata, made.extradata + 4, 3);
    assert_int_equal(trajd_video_read_unit(reader, o.fd, -1, &o.array, 2, 0, &bytes, NULL),
                     TRAJD_OK);
    assert_true(bytes.packet_count == 1 && bytes.sizes[0] == 40 && bytes.extradata_size == 4);
    assert_int_equal(trajd_video_read_unit(reader, o.fd, -1, &o.array, 2, 2, &bytes, NULL),
                     TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_video_read_unit(reader, o.fd, -1, &o.array, 3, 0, &bytes, NULL),
                     TRAJD_ERR_ARGUMENT);
    /* the same from a media file, where positions are those of the file */
    o.video.media = "a.mp4", o.video.media_size = sizeof made, o.array.payload_bytes = 0;
    assert_int_equal(pwrite(o.fd, made.payload, PAYLOAD, 0), PAYLOAD);
    assert_int_equal(trajd_video_check_packet(reader, o.fd, o.fd, &o.array, 6, NULL), TRAJD_OK);
    trajd_video_reader_destroy(&reader);
    close(o.fd);
}

/* Packets in front of one that has changed are good. */
static void changed_bytes_are_seen(void **state)
{
    struct made made = make();
    struct trajd_video_reader *reader;
    struct trajd_unit_bytes bytes;
    struct trajd_error error;
    struct opened o;

    (void)state;
    made.payload[31]++;
    o = open_made(&made);
    o.array.video = &o.video;
    assert_int_equal(trajd_video_reader_create(&reader, NULL), TRAJD_OK);
    assert_int_equal(trajd_video_read_unit(reader, o.fd, -1, &o.array, 1, 0, &bytes, NULL),
                     TRAJD_OK);
    assert_true(bytes.packet_count == 1 && !bytes.damage);
    assert_int_equal(trajd_video_read_unit(reader, o.fd, -1, &o.array, 1, 2, &bytes, NULL),
                     TRAJD_OK);
    assert_int_equal(bytes.packet_count, 1);
    assert_string_equal(bytes.damage, "the bytes of packet 4 have changed since the conversion");
    assert_int_equal(trajd_video_check_packet(reader, o.fd, -1, &o.array, 3, NULL), TRAJD_OK);
    assert_int_equal(trajd_video_check_packet(reader, o.fd, -1, &o.array, 4, &error),
                     TRAJD_ERR_DATA);
    assert_string_equal(error.message, "the bytes of packet 4 have changed since the conversion");
    trajd_video_reader_destroy(&reader);
    close(o.fd);
}

/* A file that changed after it was indexed. */
static void bad_numbers_are_seen_where_they_are_read(void **state)
{
    struct trajd_video_reader *reader;
    struct trajd_unit_bytes bytes;
    struct trajd_error error;
    uint64_t unit, first, count;
    uint32_t packet;

    (void)state;
    assert_int_equal(trajd_video_reader_create(&reader, NULL), TRAJD_OK);
#define EXPECT_ERROR(change, call, text)                                                           \
    do {                                                                                           \
        struct made made = make();                                                                 \
        struct opened o;                                                                           \
        change;                                                                                    \
        o = open_made(&made);                                                                      \
        o.array.video = &o.video;                                                                  \
        assert_int_equal(call, TRAJD_ERR_DATA);                                                    \
        assert_non_null(strstr(error.message, text));                                              \
        close(o.fd);                                                                               \
    } while (0)
#define READ trajd_video_read_unit(reader, o.fd, -1, &o.array, 1, 2, &bytes, &error)
#define LOCATE trajd_video_locate(o.fd, &o.array, 2, 1, 1, &packet, &error)
#define FIND trajd_video_rows_of_unit(o.fd, &o.array, 2, &unit, &first, &count, &error)
    EXPECT_ERROR(made.units[2][0] = 3, READ, "unit 1: packets from 3 to before 3 of 8");
    EXPECT_ERROR(made.units[1][0] = -1, READ, "unit 1: packets from -1 to before 6");
    EXPECT_ERROR(made.units[2][0] = 9, READ, "there are not so many");
    EXPECT_ERROR(made.units[2][0] = 7, READ, "the attribute largest_unit says less");
    EXPECT_ERROR(made.units[1][2] = 2, READ, "number 2 of 2");
    EXPECT_ERROR(made.packets[5][0] = 81, READ, "packet 5: 20 bytes at position 81");
    EXPECT_ERROR(made.packets[5][1] = -1, READ, "packet 5: -1 bytes");
    EXPECT_ERROR(made.packets[5][1] = INT64_MAX, READ, "packet 5: ");
    EXPECT_ERROR(made.packets[5][1] = 25, READ, "packet 5: its unit has more than 43 bytes");
    EXPECT_ERROR(made.packets[5][2] = -1, READ, "with crc32 -1");
    EXPECT_ERROR(made.ends[1] = 8, READ, "extradata 1: it begins at 4 and ends at 8, of 7 bytes");
    EXPECT_ERROR(made.ends[0] = -1, READ, "extradata 1: it begins at -1");
    EXPECT_ERROR(made.rows[2] = 6, LOCATE, "row 2: it shows packet 6, which is not in its unit 1");
    EXPECT_ERROR(made.rows[2] = -1, LOCATE, "row 2: it shows packet -1");
    EXPECT_ERROR(made.units[1][1] = -1, FIND,
                 "unit 0: packets from 0 to before 3 of 8, rows from 0 to "
                 "before -1");
    trajd_video_reader_destroy(&reader);
}

/* ---- media files ---- */

static char folder[64];

static void shell(const char *command)
{
    char line[512];

    snprintf(line, sizeof line, "cd %s && %s", folder, command);
    assert_int_equal(system(line), 0);
}

static void expect_media(const char *media, enum trajd_status status, const char *text)
{
    struct trajd_file_stat stat;
    struct trajd_error error = {.message = ""};
    int fd;

    assert_int_equal(trajd_media_open(folder, media, &fd, &stat, &error), status);
    assert_int_equal(fd >= 0, status == TRAJD_OK);
    assert_int_equal(stat.inode != 0, status == TRAJD_OK);
    if (status)
        assert_non_null(strstr(error.message, text));
    else
        close(fd);
}

static void media_files_are_below_the_folder(void **state)
{
    char name[300];

    (void)state;
    shell("mkdir -p in/a/b out && echo one >in/a/b/one.mp4 && echo two >out/two.mp4");
    shell("ln -s ../out in/link && ln -s a/b/one.mp4 in/one.mp4 && mkfifo in/fifo");
    strcat(folder, "/in");
    expect_media("a/b/one.mp4", TRAJD_OK, "");
    expect_media("a/b/two.mp4", TRAJD_ERR_DATA, "No such file or directory");
    expect_media("a/b", TRAJD_ERR_DATA, "not a regular file");
    expect_media("a/b/one.mp4/x", TRAJD_ERR_DATA, "Not a directory");
    expect_media("fifo", TRAJD_ERR_DATA, "not a regular file");
    expect_media("one.mp4", TRAJD_ERR_DATA, "a symbolic link, which is not followed");
    expect_media("link/two.mp4", TRAJD_ERR_DATA, "a symbolic link, which is not followed");
    expect_media("../out/two.mp4", TRAJD_ERR_DATA, "not a regular file");
    expect_media("a/../../out/two.mp4", TRAJD_ERR_DATA, "not a regular file");
    expect_media("a/./b/one.mp4", TRAJD_ERR_DATA, "not a regular file");
    expect_media("a//b/one.mp4", TRAJD_ERR_DATA, "not a regular file");
    expect_media("/etc/passwd", TRAJD_ERR_DATA, "not a regular file");
    expect_media("", TRAJD_ERR_DATA, "not a regular file");
    memset(name, 'x', sizeof name - 1), name[sizeof name - 1] = '\0';
    expect_media(name, TRAJD_ERR_DATA, "not a regular file");
    folder[strlen(folder) - 3] = '\0';
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_video_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char line[128];

    (void)state;
    snprintf(line, sizeof line, "rm -rf %s", folder);
    return system(line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_are_checked),
        cmocka_unit_test(the_digest_is_of_the_frames),
        cmocka_unit_test(rows_are_found),
        cmocka_unit_test(long_tables),
        cmocka_unit_test(units_are_read),
        cmocka_unit_test(changed_bytes_are_seen),
        cmocka_unit_test(bad_numbers_are_seen_where_they_are_read),
        cmocka_unit_test(media_files_are_below_the_folder),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
