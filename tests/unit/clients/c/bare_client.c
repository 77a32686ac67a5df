/* Makes a client without a daemon. */
#include "tests/unit/clients/c/bare_client.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct trajd_client *bare_client_create(void)
{
    struct trajd_client *client = calloc(1, sizeof *client);
    client->references = 1;
    client->pid = getpid();
    client->endpoint = strdup("/nonexistent/trajd");
    client->incarnation = 1;
    client->deferred.end = &client->deferred.first;
    client->session.ping_ns = 1000 * TRAJD_NS_PER_MS;
    client->session.frame = malloc(TRAJD_WIRE_MAX_FRAME);
    client->session.tensors = malloc(TRAJD_WIRE_MAX_TENSORS * sizeof *client->session.tensors);
    client->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    client->io_thread_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    client->poll_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&client->io_lock, NULL);
    pthread_mutex_init(&client->state_lock, NULL);
    const struct trajd_link_options options = {.endpoint = client->endpoint};
    if (trajd_link_create(&client->link, &options, NULL) || trajd_link_dial(&client->link, NULL))
        abort();
    return client;
}

bool bare_client_was_signalled(int event_fd)
{
    uint64_t count;
    return read(event_fd, &count, sizeof count) == sizeof count;
}
