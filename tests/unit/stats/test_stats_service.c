/* The service: statistics from memory, from the cache directory, and computed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/stats/stats_service.h"
#include "unit/stats/stats_fixture.h"

#define WAIT_STEPS 20000 /* of 1 ms */

static const char feed[] = "outputs: {q: {at: 0}, image: {at: 0}}";

static struct trajd_stats_service *make_service(const char *directory)
{
    static struct trajd_log log;
    const struct trajd_stats_service_options options = {.cache_directory = directory, .log = &log};
    struct trajd_stats_service *service;
    struct trajd_error error;

    trajd_log_init(&log, STDERR_FILENO, TRAJD_LOG_ERROR, NULL);
    if (trajd_stats_service_create(&options, &service, &error))
        fail_msg("%s", error.message);
    return service;
}

/* Asks again until there is a result or an error. */
static enum trajd_status wait_for(struct trajd_stats_service *service,
                                  const struct trajd_window_plan *plan,
                                  enum trajd_statistics_subject subject, uint32_t index,
                                  struct trajd_statistics **result, struct trajd_error *error)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    uint32_t permille;

    for (int i = 0; i < WAIT_STEPS; i++) {
        const enum trajd_status status =
            trajd_stats_service_request(service, plan, subject, index, result, &permille, error);
        assert_true(permille <= 1000);
        if (status || *result)
            return status;
        nanosleep(&pause, NULL);
    }
    fail_msg("no statistics after 20 s");
    return TRAJD_ERR_TIMEOUT;
}

static void test_requests_are_computed_meanwhile(void **state)
{
    struct stats_fixture *f = *state;
    struct trajd_stats_service *service = make_service(NULL);
    struct trajd_window_spec *spec;
    struct trajd_window_plan *plan = make_feed(f, feed, &spec);
    struct trajd_statistics *result;
    struct trajd_error error;
    uint32_t permille;

    assert_false(trajd_stats_service_knows(service, plan, 0));
    assert_int_equal(trajd_stats_service_request(service, plan, TRAJD_SUBJECT_OUTPUT, 0, &result,
                                                 &permille, &error),
                     TRAJD_OK);
    assert_null(result);
    assert_int_equal(wait_for(service, plan, TRAJD_SUBJECT_OUTPUT, 0, &result, &error), TRAJD_OK);
    assert_int_equal(result->valid_count, 79);
    free(result);
    assert_true(trajd_stats_service_knows(service, plan, 0));
    assert_false(trajd_stats_service_knows(service, plan, 1)); /* an image: only on request */
    assert_int_equal(wait_for(service, plan, TRAJD_SUBJECT_STREAM, 0, &result, &error), TRAJD_OK);
    assert_int_equal(result->source, TRAJD_STATISTICS_ROWS);
    free(result);
    trajd_stats_service_forget(service, plan);
    trajd_stats_service_destroy(&service);
    drop_feed(&plan, &spec);
}

static void test_the_cache_directory_outlives_the_service(void **state)
{
    const uint32_t outputs[] = {1, 0};
    struct stats_fixture *f = *state;
    struct trajd_stats_service *service = make_service(f->data.folder);
    struct trajd_window_spec *spec;
    struct trajd_window_plan *plan = make_feed(f, feed, &spec);
    struct trajd_statistics *results[2];
    struct trajd_error error;

    assert_int_equal(trajd_stats_service_compute(service, plan, outputs, 2, results, &error),
                     TRAJD_OK);
    assert_int_equal(results[0]->feature_count, 3);
    assert_int_equal(results[1]->feature_count, 2);
    free(results[0]);
    free(results[1]);
    trajd_stats_service_destroy(&service);

    break_file(f); /* nothing is computed from here on */
    service = make_service(f->data.folder);
    assert_true(trajd_stats_service_knows(service, plan, 0));
    assert_int_equal(trajd_stats_service_compute(service, plan, outputs, 2, results, &error),
                     TRAJD_OK);
    assert_int_equal(results[1]->valid_count, 79);
    free(results[0]);
    free(results[1]);
    trajd_stats_service_destroy(&service);
    drop_feed(&plan, &spec);
}

/* Without a directory, all results stay in memory. */
static void test_several_results_are_remembered(void **state)
{
    const uint32_t outputs[] = {0, 1};
    struct stats_fixture *f = *state;
    struct trajd_stats_service *service = make_service(NULL);
    struct trajd_window_spec *spec;
    struct trajd_window_plan *plan = make_feed(f, feed, &spec);
    struct trajd_statistics *results[2];
    struct trajd_error error;

    assert_int_equal(trajd_stats_service_compute(service, plan, outputs, 2, results, &error),
                     TRAJD_OK);
    assert_true(trajd_stats_service_knows(service, plan, 0));
    assert_true(trajd_stats_service_knows(service, plan, 1));
    free(results[0]);
    free(results[1]);
    trajd_stats_service_destroy(&service);
    drop_feed(&plan, &spec);
}

static void test_a_failure_is_reported_once_and_tried_again(void **state)
{
    const uint32_t output = 0;
    struct stats_fixture *f = *state;
    struct trajd_stats_service *service = make_service(NULL);
    struct trajd_window_spec *spec;
    struct trajd_window_plan *plan = make_feed(f, feed, &spec);
    struct trajd_statistics *result;
    struct trajd_error error;
    uint32_t permille;

    break_file(f);
    assert_int_equal(wait_for(service, plan, TRAJD_SUBJECT_OUTPUT, 0, &result, &error),
                     TRAJD_ERR_IO);
    assert_int_equal(trajd_stats_service_request(service, plan, TRAJD_SUBJECT_OUTPUT, 0, &result,
                                                 &permille, &error),
                     TRAJD_OK);
    assert_null(result);
    trajd_stats_service_forget(service, plan);
    assert_int_equal(trajd_stats_service_compute(service, plan, &output, 1, &result, &error),
                     TRAJD_ERR_IO);
    assert_null(result);
    trajd_stats_service_destroy(&service);
    drop_feed(&plan, &spec);
}

static void test_a_stopped_service_takes_no_requests(void **state)
{
    struct trajd_stats_service *service = make_service(NULL);
    struct trajd_window_spec *spec;
    struct trajd_window_plan *plan = make_feed(*state, feed, &spec);
    struct trajd_statistics *result;
    struct trajd_error error;
    uint32_t permille;

    trajd_stats_service_stop(service);
    assert_int_equal(trajd_stats_service_request(service, plan, TRAJD_SUBJECT_OUTPUT, 0, &result,
                                                 &permille, &error),
                     TRAJD_ERR_CLOSED);
    trajd_stats_service_destroy(&service);
    drop_feed(&plan, &spec);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_stats_fixture, free_stats_fixture)
    const struct CMUnitTest tests[] = {
        TEST(test_requests_are_computed_meanwhile),
        TEST(test_the_cache_directory_outlives_the_service),
        TEST(test_several_results_are_remembered),
        TEST(test_a_failure_is_reported_once_and_tried_again),
        TEST(test_a_stopped_service_takes_no_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
