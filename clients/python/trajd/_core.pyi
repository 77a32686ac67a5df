"""libtrajd for Python. The package trajd wraps it; its names are not public.

Threads: one thread at a time may be in a call of a Client; others get RuntimeError. All other objects may be used in
any thread. The GIL is released while a call waits.
Errors: an exception of trajd.errors for each status of libtrajd. A call of a Client may also raise the exception of a
signal handler that ran while it waited.
"""
from typing import Any, Callable, List, Optional, Sequence, Tuple

version: str

def set_errors(classes: List[type]) -> None:
    """Sets the exception classes, by the number of their status. ForkError is the last one."""

def gpu_uuid(ordinal: int) -> str:
    """Returns the UUID ("GPU-...") of the GPU that this process counts as `ordinal`. Raises NotFound, Unsupported."""

def resample(streams: Tuple[tuple, ...], targets: Any, empty: Any) -> Tuple[Tuple[Any, Any], ...]:
    """Resamples streams on one grid of targets, and returns (result, mask) of each.

    streams  for each stream a tuple (name for messages or None, values, "bf16" or None, times, row_splits or None, kind,
             order or None, max_gap, max_age, width, causal, pad, period or None, range_low or None, dtype or None,
             result or None, mask or None), as trajd.resample describes them. Arrays are numpy arrays; "bf16" says that
             values are bfloat16 in an array of 16-bit integers. A duration is None or an int of ns
    empty    numpy.empty, which makes the arrays that are None

    Raises ArgumentError before anything is written, and Unsupported. Releases the GIL while it computes."""

def resample_cuda(streams: Tuple[tuple, ...], targets: tuple, empty: Any, row_arrays: Tuple[Optional[Tuple[int, int, int]], ...],
                  gpu: int, stream: int) -> Tuple[Tuple[tuple, tuple], ...]:
    """Launches the same for tensors on a GPU, which becomes the current one of this thread. Does not wait.

    streams     as above; a tensor is a tuple (address, shape, strides in elements, "f32", tensor). Values and times are dense
    empty       called with a shape and the name of a type; returns such a tuple
    row_arrays  for each stream None, or the addresses of int64 [B] arrays on the GPU: where the rows of a window begin,
                how many there are, and what is added to its targets
    stream      a cudaStream_t of the GPU"""

class Tensor:
    """A view of a leased batch, dense in C order. It keeps the lease until it and its exports are gone."""

    __array_struct__: Any  # numpy's array interface; bf16 appears as uint16; AttributeError on a GPU
    shape: Tuple[int, ...]  # (B, ...)
    dtype: str  # "f32", "bf16", "i64", "u8", ...
    address: int  # of the first element
    read_only: bool  # True if other jobs read the same memory
    def __dlpack__(self, *, stream: Optional[int] = ..., max_version: Optional[Tuple[int, int]] = ...,
                   dl_device: Optional[Tuple[int, int]] = ..., copy: Optional[bool] = ...) -> Any:
        """Returns a DLPack capsule, versioned if max_version is (1, 0) or later. Its deleter drops the lease.

        stream  on a GPU: the stream that will read the tensor. 1 or None is the legacy default stream, 2 the per-thread
                default stream, and -1 means that the caller names its streams by Batch.use_stream
        copy    True copies the data; host memory only

        Raises BufferError if the memory is read-only and the capsule cannot say so, or if dl_device is another
        device."""
    def __dlpack_device__(self) -> Tuple[int, int]:
        """Returns (1, 0) for host memory, (2, N) for GPU N."""

class Ring:
    """The mapped ring of a batch, for registering it with CUDA. It stays mapped, but holds no batch."""

    base: int  # address
    size_bytes: int
    writable: bool

class Batch:
    """A leased batch. The lease ends when the batch and all of its tensors and their exports are gone."""

    epoch: int
    position: int  # of the global batch's first window
    row_begin: int  # of this worker's rows in the global batch
    row_count: int
    ready_ns: int  # CLOCK_MONOTONIC when the daemon had it ready
    sequence: int  # counts the batches of a session, from 1
    live: int  # the number of tensors and exports that keep the lease
    released: bool
    writable: bool  # False if other jobs read the same memory
    gpu: int  # the GPU that has the batch; below 0: host memory
    def use_stream(self, stream: int) -> None:
        """Names a stream whose work reads the batch on a GPU: work given to it before the lease ends."""
    def schema(self) -> List[Tuple[str, str, Optional[str], str, Tuple[int, ...], Optional[Tuple[str, bool, bytes, bytes]]]]:
        """Returns (name, role, output of a mask, dtype, shape of one row) of each tensor."""
    def tensor(self, index: int) -> Tensor:
        """Returns a tensor by its index in the schema. Raises IndexError, or ValueError after release."""
    def capsule(self, index: int) -> object:
        """Returns a DLPack capsule of a tensor, bool as u8. Versioned where other jobs read the memory."""
    def slab(self) -> Tensor:
        """Returns the bytes from the first tensor to the end of the last one, as one u8 tensor."""
    def ring(self) -> Optional[Ring]:
        """Returns the ring of the batch. None for a batch of a remote daemon or on a GPU."""
    def done(self) -> None:
        """Counts the batch as worked on. The memory stays leased."""
    def release(self) -> None:
        """Ends the lease and counts the batch as worked on. Raises BufferError while tensors of it are alive."""
    def abandon(self) -> None:
        """Ends the lease right before Client.close, without counting the batch as worked on."""

class Live:
    """The rules of a feed, and the last rows of its streams. `text` is a live description."""

    def __init__(self, text: bytes, *, history_ns: int = ..., max_anchor_age_ns: int = ...) -> None: ...
    def streams(self) -> List[Tuple[str, str, str, Tuple[int, ...], int, int, int]]:
        """Returns (name, clock, dtype, shape, interval_ns, latency_ns, capacity) of each stream."""
    def outputs(self) -> List[Tuple[str, str, Tuple[int, ...], int, int]]:
        """Returns (name, dtype, shape, offset, offset of the mask) of each output."""
    def push(self, stream: int, t_ns: int, row: bytes) -> bool:
        """Takes the bytes of a row. Returns False where it is late, repeated or pushed by two threads."""
    def observe(self, t_ns: int, is_partial: bool) -> Tuple[int, bytearray]:
        """Returns the anchor's time and the bytes of an observation. Raises Timeout, DataError and NotFound."""
    def counts(self, stream: int) -> Tuple[int, int, int, int, int, int, int]:
        """Returns (taken, late, repeated, busy, off_rate, newest_ns) of a stream."""
    def reset(self) -> None:
        """Begins a new episode."""

class Client:
    """A connection to a daemon. The arguments are those of struct trajd_connect_options in trajd.h."""

    closed: bool
    gpu_refusal: Optional[str]  # why the open feed is not on the requested GPU
    def __init__(self, *, endpoint: Optional[str] = ..., name: Optional[str] = ..., timeout_ms: int = ...,
                 reconnect: bool = ..., explicit_done: bool = ..., key_file: Optional[str] = ...,
                 server_key: Optional[str] = ..., away_ms: int = ...,
                 notice: Optional[Callable[[str, float], None]] = ...) -> None:
        """Connects. `notice` gets what the daemon says of a wait, and its seconds. Raises Timeout if no daemon answers."""
    def open(self, *, feed: Optional[str] = ..., spec: Optional[str] = ..., job: Optional[str] = ..., shard: bool = ...,
             rank: int = ..., world: int = ..., credit: int = ..., epoch: int = ..., next: int = ...,
             local_ranks: Optional[Sequence[int]] = ..., resume: Optional[bytes] = ..., timeout_ms: int = ...,
             gpu: Optional[str] = ..., gpu_ranks: Optional[Sequence[int]] = ..., unfinished: int = ...) -> "dict[str, Any]":
        """Opens a feed, or another epoch of the open feed. Returns the values of trajd.FeedInfo."""
    def next(self, timeout_ms: int) -> Optional[Batch]:
        """Waits for the next batch. None: the epoch has ended. A timeout below 0: no limit.

        Raises Timeout, Busy (all batches of the credit are held), DataError and Closed."""
    def status(self, timeout_ms: int = ...) -> str:
        """Returns the daemon's status as JSON text."""
    def ask(self, what: str, *, name: Optional[str] = ..., window: int = ..., first: int = ..., count: int = ...,
            timeout_ms: int = ..., pass_: int = ...) -> str:
        """Sends a question about the open feed and returns the answer as JSON text. See proto/PROTOCOL.md."""
    def checkpoint(self, timeout_ms: int = ...) -> bytes:
        """Returns a token of the DONE windows of a queue job's epoch."""
    def connected(self) -> bool:
        """Returns True if there is a session with a daemon. Does not wait."""
    def end_waits(self) -> None:
        """Ends the wait of this call and of all later ones with Timeout. Any thread may call it."""
    def close(self) -> None:
        """Ends the session. Batches that are held stay readable."""
