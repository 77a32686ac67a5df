/* A decode unit of a hostile file, through a video library, as the helper program decodes it. Input:
 * a file as of tests/tools/video_units.py, whose numbers may be wrong. A good frame has all its
 * pixels, a bad one a reason, and each frame that is wanted is reported once. */
#ifndef TRAJD_TESTS_FUZZ_VIDEO_UNIT_H
#define TRAJD_TESTS_FUZZ_VIDEO_UNIT_H

#include <stdlib.h>
#include <string.h>

#include "daemon/decode/decode_child.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WORDS = 6, SIDE_MAX = 64, PACKETS_MAX = 40, ROOM = 3, EXTRADATA_MAX = 4096 };

/* Writes the table and what follows it as the parent does. Packets beyond the input are empty.
 * Returns the memory, which ends with the last packet: overruns are found. */
static uint8_t *make_input(const uint32_t *words, const uint8_t *data, size_t size,
                           struct trajd_decode_unit *unit, uint64_t *input_bytes)
{
    const size_t skipped = 8 * (size_t)unit->packet_count;
    const uint8_t *rest = data + (size < skipped ? size : skipped);
    struct trajd_decode_packet packets[PACKETS_MAX] = {{0, 0}};
    uint64_t room = size - (size_t)(rest - data);
    uint8_t *input;

    if (unit->extradata_size > room)
        unit->extradata_size = room;
    room -= unit->extradata_size;
    for (uint32_t i = 0; i < unit->packet_count; i++) {
        if (size >= skipped)
            memcpy(&packets[i].size, data + 4 * (size_t)i, 4);
        if (packets[i].size > room)
            packets[i].size = (uint32_t)room;
        packets[i].is_wanted = !(words[0] >> 8 & 1) || i % 3 == 0;
        room -= packets[i].size;
    }
    room = size - (size_t)(rest - data) - room;
    *input_bytes = unit->packet_count * sizeof *packets + room;
    input = malloc(*input_bytes ? *input_bytes : 1);
    if (!input)
        abort();
    memcpy(input, packets, unit->packet_count * sizeof *packets);
    memcpy(input + unit->packet_count * sizeof *packets, rest, room);
    return input;
}

static void run_all(struct trajd_decode_state *state, uint32_t packet_count)
{
    uint8_t *output = malloc(ROOM * state->setup.frame_bytes);
    bool is_told[PACKETS_MAX] = {false};

    for (uint32_t empty = 0; output && state->video.wanted_count;) {
        struct trajd_decode_reply reply = {.count = 0};
        if (!trajd_decode_unit_run(state, output, ROOM, &reply))
            break;
        if (reply.count > ROOM || (!reply.count && ++empty > 2))
            abort();
        for (uint32_t i = 0; i < reply.count; i++) {
            if (reply.packets[i] >= packet_count || is_told[reply.packets[i]] ||
                !memchr(reply.reasons[i], 0, sizeof reply.reasons[i]))
                abort();
            is_told[reply.packets[i]] = true;
        }
    }
    free(output);
}

static int run_video(enum trajd_video_codec codec, const uint8_t *data, size_t size)
{
    static struct trajd_decode_state state;
    struct trajd_decode_setup setup = {
        .image = {.is_present = true, .color = TRAJD_COLOR_RGB}, .bits = 8, .upright = 1};
    struct trajd_decode_unit unit = {.packet_count = 0};
    uint32_t words[WORDS];
    uint64_t input_bytes;
    uint8_t *input;

    if (size < sizeof words)
        return 0;
    memcpy(words, data, sizeof words);
    setup.image.height = 1 + (words[2] - 1) % SIDE_MAX;
    setup.image.width = 1 + (words[3] - 1) % SIDE_MAX;
    setup.video = (struct trajd_video_format){codec, words[1] >> 8 & 3, (words[1] >> 10) % 3};
    setup.frame_bytes = 3 * setup.image.height * setup.image.width;
    unit.packet_count = words[4] % (PACKETS_MAX + 1);
    unit.extradata_size = words[5] % EXTRADATA_MAX;
    if (!trajd_decode_state_make(&setup, &state))
        abort();
    input = make_input(words, data + sizeof words, size - sizeof words, &unit, &input_bytes);
    if (!trajd_decode_unit_begin(&state, input, input_bytes, &unit))
        abort();
    run_all(&state, unit.packet_count);
    trajd_decode_state_free(&state);
    free(input);
    return 0;
}

#endif
