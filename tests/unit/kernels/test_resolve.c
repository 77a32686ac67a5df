/* Checks that trajd_resample_resolve describes what trajd_resample_reference computes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>

#include "kernels/element_convert.h"
#include "kernels/resample_resolve.h"
#include "tests/support/random_problem.h"

static double load(const struct problem *problem, uint32_t window, int64_t row, uint32_t feature)
{
    const struct trajd_stream *stream = &problem->stream;
    const char *base = stream->bases ? stream->bases[window] : stream->base;

    if (!stream->bases)
        row += problem->bracket.row_begin[window];
    return trajd_element_load(stream->source_type, base + row * (int64_t)stream->row_stride_bytes +
                                                       (stream->first_column + (uint64_t)feature) *
                                                           trajd_dtype_size(stream->source_type));
}

/* Computes the value of linear, previous and nearest from a resolved step. */
static double rebuild(const struct problem *problem, uint32_t window, uint32_t feature,
                      const struct trajd_resample_step *step)
{
    const struct trajd_stream *stream = &problem->stream;
    double value = stream->edge == TRAJD_EDGE_NAN ? NAN : 0;

    if (step->has_row)
        value = load(problem, window, step->row, feature);
    if (step->blends)
        value += (double)step->past_ns / (double)step->width_ns *
                 (load(problem, window, step->row + 1, feature) - value);
    return stream->scale ? value * (double)stream->scale[feature] + (double)stream->offset[feature]
                         : value;
}

static void check_step(const struct problem *problem, uint32_t window, uint32_t t)
{
    const struct trajd_stream *stream = &problem->stream;
    struct trajd_resample_step step;
    enum trajd_mask mask;
    char name[256];

    trajd_resample_resolve(&problem->request, 0, window, t, &step);
    mask = step.mask;
    if (mask < TRAJD_MASK_NAN && trajd_resample_find_nan(&problem->request, 0, window, &step) >= 0)
        mask = TRAJD_MASK_NAN;
    if (mask != stream->mask[window * stream->mask_window_stride_bytes + t])
        fail_msg("%s: window %u, step %u: mask %d resolved, %d written",
                 problem_name(problem, name, sizeof name), window, t, mask,
                 stream->mask[window * stream->mask_window_stride_bytes + t]);
    if (stream->kind > TRAJD_KIND_NEAREST)
        return;
    for (uint32_t d = 0; d < stream->feature_count; d++) {
        const char *out = (const char *)stream->output + window * stream->window_stride_bytes +
                          t * stream->step_stride_bytes;
        const double written = trajd_element_load(
            stream->output_type, out + (uint64_t)d * trajd_dtype_size(stream->output_type));
        const double resolved = rebuild(problem, window, d, &step);
        if (!(isnan(written) && isnan(resolved)) && written != resolved)
            fail_msg("%s: window %u, step %u: %.17g resolved, %.17g written",
                     problem_name(problem, name, sizeof name), window, t, resolved, written);
    }
}

static void test_resolve_matches_reference(void **state)
{
    uint32_t seen[8] = {0};

    (void)state;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        static const uint32_t sizes[] = {1, 2, 7, 33};
        const struct problem_spec spec = {.seed = seed,
                                          .windows = 1 + seed % 3,
                                          .rows = sizes[seed / 7 % 4],
                                          .steps = sizes[seed / 3 % 4],
                                          .features = 4,
                                          .kind = (enum trajd_kind)(seed % TRAJD_KIND_COUNT),
                                          .source = TRAJD_F64,
                                          .output = TRAJD_F64,
                                          .stamps = (enum stamps_flavour)(seed / 5 % STAMPS_COUNT),
                                          .unit = seed % 11 ? TRAJD_GRID_NS : TRAJD_GRID_ROWS};
        struct problem problem;

        problem_create(&problem, &spec);
        trajd_resample_reference(&problem.request, 0, spec.windows);
        for (uint32_t w = 0; w < spec.windows && problem.stream.mask; w++)
            for (uint32_t t = 0; t < spec.steps; t++) {
                check_step(&problem, w, t);
                seen[problem.stream.mask[w * problem.stream.mask_window_stride_bytes + t]]++;
            }
        problem_destroy(&problem);
    }
    for (int m = 0; m < 8; m++)
        if (!seen[m])
            fail_msg("no step had mask %d", m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_resolve_matches_reference)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
