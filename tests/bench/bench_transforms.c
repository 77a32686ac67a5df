// libs: trajd_kernels
/* Measures transforms on one thread of the CPU: 256 windows of 16 steps with 7 columns in float32,
 * normalised, in the caches. Prints the time per step: the best of many runs. Usage:
 * bench_transforms [NAME]. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/transform/transform.h"
#include "proto/array_len.h"

enum { WINDOWS = 256, STEPS = 16, COLUMNS = 7, STATE_COLUMNS = 7, OUTPUTS_MAX = 10, RUNS = 2000 };

struct row {
    const char *name;
    enum trajd_rotation_form from, to; /* NONE: plain columns */
    enum trajd_frame frame;
    bool step_before;
};

static const struct row rows[] = {
    {"plain columns minus the state", TRAJD_ROTATION_NONE, TRAJD_ROTATION_NONE, 0, false},
    {"poses, axis-angle to rot6d", TRAJD_ROTATION_AXIS_ANGLE, TRAJD_ROTATION_ROT6D, 0, false},
    {"the same, base frame", TRAJD_ROTATION_AXIS_ANGLE, TRAJD_ROTATION_ROT6D, TRAJD_FRAME_BASE,
     false},
    {"the same, from the step before", TRAJD_ROTATION_AXIS_ANGLE, TRAJD_ROTATION_ROT6D, 0, true},
    {"poses, euler to axis-angle", TRAJD_ROTATION_EULER, TRAJD_ROTATION_AXIS_ANGLE, 0, false},
};

static float source[WINDOWS * STEPS * COLUMNS], reference[WINDOWS * STATE_COLUMNS],
    output[WINDOWS * STEPS * OUTPUTS_MAX], scale[OUTPUTS_MAX], offset[OUTPUTS_MAX];
static uint8_t mask[WINDOWS * STEPS], reference_mask[WINDOWS];

static void fill(float *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        numbers[i] = (float)rand() / (float)RAND_MAX - 0.5f;
}

static double now_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Position, rotation and gripper, or seven columns of which the last one stays as it is. */
static struct trajd_transform make_transform(const struct row *row)
{
    const bool is_pose = row->from != TRAJD_ROTATION_NONE;
    const uint32_t width = is_pose ? trajd_rotation_width(row->to) : 3;
    const bool turns = is_pose && row->frame == TRAJD_FRAME_ANCHOR;
    struct trajd_transform t = {.part_count = 3,
                                .column_count = COLUMNS,
                                .output_count = width + 4,
                                .reference_count = STATE_COLUMNS,
                                .frame = row->frame,
                                .from_step_before = row->step_before};

    t.parts[0] = (struct trajd_transform_part){
        .is_relative = true, .count = 3, .output_count = 3, .turned_by = turns ? 1 : -1};
    t.parts[1] = (struct trajd_transform_part){.kind = is_pose ? TRAJD_PART_ROTATION : 0,
                                               .is_relative = true,
                                               .first = 3,
                                               .count = 3,
                                               .output_first = 3,
                                               .output_count = width,
                                               .reference_first = 3,
                                               .from = row->from,
                                               .to = row->to,
                                               .reference_form = TRAJD_ROTATION_QUAT_XYZW,
                                               .turned_by = -1};
    t.parts[2] = (struct trajd_transform_part){
        .first = 6, .count = 1, .output_first = width + 3, .output_count = 1, .turned_by = -1};
    return t;
}

static double best_ns(const struct trajd_transform_job *job)
{
    double best = 1e18;

    for (int i = 0; i < RUNS; i++) {
        const double begin = now_ns();
        trajd_transform_windows(job, 0, WINDOWS);
        const double took = now_ns() - begin;
        best = took < best ? took : best;
    }
    return best / (WINDOWS * STEPS);
}

int main(int argc, char **argv)
{
    fill(source, ARRAY_LEN(source));
    fill(reference, ARRAY_LEN(reference));
    fill(scale, ARRAY_LEN(scale));
    fill(offset, ARRAY_LEN(offset));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (argc > 1 && !strstr(rows[i].name, argv[1]))
            continue;
        const struct trajd_transform transform = make_transform(&rows[i]);
        const struct trajd_transform_job job = {.transform = &transform,
                                                .step_count = STEPS,
                                                .source_type = TRAJD_F32,
                                                .reference_type = TRAJD_F32,
                                                .output_type = TRAJD_F32,
                                                .source = source,
                                                .reference = reference,
                                                .reference_mask = reference_mask,
                                                .mask = mask,
                                                .output = output,
                                                .scale = scale,
                                                .offset = offset};
        printf("%-34s %6.2f ns per step\n", rows[i].name, best_ns(&job));
    }
    return 0;
}
