/* Writes the outputs of a feed: the streams as a trainer's style reads them. */
#include "clients/cli/draft/draft_config.h"

#include <inttypes.h>
#include <string.h>

#include "clients/cli/draft/draft_facts.h"
#include "daemon/cache/dataset.h"
#include "daemon/window/feed_spec/window_spec.h"
#include "daemon/window/image/image_prepared.h"
#include "proto/array_len.h"

#define NO_ROOM "left out: a feed has at most 64 outputs"

enum { IMAGE_RANK = 2, COMMENT_COLUMN = 48 };

/* The names of the outputs that are written. */
struct names {
    uint32_t count;
    char list[TRAJD_SPEC_MAX_OUTPUTS][TRAJD_SPEC_MAX_NAME + 1];
};

/* What all lines of a feed have in common. */
struct writer {
    FILE *out;
    const struct trajd_index *index;
    uint32_t anchor;
    const struct config_preset *preset;
    const struct trajd_index_stream *action, *state; /* of a trainer; NULL: none has such a name */
    struct config_size size;                         /* of images that are stacked */
    /* of a state that is a list: numbers that each episode has, as many as a list may have */
    const struct trajd_index_stream *parts[TRAJD_SPEC_MAX_SOURCES];
    uint32_t part_count;
    bool has_more_parts; /* than fit into the list */
    struct names names;
    uint64_t window_bytes; /* of the outputs so far */
};

double config_mean_rate_hz(const struct trajd_index *index, uint32_t which)
{
    for (uint32_t e = 0; e < index->episode_count; e++) {
        const struct trajd_episode_clock *clock =
            index->episodes[e].quarantine ? NULL : &index->episodes[e].clocks[which];
        int64_t span_ns;
        if (!clock || clock->row_count < 2)
            continue;
        span_ns = trajd_clock_row_ns(clock, clock->row_count - 1) - trajd_clock_row_ns(clock, 0);
        if (span_ns > 0)
            return (double)(clock->row_count - 1) * 1e9 / (double)span_ns;
    }
    return 0;
}

void config_write_rate(const struct trajd_index *index, uint32_t clock,
                       char text[TRAJD_RATES_TEXT_SIZE])
{
    const double hz = config_mean_rate_hz(index, clock);
    struct trajd_index_rates rates = {0};

    trajd_index_rates_add(index, clock, &rates);
    if (!*trajd_index_rates_text(&rates, text) && hz > 0)
        snprintf(text, TRAJD_RATES_TEXT_SIZE, "%.4g Hz (measured)", hz);
}

bool config_is_action(const struct trajd_index_stream *stream)
{
    return strncmp(stream->name, "action", 6) == 0;
}

/* Returns whether the stream may be the action of a dataset in which none has this name. */
static bool is_command(const struct trajd_index *index, const struct trajd_index_stream *stream)
{
    for (uint32_t s = 0; s < index->stream_count; s++)
        if (config_is_action(&index->streams[s]))
            return false;
    return draft_matches(stream->name, "target|cmd|command|ctrl", REG_ICASE) &&
           stream->kind == TRAJD_KIND_PREVIOUS && stream->rank < IMAGE_RANK;
}

/* Returns whether a policy would read the stream. Other streams are printed as comments. */
static bool is_observation(const struct trajd_index_stream *stream)
{
    return !draft_matches(
        stream->name,
        "^(next_obs/|next\\.|reward|discount|dones|states|action|terminals|timeouts|"
        "is_(first|last|terminal)$|base_action|timestamp$|robot[0-9]+_demo_|"
        "observation/(timestamp|camera_[a-z]*)/)",
        0);
}

/* Returns whether an episode lacks the stream. */
static bool is_lacking(struct writer *w, const struct trajd_index_stream *stream)
{
    for (uint32_t e = 0; e < w->index->episode_count; e++) {
        const struct trajd_episode *episode = &w->index->episodes[e];
        const struct trajd_array *array =
            episode->quarantine ? NULL : &episode->extents[stream->array_index];
        if (array && (array->storage == TRAJD_STORAGE_ABSENT || !array->size_bytes))
            return true;
    }
    return false;
}

/* Returns the number of steps of keys with `at: FROM..TO`, or with one step. */
static uint64_t count_steps(const char *keys)
{
    const char *at = strstr(keys, "at: ");
    int from, to;

    return at && sscanf(at, "at: %d..%d", &from, &to) == 2 ? (uint64_t)(to - from) + 1 : 1;
}

/* Returns the bytes of a row, or of a frame as it is stored. */
static uint64_t row_bytes(const struct trajd_index_stream *stream)
{
    uint64_t bytes = trajd_dtype_size(stream->dtype);

    for (uint32_t i = 0; i < stream->rank; i++)
        bytes *= stream->shape[i];
    return bytes;
}

/* Writes a line. keys: those after `from:`. note: the end of its comment, or "". */
static void print_line(struct writer *w, const struct trajd_index_stream *stream, bool is_comment,
                       const char *name, const char *keys, const char *note)
{
    const bool is_own = !strcmp(name, stream->name), lacks = is_lacking(w, stream);
    const char *missing = !lacks ? "" : stream == w->action ? ", missing: skip" : ", missing: zero";
    const int width = COMMENT_COLUMN - (int)strlen(name) - (int)strlen(keys) -
                      (int)strlen(missing) - (is_own ? 0 : 8 + (int)strlen(stream->name));

    fprintf(w->out, "      %s", is_comment ? "# " : "");
    draft_write_text(w->out, name);
    fprintf(w->out, ": {");
    if (!is_own) {
        fprintf(w->out, "from: ");
        draft_write_text(w->out, stream->name);
        fprintf(w->out, ", ");
    }
    fprintf(w->out, "%s%s}%*s# %s", keys, missing, width > 1 ? width : 1, "",
            trajd_dtype_name(stream->dtype));
    for (uint32_t i = 0; i < stream->rank; i++)
        fprintf(w->out, "%s%" PRIu64, i ? "x" : " ", stream->shape[i]);
    if (stream->clock_index != w->anchor) {
        char rate[TRAJD_RATES_TEXT_SIZE];
        config_write_rate(w->index, stream->clock_index, rate);
        fprintf(w->out, ", clock %s: %s", w->index->clocks[stream->clock_index].name, rate);
    }
    if (stream->unit)
        fprintf(w->out, ", %s", stream->unit);
    if (stream->form != TRAJD_ROWS_PLAIN)
        fprintf(w->out, ", %s frames", trajd_image_encoding_name(stream->encoding));
    fprintf(w->out, "%s%s%s\n", lacks ? ", GUESS: some episodes lack it" : "", *note ? ", " : "",
            note);
}

/* Writes ", image: {...}" for frames that were prepared in the files, else "". */
static void prepared_keys(const struct trajd_index_stream *stream, char text[CONFIG_KEYS_SIZE])
{
    char keys[TRAJD_PREPARATION_WORDS_SIZE];
    struct trajd_image_prepared prepared;

    *text = 0;
    if (stream->preparation &&
        !trajd_image_prepared_read(stream->preparation, (uint32_t)stream->shape[2], stream->dtype,
                                   &prepared, NULL))
        snprintf(text, CONFIG_KEYS_SIZE, ", image: %s",
                 trajd_image_write_keys(&prepared.preparation, keys));
}

static bool is_slerp(const struct trajd_index_stream *stream)
{
    return stream->kind == TRAJD_KIND_SLERP_XYZW || stream->kind == TRAJD_KIND_SLERP_WXYZ;
}

/* Returns whether the stream's name begins with obs/, which its output keeps. */
static bool is_named_obs(const struct trajd_index_stream *stream)
{
    return !strncmp(stream->name, "obs/", 4);
}

/* Returns whether both names can be outputs of a feed: a batch has no array where another one has
 * a group. */
static bool are_apart(const char *a, const char *b)
{
    size_t common = 0;

    while (a[common] && a[common] == b[common])
        common++;
    if (a[common] && b[common])
        return true;
    return (a[common] && a[common] != '/') || (b[common] && b[common] != '/');
}

/* Returns whether an output of the stream may have the name: no other output has it, and no stream
 * below `obs/`, which keeps its own. */
static bool is_free(struct writer *w, const struct trajd_index_stream *stream, const char *name)
{
    if (strlen(name) > TRAJD_SPEC_MAX_NAME || trajd_spec_name_is_reserved(name))
        return false;
    for (uint32_t i = 0; i < w->names.count; i++)
        if (!are_apart(w->names.list[i], name))
            return false;
    for (uint32_t s = 0; s < w->index->stream_count; s++) {
        const struct trajd_index_stream *other = &w->index->streams[s];
        if (other != stream && is_named_obs(other) && !are_apart(other->name, name))
            return false;
    }
    return true;
}

/* Replaces each '/' after a leading "obs/" by '_'. */
static void join_groups(char *name)
{
    char *slash = strncmp(name, "obs/", 4) ? name : name + 4;

    while ((slash = strchr(slash, '/')))
        *slash = '_';
}

/* Takes the name, or where it is not free one without groups that is cut and ends in a number.
 * Returns false if the feed has as many outputs as it may have. */
static bool take_name(struct writer *w, const struct trajd_index_stream *stream,
                      char name[DRAFT_NAME_MAX])
{
    char wanted[DRAFT_NAME_MAX];

    if (w->names.count == TRAJD_SPEC_MAX_OUTPUTS)
        return false;
    snprintf(wanted, sizeof wanted, "%s", name);
    if (!is_free(w, stream, name))
        join_groups(wanted);
    for (unsigned number = 2; !is_free(w, stream, name); number++) {
        char suffix[16];
        size_t length = strlen(wanted);
        const size_t room =
            TRAJD_SPEC_MAX_NAME - (size_t)snprintf(suffix, sizeof suffix, "_%u", number);
        if (length > room)
            for (length = room; length && ((unsigned char)wanted[length] & 0xc0) == 0x80;)
                length--; /* to the begin of a character of several bytes */
        snprintf(name, DRAFT_NAME_MAX, "%.*s%s", (int)length, wanted, suffix);
    }
    snprintf(w->names.list[w->names.count++], sizeof *w->names.list, "%s", name);
    return true;
}

/* Writes the output's name for an observation: the last part of the stream's name, or where another
 * stream has that part all of them, joined by "_", so that a batch's `obs` has no further groups.
 * `x` beside `obs/x` keeps its name. Returns what take_name returns. */
static bool name_output(struct writer *w, const struct trajd_index_stream *stream,
                        char name[DRAFT_NAME_MAX])
{
    const char *last = draft_last_name(stream->name), *prefix = "obs/";
    bool is_taken = (w->preset->state && !strcmp(last, w->preset->state)) ||
                    !strncmp(last, "action", 6) || is_named_obs(stream);

    if (w->preset->state || is_named_obs(stream))
        prefix = "";
    for (uint32_t s = 0; s < w->index->stream_count; s++) {
        const char *other = w->index->streams[s].name;
        is_taken =
            is_taken || (&w->index->streams[s] != stream && !strcmp(last, draft_last_name(other)));
        if (!strncmp(other, "obs/", 4) && !strcmp(other + 4, stream->name))
            prefix = "";
    }
    snprintf(name, DRAFT_NAME_MAX, "%s%s", prefix, is_taken ? stream->name : last);
    if (*prefix)
        join_groups(name);
    return take_name(w, stream, name);
}

/* Writes an output, or a comment where the feed has as many as it may have. row_bytes: of a step. An
 * action keeps the stream's name. */
static void print_output(struct writer *w, const struct trajd_index_stream *stream, bool is_action,
                         const char *keys, uint64_t row_bytes, const char *note)
{
    char name[DRAFT_NAME_MAX];
    bool has_room;

    snprintf(name, sizeof name, "%s", stream->name);
    has_room = is_action ? take_name(w, stream, name) : name_output(w, stream, name);
    if (has_room)
        w->window_bytes += count_steps(keys) * row_bytes;
    print_line(w, stream, !has_room, name, keys, has_room ? note : NO_ROOM);
}

/* Writes a stream without what a trainer would ask for. A comment has the stream's own name. */
static void print_plain(struct writer *w, const struct trajd_index_stream *stream, bool is_comment)
{
    const bool is_guess = is_command(w->index, stream);
    const bool is_action = config_is_action(stream) || is_guess;
    const char *at = w->preset->observations,
               *note = is_guess ? "GUESS: a command, so an action" : "";
    char keys[2 * CONFIG_KEYS_SIZE], image[CONFIG_KEYS_SIZE];

    if (is_action)
        at = w->preset->actions;
    else if (stream->rank >= IMAGE_RANK && !*w->preset->name)
        at = "0";
    prepared_keys(stream, image);
    snprintf(keys, sizeof keys, "at: %s%s%s", at, is_guess ? ", role: action" : "", image);
    if (is_comment)
        print_line(w, stream, true, stream->name, keys, note);
    else
        print_output(w, stream, is_action, keys, row_bytes(stream), note);
}

static void print_image(struct writer *w, const struct trajd_index_stream *stream)
{
    const bool is_other =
        w->size.height && (stream->shape[0] != w->size.height || stream->shape[1] != w->size.width);
    char image[CONFIG_KEYS_SIZE], keys[CONFIG_KEYS_SIZE + 64];
    struct trajd_error why;
    uint64_t frame_bytes;

    if (config_image_keys(w->preset, stream, is_other ? &w->size : &(struct config_size){0}, image,
                          &frame_bytes, &why))
        fprintf(w->out, "      # image: {preset: %s} does not fit: %s\n", w->preset->image,
                why.message);
    snprintf(keys, sizeof keys, "at: %s, %s", w->preset->observations, image);
    print_output(w, stream, false, keys, frame_bytes,
                 is_other ? "resized: the style stacks cameras" : "");
}

/* Writes the keys of numbers: quaternions have no norm. */
static void number_keys(struct writer *w, const struct trajd_index_stream *stream, const char *at,
                        char keys[CONFIG_KEYS_SIZE])
{
    const char *norm = is_slerp(stream) ? NULL : w->preset->norm;

    snprintf(keys, CONFIG_KEYS_SIZE, "at: %s%s%s", at, norm ? ", norm: " : "", norm ? norm : "");
}

static bool is_the_action(const struct trajd_index_stream *stream)
{
    return !strcmp(stream->name, "action") || !strcmp(stream->name, "actions");
}

/* Returns the name of the action's output: `actions`. The styles of trainers read `action`, too. */
static const char *name_of_action(struct writer *w)
{
    return is_the_action(w->action) && *w->preset->name ? w->action->name : "actions";
}

static void print_action(struct writer *w)
{
    const struct config_preset *preset = w->preset;
    const bool is_robomimic =
        preset->action_of_robomimic && trajd_layout_is_robomimic(w->index->layout);
    const char *action = is_robomimic ? preset->action_of_robomimic : preset->action;
    char keys[CONFIG_KEYS_SIZE];

    if (action) /* which has a norm of its own */
        snprintf(keys, sizeof keys, "preset: %s, at: %s", action, preset->actions);
    else
        number_keys(w, w->action, preset->actions, keys);
    if (is_robomimic)
        fprintf(w->out, "      # For absolute poses add: rotation: {from: axis_angle, columns: "
                        "\"3:6\"}\n");
    print_line(w, w->action, false, name_of_action(w), keys,
               is_the_action(w->action) ? "" : "GUESS: the actions");
}

static bool is_number(struct writer *w, const struct trajd_index_stream *stream)
{
    return is_observation(stream) && !config_is_action(stream) && stream != w->action &&
           !is_command(w->index, stream) && stream->rank < IMAGE_RANK;
}

static void find_parts(struct writer *w)
{
    for (uint32_t s = 0; s < w->index->stream_count; s++) {
        const struct trajd_index_stream *stream = &w->index->streams[s];
        if (!is_number(w, stream) || is_lacking(w, stream))
            continue;
        w->has_more_parts = w->part_count == TRAJD_SPEC_MAX_SOURCES;
        if (w->has_more_parts)
            return;
        w->parts[w->part_count++] = stream;
    }
}

/* Writes the norm of several streams: quaternions have none. */
static void print_norm(struct writer *w)
{
    const char *norm = w->preset->norm;
    const bool is_mapping = *norm == '{';
    bool has_slerp = false;
    uint32_t columns = 0;

    for (uint32_t p = 0; p < w->part_count; p++)
        has_slerp = has_slerp || is_slerp(w->parts[p]);
    fprintf(w->out, ", norm: ");
    if (!has_slerp) {
        fprintf(w->out, "%s", norm);
        return;
    }
    fprintf(w->out, "%s%.*s, mask: [",
            is_mapping ? "" : "{by: ", (int)strlen(norm) - (is_mapping ? 1 : 0), norm);
    for (uint32_t p = 0; p < w->part_count; p++)
        for (uint64_t f = 0; f < w->parts[p]->feature_count; f++)
            fprintf(w->out, "%s%s", columns++ ? ", " : "",
                    is_slerp(w->parts[p]) ? "false" : "true");
    fprintf(w->out, "]}");
}

/* Writes the one output of a state: a stream with such a name, else all numbers side by side. */
static void print_state(struct writer *w)
{
    const struct config_preset *preset = w->preset;
    char name[DRAFT_NAME_MAX], keys[CONFIG_KEYS_SIZE];

    snprintf(name, sizeof name, "%s", preset->state);
    if (w->state || w->part_count)
        take_name(w, NULL, name);
    if (w->state) {
        number_keys(w, w->state, preset->observations, keys);
        print_line(w, w->state, false, name, keys, "");
        return;
    }
    if (!w->part_count) {
        fprintf(w->out,
                "      # Style %s needs an output %s, and no stream of numbers is in all episodes. "
                "Name one:\n      # %s: {from: STREAM, at: %s, missing: zero, norm: %s}\n",
                preset->name, preset->state, preset->state, preset->observations, preset->norm);
        return;
    }
    fprintf(w->out,
            "      # GUESS: the state is %s. Keep what the robot knows\n"
            "      %s: {from: [",
            w->has_more_parts ? "the first of many streams" : "all that is measured", name);
    for (uint32_t p = 0; p < w->part_count; p++) {
        fputs(p ? ", " : "", w->out);
        draft_write_text(w->out, w->parts[p]->name);
    }
    fprintf(w->out, "], at: %s", preset->observations);
    print_norm(w);
    fprintf(w->out, "}\n");
}

const struct trajd_index_stream *config_find_action(const struct trajd_index *index)
{
    static const char *const names[] = {"^actions$", "^action$", "^action"};

    for (size_t n = 0; n <= ARRAY_LEN(names); n++)
        for (uint32_t s = 0; s < index->stream_count; s++) {
            const struct trajd_index_stream *stream = &index->streams[s];
            if (n == ARRAY_LEN(names) ? is_command(index, stream)
                                      : draft_matches(stream->name, names[n], 0) &&
                                            (stream->rank < IMAGE_RANK || n < 2))
                return stream;
        }
    return NULL;
}

static const struct trajd_index_stream *find_state(struct writer *w)
{
    static const char *const names[] = {"qpos",        "state",          "robot_state",
                                        "joint_pos",   "joint_position", "joint_positions",
                                        "joint_states"};

    for (size_t n = 0; n < ARRAY_LEN(names); n++)
        for (uint32_t s = 0; s < w->index->stream_count; s++)
            if (is_number(w, &w->index->streams[s]) && !is_slerp(&w->index->streams[s]) &&
                !strcmp(draft_last_name(w->index->streams[s].name), names[n]))
                return &w->index->streams[s];
    return NULL;
}

/* Returns the size of the first camera, if another one has another size. */
static struct config_size common_size(const struct trajd_index *index)
{
    struct config_size first = {0};
    bool differs = false;

    for (uint32_t s = 0; s < index->stream_count; s++) {
        const struct trajd_index_stream *stream = &index->streams[s];
        if (!config_is_colour(stream) || !is_observation(stream))
            continue;
        if (!first.height)
            first = (struct config_size){(uint32_t)stream->shape[0], (uint32_t)stream->shape[1]};
        differs = differs || stream->shape[0] != first.height || stream->shape[1] != first.width;
    }
    return differs ? first : (struct config_size){0};
}

/* Writes a stream for a trainer. What its style does not read becomes a comment. */
static void print_for_trainer(struct writer *w, const struct trajd_index_stream *stream)
{
    char keys[CONFIG_KEYS_SIZE];

    if (stream == w->action || (w->preset->state && stream == w->state))
        return;
    if (is_observation(stream) && config_is_colour(stream)) {
        print_image(w, stream);
    } else if (!w->preset->state && is_number(w, stream)) {
        number_keys(w, stream, w->preset->observations, keys);
        print_output(w, stream, false, keys, row_bytes(stream), "");
    } else {
        print_plain(w, stream, true);
    }
}

/* Writes a stream for a trainer that was not named. Streams of other moments become comments, and
 * those that cannot lie beside `actions` in a batch. */
static void print_for_any(struct writer *w, const struct trajd_index_stream *stream)
{
    if (stream == w->action)
        print_action(w);
    else
        print_plain(w, stream,
                    config_is_action(stream) ? !strncmp(stream->name, "actions/", 8)
                                             : !is_observation(stream));
}

/* Writes all streams as observations, where none looks like one: a feed needs an output. */
static void print_all(struct writer *w)
{
    fprintf(w->out, "      # GUESS: no stream looks like an observation, so all are\n");
    for (uint32_t s = 0; s < w->index->stream_count; s++)
        print_plain(w, &w->index->streams[s], false);
}

uint64_t config_write_outputs(FILE *out, const struct trajd_index *index, uint32_t anchor,
                              const struct config_preset *preset)
{
    struct writer w = {.out = out, .index = index, .anchor = anchor, .preset = preset};
    const bool has_style = *preset->name;
    char name[DRAFT_NAME_MAX];

    w.action = config_find_action(index);
    find_parts(&w);
    w.state = has_style ? find_state(&w) : NULL;
    if (preset->stacks)
        w.size = common_size(index);
    if (w.action) {
        snprintf(name, sizeof name, "%s", name_of_action(&w));
        take_name(&w, w.action, name);
    }
    if (preset->state)
        print_state(&w);
    for (uint32_t s = 0; s < index->stream_count; s++)
        (has_style ? print_for_trainer : print_for_any)(&w, &index->streams[s]);
    if (w.action && has_style)
        print_action(&w);
    else if (!w.action)
        fprintf(
            out,
            "      # No stream's name begins with action. Name the one that the policy predicts:\n"
            "      # actions: {from: STREAM, at: %s}\n",
            preset->actions);
    if (!w.names.count)
        print_all(&w);
    return w.window_bytes;
}
