/* Which users may read a ring that its workers can write to. */
#include <string.h>

#include "core_world.h"

#define ALICE 1001u
#define BOB 1002u
#define KEY (UINT64_C(1) << 63 | 7)

static struct trajd_core_feed_options options_for_one_user(void)
{
    struct trajd_core_feed_options options = default_options();

    options.is_for_one_user = true;
    return options;
}

static uint64_t greet_user(struct world *world, uint64_t owner)
{
    const uint64_t session = greet(world);

    trajd_core_set_owner(world->core, session, owner, owner != KEY);
    return session;
}

static struct trajd_core_feed *choose(struct world *world, uint64_t session, const char *job)
{
    const struct trajd_wire_open open = make_open_as(world, job, 0);

    return trajd_core_choose(world->core, session, &open, world->feed);
}

static void open_job(struct world *world, uint64_t session, const char *job)
{
    assert_int_equal(open_with(world, session, make_open_as(world, job, 0)), TRAJD_OK);
}

static struct trajd_core_feed_info info_of(struct trajd_core_feed *feed)
{
    struct trajd_core_feed_info info;

    trajd_core_feed_info(feed, &info);
    return info;
}

static void test_a_ring_belongs_to_the_user_who_mapped_it(void **state)
{
    struct trajd_core_feed_options options = options_for_one_user();
    struct world *world = make(&options);
    struct trajd_core_feed *second;
    uint64_t session;

    (void)state;
    assert_false(info_of(world->feed).has_user);
    session = greet_user(world, ALICE);
    open_job(world, session, "a");
    assert_true(info_of(world->feed).has_user);
    assert_int_equal(info_of(world->feed).user, ALICE);
    trajd_core_bye(world->core, session, 0);
    assert_ptr_equal(choose(world, greet_user(world, ALICE), "b"), world->feed);
    session = greet_user(world, BOB);
    assert_null(choose(world, session, "b"));
    assert_null(choose(world, session, "a")); /* also under the name of the former job */
    options.name = "train#2";
    options.instance_of = "train";
    assert_int_equal(trajd_core_add_feed(world->core, &options, &second, NULL), TRAJD_OK);
    assert_ptr_equal(choose(world, session, "b"), second);
    destroy(world);
}

static void test_a_job_is_of_one_user(void **state)
{
    struct trajd_core_feed_options options = options_for_one_user();
    struct world *world = make(&options);
    uint64_t alice = greet_user(world, ALICE), bob = greet_user(world, BOB);

    (void)state;
    open_job(world, alice, "a");
    /* refused there, and not divided between two rings */
    assert_ptr_equal(choose(world, bob, "a"), world->feed);
    assert_int_not_equal(open_with(world, bob, make_open_as(world, "a", 0)), TRAJD_OK);
    assert_int_equal(last_sent(world, TRAJD_WIRE_ERROR)->error.status, TRAJD_ERR_BUSY);
    assert_non_null(strstr(last_error(world), "workers of user 1001 read job \"a\""));
    open_job(world, greet_user(world, ALICE), "a");
    destroy(world);
}

/* A remote worker has copies of the rows. It maps no ring, but another user could write into one
 * that it reads. */
static void test_remote_workers(void **state)
{
    struct trajd_core_feed_options options = options_for_one_user();
    struct world *world = make(&options);
    uint64_t remote = greet_user(world, KEY), local, other;

    (void)state;
    open_job(world, remote, "mixed");
    assert_false(info_of(world->feed).has_user);
    local = greet_user(world, ALICE);
    open_job(world, local, "mixed"); /* local and remote workers of one job */
    other = greet_user(world, KEY);
    assert_null(choose(world, other, "other"));
    open_job(world, other, "mixed");
    trajd_core_bye(world->core, local, 0);
    trajd_core_bye(world->core, other, 0);
    assert_ptr_equal(choose(world, remote, "mixed"), world->feed);
    trajd_core_end_session(world->core, remote, 0);
    /* the job that the key began */
    assert_ptr_equal(choose(world, greet_user(world, KEY), "mixed"), world->feed);
    local = greet_user(world, ALICE);
    open_job(world, local, "mixed");
    trajd_core_bye(world->core, local, 0);
    /* a job that a local user began, under its name */
    assert_null(choose(world, greet_user(world, KEY), "mixed"));
    destroy(world);
}

static void test_users_share_a_ring_that_is_read_only(void **state)
{
    struct trajd_core_feed_options options = default_options();
    struct world *world;
    uint64_t alice, bob;

    (void)state;
    options.job_count = 2;
    world = make(&options);
    alice = greet_user(world, ALICE);
    bob = greet_user(world, BOB);
    open_job(world, alice, "a");
    assert_false(info_of(world->feed).has_user);
    assert_ptr_equal(choose(world, bob, "b"), world->feed);
    open_job(world, bob, "b");
    open_job(world, greet_user(world, BOB), "a");
    destroy(world);
}

/* On a GPU workers can write to the ring of several jobs, too. */
static void test_jobs_of_several_users_on_a_gpu(void **state)
{
    struct trajd_core_feed_options options = options_for_one_user();
    struct world *world;

    (void)state;
    options.job_count = 2;
    world = make(&options);
    open_job(world, greet_user(world, ALICE), "a");
    assert_null(choose(world, greet_user(world, BOB), "b"));
    assert_ptr_equal(choose(world, greet_user(world, ALICE), "b"), world->feed);
    destroy(world);
}

/* The session has left the feed and still holds a batch. */
static void test_a_batch_is_held_beyond_its_feed(void **state)
{
    struct trajd_core_feed_options options = options_for_one_user();
    const struct trajd_error error = {.status = TRAJD_ERR_NOT_FOUND};
    struct trajd_wire_batch held;
    struct world *world = make(&options);
    uint64_t session = greet_user(world, ALICE);

    (void)state;
    open_job(world, session, "a");
    publish(world, take(world));
    held = last_sent(world, TRAJD_WIRE_BATCH)->batch;
    trajd_core_refuse_open(world->core, session, 9, &error, 0);
    assert_true(info_of(world->feed).has_leases);
    assert_int_equal(info_of(world->feed).members, 0);
    release(world, session, held);
    assert_false(info_of(world->feed).has_leases);
    destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_ring_belongs_to_the_user_who_mapped_it),
        cmocka_unit_test(test_a_job_is_of_one_user),
        cmocka_unit_test(test_remote_workers),
        cmocka_unit_test(test_users_share_a_ring_that_is_read_only),
        cmocka_unit_test(test_jobs_of_several_users_on_a_gpu),
        cmocka_unit_test(test_a_batch_is_held_beyond_its_feed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
