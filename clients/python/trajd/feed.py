"""Feed: this process's connection to one feed of a daemon. Epochs are iterators of batches."""
from __future__ import annotations

import atexit
import contextlib
import logging
import operator
import os
import time
import warnings
import weakref
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, SupportsIndex, Tuple

from . import _core, agree, arrays, feed_info, styles, topology
from .batch import Arrays, Batch, Layout, report_bad_frames
from .connection import OPEN_MS, Connection, Explanation
from .errors import ArgumentError, Busy, Closed, Error, StateError, Timeout
from .feed_info import FeedInfo
from .group import Group, register
from .progress import check as check_progress
from .settings import Settings
from .state import Norm, Images, State, check_norm, frontier, parse, warn_of_images

log = logging.getLogger("trajd")

_ASK_AGAIN_S = 1.0
_WARNING_AFTER_S = 10.0         # without a batch
_CLOSING_MS = 1000
_UNFINISHED, _RATHER_UNFINISHED = 1, 2  # enum trajd_unfinished
_feeds: "weakref.WeakSet[Feed]" = weakref.WeakSet()  # of this process


@atexit.register
def _close_all() -> None:
    """Closes all feeds when the interpreter ends, so that the daemon learns which batches are DONE."""
    for feed in list(_feeds):
        if feed.pid == os.getpid():
            with contextlib.suppress(RuntimeError):  # a daemon thread is in a call of the feed
                feed.close()


class Epoch(Iterator[Batch]):
    """The iterator over the batches of one epoch.

    Ends when every window of the epoch is worked on; in mode queue that means by all workers. len() is the number of
    batches from the position at which the iterator began.

    Raises DataError for a batch that could not be made; the next call goes on behind it. Raises Busy if the program
    holds as many batches as its credit, Timeout if the feed's `timeout` is over, and Closed if the daemon or a rank is
    away for too long, or if the feed was closed.

    epoch     the number of the epoch
    position  the position after the last batch that was returned"""

    def __init__(self, feed: "Feed", run: object, epoch: int, position: int) -> None:
        self._feed, self._run = feed, run
        self._over = False
        self.epoch = epoch
        self.position = position  # after the last batch that was returned
        self._begin = position

    def __iter__(self) -> "Epoch":
        return self

    def __len__(self) -> int:
        """The number of batches from the position at which the iterator began."""
        info = self._feed.info
        return -(-(info.epoch_length - self._begin) // info.global_batch)

    def __next__(self) -> Batch:
        if self._over:
            raise StopIteration
        feed = self._feed
        if feed._running is not self._run:
            raise ArgumentError(f"epoch {self.epoch} ended when another epoch of this feed began: a feed reads one epoch at a time")
        begin = time.perf_counter()
        batch = feed._take()
        feed.dataloading_s += time.perf_counter() - begin
        if batch is None:
            self._over, feed._running = True, None
            feed._stand(self.epoch + 1, 0)
            raise StopIteration
        info = feed.info
        self.position = min(batch.position + info.global_batch, info.epoch_length)
        feed._stand(self.epoch, self.position)
        feed.batch_count += 1
        return batch


class Feed:
    """A connection to one feed, made by trajd.connect or trajd.open.

        for batch in feed.epoch(3): ...     # one epoch
        for batch in feed: ...              # the epoch at which the feed stands; see set_epoch

    The feed is opened at the daemon by the first epoch, or by `info` or `len()`.

    Threads: one thread at a time may use a feed. Its batches may be used in any thread.
    Processes: a feed cannot be used after a fork, or pickled. trajd.torch.FeedDataset can be pickled.

    pid            the process that made the connection
    dataloading_s  the seconds that iteration has waited for batches
    batch_count    the number of batches returned so far"""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.pid = os.getpid()
        self.dataloading_s = 0.0
        self.batch_count = 0
        self._epoch, self._position = settings.epoch, 0
        self._resume: Optional[State] = None
        self._token = (settings.epoch, settings.resume)
        self._strict = True
        self._info: Optional[FeedInfo] = None
        self._opened_at: Optional[Tuple[int, int]] = None  # (epoch, position), until a batch is taken
        self._running: Optional[object] = None  # stands for the epoch under way, whose iterator the feed does not keep
        self._layout: Optional[Layout] = None
        self._held: "List[weakref.ref[Arrays]]" = []
        self._compared = False
        self._has_bad_frames = False  # and the user was warned
        self._norm: Optional[Norm] = None  # None: a daemon of 0.1.0, which does not say
        self._images: Optional[Images] = None  # None: there are none
        self._is_unchecked = False  # a session has begun, and how it makes images was not asked yet
        self._ask_after = 0.0  # time.monotonic() of the next question
        self._gpu_ranks: Optional[Sequence[int]] = None
        self._stage: Any = None
        on_device = settings.device != "cpu"
        if settings.framework == "torch":
            arrays.import_torch()
        self._adopt = arrays.adopter() if settings.framework == "torch" and not on_device else None
        self._connection = Connection(settings)
        self._client = self._connection.client
        if on_device and settings.zero_copy:
            from .gpu import Direct
            client = self._client
            self._stage = Direct(settings.device, lambda: client.gpu_refusal)
        elif on_device:
            from .cuda import Stage
            self._stage = Stage(settings.device)
        _feeds.add(self)

    # ---- epochs ----

    def epoch(self, epoch: SupportsIndex) -> Epoch:
        """Opens epoch `epoch` and returns an iterator over its batches.

        The order of the windows depends only on the feed's seed and on `epoch`. The epoch begins at its first window,
        or where the loaded state stands if that state belongs to this epoch."""
        epoch = self._number(epoch)
        resume = self._resume
        position = resume.position if resume is not None and resume.epoch == epoch else 0
        self._open(epoch, position)
        self._resume, self._token = None, (epoch, None)
        self._running = object()
        self._stand(epoch, position)
        return Epoch(self, self._running, epoch, position)

    @staticmethod
    def _number(epoch: SupportsIndex) -> int:
        """Checks an epoch's number. Integers of numpy are accepted too."""
        number = operator.index(epoch)
        if not 0 <= number < (1 << 64) - 1:
            raise ArgumentError(f"epoch {number}: epochs count from 0")
        return number

    def forever(self) -> Iterator[Batch]:
        """Returns an iterator over all following epochs, beginning where the feed stands. It does not end."""
        while True:
            yield from self.epoch(self._epoch)

    def __iter__(self) -> Epoch:
        return self.epoch(self._epoch)

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Sets the epoch of the next iteration. Without it, epochs follow one another.

        A loaded state of that epoch stays in force."""
        epoch = self._number(epoch)
        self._stand(epoch, self._resume.position if self._resume is not None and self._resume.epoch == epoch else 0)

    def __len__(self) -> int:
        """The number of batches of a whole epoch: of each rank in mode shard, of all workers together in mode queue."""
        return self.info.batches

    @property
    def info(self) -> FeedInfo:
        """The description of the feed. Opens the feed if it is not open yet."""
        self._opened()
        assert self._info is not None
        return self._info

    # ---- state ----

    def state_dict(self) -> Dict[str, Any]:
        """Returns the job's position as a small dict that JSON can hold, the same on every rank.

        The last batch that was returned counts as worked on, so call it after that batch."""
        if self._resume is not None and self._running is None:
            return self._resume.to_dict()
        info = self.info
        position, token = self._position, None
        if not self._settings.shard and self._running is not None:
            token = self.checkpoint()
            front = frontier(token)
            if front is not None:  # one worker, or several at the same batch: the position is enough
                position, token = front, None
        return State(info.seed, self._epoch, position, info.fingerprint, token, self._norm, self._images).to_dict()

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Continues at `state` with the next iteration, or with the next epoch() of that epoch.

        Exactly the windows that were not worked on follow, even with another world size or batch size. Raises
        StateError for a state of another dataset, other windows, another seed or other normalisation. States of trajd
        0.1.0 count as `norm: {over: windows}`. With strict=False its epoch and position are used all the same. Other
        images (crop, colour, augmentation, ...) give a DataWarning that names the outputs and keys which differ."""
        parsed = parse(state)
        if parsed.token is not None and self._settings.shard:
            raise StateError("the state is of a job of mode queue whose workers stood at different batches: "
                             "it can continue only in mode queue")
        if strict and self._info is not None:
            self._check(parsed, self._info)
        self._resume, self._strict, self._running = parsed, strict, None
        self._token = (parsed.epoch, parsed.token if strict else None)
        self._opened_at = None
        self._stand(parsed.epoch, parsed.position)

    def checkpoint(self) -> bytes:
        """Returns a token of the windows of this epoch that are DONE, over all workers of a job in mode queue.

        It is an argument of connect(resume=...). Unlike state_dict(), it does not say which statistics normalise the feed
        and how images are made: a job that goes on with others gets no error and no warning. Compare info.norm_digest and
        info.values_digest, or keep the state. The last batch that
        this worker was given counts as worked on. Raises ArgumentError in mode shard."""
        last = self._held[-1]() if self._held else None
        if self._stage is not None:
            self._stage.done()
        elif last is not None and not last.core.released:
            last.core.done()
        return self._connection.request(self._client.checkpoint)

    def _token_for(self, epoch: int) -> Optional[bytes]:
        return self._token[1] if self._token[0] == epoch else None

    def _stand(self, epoch: int, position: int) -> None:
        self._epoch, self._position = epoch, position

    def _check(self, state: State, info: FeedInfo) -> None:
        if state.fingerprint != info.fingerprint:
            raise StateError(f"the state has fingerprint {state.fingerprint:016x}, and feed {self._settings.title} has "
                             f"{info.fingerprint:016x}: another dataset, layout or windows, or another `version:` of the "
                             "configuration (`version: 1` continues states of trajd 0.1.0; strict=False uses the state all "
                             "the same)")
        if state.seed != info.seed:
            raise StateError(f"the state has seed {state.seed}, and feed {self._settings.title} has seed {info.seed}: "
                             "another order (strict=False uses the state all the same)")
        if self._norm is not None:
            check_norm(state.norm, self._norm, self._settings.title)

    # ---- the daemon ----

    def _open(self, epoch: int, position: int) -> None:
        if self._opened_at == (epoch, position):
            return
        settings, resume = self._settings, self._resume
        register(Batch, Group)
        self._running = None
        remaining = self._stage.leave() if self._stage is not None else []
        token = self._token_for(epoch)
        gpu_ranks = self._find_gpu_ranks()
        opened = self._connection.request(lambda timeout_ms: self._client.open(
            feed=settings.feed, spec=settings.spec, job=settings.job, shard=settings.shard,
            rank=settings.topology.rank, world=settings.topology.world_size,
            local_ranks=settings.topology.local_ranks, credit=settings.credit, epoch=epoch,
            next=position if token is None else 0, resume=token, timeout_ms=timeout_ms,
            gpu=getattr(self._stage, "uuid", None), gpu_ranks=gpu_ranks,
            unfinished=_RATHER_UNFINISHED if settings.finishes else _UNFINISHED), OPEN_MS)
        remaining.clear()
        info = FeedInfo(**opened)
        if self._norm is None or self._norm.digest != info.norm_digest:
            self._norm = self._connection.norm(info.norm_digest)
        if info.values_digest <= 1:
            self._images = None
        elif self._images is None or self._images.digest != info.values_digest:
            self._notice_images(self._images)
        if resume is not None:
            warn_of_images(resume.images, self._images, settings.title)
        if resume is not None and self._strict:
            self._check(resume, info)
        if self._info is not None and info.fingerprint != self._info.fingerprint:
            self._connection.forget_texts()
        if not self._compared:  # before the feed counts as open: an error must come again at the next call
            agree.compare(settings, info, self._connection)
            self._compared = True
        self._info, self._layout, self._opened_at = info, None, (epoch, position)
        feed_info.report(info, settings)

    def _notice_images(self, before: Optional[Images], timeout_ms: Optional[int] = None) -> None:
        """Asks how the open feed makes its images. Warns if that differs from `before`."""
        self._images = self._connection.images(timeout_ms)
        warn_of_images(before, self._images, self._settings.title)

    def _check_session(self, core: "_core.Batch") -> None:
        """Called with each batch. The first one of a session may come from a daemon that was started again.

        If the daemon has no time to answer, a batch asks again a second later."""
        self._is_unchecked = self._is_unchecked or core.sequence == 1
        if not self._is_unchecked or self._images is None or time.monotonic() < self._ask_after:
            return
        before, self._layout = self._images, None
        self._ask_after = time.monotonic() + _ASK_AGAIN_S
        with contextlib.suppress(Busy, Timeout, Closed):
            self._notice_images(before, timeout_ms=200)
            self._is_unchecked, self._ask_after = False, 0.0

    def _check_frames(self, core: "_core.Batch") -> None:
        """Called with each batch. Tells of the first bad frames. Masks in a GPU's memory are not looked at."""
        if not self._has_bad_frames and core.gpu < 0:
            self._has_bad_frames = report_bad_frames(core, self._lay_out(core), self._settings.title)

    def _find_gpu_ranks(self) -> Optional[Sequence[int]]:
        settings = self._settings
        if self._gpu_ranks is None and settings.shard and settings.topology.world_size > 1:
            self._gpu_ranks = settings.gpu_ranks or topology.ranks_beside(
                getattr(self._stage, "uuid", None), settings.topology)
        return self._gpu_ranks

    def _opened(self) -> Connection:
        """Returns the connection, with the feed open."""
        if self._info is None:
            self._open(self._epoch, self._position)
        return self._connection

    def episodes(self) -> List[Dict[str, Any]]:
        """Returns a dict for each episode: dataset, file, name, rows, digest, texts, and why it is not used if so.

        Opens the feed if it is not open yet. Raises Timeout and Closed."""
        return self._opened().episodes()

    def explain(self, window_id: int, output: Optional[str] = None, pass_number: int = 0) -> Explanation:
        """Returns the origin of a window: source file, rows, stamps, weights, and why steps are masked.

        `output` limits it to one output. Goals are those that pass `pass_number` over the dataset draws: its epoch, unless
        the feed has `epoch:` or mixes datasets. Raises NotFound."""
        return self._opened().explain(window_id, output, pass_number)

    def stats(self, names: Optional[List[str]] = None, progress: Optional[str] = None) -> Any:
        """Returns trajd.Stats of outputs, over each row of this feed's episodes once.

        An output with `norm: {over: windows}` is counted over all windows instead, without padding. `names` lists the
        outputs; None means all except images. If the feed mixes datasets, the statistics are of each dataset, with the
        names DATASET:NAME, and a dataset that lacks an output has none for it. The daemon computes the statistics once
        and stores them, so the first call may take long. How far it is is shown as by trajd.open: on a terminal in one
        line, else in a line each 10 s, or with progress="tqdm" as a bar of tqdm."""
        check_progress(progress)
        return self._opened().statistics(names, progress)

    def status(self) -> Dict[str, Any]:
        """Returns the daemon's status: feeds, workers, rates, and what each feed waits for.

        A dict with the document of STATUS, which the page of the protocol describes. Raises Timeout and Closed."""
        return self._connection.status()

    def metrics(self) -> Dict[str, float]:
        """Returns numbers for W&B and TensorBoard: `wandb.log(feed.metrics(), step=step)`.

        Totals grow from the begin of the session on. `trajd/wait_seconds/CAUSE` is how long this process had no batch to
        work on, and what production did then: rows, decode, kernels, slots (other workers held them), other.
        `trajd/bad_frames` counts frames of the feed's datasets that could not be decoded, each time it was tried.
        `trajd/nobody_asks_seconds` is how long production waited for this process: the data is ahead. It sends one
        request, which the daemon answers at most ten times a second: call it every few seconds."""
        numbers = {"trajd/dataloading_seconds": self.dataloading_s, "trajd/batches": float(self.batch_count)}
        return {**numbers, **feed_info.flatten(self.status(), self._settings.feed, self.pid)}

    # ---- batches ----

    def _describe_held(self) -> str:
        positions = ", ".join(str(core.position) for core in self._held_cores())
        return f"the Batch objects at positions {positions}" if positions else "arrays of batches that are gone"

    def _held_cores(self) -> List[Any]:
        """Returns the batches that the program holds, as a Batch or as a group of one."""
        return [held.core for held in (ref() for ref in self._held) if held is not None and not held.core.released]

    def _next_core(self, timeout: Optional[float]) -> Optional["_core.Batch"]:
        """Waits for the next batch. Warns once if it takes long, or if this process holds all batches of its credit."""
        end = None if timeout is None else time.monotonic() + timeout
        warned = logged = False
        while True:
            wait = _WARNING_AFTER_S if end is None else min(_WARNING_AFTER_S, max(0.0, end - time.monotonic()))
            try:
                core = self._client.next(int(wait * 1000 + 0.999))  # rounded up, so that it does not end too early
                if core is not None:
                    self._check_session(core)
                    self._check_frames(core)
                return core
            except Busy as error:
                message = (f"feed {self._settings.title}: {error}. This process holds {self._describe_held()}. Their "
                           "memory goes back when they and all their arrays are gone. Copy arrays that you keep, or "
                           "raise credit= (and slots: of the feed)")
                if warned or (end is not None and time.monotonic() >= end):
                    raise Busy(message) from None
                warnings.warn(message, RuntimeWarning, stacklevel=5)
                warned = True
            except Timeout:
                self._connection.check_failure()
                shared = self._has_other()
                why = ("another feed of this process is of the same job, and batches wait there: close() it, or give "
                       "one of the feeds another job=")
                if end is not None and time.monotonic() >= end:
                    raise Timeout(
                        f"feed {self._settings.title}: no batch in {timeout} s{': ' + why if shared else ''}") from None
                if not logged:
                    log.warning("feed %s: no batch for %d s: %s", self._settings.title, _WARNING_AFTER_S,
                                why if shared else
                                "the daemon is gone, or waits for files or other ranks (see trajctl status)")
                    logged = True

    def _has_other(self) -> bool:
        """Returns True if another open feed of this process is a worker of the same job in mode queue."""
        def reads(settings: Settings) -> Any:
            return settings.endpoint, settings.feed, settings.spec, settings.job, settings.shard

        return not self._settings.shard and any(
            other is not self and other.pid == self.pid and not other.closed and reads(other._settings) == reads(self._settings)
            for other in list(_feeds))

    def _lay_out(self, core: "_core.Batch") -> Layout:
        if self._layout is None:
            entries = core.schema()
            finishes = {index: arrays.Finish(*entry[5]) for index, entry in enumerate(entries) if entry[5]}
            schema = [styles.Tensor(*entry[:5]) for entry in entries]
            for index, finish in finishes.items():
                schema[index] = schema[index]._replace(dtype=finish.dtype, shape=finish.shape(schema[index].shape))
            self._layout = Layout(schema, styles.make_plan(self._settings.style, schema), finishes)
            styles.name_preset(self._settings.style, self._settings.title, self._layout.plan)
        return self._layout

    def _view_of(self, core: "_core.Batch") -> Any:
        copy = not core.writable and not self._settings.zero_copy
        return arrays.RingView(core, self._lay_out(core), self._settings.framework, copy, self._adopt if core.writable else None)

    def _take(self) -> Optional[Batch]:
        self._opened_at = None
        if self._stage is not None:
            taken = self._stage.take(self._next_core, self._settings.timeout, self._lay_out)
            if taken is None:
                return None
            core, view = taken
        else:
            core = self._next_core(self._settings.timeout)
            if core is None:
                return None
            view = self._view_of(core)
        made = Arrays(core, self._lay_out(core), view, self._connection)
        self._held = [ref for ref in self._held if ref() is not None]
        self._held.append(weakref.ref(made))
        return Batch._of(made)

    # ---- its end ----

    def fail(self, error: Exception) -> None:
        """Ends all waits for the daemon with LaunchError. Any thread may call it."""
        self._connection.fail(error)

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._client.closed

    def close(self) -> None:
        """Ends the session. Batches that the program holds stay readable, and count as worked on."""
        self._running = self._opened_at = None
        if self._stage is not None:
            self._stage.end()
        if self._info is not None and not self.closed:
            self._leave()
        self._client.close()

    def _leave(self) -> None:
        """Leaves the feed before close(), because the session lives on while batches are held.

        Without that, the session would still be given batches that no one reads. An OPEN that is refused leaves the
        feed, so this sends one for a feed that does not exist."""
        held = self._held_cores()
        for core in held:
            core.done()
        self._held.clear()
        try:
            # without a daemon nothing is waited for: the OPEN counts when the daemon returns
            self._client.open(feed="(closing)", timeout_ms=_CLOSING_MS if self._client.connected() else 1)
        except Error:
            pass

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # __init__ failed, or the daemon is gone
            if self.pid == os.getpid() and not self.closed:  # a forked process must not end its parent's session
                self.close()

    def __enter__(self) -> "Feed":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a feed is a connection of this process and cannot be sent to another: "
                        "trajd.torch.FeedDataset can")

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"epoch {self._epoch}, position {self._position}"
        return f"Feed({self._settings.title}, {state})"
