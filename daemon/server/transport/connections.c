/* Replaces accept4 and recv for libzmq, and cuts connections that exceed their limits. */
#include "daemon/server/transport/connections.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <linux/sockios.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/unix_socket.h"
#include "daemon/server/transport/zmtp.h"

#define MAX_DESCRIPTORS (1u << 20)
enum { LOCAL, REMOTE, LISTENERS };

/* What a connection may have sent and the server not received, as libzmq keeps it. A worker whose
 * daemon does not answer sends a few KiB: an ACK for each of 64 batches, and an OPEN. */
#define SESSION_FRAMES 8u /* of the largest size */
#define SESSION_MESSAGES 256u
#define NEWCOMER_BYTES 16384u /* before a session: a HELLO has less than 5 KiB */
/* What all connections together may have sent and the server not received. Beyond it, those that
 * have sent more than an equal share are cut. The same limit holds for answers that wait. */
#define ALL_BYTES (UINT64_C(4) << 20)
#define LEAST_SHARE_BYTES 49152u /* 64 ACKs and an OPEN */
/* What may wait for a remote connection, which libzmq does not limit in bytes: a worker waits for
 * one answer at a time. */
#define QUEUED_BYTES (UINT64_C(256) << 10)
/* What ended connections may have left in libzmq's queues, before further ones are refused. */
#define LEFT_BYTES (UINT64_C(8) << 20)

/* A worker on tcp sends a heartbeat in each second. CURVE hides that it is not a message. */
#define HEARTBEAT_BYTES 40u
#define HEARTBEAT_NS (900 * UINT64_C(1000000))

#define NEWCOMER_NS (2 * UINT64_C(1000000000)) /* the time to begin a session, where many wait */
/* A peer that is cut connects again. While connections are cut, this number is accepted in each
 * turn. */
#define CUTS_NS UINT64_C(1000000000)
#define TURN_NS UINT64_C(100000000)
#define TURN_CONNECTIONS 4u
#define MAX_BLAMES 16u
/* Refused connections that are closed later: see refuse. */
#define MAX_HELD 32u
#define WAIT_NS 20000000 /* when no descriptor is free */

/* The fields with the note "atomic" are accessed with relaxed order: each is a number of its own,
 * and a limit that is noticed one message later does no harm. */
struct connection {
    uint64_t inode; /* atomic; of the socket. 0: the entry is free */
    uint64_t accepted_ns;
    struct trajd_zmtp sent;                    /* of the thread that reads */
    uint64_t received, consumed;               /* atomic; costs (zmtp.h) */
    uint64_t queued[TRAJD_CONNECTIONS_QUEUES]; /* atomic; bytes that libzmq holds for the peer */
    uint32_t blames;
    uint8_t listener;
    bool has_session, is_cut; /* atomic */
};

static struct {
    pthread_mutex_t lock; /* guards what is not atomic, and writing of inode */
    struct connection *list;
    uint32_t capacity, highest; /* descriptors: of the table, and seen so far plus 1 */
    uint32_t count[LISTENERS];  /* atomic; that were accepted and not seen to be closed */
    uint64_t waiting;           /* atomic; the sum of what connections have sent */
    uint64_t queued;            /* atomic; the sum of what waits for them */
    uint32_t max_count;         /* of each listener */
    uint64_t session_bytes, heartbeat_ns;
    uint64_t left; /* atomic; cost of what ended connections had sent. 0 when all is received */
    uint64_t turn_ends_ns;
    uint32_t turn_count;
    uint64_t refused, cut, last_cut_ns; /* atomic */
    int held[MAX_HELD];                 /* descriptors of refused connections */
    uint32_t held_count;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define STORE(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELAXED)
#define ADD(field, value) __atomic_fetch_add(&(field), value, __ATOMIC_RELAXED)
#define SUBTRACT(field, value) __atomic_fetch_sub(&(field), value, __ATOMIC_RELAXED)

/* As many as there may be sessions, and half as many that begin or have just ended. */
static uint32_t count_limit(uint32_t max_sessions)
{
    return max_sessions + max_sessions / 2 + 32;
}

/* The connections of both listeners, those of fd.sock, and as many descriptors for all else. */
uint64_t trajd_connections_descriptors(uint32_t max_sessions)
{
    return LISTENERS * (uint64_t)count_limit(max_sessions) + 2 * (uint64_t)max_sessions + 64 +
           MAX_HELD;
}

static void close_held(void)
{
    while (table.held_count > 0)
        close(table.held[--table.held_count]);
}

bool trajd_connections_start(const struct trajd_connections_options *options)
{
    struct rlimit limit;
    pthread_mutex_lock(&table.lock);
    if (!table.list) {
        const bool known = getrlimit(RLIMIT_NOFILE, &limit) == 0;
        table.capacity =
            known && limit.rlim_cur < MAX_DESCRIPTORS ? (uint32_t)limit.rlim_cur : MAX_DESCRIPTORS;
        table.list = calloc(table.capacity, sizeof *table.list); /* untouched pages cost nothing */
    }
    for (uint32_t i = 0; table.list && i < table.highest; i++)
        STORE(table.list[i].inode, 0);
    table.highest = 0;
    close_held();
    STORE(table.count[LOCAL], 0);
    STORE(table.count[REMOTE], 0);
    STORE(table.waiting, 0);
    STORE(table.queued, 0);
    table.turn_ends_ns = 0;
    table.heartbeat_ns = 0;
    STORE(table.left, 0);
    STORE(table.last_cut_ns, 0);
    table.max_count = count_limit(options->max_sessions);
    table.session_bytes =
        SESSION_FRAMES * options->max_frame_bytes + SESSION_MESSAGES * trajd_zmtp_cost(0);
    const bool good = table.list != NULL;
    pthread_mutex_unlock(&table.lock);
    return good;
}

/* ---- one connection ---- */

static struct connection *find(int descriptor)
{
    if (descriptor < 0 || !table.list || (uint32_t)descriptor >= table.capacity)
        return NULL;
    struct connection *connection = &table.list[descriptor];
    return LOAD(connection->inode) != 0 ? connection : NULL;
}

static uint64_t inode_of(int descriptor)
{
    struct stat file;
    return fstat(descriptor, &file) == 0 ? file.st_ino : 0;
}

/* Returns false if the connection was closed, and its descriptor perhaps belongs to another file.
 * libzmq does not report this in time. */
static bool is_open(const struct connection *connection)
{
    return inode_of((int)(connection - table.list)) == LOAD(connection->inode);
}

static uint64_t pending(const struct connection *connection)
{
    const uint64_t consumed = LOAD(connection->consumed);
    const uint64_t received = LOAD(connection->received);
    return received > consumed ? received - consumed : 0;
}

/* Returns what a connection may have of a sum that all of them have, and for which there is a
 * limit. */
static uint64_t share_of(uint64_t sum, uint64_t limit)
{
    const uint64_t share =
        ALL_BYTES / (1 + (uint64_t)LOAD(table.count[LOCAL]) + LOAD(table.count[REMOTE]));
    if (sum <= ALL_BYTES)
        return limit;
    return share > LEAST_SHARE_BYTES ? share : LEAST_SHARE_BYTES;
}

static bool is_over_limit(const struct connection *connection)
{
    const uint64_t limit = LOAD(connection->has_session) ? table.session_bytes : NEWCOMER_BYTES;
    return pending(connection) > share_of(LOAD(table.waiting), limit);
}

/* The caller holds the lock, so that the sum stays right where the connection is removed. */
static void consume(struct connection *connection, size_t body_bytes)
{
    const uint64_t waiting = pending(connection), cost = trajd_zmtp_cost(body_bytes);
    const uint64_t size = cost < waiting ? cost : waiting;
    ADD(connection->consumed, size);
    SUBTRACT(table.waiting, size);
}

void trajd_connections_consume(int descriptor, size_t body_bytes)
{
    struct connection *connection = find(descriptor);
    if (!connection)
        return;
    pthread_mutex_lock(&table.lock);
    consume(connection, body_bytes);
    pthread_mutex_unlock(&table.lock);
}

void trajd_connections_consume_all(void)
{
    STORE(table.left, 0);
}

void trajd_connections_set_session(int descriptor, bool has_session)
{
    struct connection *connection = find(descriptor);
    if (!connection || LOAD(connection->has_session) == has_session)
        return;
    STORE(connection->has_session, has_session);
    pthread_mutex_lock(&table.lock);
    connection->blames = 0; /* a worker that returns may have sent messages before its HELLO */
    pthread_mutex_unlock(&table.lock);
}

bool trajd_connections_is_cut(int descriptor)
{
    const struct connection *connection = find(descriptor);
    return connection && LOAD(connection->is_cut);
}

bool trajd_connections_is_queue_full(int descriptor, enum trajd_connections_queue queue,
                                     size_t size)
{
    const struct connection *connection = find(descriptor);
    const uint64_t queued = connection ? LOAD(connection->queued[queue]) : 0;
    return queued > 0 && queued + size > share_of(LOAD(table.queued) + size, QUEUED_BYTES);
}

uint64_t trajd_connections_add_queued(int descriptor, enum trajd_connections_queue queue,
                                      size_t size)
{
    struct connection *connection = find(descriptor);
    uint64_t inode = 0;
    pthread_mutex_lock(&table.lock);
    if (connection && (inode = LOAD(connection->inode)) != 0)
        ADD(connection->queued[queue], size);
    pthread_mutex_unlock(&table.lock);
    ADD(table.queued, size);
    return inode;
}

void trajd_connections_remove_queued(int descriptor, enum trajd_connections_queue queue,
                                     uint64_t inode, size_t size)
{
    struct connection *connection = find(descriptor);
    pthread_mutex_lock(&table.lock);
    if (connection && inode != 0 && LOAD(connection->inode) == inode)
        SUBTRACT(connection->queued[queue], size);
    pthread_mutex_unlock(&table.lock);
    SUBTRACT(table.queued, size);
}

size_t trajd_connections_unread(int descriptor)
{
    int size = 0;
    return ioctl(descriptor, SIOCOUTQ, &size) == 0 && size > 0 ? (size_t)size : 0;
}

void trajd_connections_get_counters(struct trajd_connections_counters *counters)
{
    counters->refused = LOAD(table.refused);
    counters->cut = LOAD(table.cut);
}

/* ---- all connections; the caller holds the lock ---- */

static void remove_entry(struct connection *connection)
{
    const uint64_t left = pending(connection);
    ADD(table.left, left < table.session_bytes ? left : table.session_bytes);
    SUBTRACT(table.waiting, left);
    SUBTRACT(table.count[connection->listener], 1);
    STORE(connection->inode, 0);
}

static void count_cut(void)
{
    ADD(table.cut, 1);
    STORE(table.last_cut_ns, (uint64_t)trajd_now_ns());
}

/* Ends a connection. libzmq's thread closes the descriptor. */
static void cut(struct connection *connection)
{
    if (!is_open(connection) || LOAD(connection->is_cut))
        return;
    STORE(connection->is_cut, true);
    shutdown((int)(connection - table.list), SHUT_RDWR);
    count_cut();
}

static void remove_closed(void)
{
    for (uint32_t i = 0; i < table.highest; i++)
        if (LOAD(table.list[i].inode) != 0 && !is_open(&table.list[i]))
            remove_entry(&table.list[i]);
}

static void cut_idle_newcomers(uint32_t listener, uint64_t now_ns)
{
    for (uint32_t i = 0; i < table.highest; i++) {
        struct connection *connection = &table.list[i];
        if (LOAD(connection->inode) != 0 && connection->listener == listener &&
            !LOAD(connection->has_session) && now_ns > connection->accepted_ns + NEWCOMER_NS)
            cut(connection);
    }
}

/* Takes a heartbeat of each remote connection for received. */
static void consume_heartbeats(void)
{
    for (uint32_t i = 0; i < table.highest; i++)
        if (LOAD(table.list[i].inode) != 0 && table.list[i].listener == REMOTE)
            consume(&table.list[i], HEARTBEAT_BYTES);
}

static void blame(int descriptor, uint32_t count)
{
    struct connection *connection = find(descriptor);
    pthread_mutex_lock(&table.lock);
    if (connection && (connection->blames += count) > MAX_BLAMES)
        cut(connection);
    pthread_mutex_unlock(&table.lock);
}

void trajd_connections_blame(int descriptor)
{
    blame(descriptor, 1);
}

void trajd_connections_cut(int descriptor)
{
    blame(descriptor, MAX_BLAMES + 1);
}

void trajd_connections_watch(uint64_t now_ns)
{
    pthread_mutex_lock(&table.lock);
    close_held();
    if (table.count[LOCAL] > table.max_count / 2 || table.count[REMOTE] > table.max_count / 2 ||
        LOAD(table.waiting) > ALL_BYTES / 2)
        remove_closed();
    for (uint32_t i = 0; i < LISTENERS; i++)
        if (table.count[i] > table.max_count / 2)
            cut_idle_newcomers(i, now_ns);
    if (now_ns >= table.heartbeat_ns + HEARTBEAT_NS) {
        consume_heartbeats();
        table.heartbeat_ns = now_ns;
    }
    pthread_mutex_unlock(&table.lock);
}

/* ---- in libzmq's threads ---- */

/* Returns true for a listener of libzmq: the daemon's other sockets are not streams. */
static bool is_stream(int listener, uint32_t *index)
{
    int type = 0, domain = 0;
    socklen_t size = sizeof type;
    if (!table.list || getsockopt(listener, SOL_SOCKET, SO_TYPE, &type, &size) != 0 ||
        type != SOCK_STREAM)
        return false;
    size = sizeof domain;
    getsockopt(listener, SOL_SOCKET, SO_DOMAIN, &domain, &size);
    *index = domain == AF_UNIX ? LOCAL : REMOTE;
    return true;
}

static void begin(struct connection *connection, uint32_t listener)
{
    connection->accepted_ns = (uint64_t)trajd_now_ns();
    connection->listener = (uint8_t)listener;
    trajd_zmtp_begin(&connection->sent);
    STORE(connection->received, 0);
    STORE(connection->consumed, 0);
    for (uint32_t i = 0; i < TRAJD_CONNECTIONS_QUEUES; i++)
        STORE(connection->queued[i], 0);
    connection->blames = 0;
    STORE(connection->has_session, false);
    STORE(connection->is_cut, false);
    STORE(connection->inode, inode_of((int)(connection - table.list)));
}

/* Returns true if a connection may be accepted while others are cut. */
static bool is_turn(uint64_t now_ns)
{
    const uint64_t last_cut_ns = LOAD(table.last_cut_ns);
    if (now_ns >= table.turn_ends_ns) {
        table.turn_ends_ns = now_ns + TURN_NS;
        table.turn_count = 0;
    }
    return ++table.turn_count <= TURN_CONNECTIONS || last_cut_ns == 0 ||
           now_ns >= last_cut_ns + CUTS_NS;
}

/* Adds an accepted connection. Returns false if there are too many of its listener, or the server
 * has to receive first what ended ones have sent. */
static bool add(int descriptor, uint32_t listener)
{
    if ((uint32_t)descriptor >= table.capacity)
        return false;
    struct connection *connection = &table.list[descriptor];
    pthread_mutex_lock(&table.lock);
    if (LOAD(connection->inode) != 0) /* the last connection of this number, which is closed */
        remove_entry(connection);
    const bool fits = table.count[listener] < table.max_count && LOAD(table.left) <= LEFT_BYTES &&
                      is_turn((uint64_t)trajd_now_ns());
    if (fits) {
        begin(connection, listener);
        ADD(table.count[listener], 1);
        if ((uint32_t)descriptor >= table.highest)
            table.highest = (uint32_t)descriptor + 1;
    }
    pthread_mutex_unlock(&table.lock);
    return fits;
}

/* Refuses a connection. It is closed with the next tick: a peer that connects again as soon as it is
 * refused would wake libzmq's thread thousands of times a second. Beyond MAX_HELD of them it is closed
 * at once. */
static void refuse(int fd)
{
    bool is_held;

    ADD(table.refused, 1);
    pthread_mutex_lock(&table.lock);
    is_held = table.held_count < MAX_HELD;
    if (is_held)
        table.held[table.held_count++] = fd;
    pthread_mutex_unlock(&table.lock);
    if (!is_held)
        close(fd);
}

/* Accepts a connection as that of libc does, with two differences for libzmq's listeners.
 *
 * A connection that is too many is refused. If it stayed in the queue, libzmq's thread would be woken
 * for it again and again.
 *
 * libzmq's ipc listener aborts the process when accept4 fails with EMFILE, ENOBUFS or ENOMEM, but
 * not with ENFILE, so this returns ENFILE for all of them. They are rare, because the number of
 * connections is limited. The connection stays in the queue, so this waits for a moment. */
__attribute__((visibility("default"))) int accept4(int listener, struct sockaddr *address,
                                                   socklen_t *size, int flags)
{
    uint32_t index;
    const int fd = (int)syscall(SYS_accept4, listener, address, size, flags);
    const int code = errno;
    if (!is_stream(listener, &index)) {
        errno = code;
        return fd;
    }
    if (fd >= 0 && add(fd, index))
        return fd;
    errno = code;
    if (fd >= 0) {
        refuse(fd);
        errno = EAGAIN; /* libzmq's thread calls again if more connections wait */
    } else if (trajd_unix_lacks_descriptors(code)) {
        nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL);
        errno = ENFILE;
    }
    return -1;
}

/* Reads as that of libc does. Fails if the connection is cut, or has too much that is not received:
 * libzmq then closes it, gets nothing of what was read, and drops its unfinished message. */
__attribute__((visibility("default"))) ssize_t recv(int fd, void *buffer, size_t size, int flags)
{
    struct connection *connection = find(fd);
    const ssize_t count = recvfrom(fd, buffer, size, flags, NULL, NULL);
    if (!connection || count <= 0)
        return count;
    const bool good = trajd_zmtp_read(&connection->sent, buffer, (size_t)count);
    ADD(table.waiting, connection->sent.cost - LOAD(connection->received));
    STORE(connection->received, connection->sent.cost);
    if ((good && !LOAD(connection->is_cut) && !is_over_limit(connection)) || !is_open(connection))
        return count;
    if (!LOAD(connection->is_cut))
        count_cut();
    STORE(connection->is_cut, true);
    errno = ECONNRESET;
    return -1;
}
