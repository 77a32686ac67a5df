"""libtrajd through ctypes, as far as tests need it to be workers. The structures are those of clients/c/trajd.h.
Arrays are views of shared memory."""
import ctypes as c
import json
import pathlib
import time

import numpy as np

LIBC = c.CDLL(None)
LIBC.free.argtypes, LIBC.free.restype = [c.c_void_p], None
OK, NOT_FOUND, DATA, UNSUPPORTED, TIMEOUT, CLOSED, BUSY, END_OF_EPOCH = 0, 2, 3, 4, 8, 9, 10, 13
QUEUE, SHARD = 0, 1
DTYPES = {1: np.float16, 3: np.float32, 4: np.float64, 5: np.int8, 6: np.int16, 7: np.int32, 8: np.int64,
          9: np.uint8, 10: np.uint16, 11: np.uint32, 12: np.uint64, 13: np.bool_}


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("foreign_code", c.c_int), ("message", c.c_char * 512)]


NOTICE = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p, c.c_uint32)


class ConnectOptions(c.Structure):
    _fields_ = [("endpoint", c.c_char_p), ("client_name", c.c_char_p), ("timeout_ms", c.c_uint32),
                ("reconnect", c.c_bool), ("explicit_done", c.c_bool), ("interrupted", c.c_void_p), ("context", c.c_void_p),
                ("key_file", c.c_char_p), ("server_key", c.c_char_p), ("away_ms", c.c_uint32), ("notice", c.c_void_p)]


class OpenOptions(c.Structure):
    _fields_ = [("feed", c.c_char_p), ("spec", c.c_char_p), ("job", c.c_char_p), ("mode", c.c_int),
                ("rank", c.c_uint32), ("world", c.c_uint32), ("credit", c.c_uint32), ("epoch", c.c_uint64),
                ("next", c.c_uint64), ("fingerprint", c.c_uint64), ("timeout_ms", c.c_uint32),
                ("local_ranks", c.POINTER(c.c_uint32)), ("local_rank_count", c.c_uint32), ("resume", c.c_char_p),
                ("resume_size_bytes", c.c_size_t), ("gpu", c.c_char_p),
                ("gpu_ranks", c.POINTER(c.c_uint32)), ("gpu_rank_count", c.c_uint32),
                ("unfinished", c.c_int)]


class Question(c.Structure):
    _fields_ = [("what", c.c_char_p), ("name", c.c_char_p), ("window", c.c_uint64), ("first", c.c_uint64),
                ("count", c.c_uint32), ("feed_id", c.c_uint32), ("pass_number", c.c_uint64)]


class FeedInfo(c.Structure):
    _fields_ = [("global_batch", c.c_uint32), ("row_begin", c.c_uint32), ("row_count", c.c_uint32),
                ("credit", c.c_uint32)] + [(name, c.c_uint64) for name in (
                    "epoch", "next", "epoch_length", "window_count", "dropped_count", "fingerprint", "seed")] + [
                        ("tensor_count", c.c_uint32), ("gpu", c.c_char_p), ("gpu_ordinal", c.c_int), ("gpu_refusal", c.c_char_p),
                        ("norm_digest", c.c_uint64), ("episodes_found", c.c_uint32), ("episodes_kept", c.c_uint32), ("episodes_quarantined", c.c_uint32),
                        ("episodes_used", c.c_uint32), ("quarantine_reason_count", c.c_uint32),
                        ("quarantine_reasons", c.POINTER(c.c_char_p)), ("warning_count", c.c_uint32),
                        ("warnings", c.POINTER(c.c_char_p)), ("values_digest", c.c_uint64)]


class Tensor(c.Structure):
    _fields_ = [("name", c.c_char_p), ("role", c.c_char_p), ("of", c.c_char_p), ("dtype", c.c_int),
                ("rank", c.c_uint32), ("shape", c.c_uint64 * 8), ("strides_bytes", c.c_int64 * 8), ("data", c.c_void_p),
                ("finish", c.c_void_p)]


class BatchInfo(c.Structure):
    _fields_ = [("epoch", c.c_uint64), ("position", c.c_uint64), ("row_begin", c.c_uint32), ("row_count", c.c_uint32),
                ("ready_ns", c.c_uint64), ("sequence", c.c_uint64)]


class TrajdError(Exception):
    def __init__(self, error):
        super().__init__(error.message.decode())
        self.status = error.status


def load(build):
    path = next(pathlib.Path(build).glob("clients/c/libtrajd.so*"))
    library = c.CDLL(str(path))
    library.trajd_client_feed_info.restype = c.POINTER(FeedInfo)
    library.trajd_batch_tensor.restype = c.POINTER(Tensor)
    library.trajd_client_close.restype = None
    for name in ("trajd_batch_release", "trajd_batch_done", "trajd_batch_get_info"):
        getattr(library, name).restype = None
    return library


class Batch:
    """A batch that is held until release(). The views that arrays() returns are invalid after release()."""

    def __init__(self, library, handle):
        self.library, self.handle = library, handle
        info = BatchInfo()
        library.trajd_batch_get_info(handle, c.byref(info))
        self.epoch, self.position, self.rows, self.ready_ns = info.epoch, info.position, info.row_count, info.ready_ns

    def arrays(self):
        result = {}
        for i in range(self.library.trajd_batch_tensor_count(self.handle)):
            tensor = self.library.trajd_batch_tensor(self.handle, i).contents
            shape = tuple(tensor.shape[:tensor.rank])
            dtype = np.dtype(DTYPES[tensor.dtype])
            size = int(np.prod(shape)) * dtype.itemsize
            memory = (c.c_uint8 * max(size, 1)).from_address(tensor.data)
            result[tensor.name.decode()] = np.frombuffer(memory, dtype, int(np.prod(shape))).reshape(shape)
        return result

    def copy(self):
        return {name: array.copy() for name, array in self.arrays().items()}

    def use_stream(self, stream):
        status = self.library.trajd_batch_use_stream(self.handle, c.c_size_t(stream), None)
        assert status == OK, status

    def release(self):
        self.library.trajd_batch_release(c.byref(self.handle))


class Client:
    def __init__(self, library, endpoint, timeout_ms=10000, reconnect=False, key_file=None, name="pytest", away_ms=0):
        self.library, self.handle, self.error = library, c.c_void_p(), Error()
        self.notices = []  # (text, wait_ms) of each
        self.notice = NOTICE(lambda context, text, wait_ms: self.notices.append((text.decode(), wait_ms)))
        options = ConnectOptions(str(endpoint).encode(), name.encode(), timeout_ms, reconnect,
                                 key_file=key_file and str(key_file).encode(), away_ms=away_ms,
                                 notice=c.cast(self.notice, c.c_void_p))
        self.check(library.trajd_client_connect(c.byref(options), c.byref(self.handle), c.byref(self.error)))

    def check(self, status):
        if status:
            raise TrajdError(self.error)

    def open(self, feed=None, spec=None, job="", mode=QUEUE, rank=0, world=0, credit=0, epoch=0, position=0,
             fingerprint=0, timeout_ms=0, local=(), resume=b"", gpu=None, gpu_ranks=()):
        options = OpenOptions(feed and feed.encode(), spec and spec.encode(), job.encode(), mode, rank, world, credit,
                              epoch, position, fingerprint, timeout_ms, (c.c_uint32 * len(local))(*local), len(local),
                              resume, len(resume), gpu and gpu.encode(), (c.c_uint32 * len(gpu_ranks))(*gpu_ranks), len(gpu_ranks))
        self.check(self.library.trajd_client_open(self.handle, c.byref(options), c.byref(self.error)))
        return FeedInfo.from_buffer_copy(self.library.trajd_client_feed_info(self.handle).contents)

    def next(self, timeout_ms=20000):
        """Returns the next batch, or None at the end of the epoch."""
        handle = c.c_void_p()
        status = self.library.trajd_client_next(self.handle, timeout_ms, c.byref(handle), c.byref(self.error))
        if status == END_OF_EPOCH:
            return None
        self.check(status)
        return Batch(self.library, handle)

    def epoch(self):
        """Yields copies of all batches of the epoch: (position, arrays)."""
        while (batch := self.next()) is not None:
            yield batch.position, batch.copy()
            batch.release()

    def status(self):
        text = c.c_void_p()
        self.check(self.library.trajd_client_status(self.handle, 5000, c.byref(text), c.byref(self.error)))
        document = json.loads(c.string_at(text))
        LIBC.free(text)
        return document

    def ask(self, what, name=None, window=0, first=0, count=0, feed_id=0, pass_number=0):
        text = c.c_void_p()
        question = Question(what.encode(), name and name.encode(), window, first, count, feed_id, pass_number)
        self.check(self.library.trajd_client_ask(self.handle, c.byref(question), 20000, c.byref(text), c.byref(self.error)))
        document = json.loads(c.string_at(text))
        LIBC.free(text)
        return document

    def checkpoint(self):
        """Returns the checkpoint token, which says which batches are DONE, as bytes."""
        token, size = c.c_void_p(), c.c_size_t()
        self.check(self.library.trajd_client_checkpoint(self.handle, 5000, c.byref(token), c.byref(size),
                                                        c.byref(self.error)))
        result = c.string_at(token, size.value)
        LIBC.free(token)
        return result

    def close(self):
        self.library.trajd_client_close(c.byref(self.handle))


def connect_in_time(library, endpoint, seconds=60, **options):
    """Returns a client. Tries again while all sessions are in use, as a flood may have it."""
    end = time.monotonic() + seconds
    while True:
        try:
            return Client(library, endpoint, timeout_ms=seconds * 1000, reconnect=True, **options)
        except TrajdError as error:
            if error.status != BUSY or time.monotonic() > end:
                raise
            time.sleep(0.05)
