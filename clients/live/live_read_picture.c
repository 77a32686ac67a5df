/* Reads how the frames of an output are made. */
#include "clients/live/live_reader.h"

static const char *const picture_keys[] = {"preparation", "augment", "finish", NULL};
static const char *const preparation_keys[] = {"source",    "channels", "type",   "crop",
                                               "filter",    "inner",    "corner", "output",
                                               "pad_value", "is_bgr",   NULL};
static const char *const augment_keys[] = {"kind",  "output", "excludes_last", "filter", "box",
                                           "ratio", NULL};
static const char *const finish_keys[] = {"size",   "channels", "source", "type",
                                          "layout", "scale",    "offset", NULL};
static const char *const kinds[] = {"crop", "resize", "resized_crop", NULL};
static const char *const boxes[] = {"pixels", "tf", NULL};
static const char *const layouts[] = {"hwc", "chw", NULL};

static const enum trajd_augment_kind augment_kinds[] = {TRAJD_AUGMENT_CROP, TRAJD_AUGMENT_RESIZE,
                                                        TRAJD_AUGMENT_RESIZED_CROP};

static enum trajd_image_filter read_filter(struct trajd_live_reader *reader,
                                           const struct trajd_yaml_node *node)
{
    return (enum trajd_image_filter)trajd_live_read_word(reader, node, "filter",
                                                         trajd_image_filter_names());
}

static void read_preparation(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                             struct trajd_image_preparation *preparation)
{
    int64_t source[2], crop[4], inner[2], corner[2], output[2];
    const int64_t side = TRAJD_IMAGE_SIDE_MAX;

    trajd_live_check_keys(reader, node, preparation_keys);
    trajd_live_read_ints(reader, node, "source", 2, 1, side, source);
    trajd_live_read_ints(reader, node, "crop", 4, 0, side, crop);
    trajd_live_read_ints(reader, node, "inner", 2, 1, side, inner);
    trajd_live_read_ints(reader, node, "corner", 2, -side, side, corner);
    trajd_live_read_ints(reader, node, "output", 2, 1, side, output);
    *preparation = (struct trajd_image_preparation){
        .source_height = (uint32_t)source[0],
        .source_width = (uint32_t)source[1],
        .channels = (uint32_t)trajd_live_read_int(reader, node, "channels", 1, 3),
        .type = trajd_live_read_dtype(reader, node, "type"),
        .crop = {(uint32_t)crop[0], (uint32_t)crop[1], (uint32_t)crop[2], (uint32_t)crop[3]},
        .filter = read_filter(reader, node),
        .inner_height = (uint32_t)inner[0],
        .inner_width = (uint32_t)inner[1],
        .top = (int32_t)corner[0],
        .left = (int32_t)corner[1],
        .height = (uint32_t)output[0],
        .width = (uint32_t)output[1],
        .is_bgr = trajd_live_read_bool(reader, node, "is_bgr"),
        .pad_value = trajd_live_read_number(reader, node, "pad_value", 0, 65535)};
    if (!reader->status)
        reader->status = trajd_image_check(preparation, reader->error);
    if (!reader->status && preparation->is_bgr &&
        (preparation->channels != 3 || preparation->type != TRAJD_U8))
        trajd_live_wrong(reader, node, "is_bgr: three channels of u8 are expected");
}

static void read_step(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                      struct trajd_augment_step *step)
{
    double ratio[2];
    int64_t output[2];

    trajd_live_check_keys(reader, node, augment_keys);
    trajd_live_read_ints(reader, node, "output", 2, 1, TRAJD_IMAGE_SIDE_MAX, output);
    trajd_live_read_numbers(reader, node, "ratio", 2, ratio);
    *step = (struct trajd_augment_step){
        .kind = augment_kinds[trajd_live_read_word(reader, node, "kind", kinds)],
        .probability = 1,
        .height = (uint32_t)output[0],
        .width = (uint32_t)output[1],
        .excludes_last = trajd_live_read_bool(reader, node, "excludes_last"),
        .scale = {1, 1},
        .ratio = {ratio[0], ratio[1]},
        .box = (enum trajd_augment_box)trajd_live_read_word(reader, node, "box", boxes),
        .filter = read_filter(reader, node)};
}

static void read_augment(struct trajd_live_reader *reader, const struct trajd_yaml_node *picture,
                         struct trajd_live_picture *into)
{
    const struct trajd_yaml_node *list =
        trajd_live_read_list(reader, picture, "augment", 0, TRAJD_AUGMENT_STEPS_MAX);
    const struct trajd_image_preparation *preparation = &into->preparation;
    const struct trajd_augment_frame frame = {preparation->height, preparation->width,
                                              preparation->channels, preparation->type};
    uint32_t height = preparation->height, width = preparation->width;

    for (const struct trajd_yaml_node *node = list ? list->children : NULL; node && !reader->status;
         node = node->next)
        read_step(reader, node, &into->augment.steps[into->augment.count++]);
    if (!reader->status && into->augment.count)
        reader->status =
            trajd_augment_check(&into->augment, &frame, &height, &width, reader->error);
    if (!reader->status && (height != into->finish.height || width != into->finish.width ||
                            preparation->channels != into->finish.channels ||
                            preparation->type != into->finish.source))
        trajd_live_wrong(reader, picture, "finish: prepared frames have another size or type");
}

static void read_finish(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                        struct trajd_image_finish *finish)
{
    double scale[TRAJD_IMAGE_CHANNELS_MAX], offset[TRAJD_IMAGE_CHANNELS_MAX];
    int64_t size[2];

    trajd_live_check_keys(reader, node, finish_keys);
    trajd_live_read_ints(reader, node, "size", 2, 1, TRAJD_IMAGE_SIDE_MAX, size);
    *finish = (struct trajd_image_finish){
        .height = (uint32_t)size[0],
        .width = (uint32_t)size[1],
        .channels = (uint32_t)trajd_live_read_int(reader, node, "channels", 1, 3),
        .source = trajd_live_read_dtype(reader, node, "source"),
        .type = trajd_live_read_dtype(reader, node, "type"),
        .layout = (enum trajd_image_layout)trajd_live_read_word(reader, node, "layout", layouts)};
    trajd_live_read_numbers(reader, node, "scale", TRAJD_IMAGE_CHANNELS_MAX, scale);
    trajd_live_read_numbers(reader, node, "offset", TRAJD_IMAGE_CHANNELS_MAX, offset);
    for (uint32_t c = 0; c < TRAJD_IMAGE_CHANNELS_MAX; c++) {
        finish->scale[c] = (float)scale[c];
        finish->offset[c] = (float)offset[c];
    }
    if (!reader->status)
        reader->status = trajd_image_finish_check(finish, reader->error);
}

void trajd_live_read_picture(struct trajd_live_reader *reader, const struct trajd_yaml_node *node,
                             struct trajd_live_picture *picture)
{
    const struct trajd_yaml_node *preparation, *finish;

    trajd_live_check_keys(reader, node, picture_keys);
    preparation = trajd_live_member(reader, node, "preparation");
    finish = trajd_live_member(reader, node, "finish");
    if (preparation && finish) {
        read_preparation(reader, preparation, &picture->preparation);
        read_finish(reader, finish, &picture->finish);
        read_augment(reader, node, picture);
    }
}
