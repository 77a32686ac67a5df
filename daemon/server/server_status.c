/* Writes the status document of the server as JSON. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "daemon/server/server_internal.h"

/* Bytes that are reserved for the end of the lists: brackets, and the count of omitted sessions. */
#define STATUS_RESERVE 256u
#define STATUS_DESCRIBE_ROOM 16384u

struct text {
    char *at;
    size_t length, room;
};

static void append(struct text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void append(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text->at + text->length, text->room - text->length, format, arguments);
    va_end(arguments);
    if (length > 0 && (size_t)length < text->room - text->length)
        text->length += (size_t)length;
    else
        text->at[text->length] = '\0'; /* no room: append nothing */
}

static void append_string(struct text *text, const char *name, const char *value)
{
    append(text, "\"%s\":\"", name);
    for (const unsigned char *c = (const unsigned char *)value; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\')
            append(text, "\\%c", *c);
        else if (*c < 0x20)
            append(text, "\\u%04x", *c);
        else
            append(text, "%c", *c);
    }
    append(text, "\"");
}

/* Returns the time that the fraction `share` of all latencies does not exceed, rounded up to a
 * power of two. */
static uint64_t latency_below_ns(const struct trajd_server *server, double share)
{
    uint64_t total = 0, sum = 0;
    for (uint32_t i = 0; i < TRAJD_LATENCY_BUCKETS; i++)
        total += server->latency[i];
    for (uint32_t i = 0; i < TRAJD_LATENCY_BUCKETS; i++) {
        sum += server->latency[i];
        if (sum > 0 && (double)sum >= share * (double)total)
            return UINT64_C(1) << i;
    }
    return 0;
}

static void append_totals(struct text *text, const struct trajd_server *server, uint64_t now_ns)
{
    struct trajd_core_stats stats;
    trajd_core_get_stats(server->core, &stats);
    const struct trajd_transport_counters *counters =
        trajd_transport_get_counters(server->transport);
    append_string(text, "version", server->version);
    append(text, ",\"instance\":\"%016" PRIx64 "\",\"now_ns\":%" PRIu64,
           server->options.instance_id, now_ns);
    append(text,
           ",\"batches_sent\":%" PRIu64 ",\"batches_done\":%" PRIu64 ",\"windows_done\":%" PRIu64,
           stats.batches_sent, stats.batches_done, stats.windows_done);
    append(text,
           ",\"batches_failed\":%" PRIu64 ",\"handed_again\":%" PRIu64 ",\"late_acks\":%" PRIu64,
           stats.batches_failed, stats.handed_again, stats.late_acks);
    append(text,
           ",\"late_publishes\":%" PRIu64 ",\"dead_sessions\":%" PRIu64
           ",\"resumed_sessions\":%" PRIu64,
           stats.late_publishes, stats.dead_sessions, stats.resumed_sessions);
    append(text,
           ",\"damaged_journals\":%" PRIu64 ",\"journals_refused\":%" PRIu64
           ",\"rank_timeouts\":%" PRIu64 ",\"slow_jobs\":%" PRIu64,
           stats.damaged_journals, stats.journals_refused, stats.rank_timeouts, stats.slow_jobs);
    append(text,
           ",\"dropped_messages\":%" PRIu64 ",\"refused_connections\":%" PRIu64
           ",\"floods\":%" PRIu64,
           __atomic_load_n(&server->dropped_frames, __ATOMIC_RELAXED) + counters->malformed,
           counters->refused, counters->floods);
    append(text, ",\"unsent_messages\":%" PRIu64, server->unsent);
    if (trajd_transport_remote_endpoint(server->transport)) {
        append(text, ",");
        append_string(text, "remote", trajd_transport_remote_endpoint(server->transport));
        append(text,
               ",\"refused_keys\":%" PRIu64 ",\"failed_handshakes\":%" PRIu64
               ",\"silent_sessions\":%" PRIu64,
               counters->refused_keys, counters->failed_handshakes, server->silent_sessions);
    }
    append(text, ",\"batches_per_second\":%.1f,\"windows_per_second\":%.1f", server->batch_rate_hz,
           server->window_rate_hz);
    append(text, ",\"ready_to_sent_us\":{\"p50\":%.1f,\"p99\":%.1f}",
           (double)latency_below_ns(server, 0.5) * 1e-3,
           (double)latency_below_ns(server, 0.99) * 1e-3);
}

static void append_job(struct text *text, const struct trajd_core_job_info *info)
{
    append_string(text, "job", info->name);
    append(text, ",\"phase\":\"%s\",\"mode\":\"%s\",\"world\":%u,\"members\":%u", info->phase,
           info->mode == TRAJD_WIRE_SHARD ? "shard" : "queue", info->world, info->members);
    append(text, ",\"epoch\":%" PRIu64 ",\"batches\":%" PRIu64 ",\"batches_left\":%" PRIu64,
           info->epoch, info->batches, info->batches_remaining);
    append(text, ",\"stalled_by_seconds\":%.6f,\"absent_seconds\":%.6f,\"absent_rank\":%u",
           (double)info->stalled_ns * 1e-9, (double)info->absent_ns * 1e-9, info->absent_rank);
}

/* Writes a feed. The keys of its first job also stand in the feed itself, as most feeds have one
 * job. */
static void append_feed(struct text *text, const struct trajd_feed *feed)
{
    struct trajd_core_feed_info info;
    trajd_core_feed_info(feed->core, &info);
    append(text, "{\"feed_id\":%u,", info.feed_id);
    append_string(text, "name", info.name ? info.name : "");
    append(text, ",");
    append_job(text, &info.job);
    append(text, ",\"running\":%s,\"sessions\":%u,\"epoch_length\":%" PRIu64,
           info.running ? "true" : "false", info.members, info.epoch_length);
    append(text, ",\"produced_epoch\":%" PRIu64 ",\"cursor\":%" PRIu64, info.produced_epoch,
           info.cursor);
    append(text,
           ",\"ring_bytes\":%" PRIu64
           ",\"slots\":{\"count\":%u,\"free\":%u,\"filling\":%u,\"ready\":%u,\"lent\":%u}",
           feed->slot_sends->ring.size_bytes, feed->slot_sends->ring.slot_count, info.slots_free,
           info.slots_filling, info.slots_ready, trajd_slot_sends_count(feed->slot_sends));
    append(text, ",\"stalled_seconds\":%.6f,\"jobs\":[", (double)info.stalled_ns * 1e-9);
    struct trajd_core_job_info job;
    for (uint32_t i = 0; trajd_core_job_info(feed->core, i, &job); i++) {
        append(text, "%s{", i > 0 ? "," : "");
        append_job(text, &job);
        append(text, "}");
    }
    append(text, "]}");
}

static void append_session(struct text *text, struct trajd_server *server,
                           const struct trajd_core_session_info *info, uint64_t now_ns)
{
    const struct trajd_peer *peer = trajd_peers_by_session(&server->peers, info->session);
    const uint64_t silent_ns = now_ns > info->last_message_ns ? now_ns - info->last_message_ns : 0;
    append(text, "{\"session\":%" PRIu64 ",", info->session);
    append_string(text, "client", info->client);
    if (peer && peer->remote[0] != '\0') {
        append(text, ",");
        append_string(text, "remote", peer->remote);
    }
    append(text, ",\"pid\":%" PRIu64 ",\"feed_id\":%u,\"rank\":%u,\"credit\":%u,\"held\":%u",
           info->pid, info->feed_id, info->rank, info->credit, info->held);
    append(text, ",\"batches_sent\":%" PRIu64 ",\"batches_done\":%" PRIu64, info->batches_sent,
           info->batches_done);
    append(text, ",\"stalled_by_seconds\":%.6f,\"silent_seconds\":%.3f}",
           (double)info->stalled_ns * 1e-9, (double)silent_ns * 1e-9);
}

static void append_lists(struct text *text, struct trajd_server *server, uint64_t now_ns)
{
    struct text list = *text; /* with less room, so that the end of the lists fits */
    list.room -= STATUS_RESERVE;
    const char *comma = "";
    append(&list, ",\"feeds\":[");
    for (const struct trajd_feed *feed = server->feeds; feed && list.room - list.length > 2048;
         feed = feed->next) {
        struct trajd_core_feed_info info;
        trajd_core_feed_info(feed->core, &info);
        if (info.is_hidden)
            continue;
        append(&list, "%s", comma);
        append_feed(&list, feed);
        comma = ",";
    }
    append(&list, "],\"sessions\":[");
    struct trajd_core_session_info info;
    uint32_t shown = 0, count = 0;
    for (; trajd_core_session_info(server->core, count, &info); count++) {
        if (list.room - list.length < 2048)
            continue;
        append(&list, "%s", shown++ > 0 ? "," : "");
        append_session(&list, server, &info, now_ns);
    }
    text->length = list.length;
    append(text, "],\"session_count\":%u,\"sessions_not_shown\":%u", count, count - shown);
}

size_t trajd_server_write_status(struct trajd_server *server, char *json, size_t room,
                                 uint64_t now_ns)
{
    struct text text = {.at = json, .room = room};
    char described[STATUS_DESCRIBE_ROOM];
    size_t described_length = 0;
    if (server->options.describe)
        described_length =
            server->options.describe(server->options.context, described, sizeof described);
    pthread_mutex_lock(&server->mutex);
    append(&text, "{");
    append_totals(&text, server, now_ns);
    if (described_length > 0 && described_length < sizeof described)
        append(&text, ",%.*s", (int)described_length, described);
    append_lists(&text, server, now_ns);
    append(&text, "}");
    pthread_mutex_unlock(&server->mutex);
    return text.length;
}
