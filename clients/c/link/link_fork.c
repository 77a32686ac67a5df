/* Closes the connections to fd.sock in children made by fork. The end of a connection tells the
 * daemon that the worker has died, and it comes only when the last process with the descriptor has
 * closed it. exec closes them (SOCK_CLOEXEC), but the processes of multiprocessing and of
 * DataLoaders do not exec, and may outlive their parent. */
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clients/c/link/link.h"

/* protects the list, and the opening and closing of its descriptors; fork waits for it */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct trajd_link *open_links;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    pthread_mutex_lock(&mutex);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&mutex);
}

/* Runs in the child, which has only the thread that called fork. */
static void in_child(void)
{
    for (struct trajd_link *link = open_links; link; link = link->next_open) {
        close(link->fd);
        link->fd = -1;
    }
    open_links = NULL;
    pthread_mutex_unlock(&mutex);
}

static void register_handlers(void)
{
    /* Fails only without memory. A child then keeps the descriptors. */
    pthread_atfork(before_fork, in_parent, in_child);
}

void trajd_link_open_socket(struct trajd_link *link)
{
    pthread_once(&once, register_handlers);
    pthread_mutex_lock(&mutex);
    link->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (link->fd >= 0) {
        link->next_open = open_links;
        open_links = link;
    }
    pthread_mutex_unlock(&mutex);
}

void trajd_link_close_socket(struct trajd_link *link)
{
    struct trajd_link **place = &open_links;
    pthread_mutex_lock(&mutex);
    while (*place && *place != link)
        place = &(*place)->next_open;
    if (*place) {
        *place = link->next_open;
        close(link->fd);
    }
    link->fd = -1;
    pthread_mutex_unlock(&mutex);
}
