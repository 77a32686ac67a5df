/* Packed video: where the frames of rows are, the packets of units, and media files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/index/rows/video.h"

enum { ROWS = 6, PACKETS = 8, UNITS = 3, ENDS = 2, EXTRADATA = 7, PAYLOAD = 100 };

/* A file with the tables one after another. Packets 2 and 5 are not shown; packets 3 to 5 have a gap
 * between them. */
struct made {
    int64_t rows[ROWS][2], packets[PACKETS][2], units[UNITS][3], ends[ENDS];
    uint8_t extradata[EXTRADATA], payload[PAYLOAD];
};

static const struct made good = {
    .rows = {{1, 0}, {0, 0}, {4, 1}, {3, 1}, {6, 2}, {7, 2}},
    .packets = {{0, 10}, {10, 5}, {15, 1}, {20, 10}, {31, 9}, {40, 20}, {60, 40}, {0, 3}},
    .units = {{0, 1, 0}, {3, 0, 1}, {6, 1, 0}},
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
                  .packets_offset = offsetof(struct made, packets),
                  .packet_count = PACKETS,
                  .units_offset = offsetof(struct made, units),
                  .unit_count = UNITS,
                  .extradata_offset = offsetof(struct made, extradata),
                  .extradata_bytes = EXTRADATA,
                  .ends_offset = offsetof(struct made, ends),
                  .extradata_count = ENDS},
        .array = {.storage = TRAJD_STORAGE_CONTIGUOUS,
                  .dtype = TRAJD_I64,
                  .form = TRAJD_ROWS_VIDEO,
                  .rank = 2,
                  .shape = {ROWS, 2},
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
    struct made made = good;

    for (int i = 0; i < PAYLOAD; i++)
        made.payload[i] = (uint8_t)i;
    return made;
}

static enum trajd_status examine(struct opened *o, uint64_t *digest, struct trajd_error *error)
{
    struct trajd_digest made;
    enum trajd_status status;

    o->array.video = &o->video;
    trajd_digest_init(&made);
    status = trajd_video_examine(o->fd, &o->array, &o->video, &made, error);
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
    EXPECT_BAD((o.array.shape[1] = 3, o.array.size_bytes = ROWS * 24));
    EXPECT_BAD((o.array.rank = 1, o.array.size_bytes = ROWS * 8));
    EXPECT_BAD(o.array.storage = TRAJD_STORAGE_EMPTY);
    EXPECT_BAD(o.array.offset = file - 8);
    EXPECT_BAD(video->packets_offset = file - 16);
    EXPECT_BAD(video->packet_count = UINT64_MAX / 16 + 2);
    EXPECT_BAD(video->packet_count = 2);
    EXPECT_BAD(video->units_offset = UINT64_MAX - 8);
    EXPECT_BAD(video->unit_count = 0);
    EXPECT_BAD(video->ends_offset = file);
    EXPECT_BAD(video->extradata_count = 0);
    EXPECT_BAD(video->extradata_bytes = file);
    EXPECT_BAD(o.array.payload_bytes = file);
    EXPECT_BAD(video->largest_unit_packets = 4097);
    EXPECT_BAD(video->largest_unit_bytes = UINT64_MAX);
    EXPECT_BAD(video->media = "a.mp4"); /* and a payload */
    o.array.payload_bytes = 0;
    video->media = "a/b.mp4";
    video->media_size = 100;
    video->moov_offset = 40, video->moov_size = 60;
    EXPECT_BAD(video->media = "../b.mp4");
    EXPECT_BAD(video->moov_size = 61);
    EXPECT_BAD(video->moov_offset = UINT64_MAX);
    EXPECT_BAD(video->media_size = UINT64_MAX);
    EXPECT_BAD((video->media_size = INT64_MAX, video->moov_size = TRAJD_MOOV_BYTES_MAX + 1));
    close(o.fd);
}

static void tables_are_examined(void **state)
{
    struct made made = make(), moved;
    struct opened o = open_made(&made), other;
    uint64_t digest, same;

    (void)state;
    assert_int_equal(examine(&o, &digest, NULL), TRAJD_OK);
    assert_int_equal(o.video.largest_unit_packets, 3);
    assert_int_equal(o.video.largest_unit_bytes, 43 + 4);
    moved = made;
    moved.packets[7][0] = 50; /* other places, the same frames */
    other = open_made(&moved);
    assert_int_equal(examine(&other, &same, NULL), TRAJD_OK);
    assert_true(same == digest);
    close(other.fd);
    moved.packets[7][1] = 4;
    other = open_made(&moved);
    assert_int_equal(examine(&other, &same, NULL), TRAJD_OK);
    assert_true(same != digest);
    close(other.fd);
    close(o.fd);
}

static void rows_are_found(void **state)
{
    struct made made = make();
    struct opened o = open_made(&made);
    uint64_t unit, first, count;
    uint32_t packets[ROWS];
    struct trajd_error error;

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
    assert_int_equal(trajd_video_locate(o.fd, &o.array, 1, 2, 0, packets, &error), TRAJD_ERR_DATA);
    assert_string_equal(error.message, "row 2: it is in unit 1, not in unit 0");
    assert_int_equal(trajd_video_locate(o.fd, &o.array, 5, 2, 2, packets, NULL),
                     TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_video_locate(o.fd, &o.array, 5, 1, 3, packets, NULL),
                     TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_video_rows_of_unit(o.fd, &o.array, ROWS, &unit, &first, &count, NULL),
                     TRAJD_ERR_ARGUMENT);
    /* a part of the rows, as of a file that holds several episodes */
    trajd_array_slice(&o.array, 3, 2);
    assert_int_equal(trajd_video_rows_of_unit(o.fd, &o.array, 0, &unit, &first, &count, NULL),
                     TRAJD_OK);
    assert_true(unit == 1 && first == 0 && count == 1);
    assert_int_equal(trajd_video_locate(o.fd, &o.array, 1, 1, 2, packets, NULL), TRAJD_OK);
    assert_int_equal(packets[0], 0);
    close(o.fd);
}

/* More rows and packets than a block of a table has. */
static void long_tables(void **state)
{
    enum { COUNT = 1000, GOP = 250 };
    struct trajd_video video = {.packets_offset = COUNT * 16,
                                .packet_count = COUNT,
                                .units_offset = COUNT * 32,
                                .unit_count = COUNT / GOP,
                                .ends_offset = COUNT * 32 + COUNT / GOP * 24,
                                .extradata_count = 1,
                                .extradata_bytes = 0,
                                .pixel_format = "yuv420p"};
    struct opened o = {.video = video,
                       .array = {.shape = {COUNT, 2}, .payload_bytes = COUNT},
                       .fd = memfd_create("video", MFD_CLOEXEC)};
    uint64_t unit, first, count, digest;
    struct trajd_video_reader *reader;
    struct trajd_unit_bytes bytes;

    (void)state;
    for (int64_t i = 0; i < COUNT; i++) {
        assert_int_equal(pwrite(o.fd, (int64_t[]){i, i / GOP}, 16, i * 16), 16);
        assert_int_equal(pwrite(o.fd, (int64_t[]){i, 1}, 16, (COUNT + i) * 16), 16);
    }
    for (int64_t i = 0; i < COUNT / GOP; i++)
        assert_int_equal(pwrite(o.fd, (int64_t[]){i * GOP, 1, 0}, 24, COUNT * 32 + i * 24), 24);
    assert_int_equal(pwrite(o.fd, (int64_t[]){0}, 8, COUNT * 32 + COUNT / GOP * 24), 8);
    assert_int_equal(examine(&o, &digest, NULL), TRAJD_OK);
    assert_int_equal(o.video.largest_unit_packets, GOP);
    assert_int_equal(trajd_video_rows_of_unit(o.fd, &o.array, 499, &unit, &first, &count, NULL),
                     TRAJD_OK);
    assert_true(unit == 1 && first == GOP && count == GOP);
    assert_int_equal(trajd_video_reader_create(&reader, NULL), TRAJD_OK);
    assert_int_equal(trajd_video_read_unit(reader, o.fd, -1, &o.array, 3, GOP - 1, &bytes, NULL),
                     TRAJD_OK);
    assert_int_equal(bytes.packet_count, GOP);
    trajd_video_reader_destroy(&reader);
    close(o.fd);
}

static void units_are_read(void **state)
{
    struct made made = make();
    struct opened o = open_made(&made);
    struct trajd_video_reader *reader;
    struct trajd_unit_bytes bytes;
    uint8_t sample[TRAJD_PACKET_SAMPLE_BYTES];
    uint64_t size;

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
    assert_int_equal(trajd_video_sample(o.fd, -1, &o.array, 6, sample, &size, NULL), TRAJD_OK);
    assert_true(size == 40 && sample[0] == 60 && sample[39] == 99);
    /* the same from a media file, where positions are those of the file */
    o.video.media = "a.mp4", o.video.media_size = sizeof made, o.array.payload_bytes = 0;
    assert_int_equal(trajd_video_read_unit(reader, o.fd, o.fd, &o.array, 2, 1, &bytes, NULL),
                     TRAJD_OK);
    assert_memory_equal(bytes.bytes, (const uint8_t *)&made + 60, 40);
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
    EXPECT_ERROR(made.units[2][0] = 3, READ, "unit 1: it begins at packet 3");
    EXPECT_ERROR(made.units[1][0] = -1, READ, "unit 1: it begins at packet -1");
    EXPECT_ERROR(made.units[2][0] = 9, READ, "unit 1: ");
    EXPECT_ERROR(made.units[1][2] = 2, READ, "number 2 of 2");
    EXPECT_ERROR(made.packets[5][0] = 81, READ, "packet 5: 20 bytes at position 81");
    EXPECT_ERROR(made.packets[5][1] = -1, READ, "packet 5: -1 bytes");
    EXPECT_ERROR(made.packets[5][1] = INT64_MAX, READ, "packet 5: ");
    EXPECT_ERROR(made.ends[1] = 8, READ, "extradata 1: it begins at 4 and ends at 8, of 7 bytes");
    EXPECT_ERROR(made.ends[0] = -1, READ, "extradata 1: it begins at -1");
    EXPECT_ERROR(made.rows[2][0] = 8, LOCATE, "row 2: it shows packet 8 of unit 1");
    EXPECT_ERROR(made.rows[2][0] = 6, LOCATE, "row 2: it shows packet 6, which is not in its unit");
    EXPECT_ERROR(made.rows[2][1] = 3, FIND, "row 2: it shows packet 4 of unit 3");
    EXPECT_ERROR(made.rows[3][1] = -1, FIND, "row 3: it shows packet 3 of unit -1");
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
        cmocka_unit_test(tables_are_examined),
        cmocka_unit_test(rows_are_found),
        cmocka_unit_test(long_tables),
        cmocka_unit_test(units_are_read),
        cmocka_unit_test(bad_numbers_are_seen_where_they_are_read),
        cmocka_unit_test(media_files_are_below_the_folder),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
