// libs: trajd_feed
/* A journal from a disk, with any bytes: it opens, and what it loads is a possible state, or it
 * counts as damaged and is empty. A journal that nobody else touches loads what was saved.
 *
 * Input: operations. Each is a byte, and then its numbers, of two bytes each: value << shift. A
 * place in the file is two bytes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/feed/journal.h"

#define PAGE 4096u
#define PAGE_WORDS (PAGE / 8u)

enum { KEY_WORDS = 7, RUN = 7, KEY_CHECK = 8, HIGH = 9, PASS = 11, UNDONE = 32, MOST_BEGUN = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[] = "/dev/shm/fuzz-journal-XXXXXX", path[256];

struct input {
    const uint8_t *next, *end;
};

struct world {
    struct input input;
    struct trajd_journal *journal;
    bool is_touched; /* someone else has changed the file */
};

static uint8_t take_byte(struct input *input)
{
    return input->next < input->end ? *input->next++ : 0;
}

static uint64_t take_number(struct input *input)
{
    const uint64_t value = take_byte(input);

    return value << take_byte(input) % 57;
}

static uint64_t take_place(struct input *input)
{
    const uint64_t low = take_byte(input);

    return (low | (uint64_t)take_byte(input) << 8) % TRAJD_JOURNAL_SIZE_BYTES;
}

static void remove_folder(void)
{
    unlink(path);
    rmdir(folder);
}

static bool make_folder(void)
{
    if (path[0])
        return true;
    if (!mkdtemp(folder))
        return false;
    snprintf(path, sizeof path, "%s/job@feed-%016llx.journal", folder,
             (unsigned long long)trajd_journal_number("feed", "job"));
    atexit(remove_folder);
    return true;
}

/* ---- the file, as another process changes it ---- */

static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

/* Gives all values of a record valid checks, as in journal.c: the values are then any ones. */
static void seal_record(uint64_t words[PAGE_WORDS])
{
    const uint8_t *key = (const uint8_t *)words;
    uint64_t check = TRAJD_JOURNAL_MAGIC + words[RUN];

    for (size_t i = 0; i < KEY_WORDS * sizeof words[0]; i++)
        check = mix(check + key[i] + 1);
    words[KEY_CHECK] = check;
    for (uint32_t i = HIGH; i < PAGE_WORDS; i++) {
        const uint64_t value = words[i] & ((UINT64_C(1) << 48) - 1);
        if (i <= PASS || i >= UNDONE)
            words[i] = value | mix(check + mix(value << 10 | i)) << 48;
    }
}

static void seal_file(int fd)
{
    uint64_t words[PAGE_WORDS];

    for (off_t at = PAGE; at <= 2 * (off_t)PAGE; at += PAGE)
        if (pread(fd, words, sizeof words, at) == sizeof words) {
            seal_record(words);
            if (pwrite(fd, words, sizeof words, at) < 0)
                return;
        }
}

static void change_file(struct world *world, uint8_t how)
{
    const int fd = open(path, O_RDWR | O_CREAT, 0600);
    const uint64_t place = take_place(&world->input), value = take_number(&world->input);

    world->is_touched = true;
    if (fd < 0)
        return;
    if (how == 0 && ftruncate(fd, (off_t)place))
        abort();
    if (how == 1 && pwrite(fd, &value, 1 + value % sizeof value, (off_t)place) < 0)
        abort();
    if (how == 2 && pwrite(fd, &value, sizeof value, (off_t)(place / 8 * 8)) < 0)
        abort();
    if (how == 3)
        seal_file(fd);
    close(fd);
}

/* ---- the journal ---- */

static bool load(const struct world *world, struct trajd_journal_state *state)
{
    memset(state, 0, sizeof *state);
    if (!trajd_journal_load(world->journal, state))
        return false;
    if (!state->key.batch || state->key.batch > UINT32_MAX || state->key.length > INT64_MAX ||
        state->key.begin > state->key.length || state->sessions > TRAJD_JOURNAL_ANY_SESSIONS ||
        state->undone_count > TRAJD_JOURNAL_MAX_UNDONE)
        abort();
    if (state->high && (state->high - 1) * state->key.batch >= state->key.length - state->key.begin)
        abort();
    for (uint32_t i = 0; i < state->undone_count; i++)
        if (state->undone[i] >= state->high || (i && state->undone[i] <= state->undone[i - 1]))
            abort();
    return true;
}

static bool is_same(const struct trajd_journal_state *a, const struct trajd_journal_state *b)
{
    return memcmp(&a->key, &b->key, sizeof a->key) == 0 && a->high == b->high &&
           a->pass == b->pass && a->sessions == b->sessions &&
           memcmp(&a->wait, &b->wait, sizeof a->wait) == 0 && a->undone_count == b->undone_count &&
           memcmp(a->undone, b->undone, a->undone_count * sizeof a->undone[0]) == 0;
}

static void open_journal(struct world *world)
{
    struct trajd_journal_state state;
    struct trajd_error error;
    bool damaged;

    if (trajd_journal_open(folder, "feed", "job", &world->journal, &damaged, &error))
        abort();
    if (load(world, &state) ? damaged : damaged && !world->is_touched)
        abort();
}

static void open_again(struct world *world)
{
    static struct trajd_journal_state before, after;
    const bool had = load(world, &before);

    trajd_journal_close(&world->journal);
    open_journal(world);
    if (access(path, F_OK) == 0 && !world->is_touched &&
        (load(world, &after) != had || (had && !is_same(&before, &after))))
        abort();
}

static void sweep(struct world *world)
{
    const uint64_t idle_ns = take_number(&world->input);
    struct trajd_error error;
    uint32_t removed;

    trajd_journal_close(&world->journal);
    if (trajd_journal_sweep(folder, (int64_t)(idle_ns >> 1), &removed, &error))
        abort();
    open_journal(world);
}

/* Returns the number of batches in the epoch, as far as a journal can count them. */
static uint64_t count_batches(const struct trajd_journal_key *key)
{
    const uint64_t length = key->length - key->begin,
                   count = length / key->batch + (length % key->batch != 0);

    return count <= TRAJD_JOURNAL_MAX_BATCH ? count : TRAJD_JOURNAL_MAX_BATCH;
}

static void begin(struct world *world)
{
    static struct trajd_journal_state state;
    uint64_t *key = (uint64_t *)&state.key;
    struct input *input = &world->input;
    uint64_t next = 0;

    for (int i = 0; i < KEY_WORDS; i++)
        key[i] = take_number(input);
    state.key.length &= INT64_MAX;
    state.key.begin %= state.key.length + 1;
    state.key.batch = state.key.batch % UINT32_MAX + 1;
    state.high = take_number(input) % (count_batches(&state.key) + 1);
    state.pass = take_number(input) % (TRAJD_JOURNAL_MAX_PASS + 1);
    state.sessions = (uint32_t)take_number(input) % (TRAJD_JOURNAL_ANY_SESSIONS + 1);
    state.undone_count = 0;
    for (uint8_t most = take_byte(input) % MOST_BEGUN; state.undone_count < most;) {
        next += take_byte(input);
        if (next >= state.high)
            break;
        state.undone[state.undone_count++] = next++;
    }
    trajd_journal_begin(world->journal, &state);
}

/* Produces a batch of the epoch. */
static void produce(struct world *world)
{
    const uint64_t batch = take_number(&world->input);
    static struct trajd_journal_state state;

    if (load(world, &state) && count_batches(&state.key))
        trajd_journal_produce(world->journal, batch % count_batches(&state.key));
}

static void operate(struct world *world)
{
    struct input *input = &world->input;
    struct trajd_journal_wait wait;
    struct trajd_error error;
    const uint8_t operation = take_byte(input) % 12;

    if (operation == 0)
        begin(world);
    else if (operation == 1)
        produce(world);
    else if (operation == 2)
        trajd_journal_done(world->journal, take_number(input) % (TRAJD_JOURNAL_MAX_BATCH + 1));
    else if (operation == 3) {
        wait.sessions = (uint32_t)take_number(input);
        wait.waited_ms = wait.total_ms = (uint32_t)take_number(input);
        trajd_journal_set_sessions(world->journal, (uint32_t)take_number(input), &wait);
    } else if (operation == 4)
        trajd_journal_save(world->journal, &error);
    else if (operation == 5)
        trajd_journal_flush(world->journal, &error);
    else if (operation == 6)
        open_again(world);
    else if (operation == 7)
        sweep(world);
    else
        change_file(world, operation - 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world world = {.input = {data, data + size}};

    if (!make_folder())
        return 0;
    unlink(path);
    open_journal(&world);
    while (world.input.next < world.input.end)
        operate(&world);
    open_again(&world);
    trajd_journal_close(&world.journal);
    return 0;
}
