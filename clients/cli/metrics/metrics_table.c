#include "clients/cli/metrics/metrics_table.h"

#include "proto/array_len.h"

#define NS 1e-9
#define SAMPLES(...)                                                                               \
    (const struct metrics_sample[])                                                                \
    {                                                                                              \
        __VA_ARGS__,                                                                               \
        {                                                                                          \
            .key = NULL                                                                            \
        }                                                                                          \
    }

const struct metrics_family metrics_families[] = {
    {"trajd_connections", "gauge", "Programs that are connected: workers, and this one.",
     SAMPLES({METRICS_DAEMON, "session_count", 0, NULL, NULL})},
    {"trajd_batches_sent", "counter", "Batches sent to workers. A part for one rank counts as one.",
     SAMPLES({METRICS_DAEMON, "batches_sent", 0, NULL, NULL})},
    {"trajd_batches_done", "counter", "Batches that workers have finished.",
     SAMPLES({METRICS_DAEMON, "batches_done", 0, NULL, NULL})},
    {"trajd_windows_done", "counter", "Windows that workers have finished.",
     SAMPLES({METRICS_DAEMON, "windows_done", 0, NULL, NULL})},
    {"trajd_batches_repeated", "counter",
     "Batches that were sent again, because their worker died or returned.",
     SAMPLES({METRICS_DAEMON, "handed_again", 0, NULL, NULL})},
    {"trajd_problems", "counter", "Events that a healthy daemon does not have, by kind.",
     SAMPLES({METRICS_DAEMON, "batches_failed", 0, "kind", "failed_batch"},
             {METRICS_DAEMON, "late_acks", 0, "kind", "late_ack"},
             {METRICS_DAEMON, "late_publishes", 0, "kind", "late_publish"},
             {METRICS_DAEMON, "dead_sessions", 0, "kind", "dead_worker"},
             {METRICS_DAEMON, "damaged_journals", 0, "kind", "damaged_journal"},
             {METRICS_DAEMON, "journals_refused", 0, "kind", "refused_journal"},
             {METRICS_DAEMON, "rank_timeouts", 0, "kind", "rank_timeout"},
             {METRICS_DAEMON, "slow_jobs", 0, "kind", "slow_job"},
             {METRICS_DAEMON, "dropped_messages", 0, "kind", "dropped_message"},
             {METRICS_DAEMON, "unsent_messages", 0, "kind", "unsent_message"},
             {METRICS_DAEMON, "refused_connections", 0, "kind", "refused_connection"},
             {METRICS_DAEMON, "cut_connections", 0, "kind", "cut_connection"},
             {METRICS_DAEMON, "floods", 0, "kind", "flood"},
             {METRICS_DAEMON, "refused_keys", 0, "kind", "refused_key"},
             {METRICS_DAEMON, "failed_handshakes", 0, "kind", "failed_handshake"},
             {METRICS_DAEMON, "silent_sessions", 0, "kind", "silent_worker"})},

    {"trajd_memory_bytes", "gauge",
     "Memory in use, by purpose: rows (row cache), frames (decoded pictures), ring (slots of a "
     "feed), gpu_rows, gpu_rings, "
     "process (all resident memory of the daemon, including rows and rings that were touched).",
     SAMPLES({METRICS_DATASETS, "store.resident_bytes", 0, "purpose", "rows"},
             {METRICS_DATASETS, "frames.resident_bytes", 0, "purpose", "frames"},
             {METRICS_FEEDS, "ring_bytes", 0, "purpose", "ring"},
             {METRICS_GPUS, "rows_bytes", 0, "purpose", "gpu_rows"},
             {METRICS_GPUS, "rings_bytes", 0, "purpose", "gpu_rings"},
             {METRICS_DAEMON, "memory.process_bytes", 0, "purpose", "process"})},
    {"trajd_memory_limit_bytes", "gauge",
     "Memory that the configuration allows, by purpose; free: what the machine and the control "
     "group have left.",
     SAMPLES({METRICS_DATASETS, "store.budget_bytes", 0, "purpose", "rows"},
             {METRICS_DAEMON, "memory.rings_budget_bytes", 0, "purpose", "rings"},
             {METRICS_GPUS, "rows_budget_bytes", 0, "purpose", "gpu_rows"},
             {METRICS_GPUS, "rings_budget_bytes", 0, "purpose", "gpu_rings"},
             {METRICS_DAEMON, "memory.free_bytes", 0, "purpose", "free"})},

    {"trajd_dataset_episodes", "gauge",
     "Episodes of a dataset: kept, or quarantined (they cannot be read, or break a rule). A file "
     "that gives no episode counts as one.",
     SAMPLES({METRICS_DATASETS, "kept", 0, "state", "kept"},
             {METRICS_DATASETS, "quarantined", 0, "state", "quarantined"})},
    {"trajd_dataset_files", "gauge", "Files of a dataset: read, or refused.",
     SAMPLES({METRICS_DATASETS, "files", 0, "state", "read"},
             {METRICS_DATASETS, "refused_files", 0, "state", "refused"})},
    {"trajd_dataset_rows_bytes", "gauge", "Size of all rows that feeds of a dataset name.",
     SAMPLES({METRICS_DATASETS, "store.total_bytes", 0, NULL, NULL})},
    {"trajd_dataset_read_bytes", "counter", "Bytes of rows read from the files of a dataset.",
     SAMPLES({METRICS_DATASETS, "store.bytes_read", 0, NULL, NULL})},
    {"trajd_dataset_evictions", "counter",
     "Entries that the row cache dropped for others: they are read again when they are needed.",
     SAMPLES({METRICS_DATASETS, "store.pieces_evicted", 0, NULL, NULL})},
    {"trajd_dataset_read_errors", "counter", "Reads of files that failed.",
     SAMPLES({METRICS_DATASETS, "store.read_errors", 0, NULL, NULL})},

    {"trajd_dataset_frames_decoded", "counter", "Pictures of a dataset that were decoded.",
     SAMPLES({METRICS_DATASETS, "frames.decoded", 0, NULL, NULL})},
    {"trajd_dataset_frames_prepared", "counter",
     "Pictures of a dataset that were taken as they lie in the files: prepared or raw.",
     SAMPLES({METRICS_DATASETS, "frames.prepared", 0, NULL, NULL})},
    {"trajd_dataset_frames_read_bytes", "counter",
     "Bytes of pictures read from the files of a dataset, encoded or raw.",
     SAMPLES({METRICS_DATASETS, "frames.bytes_read", 0, NULL, NULL})},
    {"trajd_dataset_frames_bad", "counter", "Pictures of a dataset that cannot be decoded.",
     SAMPLES({METRICS_DATASETS, "frames.bad", 0, NULL, NULL})},

    {"trajd_feed_batches_made", "counter", "Batches that were made.",
     SAMPLES({METRICS_PRODUCERS, "batches", 0, NULL, NULL})},
    {"trajd_feed_windows_made", "counter", "Windows that were made.",
     SAMPLES({METRICS_PRODUCERS, "windows", 0, NULL, NULL})},
    {"trajd_feed_batches_failed", "counter", "Batches that carry an error instead of rows.",
     SAMPLES({METRICS_PRODUCERS, "failed_batches", 0, NULL, NULL})},
    {"trajd_feed_work_seconds", "counter",
     "Time of production, by work: rows (waits for the row cache), decode (waits for pictures), "
     "kernels, idle (every slot is full, or no job needs a batch).",
     SAMPLES({METRICS_PRODUCERS, "load_ns", NS, "work", "rows"},
             {METRICS_PRODUCERS, "frames_ns", NS, "work", "decode"},
             {METRICS_PRODUCERS, "resample_ns", NS, "work", "kernels"},
             {METRICS_PRODUCERS, "wait_ns", NS, "work", "idle"})},
    {"trajd_feed_wait_seconds", "counter",
     "Time in which workers had no batch to work on, summed over workers, by cause: rows, decode, "
     "kernels (production did this), slots (other workers held all slots), other (production did "
     "something else, or had just begun).",
     SAMPLES({METRICS_FEEDS, "waited_seconds.rows", 0, "cause", "rows"},
             {METRICS_FEEDS, "waited_seconds.decode", 0, "cause", "decode"},
             {METRICS_FEEDS, "waited_seconds.kernels", 0, "cause", "kernels"},
             {METRICS_FEEDS, "waited_seconds.slots", 0, "cause", "slots"},
             {METRICS_FEEDS, "waited_seconds.other", 0, "cause", "other"})},
    {"trajd_feed_nobody_asks_seconds", "counter",
     "Time in which every slot was ready and production waited for workers: the data is ahead.",
     SAMPLES({METRICS_FEEDS, "stalled_seconds", 0, NULL, NULL})},
    {"trajd_feed_slots", "gauge", "Slots of a feed, by state.",
     SAMPLES({METRICS_FEEDS, "slots.free", 0, "state", "free"},
             {METRICS_FEEDS, "slots.filling", 0, "state", "filling"},
             {METRICS_FEEDS, "slots.ready", 0, "state", "ready"})},
    {"trajd_feed_episodes", "gauge",
     "Episodes of a feed's datasets: used (the feed has windows of them), or quarantined.",
     SAMPLES({METRICS_PRODUCERS, "episodes_used", 0, "state", "used"},
             {METRICS_PRODUCERS, "episodes_quarantined", 0, "state", "quarantined"})},
    {"trajd_feed_dataset_windows", "counter", "Windows that were made of each dataset of a feed.",
     SAMPLES({METRICS_FEED_DATASETS, "made", 0, NULL, NULL})},

    {"trajd_job_epoch", "gauge", "The epoch in which a job is.",
     SAMPLES({METRICS_JOBS, "epoch", 0, NULL, NULL})},
    {"trajd_job_epoch_batches", "gauge", "Batches of the epoch: all, or left (not finished).",
     SAMPLES({METRICS_JOBS, "batches", 0, "state", "all"},
             {METRICS_JOBS, "batches_left", 0, "state", "left"})},
    {"trajd_job_workers", "gauge", "Workers of a job.",
     SAMPLES({METRICS_JOBS, "members", 0, NULL, NULL})},
    {"trajd_job_absent_rank_seconds", "counter",
     "Time in which production waited for a rank that is absent.",
     SAMPLES({METRICS_JOBS, "absent_seconds", 0, NULL, NULL})},

    {"trajd_worker_batches_done", "counter", "Batches that a worker has finished.",
     SAMPLES({METRICS_WORKERS, "batches_done", 0, NULL, NULL})},
    {"trajd_worker_batches_held", "gauge", "Batches that a worker holds.",
     SAMPLES({METRICS_WORKERS, "held", 0, NULL, NULL})},
    {"trajd_worker_wait_seconds", "counter",
     "Time in which a worker had no batch to work on, by cause (see trajd_feed_wait_seconds).",
     SAMPLES({METRICS_WORKERS, "waited_seconds.rows", 0, "cause", "rows"},
             {METRICS_WORKERS, "waited_seconds.decode", 0, "cause", "decode"},
             {METRICS_WORKERS, "waited_seconds.kernels", 0, "cause", "kernels"},
             {METRICS_WORKERS, "waited_seconds.slots", 0, "cause", "slots"},
             {METRICS_WORKERS, "waited_seconds.other", 0, "cause", "other"})},
    {"trajd_worker_nobody_asks_seconds", "counter",
     "Time in which every slot was ready and this worker held the oldest one.",
     SAMPLES({METRICS_WORKERS, "stalled_by_seconds", 0, NULL, NULL})},
    {"trajd_worker_silent_seconds", "gauge", "Time since the last message of a worker.",
     SAMPLES({METRICS_WORKERS, "silent_seconds", 0, NULL, NULL})},
};

const size_t metrics_family_count = ARRAY_LEN(metrics_families);
