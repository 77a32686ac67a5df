/* What "explain" says of pictures: how frames are stored and made, whether a frame is bad, and what
 * the augmentation draws. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/control/query.h"

void trajd_explain_picture(const struct trajd_window_plan *plan, uint32_t picture,
                           struct trajd_json *json)
{
    const struct trajd_index_stream *stream =
        trajd_plan_stream(plan, &plan->targets[plan->row_target_count + picture]);
    struct trajd_picture_words words;
    char text[TRAJD_PREPARATION_WORDS_SIZE];

    trajd_window_write_words(plan, picture, &words);
    trajd_json_open_object(json, "picture");
    if (trajd_window_describe_prepared(plan, picture, text))
        trajd_json_string(json, "prepared", text);
    for (uint32_t w = 0; w < words.count; w++)
        trajd_json_string(json, words.list[w].key, words.list[w].text);
    if (trajd_picture_channels(stream->image.color) == 3)
        trajd_json_string(json, "color_from", trajd_index_color_source(stream));
    trajd_json_close_object(json);
}

void trajd_explain_draws(const struct trajd_window_plan *plan, uint32_t picture, uint64_t seed,
                         const struct trajd_window *window, uint32_t step, struct trajd_json *json)
{
    const struct trajd_augment *augment = &plan->pictures[picture].augment;
    struct trajd_augment_params params;

    if (!augment->count)
        return;
    trajd_window_draw(plan, picture, seed, window, step, &params);
    trajd_json_open_array(json, "draws");
    for (uint32_t i = 0; i < augment->count; i++) {
        trajd_json_open_object(json, NULL);
        trajd_json_string(json, "kind", trajd_augment_kind_name(augment->steps[i].kind));
        trajd_json_open_array(json, "values");
        for (int v = 0; v < TRAJD_AUGMENT_VALUES; v++)
            trajd_json_number(json, NULL, "%.9g", (double)params.values[i][v]);
        trajd_json_close_array(json);
        trajd_json_close_object(json);
    }
    trajd_json_close_array(json);
}

enum trajd_mask trajd_explain_frame(const struct trajd_window_plan *plan, uint32_t picture,
                                    uint32_t episode, int64_t row, char *reason)
{
    const struct trajd_plan_target *target = &plan->targets[plan->row_target_count + picture];
    struct trajd_frame_use use = {.episode_index = episode, .row = (uint32_t)row};
    struct trajd_frame_view *view = NULL;
    struct trajd_error error = {.message = "trajd-decoder was not found"};
    enum trajd_status status = TRAJD_ERR_SYSTEM;

    if (plan->dataset->frames)
        status = trajd_frames_open_view(plan->dataset->frames, target->stream_index,
                                        &plan->pictures[picture].preparation, 1, &view, &error);
    if (!status)
        status = trajd_frames_pin(view, &use, 1, &error);
    snprintf(reason, TRAJD_REASON_SIZE, "%s",
             status       ? error.message
             : use.pixels ? ""
                          : use.reason);
    if (!status) {
        status = use.status;
        trajd_frames_unpin(view, &use, 1);
    }
    trajd_frames_close_view(&view);
    return status == TRAJD_ERR_DATA || status == TRAJD_ERR_NOT_FOUND ? TRAJD_MASK_BAD_FRAME
                                                                     : TRAJD_MASK_VALID;
}
