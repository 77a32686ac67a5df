"""Starts private daemons: one for each user, node, job and configuration.

A private daemon is started when it is needed, and ends a minute after its last worker. It needs neither root nor
systemd. Python needs no YAML library either: the daemon reads its configuration and prints it as JSON.

If N ranks call at the same time, one daemon is started. Each rank locks `launch.lock` in the daemon's private folder by
flock. The rank that has the lock and finds no daemon starts one, and passes the lock on to it (--ready-fd). The daemon
writes "ready" into the file and unlocks it when it can serve. So all ranks only wait for the lock, and the kernel
unlocks it if its holder dies.

A daemon is alive if it holds the lock in its runtime directory. A socket proves nothing, because it remains after
kill -9.
"""
import contextlib
import copy
import errno
import fcntl
import hashlib
import json
import logging
import os
import pathlib
import re
import resource
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
import weakref
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple, Union

from .errors import ArgumentError, Error, LaunchError, MissingFile, Timeout, names_there_are
from .folders import (Held, Lock, cache_folder, held_twice, make_private, note_datasets, opened, private_folder,
                      read_regular, remove_old)
from .folders import is_alive as _is_alive
from .progress import Waiting, last_lines
from .topology import is_ray_worker, ray_train

Config = Union[str, "os.PathLike[str]", Mapping[str, Any]]

# for keys that the configuration does not set
PRESETS = {"exit_idle": "60s", "memory.store": "50%", "memory.rings": "25%"}
DEFAULT_SESSIONS = 256  # of limits.sessions
LOG_LINES = 12  # of the daemon's log, in messages
CHECK_INTERVAL_S = 1.0  # between two checks whether the daemon is alive
LONGEST_PAUSE_S = 60.0  # between two starts of a daemon that dies again and again
COPIES_INTERVAL_S = 10.0  # between two looks for daemons of other configurations with the same data
STABLE_AFTER_S = 60.0  # a daemon that has lived so long is not dying again and again

log = logging.getLogger("trajd")

_started: List["subprocess.Popen[bytes]"] = []  # children of this process, kept so that they are reaped
_reported_copies: Set[str] = set()  # lines that this process has printed


class StartKilled(LaunchError):
    """A daemon ended while it started and reported no error, as after kill -9: it may start the next time."""


class Target(NamedTuple):
    """An endpoint, and either the name of a feed there or a specification to send."""

    endpoint: str
    feed: Optional[str]
    spec: Optional[str]
    private: Optional["Private"] = None  # None: the daemon of $TRAJD_ENDPOINT


def resolve(config: Config, feed: Optional[str] = None, overrides: Optional[Mapping[str, Any]] = None, *,
            job: Optional[str] = None, timeout: Optional[float] = None, progress: Optional[str] = None) -> Target:
    """Returns the daemon for a configuration and the feed to open there. Starts a private daemon if needed.

    The daemon is that of $TRAJD_ENDPOINT if it is set, else a private one. `feed` may be left out if the configuration
    has only one. `overrides` are merged into the feed's mapping (None removes a key) and sent as a specification.
    Raises LaunchError, MissingFile and Timeout.
    """
    source = _Source(config)
    feeds = source.document["feeds"]
    if feed is None and len(feeds) == 1:
        feed = next(iter(feeds))
    if feed is None:
        raise LaunchError(f"{source.name}: give feed=, there are: {', '.join(feeds) or 'none'}")
    if feed not in feeds:
        raise LaunchError(f"{source.name}: no feed {feed} ({names_there_are(feed, feeds)})")
    endpoint, private = os.environ.get("TRAJD_ENDPOINT"), None
    if not endpoint:
        private = Private(source, job)
        endpoint = private.ensure(timeout, progress)
    if not overrides:
        return Target(endpoint, feed, None, private)
    return Target(endpoint, None, json.dumps(merge(feeds[feed], overrides)), private)


def ensure_daemon(config: Config, *, job: Optional[str] = None, timeout: Optional[float] = None) -> str:
    """Returns the endpoint of the private daemon for `config`, a path or a dict. Starts the daemon if it does not run.

    Returns when the daemon can serve. Processes of one job get the same daemon; `job` defaults to job_id(). Paths in a
    dict are relative to the current directory. Raises LaunchError with the daemon's errors if it does not start, and
    Timeout after `timeout` seconds. The default is to wait without limit, because the first indexing of a large dataset
    may take long.
    """
    return Private(_Source(config), job).ensure(timeout)


def job_id() -> str:
    """Returns a text that is the same in all processes of one job on this node, and different in other jobs.

    It names the first of these that exists: $TRAJD_JOB; Ray's job, node address, and run of Ray Train; the scheduler's job
    (Slurm with its step, PBS, LSF, PMIx); the rendezvous of torch.distributed; the session (terminal, notebook,
    container) to which this process belongs.
    """
    env = os.environ
    if env.get("TRAJD_JOB"):
        return "job " + env["TRAJD_JOB"]
    ray = sys.modules.get("ray")
    if ray is not None and is_ray_worker(env) and ray.is_initialized():
        # A rendezvous would be another one when Ray starts the workers again. Ray counts ranks as local by the address
        # of their node, so a daemon serves those of one address.
        runtime, run = ray.get_runtime_context(), ray_train(env)
        name = run.get_experiment_name() if run is not None else ""
        return f"ray {runtime.gcs_address} {runtime.get_job_id()} {ray.util.get_node_ip_address()} {name}"
    if env.get("SLURM_JOB_ID"):
        return f"slurm {env['SLURM_JOB_ID']}.{env.get('SLURM_STEP_ID', '')}"
    for name in ("PBS_JOBID", "LSB_JOBID", "PMIX_NAMESPACE"):
        if env.get(name):
            return f"{name} {env[name]}"
    if env.get("MASTER_ADDR") and env.get("MASTER_PORT"):
        return f"rendezvous {env['MASTER_ADDR']}:{env['MASTER_PORT']}"
    return f"session {os.getsid(0)}"


# where a program is in the build tree, and in an installation relative to this package or to a program on PATH
_PLACES = {"trajd": ("daemon/trajd", "bin/trajd"), "trajctl": ("clients/cli/trajctl", "bin/trajctl"),
           "trajd-decoder": ("daemon/decode/trajd-decoder", "libexec/trajd/trajd-decoder")}


def program(name: str = "trajd") -> str:
    """Returns the path of a program: $TRAJD_PROGRAM (for trajd), else in this package or build tree, else on PATH.

    A helper program, which is not on PATH itself, is found beside trajctl, which is. Raises LaunchError."""
    package = pathlib.Path(__file__).parent
    built, installed = _PLACES[name]
    places = [package / installed, package.parents[2] / built if len(package.parents) > 2 else package / name]
    if name == "trajd" and os.environ.get("TRAJD_PROGRAM"):
        return os.environ["TRAJD_PROGRAM"]
    beside = shutil.which("trajctl") if installed.startswith("libexec/") else None
    if beside:
        places.append(pathlib.Path(beside).resolve().parents[1] / installed)
    for place in places:
        if place.is_file() and os.access(place, os.X_OK):
            return str(place)
    found = shutil.which(name)
    if not found:
        raise LaunchError(f"{name} is neither in this package ({places[0]}) nor on PATH, and $TRAJD_PROGRAM is not set")
    return found


def read_config(path: Union[str, "os.PathLike[str]"]) -> Dict[str, Any]:
    """Returns all keys of a configuration with their values in force, as the daemon reads them."""
    done = subprocess.run([program(), "--config", os.fspath(path), "--print-config", "--json"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise LaunchError(_errors_in(done.stderr) or f"{program()} ended with status {done.returncode}")
    document: Dict[str, Any] = json.loads(done.stdout)
    return document


def merge(base: Any, changes: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns `base` with `changes` merged into it, nested mappings included. None removes a key."""
    merged = dict(base) if isinstance(base, Mapping) else {}
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            merged[key] = merge(merged.get(key), value)
        else:
            merged[key] = value
    return merged


# ---- the configuration ----


def check_config(config: Config) -> None:
    """Raises MissingFile if the configuration does not exist, and ArgumentError if it cannot be one."""
    if isinstance(config, Mapping):
        return
    path = os.fspath(config)
    if "://" in path or os.path.isdir(path):
        raise ArgumentError(f"{path}: this is not a configuration (a YAML file). If it is a daemon's endpoint, give it to "
                            "trajd.connect, or to FeedDataset as endpoint=")
    if not os.path.exists(path):
        raise MissingFile(errno.ENOENT, f"No such configuration in {os.getcwd()}", path)


class _Source:
    """A configuration: its path, name and content. A dict is written to a file in the private folder."""

    def __init__(self, config: Config):
        check_config(config)
        if isinstance(config, Mapping):
            text = json.dumps(_absolute(config), sort_keys=True)
            self.name = "configuration"
            folder = private_folder() / "configs"
            make_private(folder)
            self.path = folder / (hashlib.sha256(text.encode()).hexdigest()[:16] + ".json")
            _write_once(self.path, text)
        else:
            self.path = pathlib.Path(os.path.realpath(os.fspath(config)))
            self.name = self.path.name
        self.document = read_config(self.path)

    def check_datasets(self) -> None:
        for name, dataset in self.document["datasets"].items():
            if not os.path.exists(dataset["path"]):
                raise MissingFile(errno.ENOENT, f"{self.name}: no such file or folder: datasets.{name}.path",
                                  dataset["path"])

    def digest(self, *others: str) -> str:
        """Returns a digest of the configuration, its layouts, datasets and other files, the program and `others`.

        All but the configuration and its layouts enter it by size and times."""
        parts = [str(self.path), *others]
        for path in [str(self.path)] + [d["layout"] for d in self.document["datasets"].values() if _is_file(d["layout"])]:
            parts.append(read_regular(path))
        files = [self.path.parent / holder[key] for holder, key in _feed_files(self.document["feeds"])]
        for path in [d["path"] for d in self.document["datasets"].values()] + [program(), *files]:
            with contextlib.suppress(OSError):  # the daemon reports a missing file with a better message
                found = os.stat(path)
                parts.append(f"{path} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}")
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _is_file(layout: str) -> bool:
    """Tells whether a layout is a file, and not the name of one of trajd's."""
    return "/" in layout or layout.endswith(".yaml")


def _absolute(config: Mapping[str, Any]) -> Dict[str, Any]:
    """Makes the paths of a dict absolute. They are relative to the current directory."""
    result = dict(config)
    result.setdefault("version", 2)
    for key in ("runtime", "cache", "state"):
        if isinstance(result.get(key), (str, os.PathLike)):
            result[key] = os.path.abspath(result[key])
    if isinstance(result.get("datasets"), Mapping):
        result["datasets"] = {name: dict(value) if isinstance(value, Mapping) else value
                              for name, value in result["datasets"].items()}
        for value in result["datasets"].values():
            if isinstance(value, dict):
                if isinstance(value.get("path"), (str, os.PathLike)):
                    value["path"] = os.path.abspath(value["path"])
                if isinstance(value.get("layout"), (str, os.PathLike)) and _is_file(os.fspath(value["layout"])):
                    value["layout"] = os.path.abspath(value["layout"])
    if isinstance(result.get("feeds"), Mapping):
        result["feeds"] = copy.deepcopy(dict(result["feeds"]))
        for holder, key in _feed_files(result["feeds"]):
            holder[key] = os.path.abspath(holder[key])
    return result


def _feed_files(feeds: Mapping[str, Any]) -> Iterator[Tuple[Dict[str, Any], str]]:
    """Yields each place of a file's path in feeds: the mapping and its key."""
    def mappings(value: Any) -> List[Dict[str, Any]]:
        return [v for v in value.values() if isinstance(v, dict)] if isinstance(value, dict) else []

    for feed in mappings(feeds):
        mix = feed.get("mix") if isinstance(feed.get("mix"), dict) else {}
        for holder in [feed, *mappings(mix), *mappings(mix.get("datasets"))]:
            if isinstance(holder.get("ranges"), (str, os.PathLike)):
                yield holder, "ranges"
        for output in mappings(feed.get("outputs")):
            if isinstance(output.get("norm"), dict) and isinstance(output["norm"].get("stats"), (str, os.PathLike)):
                yield output["norm"], "stats"


def _write_once(path: pathlib.Path, text: str) -> None:
    """Writes a file whose name is a digest of its content. Safe for concurrent writers and readers."""
    with contextlib.suppress(OSError):
        if path.read_text() == text:
            os.utime(path)  # in use: remove_old leaves it
            return
    fresh = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    fresh.write_text(text)
    fresh.replace(path)


# ---- starting ----


class Private:
    """The private daemon of a configuration and a job. It may be running or not."""

    def __init__(self, source: _Source, job: Optional[str] = None):
        source.check_datasets()
        self._job = "job " + job if job else job_id()
        self._source, self._was_ready = source, False
        self._digest = digest = self._digest_now()
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", source.path.stem[:20])
        self._place = make_private(private_folder() / f"{name}-{digest}")

    def _digest_now(self) -> str:
        return self._source.digest(socket.gethostname(), self._job)

    def _note_start(self) -> None:
        """Notes which configuration the daemon reads. A job starts it again after the file has been edited, too."""
        now = self._digest_now()
        (self._place / "started").write_text(now)
        if now != self._digest:
            print(f"trajd: {self._source.name} or its data have changed since this job opened it, and its daemon has ended. "
                  "The daemon starts again with them as they are now. If it refuses the feed, put them back and start the "
                  "job again.", file=sys.stderr, flush=True)

    def _endpoint(self) -> str:
        """Returns the endpoint of the daemon that runs. Raises LaunchError if it reads another configuration."""
        if not self._was_ready:
            with contextlib.suppress(FileNotFoundError):
                if (self._place / "started").read_text() != self._digest:
                    raise LaunchError(
                        f"{self._source.name} was edited and put back. A job that had opened it before has started its "
                        f"daemon again in between, so the daemon at {self._place / 'run'} reads the edited file. It ends a "
                        "minute after its last worker: wait, or end that job")
        self._was_ready = True
        return str(self._place / "run")

    def ensure(self, timeout: Optional[float] = None, progress: Optional[str] = None) -> str:
        """Returns the daemon's endpoint when it can serve. Starts the daemon if no other process does.

        progress="tqdm" shows how far it is with a bar of tqdm.

        Raises LaunchError and Timeout."""
        place, source = self._place, self._source
        end = None if timeout is None else time.monotonic() + timeout
        before = _read_attempt(place)
        with _locked(place, end, progress) as lock:
            if _is_alive(place):
                return self._endpoint()
            attempt = _read_attempt(place)
            if attempt and attempt[0] != (before or [""])[0] and attempt[1:] != ["ready"] and _tail(place):
                raise _failure(source, place)  # another process has just failed, and this one would fail the same way
            remove_old(place.parent)
            self._note_start()
            note_datasets(place, Held(source.name, str(source.path), self._job,
                                      [d["path"] for d in source.document["datasets"].values()]))
            process = _start(source, place, lock)
        with _locked(place, end, progress):
            if _is_alive(place):
                return self._endpoint()
            with contextlib.suppress(subprocess.TimeoutExpired):
                if process is not None:
                    process.wait(5)
            raise _failure(source, place, process.returncode if process is not None else None)

    def report_copies(self) -> None:
        """Says why other private daemons of this user hold the same datasets in memory, too. Once in a process."""
        for line in held_twice(self._place):
            if line not in _reported_copies:
                _reported_copies.add(line)
                print(line, file=sys.stderr, flush=True)

    def is_gone(self) -> bool:
        """Returns True if the daemon neither runs nor is being started."""
        try:
            with opened(self._place / "launch.lock") as lock:
                fcntl.flock(lock.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return not _is_alive(self._place)
        except FileNotFoundError:
            return True  # its folder was removed
        except BlockingIOError:
            return False


def _read_attempt(place: pathlib.Path) -> List[str]:
    """Returns the lines of the lock file: a name of the last attempt to start, and "ready" if it succeeded."""
    with contextlib.suppress(FileNotFoundError):
        return (place / "launch.lock").read_text().split()
    return []


@contextlib.contextmanager
def _locked(place: pathlib.Path, end: Optional[float], progress: Optional[str] = None) -> Iterator[Lock]:
    """Takes the lock. Raises Timeout at `end`. Shows meanwhile what the daemon does."""
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        waiting = stack.enter_context(contextlib.closing(Waiting(place / "log", progress)))
        make_private(place)  # remove_old of another process may have removed it since
        lock = stack.enter_context(opened(place / "launch.lock"))
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if lock.is_at(place / "launch.lock"):
                    break
                make_private(place)  # remove_old of another process had the lock
                lock = stack.enter_context(opened(place / "launch.lock"))
                continue
            if end is not None and time.monotonic() >= end:
                raise Timeout(f"the private daemon is not ready yet; its log: {place / 'log'}")
            waiting.show()
            time.sleep(min(max(0.0005, (time.monotonic() - began) / 50), 0.05))  # at most a fiftieth too late
        waiting.close()
        yield lock


def _few_descriptors() -> Dict[str, str]:
    """Returns the preset for a hard limit of descriptors that is too low for the default of limits.sessions."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    sessions = (hard - 160) // 5  # trajd_connections_descriptors: each worker needs 5, all else 160
    if hard == resource.RLIM_INFINITY or not 1 <= sessions < DEFAULT_SESSIONS:
        return {}
    print(f"trajd: the hard limit of open files is {hard} (ulimit -Hn), so the private daemon serves at most {sessions} "
          f"workers instead of {DEFAULT_SESSIONS}", file=sys.stderr, flush=True)
    return {"limits.sessions": str(sessions)}


def _start(source: _Source, place: pathlib.Path, lock: Lock) -> "Optional[subprocess.Popen[bytes]]":
    """Starts the daemon and passes the lock on to it. The daemon has its own session and outlives this process.

    A worker of Ray kills its children when it ends, and others read from this daemon. So there the daemon is the child of
    a shell that has ended, and None is returned."""
    path = place / "log"
    with contextlib.suppress(FileNotFoundError):
        path.replace(place / "log.1")  # says why the last daemon ended
    os.ftruncate(lock.fd, 0)
    os.pwrite(lock.fd, f"{uuid.uuid4().hex}\n".encode(), 0)
    os.lseek(lock.fd, 0, os.SEEK_END)
    command = [program(), "--config", str(source.path), "--ready-fd", str(lock.fd), "--log-file", str(path),
               "--set", f"runtime={place / 'run'}", "--set", f"state={make_private(place / 'state')}",
               "--preset", f"cache={cache_folder(place)}"]
    for key, value in {**PRESETS, **_few_descriptors()}.items():
        command += ["--preset", f"{key}={value}"]
    service = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "JOURNAL_STREAM", "LISTEN_FDS", "LISTEN_PID")
    lock.is_daemons = True
    is_orphan = is_ray_worker(os.environ)
    if is_orphan:
        command = ["/bin/sh", "-c", '"$@" >&2 & echo $!', "sh", *command]
    with open(path, "xb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if is_orphan else out, stderr=out,
                                   cwd="/", pass_fds=[lock.fd], start_new_session=True,
                                   env={k: v for k, v in os.environ.items() if k not in service})
    pid = int(process.communicate()[0]) if is_orphan else process.pid
    if not is_orphan:
        _started[:] = [child for child in _started if child.poll() is None] + [process]
    print(f"trajd: private daemon {pid} for {source.name} at {place / 'run'}, log: {path}",
          file=sys.stderr, flush=True)
    return None if is_orphan else process


def _tail(place: pathlib.Path) -> List[str]:
    return last_lines(place / "log")[-LOG_LINES:]


def _errors_in(text: str) -> str:
    """Returns the errors in a daemon's log without their stamps, or the whole text if there are none."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line.split(" error: ", 1)[1] for line in lines if " error: " in line]
    return "\n".join(errors or lines)


def _failure(source: _Source, place: pathlib.Path, status: Optional[int] = None) -> LaunchError:
    ended = "" if status is None else f" (killed by signal {-status})" if status < 0 else f" (status {status})"
    tail = "\n".join(_tail(place))
    errors = _errors_in(tail) or "nothing"
    return (LaunchError if " error: " in tail else StartKilled)(
        f"the private daemon for {source.name} did not start{ended}. Its errors: {errors}\nIts log: {place / 'log'}")


# ---- watching ----


class DaemonWatcher:
    """Restarts a private daemon that dies while a feed of this process uses it. The feed then goes on where it was.

    It also reports datasets that a daemon of another configuration holds in memory, too, if `reports_copies`.

    A context manager around the connecting. Its thread runs until the feed is closed or deleted."""

    def __init__(self, private: Private, reports_copies: bool):
        self._private, self._over = private, threading.Event()
        self._reports_copies = reports_copies
        self._feed: Optional["weakref.ref[Any]"] = None
        self._failure: Optional[Exception] = None

    def __enter__(self) -> "DaemonWatcher":
        threading.Thread(target=self._run, name="trajd-watcher", daemon=True).start()
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            self._over.set()

    def watch(self, feed: Any) -> Any:
        self._feed = weakref.ref(feed)
        if self._failure is not None:
            feed.fail(self._failure)
        return feed

    def _report_copies(self, reported_at: float) -> float:
        """Reports datasets that another daemon holds, too. Returns when it last did."""
        if not self._reports_copies or time.monotonic() - reported_at < COPIES_INTERVAL_S:
            return reported_at
        self._private.report_copies()
        return time.monotonic()

    def _fail(self, error: Exception) -> None:
        """Ends the feed's waits. A feed that is just being made gets the error when it is there."""
        self._failure = error
        feed = self._feed() if self._feed is not None else None
        if feed is not None:
            feed.fail(error)

    def _is_over(self) -> bool:
        feed = self._feed() if self._feed is not None else None
        return self._feed is not None and (feed is None or feed.closed)

    def _run(self) -> None:
        pause, started_at = CHECK_INTERVAL_S, -STABLE_AFTER_S
        reported_at = -COPIES_INTERVAL_S
        while not self._over.wait(pause) and not self._is_over():
            try:
                is_stable = time.monotonic() - started_at > STABLE_AFTER_S
                if is_stable:
                    pause = CHECK_INTERVAL_S
                if not self._private.is_gone():
                    reported_at = self._report_copies(reported_at)
                    continue
                if not is_stable:  # a daemon that dies again and again is started less and less often
                    pause = min(2 * pause, LONGEST_PAUSE_S)
                self._private.ensure()
                started_at = time.monotonic()
            except StartKilled as error:
                log.warning("%s", error)
                started_at = time.monotonic()
            except (Error, OSError) as error:
                log.error("the private daemon died and does not start again: %s", error)
                self._fail(error)
                return
