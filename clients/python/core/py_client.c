/* The type Client of the extension module: open, batches and questions, with the GIL released
 * while a call waits. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/python/core/py_core.h"

struct client_object {
    PyObject_HEAD struct trajd_client *client; /* NULL after close */
    PyObject *notice; /* what is called with a notice of the daemon, or NULL */
    pid_t pid;
    bool in_use;     /* a thread is in a call; protected by the GIL */
    bool ends_waits; /* end_waits() was called; protected by the GIL */
};

/* Runs Python's signal handlers in the waiting thread. An exception of a handler ends the wait. */
static bool run_signal_handlers(void *context)
{
    const PyGILState_STATE state = PyGILState_Ensure();
    const bool stop = PyErr_CheckSignals() != 0 || ((struct client_object *)context)->ends_waits;
    PyGILState_Release(state);
    return stop;
}

static void pass_notice(void *context, const char *text, uint32_t wait_ms)
{
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *notice = ((struct client_object *)context)->notice;
    PyObject *result = PyObject_CallFunction(notice, "sd", text, wait_ms * 1e-3);
    if (!result)
        PyErr_WriteUnraisable(notice);
    Py_XDECREF(result);
    PyGILState_Release(state);
}

/* ---- calls ---- */

static struct trajd_client *enter(PyObject *object)
{
    struct client_object *self = (struct client_object *)object;
    if (!self->client)
        return trajd_py_raise(&(struct trajd_error){TRAJD_ERR_CLOSED, 0, "this client is closed"}),
               NULL;
    if (self->pid != getpid()) {
        trajd_py_raise_fork();
        return NULL;
    }
    if (self->in_use) {
        PyErr_SetString(
            PyExc_RuntimeError,
            "another thread is in a call of this client; only one thread at a time may be");
        return NULL;
    }
    self->in_use = true;
    return self->client;
}

/* Ends a call. Returns true if it succeeded; otherwise an exception is set, that of a signal
 * handler or that of `error`. */
static bool leave(PyObject *object, enum trajd_status status, const struct trajd_error *error)
{
    ((struct client_object *)object)->in_use = false;
    if (PyErr_Occurred())
        return false;
    if (!status || status == TRAJD_END_OF_EPOCH)
        return true;
    trajd_py_raise(error);
    return false;
}

static int client_init(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"endpoint", "name",       "timeout_ms", "reconnect", "explicit_done",
                            "key_file", "server_key", "away_ms",    "notice",    NULL};
    struct client_object *self = (struct client_object *)object;
    struct trajd_connect_options options = {.interrupted = run_signal_handlers, .context = self};
    PyObject *notice = NULL;
    struct trajd_error error = {0};
    unsigned timeout_ms = 0, away_ms = 0;
    int reconnect = 0, explicit_done = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$zzIppzzIO", names, &options.endpoint,
                                     &options.client_name, &timeout_ms, &reconnect, &explicit_done,
                                     &options.key_file, &options.server_key, &away_ms, &notice))
        return -1;
    if (self->client || self->in_use) {
        PyErr_SetString(PyExc_RuntimeError, "a client can connect only once");
        return -1;
    }
    options.timeout_ms = timeout_ms;
    options.reconnect = reconnect;
    options.explicit_done = explicit_done;
    options.away_ms = away_ms;
    options.notice = notice ? pass_notice : NULL;
    Py_XINCREF(notice);
    self->notice = notice;
    self->pid = getpid();
    self->in_use = true;
    struct trajd_client *client = NULL;
    enum trajd_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = trajd_client_connect(&options, &client, &error);
    Py_END_ALLOW_THREADS;
    self->client = client;
    return leave(object, status, &error) ? 0 : -1;
}

static void end(struct client_object *self)
{
    struct trajd_client *client = self->client;
    self->client = NULL;
    if (!client)
        return;
    Py_BEGIN_ALLOW_THREADS;
    trajd_client_close(&client);
    Py_END_ALLOW_THREADS;
}

static void client_dealloc(PyObject *object)
{
    end((struct client_object *)object);
    Py_CLEAR(((struct client_object *)object)->notice);
    trajd_py_free(object);
}

static PyObject *client_close(PyObject *object, PyObject *unused)
{
    struct client_object *self = (struct client_object *)object;
    (void)unused;
    if (self->client && self->pid == getpid() && !enter(object))
        return NULL;
    self->in_use = false;
    end(self);
    Py_RETURN_NONE;
}

/* ---- open ---- */

/* Returns a new tuple of texts, or NULL. */
static PyObject *describe_texts(const char *const *texts, uint32_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (uint32_t i = 0; tuple && i < count; i++) {
        PyObject *text = PyUnicode_FromString(texts[i]);
        if (!text || PyTuple_SetItem(tuple, i, text))
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *describe_feed(const struct trajd_feed_info *info)
{
    return Py_BuildValue(
        "{s:I,s:I,s:I,s:I,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:I,s:I,s:I,s:I,s:N,s:N,s:K}",
        "global_batch", info->global_batch, "row_begin", info->row_begin, "row_count",
        info->row_count, "credit", info->credit, "epoch", (unsigned long long)info->epoch, "next",
        (unsigned long long)info->next, "epoch_length", (unsigned long long)info->epoch_length,
        "window_count", (unsigned long long)info->window_count, "dropped_count",
        (unsigned long long)info->dropped_count, "fingerprint",
        (unsigned long long)info->fingerprint, "seed", (unsigned long long)info->seed,
        "norm_digest", (unsigned long long)info->norm_digest, "episodes_found",
        info->episodes_found, "episodes_kept", info->episodes_kept, "episodes_quarantined",
        info->episodes_quarantined, "episodes_used", info->episodes_used, "quarantine_reasons",
        describe_texts(info->quarantine_reasons, info->quarantine_reason_count), "warnings",
        describe_texts(info->warnings, info->warning_count), "values_digest",
        (unsigned long long)info->values_digest);
}

#define MAX_LOCAL_RANKS 512

/* Reads a sequence of ranks. None has no ranks. */
static bool read_ranks(PyObject *sequence, const char *name, uint32_t *ranks, uint32_t *rank_count)
{
    *rank_count = 0;
    if (sequence == Py_None)
        return true;
    const Py_ssize_t count = PySequence_Size(sequence);
    if (count > MAX_LOCAL_RANKS)
        PyErr_Format(PyExc_ValueError, "%s has %zd ranks, at most %d are allowed", name, count,
                     MAX_LOCAL_RANKS);
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        const unsigned long rank = item ? PyLong_AsUnsignedLong(item) : 0;
        Py_XDECREF(item);
        ranks[i] = rank <= UINT32_MAX ? (uint32_t)rank : UINT32_MAX;
    }
    *rank_count = count > 0 ? (uint32_t)count : 0;
    return !PyErr_Occurred();
}

static PyObject *client_open(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {
        "feed", "spec",        "job",    "shard",      "rank", "world",     "credit",     "epoch",
        "next", "local_ranks", "resume", "timeout_ms", "gpu",  "gpu_ranks", "unfinished", NULL};
    uint32_t local_ranks[MAX_LOCAL_RANKS], gpu_ranks[MAX_LOCAL_RANKS];
    PyObject *ranks = Py_None, *gpu_rank_list = Py_None;
    Py_ssize_t resume_size = 0;
    struct trajd_open_options options = {0};
    struct trajd_error error = {0};
    int shard = 0;
    unsigned rank = 0, world = 0, credit = 0, timeout_ms = 0, unfinished = 0;
    unsigned long long epoch = 0, next = 0;
    if (!PyArg_ParseTupleAndKeywords(
            args, keywords, "|$zzzpIIIKKOz#IzOI", names, &options.feed, &options.spec, &options.job,
            &shard, &rank, &world, &credit, &epoch, &next, &ranks, (const char **)&options.resume,
            &resume_size, &timeout_ms, &options.gpu, &gpu_rank_list, &unfinished) ||
        !read_ranks(ranks, "local_ranks", local_ranks, &options.local_rank_count) ||
        !read_ranks(gpu_rank_list, "gpu_ranks", gpu_ranks, &options.gpu_rank_count))
        return NULL;
    options.mode = shard ? TRAJD_MODE_SHARD : TRAJD_MODE_QUEUE;
    options.rank = rank, options.world = world, options.credit = credit,
    options.timeout_ms = timeout_ms;
    options.epoch = epoch, options.next = next, options.resume_size_bytes = (size_t)resume_size;
    options.local_ranks = local_ranks;
    options.unfinished = (enum trajd_unfinished)unfinished;
    options.gpu_ranks = gpu_ranks;
    /* gpu_ranks count only for a feed on a GPU */
    options.gpu_rank_count = options.gpu ? options.gpu_rank_count : 0;
    struct trajd_client *client = enter(object);
    if (!client)
        return NULL;
    enum trajd_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = trajd_client_open(client, &options, &error);
    Py_END_ALLOW_THREADS;
    if (!leave(object, status, &error))
        return NULL;
    return describe_feed(trajd_client_feed_info(client));
}

/* ---- batches ---- */

static PyObject *client_next(PyObject *object, PyObject *argument)
{
    struct trajd_batch *batch = NULL;
    struct trajd_error error = {0};
    const long timeout_ms = PyLong_AsLong(argument);
    if (timeout_ms == -1 && PyErr_Occurred())
        return NULL;
    struct trajd_client *client = enter(object);
    if (!client)
        return NULL;
    const int bounded_ms = timeout_ms < 0           ? -1
                           : timeout_ms > INT32_MAX ? INT32_MAX
                                                    : (int)timeout_ms;
    enum trajd_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = trajd_client_next(client, bounded_ms, &batch, &error);
    Py_END_ALLOW_THREADS;
    if (!leave(object, status, &error))
        return NULL;
    if (status == TRAJD_END_OF_EPOCH)
        Py_RETURN_NONE;
    return trajd_py_batch_create(batch);
}

/* ---- questions ---- */

static PyObject *finish_document(PyObject *object, enum trajd_status status, char *json,
                                 const struct trajd_error *error)
{
    PyObject *text = leave(object, status, error) ? PyUnicode_FromString(json) : NULL;
    free(json);
    return text;
}

static PyObject *client_status(PyObject *object, PyObject *args)
{
    unsigned timeout_ms = 0;
    char *json = NULL;
    struct trajd_error error = {0};
    if (!PyArg_ParseTuple(args, "|I", &timeout_ms))
        return NULL;
    struct trajd_client *client = enter(object);
    if (!client)
        return NULL;
    enum trajd_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = trajd_client_status(client, timeout_ms, &json, &error);
    Py_END_ALLOW_THREADS;
    return finish_document(object, status, json, &error);
}

static PyObject *client_ask(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"what",  "name",       "window", "first",
                            "count", "timeout_ms", "pass_",  NULL};
    struct trajd_question question = {0};
    struct trajd_error error = {0};
    unsigned count = 0, timeout_ms = 0;
    unsigned long long window = 0, first = 0, pass = 0;
    char *json = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "s|$zKKIIK", names, &question.what,
                                     &question.name, &window, &first, &count, &timeout_ms, &pass))
        return NULL;
    question.window = window, question.first = first, question.count = count;
    question.pass = pass;
    struct trajd_client *client = enter(object);
    if (!client)
        return NULL;
    enum trajd_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = trajd_client_ask(client, &question, timeout_ms, &json, &error);
    Py_END_ALLOW_THREADS;
    return finish_document(object, status, json, &error);
}

static PyObject *client_checkpoint(PyObject *object, PyObject *args)
{
    unsigned timeout_ms = 0;
    void *token = NULL;
    size_t size_bytes = 0;
    struct trajd_error error = {0};
    if (!PyArg_ParseTuple(args, "|I", &timeout_ms))
        return NULL;
    struct trajd_client *client = enter(object);
    if (!client)
        return NULL;
    enum trajd_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = trajd_client_checkpoint(client, timeout_ms, &token, &size_bytes, &error);
    Py_END_ALLOW_THREADS;
    PyObject *bytes = leave(object, status, &error)
                          ? PyBytes_FromStringAndSize(token, (Py_ssize_t)size_bytes)
                          : NULL;
    free(token);
    return bytes;
}

static PyObject *client_connected(PyObject *object, PyObject *unused)
{
    struct trajd_error error = {0};
    (void)unused;
    struct trajd_client *client = enter(object);
    if (!client)
        return NULL;
    bool connected;
    Py_BEGIN_ALLOW_THREADS;
    connected = trajd_client_is_connected(client);
    Py_END_ALLOW_THREADS;
    return leave(object, TRAJD_OK, &error) ? PyBool_FromLong(connected) : NULL;
}

static PyObject *client_end_waits(PyObject *object, PyObject *unused)
{
    (void)unused;
    ((struct client_object *)object)->ends_waits = true;
    Py_RETURN_NONE;
}

static PyObject *client_gpu_refusal(PyObject *object, void *unused)
{
    const struct trajd_client *client = ((struct client_object *)object)->client;
    const struct trajd_feed_info *info = client ? trajd_client_feed_info(client) : NULL;
    (void)unused;
    return Py_BuildValue("z", info ? info->gpu_refusal : NULL);
}

static PyObject *client_closed(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(!((struct client_object *)object)->client);
}

static PyMethodDef methods[] = {
    {"open", (PyCFunction)(void (*)(void))client_open, METH_VARARGS | METH_KEYWORDS,
     "Opens a feed, or another epoch of it. Returns the values of trajd.FeedInfo as a dict."},
    {"next", client_next, METH_O,
     "next(timeout_ms) waits for a Batch; below 0 without limit. None: the epoch has ended."},
    {"status", client_status, METH_VARARGS, "Returns the daemon's status as JSON text."},
    {"ask", (PyCFunction)(void (*)(void))client_ask, METH_VARARGS | METH_KEYWORDS,
     "Sends a question about the open feed. Returns the answer as JSON text."},
    {"checkpoint", client_checkpoint, METH_VARARGS,
     "Returns a token of the DONE windows of a queue job's epoch, as bytes."},
    {"connected", client_connected, METH_NOARGS,
     "Returns True if there is a session with a daemon. Does not wait."},
    {"end_waits", client_end_waits, METH_NOARGS,
     "Ends the wait of this call and of all later ones with Timeout. Any thread may call it."},
    {"close", client_close, METH_NOARGS, "Ends the session. Batches that are held stay readable."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"closed", client_closed, NULL, NULL, NULL},
    {"gpu_refusal", client_gpu_refusal, NULL,
     "Why the open feed is not on the requested GPU, or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot client_slots[] = {
    {Py_tp_init, client_init},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, client_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {Py_tp_doc, "A connection to a daemon. One thread at a time may be in a call."},
    {0, NULL},
};
PyType_Spec trajd_py_client_spec = {"trajd._core.Client", sizeof(struct client_object), 0,
                                    Py_TPFLAGS_DEFAULT, client_slots};
