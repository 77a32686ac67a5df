/* JPEG by libjpeg-turbo's exact path: the accurate integer transform and smooth upsampling; and
 * back, without subsampling. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "daemon/decode/decode_child.h"

enum { SCANS_MAX = 100, MEMORY_MAX = 512 << 20, APP1 = JPEG_APP0 + 1, ORIENTATION = 0x0112 };

struct coder {
    union {
        struct jpeg_decompress_struct jpeg;
        struct jpeg_compress_struct written;
    };
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    char *reason;
    size_t reason_size;
};

static void fail(struct coder *coder, const char *reason)
{
    snprintf(coder->reason, coder->reason_size, "%s", reason);
    longjmp(coder->failed, 1);
}

static void on_error(j_common_ptr common)
{
    struct coder *coder = common->client_data;
    char message[JMSG_LENGTH_MAX];

    common->err->format_message(common, message);
    fail(coder, common->err->msg_code == JERR_OUT_OF_MEMORY ? TRAJD_DECODE_NO_MEMORY : message);
}

/* A warning means that the rest of the image is made up. */
static void on_message(j_common_ptr common, int level)
{
    if (level < 0)
        on_error(common);
}

static void on_progress(j_common_ptr common)
{
    struct coder *coder = common->client_data;

    if (common->is_decompressor && coder->jpeg.input_scan_number > SCANS_MAX)
        fail(coder, "it has more than 100 scans");
}

static unsigned read_number(const uint8_t *bytes, unsigned size, bool is_little)
{
    unsigned number = 0;

    for (unsigned i = 0; i < size; i++)
        number = number << 8 | bytes[is_little ? size - 1 - i : i];
    return number;
}

/* Returns the orientation that an EXIF segment states; 1 where it states none. */
static unsigned read_orientation(const uint8_t *bytes, unsigned size)
{
    const uint8_t *tiff = bytes + 6;
    unsigned first, count;
    bool is_little;

    if (size < 6 + 8 || memcmp(bytes, "Exif\0", 6))
        return 1;
    size -= 6;
    is_little = tiff[0] == 'I';
    first = read_number(tiff + 4, 4, is_little);
    if (first > size - 2)
        return 1;
    count = read_number(tiff + first, 2, is_little);
    for (unsigned at = first + 2; count && at + 12 <= size; count--, at += 12)
        if (read_number(tiff + at, 2, is_little) == ORIENTATION)
            return read_number(tiff + at + 8, 2, is_little);
    return 1;
}

static void check_orientation(struct coder *coder)
{
    for (jpeg_saved_marker_ptr marker = coder->jpeg.marker_list; marker; marker = marker->next)
        if (marker->marker == APP1 && read_orientation(marker->data, marker->data_length) != 1)
            fail(coder, "its EXIF data say that it must be turned, which recorders do not do");
}

/* Refuses an image whose data end between two scans: the library makes up what is missing, without
 * a warning. It has read all scans before the first row where there are several. */
static void check_scans(struct coder *coder)
{
    const struct jpeg_decompress_struct *jpeg = &coder->jpeg;

    for (int c = 0; c < jpeg->num_components; c++) {
        bool is_whole = jpeg->comp_info[c].quant_table != NULL; /* taken by its first scan */
        for (int k = 0; k < DCTSIZE2 && jpeg->progressive_mode; k++)
            is_whole &= jpeg->coef_bits[c][k] == 0; /* bits that are missing, or -1 */
        if (!is_whole)
            fail(coder, "it was cut: some of its scans are missing");
    }
}

static void read_rows(struct coder *coder, uint8_t *pixels)
{
    const size_t step = (size_t)coder->jpeg.output_width * coder->jpeg.output_components;

    while (coder->jpeg.output_scanline < coder->jpeg.output_height) {
        JSAMPROW row = pixels + coder->jpeg.output_scanline * step;
        jpeg_read_scanlines(&coder->jpeg, &row, 1);
    }
}

/* Runs the library. A failure jumps out. */
static void decode(struct coder *coder, const uint8_t *bytes, size_t size,
                   const struct trajd_image_header *header, uint8_t *pixels)
{
    struct jpeg_decompress_struct *jpeg = &coder->jpeg;

    jpeg_create_decompress(jpeg);
    jpeg->mem->max_memory_to_use = MEMORY_MAX;
    coder->progress.progress_monitor = on_progress;
    jpeg->progress = &coder->progress;
    jpeg_save_markers(jpeg, APP1, 0xffff);
    jpeg_mem_src(jpeg, bytes, size);
    jpeg_read_header(jpeg, TRUE);
    check_orientation(coder);
    jpeg->out_color_space = header->channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
    jpeg->dct_method = JDCT_ISLOW;
    jpeg->do_fancy_upsampling = TRUE;
    if (jpeg->image_height != header->height || jpeg->image_width != header->width ||
        jpeg->num_components != header->channels)
        fail(coder, "its header changes");
    jpeg_start_decompress(jpeg);
    check_scans(coder);
    read_rows(coder, pixels);
    jpeg_finish_decompress(jpeg);
}

static void start(struct coder *coder, char *reason, size_t reason_size)
{
    *coder = (struct coder){.reason = reason, .reason_size = reason_size};
    coder->jpeg.err = jpeg_std_error(&coder->errors);
    coder->errors.error_exit = on_error;
    coder->errors.emit_message = on_message;
    coder->jpeg.client_data = coder;
}

bool trajd_decode_jpeg(const uint8_t *bytes, size_t size, const struct trajd_image_header *header,
                       uint8_t *pixels, char *reason, size_t reason_size)
{
    struct coder coder;
    volatile bool is_good = false;

    start(&coder, reason, reason_size);
    if (!setjmp(coder.failed)) {
        decode(&coder, bytes, size, header, pixels);
        is_good = true;
    }
    jpeg_destroy_decompress(&coder.jpeg);
    return is_good;
}

/* Runs the library. It puts a JPEG for which there is no room into memory of its own: returns 0
 * then, else the JPEG's bytes. A failure jumps out. Tried and rejected: tables of each frame's own
 * (optimize_coding) save 6 % of the bytes and take three times as long. */
static uint32_t encode(struct coder *coder, const struct trajd_image_preparation *frame,
                       uint8_t quality, const uint8_t *pixels, uint8_t *bytes, unsigned long room)
{
    struct jpeg_compress_struct *jpeg = &coder->written;
    const size_t step = (size_t)frame->width * frame->channels;
    uint8_t *end = bytes;

    jpeg_create_compress(jpeg);
    jpeg_mem_dest(jpeg, &end, &room);
    jpeg->image_height = frame->height;
    jpeg->image_width = frame->width;
    jpeg->input_components = (int)frame->channels;
    jpeg->in_color_space = frame->channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
    jpeg_set_defaults(jpeg);
    jpeg_set_quality(jpeg, quality, TRUE);
    jpeg->comp_info[0].h_samp_factor = jpeg->comp_info[0].v_samp_factor = 1; /* 4:4:4 */
    jpeg->dct_method = JDCT_ISLOW;
    jpeg_start_compress(jpeg, TRUE);
    while (jpeg->next_scanline < jpeg->image_height) {
        JSAMPROW row = (JSAMPROW)(pixels + jpeg->next_scanline * step);
        jpeg_write_scanlines(jpeg, &row, 1);
    }
    jpeg_finish_compress(jpeg);
    if (end == bytes)
        return (uint32_t)room;
    free(end);
    return 0;
}

bool trajd_encode_jpeg(const struct trajd_image_preparation *frame, uint8_t quality,
                       const uint8_t *pixels, uint8_t *bytes, uint64_t room, uint32_t *size,
                       char *reason, size_t reason_size)
{
    struct coder coder;
    volatile bool is_good = false;

    start(&coder, reason, reason_size);
    if (!setjmp(coder.failed)) {
        *size = encode(&coder, frame, quality, pixels, bytes, room);
        is_good = true;
    }
    jpeg_destroy((j_common_ptr)&coder.written);
    return is_good;
}
