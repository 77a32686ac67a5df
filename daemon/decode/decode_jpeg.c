/* JPEG by libjpeg-turbo's exact path: the accurate integer transform and smooth upsampling. */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "daemon/decode/decode_child.h"

enum { SCANS_MAX = 100, MEMORY_MAX = 512 << 20, APP1 = JPEG_APP0 + 1, ORIENTATION = 0x0112 };

struct decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    char *reason;
    size_t reason_size;
};

static void fail(struct decoder *decoder, const char *reason)
{
    snprintf(decoder->reason, decoder->reason_size, "%s", reason);
    longjmp(decoder->failed, 1);
}

static void on_error(j_common_ptr common)
{
    struct decoder *decoder = common->client_data;
    char message[JMSG_LENGTH_MAX];

    common->err->format_message(common, message);
    fail(decoder, common->err->msg_code == JERR_OUT_OF_MEMORY ? TRAJD_DECODE_NO_MEMORY : message);
}

/* A warning means that the rest of the picture is made up. */
static void on_message(j_common_ptr common, int level)
{
    if (level < 0)
        on_error(common);
}

static void on_progress(j_common_ptr common)
{
    struct decoder *decoder = common->client_data;

    if (common->is_decompressor && decoder->jpeg.input_scan_number > SCANS_MAX)
        fail(decoder, "it has more than 100 scans");
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

static void check_orientation(struct decoder *decoder)
{
    for (jpeg_saved_marker_ptr marker = decoder->jpeg.marker_list; marker; marker = marker->next)
        if (marker->marker == APP1 && read_orientation(marker->data, marker->data_length) != 1)
            fail(decoder, "its EXIF data say that it must be turned, which recorders do not do");
}

/* Refuses a picture whose data end between two scans: the library makes up what is missing, without
 * a warning. It has read all scans before the first row where there are several. */
static void check_scans(struct decoder *decoder)
{
    const struct jpeg_decompress_struct *jpeg = &decoder->jpeg;

    for (int c = 0; c < jpeg->num_components; c++) {
        bool is_whole = jpeg->comp_info[c].quant_table != NULL; /* taken by its first scan */
        for (int k = 0; k < DCTSIZE2 && jpeg->progressive_mode; k++)
            is_whole &= jpeg->coef_bits[c][k] == 0; /* bits that are missing, or -1 */
        if (!is_whole)
            fail(decoder, "it was cut: some of its scans are missing");
    }
}

static void read_rows(struct decoder *decoder, uint8_t *pixels)
{
    const size_t step = (size_t)decoder->jpeg.output_width * decoder->jpeg.output_components;

    while (decoder->jpeg.output_scanline < decoder->jpeg.output_height) {
        JSAMPROW row = pixels + decoder->jpeg.output_scanline * step;
        jpeg_read_scanlines(&decoder->jpeg, &row, 1);
    }
}

/* Runs the library. A failure jumps out. */
static void decode(struct decoder *decoder, const uint8_t *bytes, size_t size,
                   const struct trajd_picture *picture, uint8_t *pixels)
{
    struct jpeg_decompress_struct *jpeg = &decoder->jpeg;

    jpeg_create_decompress(jpeg);
    jpeg->mem->max_memory_to_use = MEMORY_MAX;
    decoder->progress.progress_monitor = on_progress;
    jpeg->progress = &decoder->progress;
    jpeg_save_markers(jpeg, APP1, 0xffff);
    jpeg_mem_src(jpeg, bytes, size);
    jpeg_read_header(jpeg, TRUE);
    check_orientation(decoder);
    jpeg->out_color_space = picture->channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
    jpeg->dct_method = JDCT_ISLOW;
    jpeg->do_fancy_upsampling = TRUE;
    if (jpeg->image_height != picture->height || jpeg->image_width != picture->width ||
        jpeg->num_components != picture->channels)
        fail(decoder, "its header changes");
    jpeg_start_decompress(jpeg);
    check_scans(decoder);
    read_rows(decoder, pixels);
    jpeg_finish_decompress(jpeg);
}

bool trajd_decode_jpeg(const uint8_t *bytes, size_t size, const struct trajd_picture *picture,
                       uint8_t *pixels, char *reason, size_t reason_size)
{
    struct decoder decoder = {.reason = reason, .reason_size = reason_size};
    volatile bool is_good = false;

    decoder.jpeg.err = jpeg_std_error(&decoder.errors);
    decoder.errors.error_exit = on_error;
    decoder.errors.emit_message = on_message;
    decoder.jpeg.client_data = &decoder;
    if (!setjmp(decoder.failed)) {
        decode(&decoder, bytes, size, picture, pixels);
        is_good = true;
    }
    jpeg_destroy_decompress(&decoder.jpeg);
    return is_good;
}
