"""The build under test: its programs, its Python package and its daemon. Only what a user has."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

LIMIT_S = 180
# what would change how a program looks for its files, or how it writes
UNSET = (
    "TRAJD_ENDPOINT",
    "TRAJD_JOB",
    "TRAJD_PROGRAM",
    "TRAJD_RUNTIME_DIR",
    "XDG_RUNTIME_DIR",
    "RANK",
    "WORLD_SIZE",
    "COLUMNS",
    "CACHE_DIRECTORY",
    "STATE_DIRECTORY",
    "RUNTIME_DIRECTORY",
)


class Build:
    """`folder` is a build folder, or one with an installed package (trajd/bin). All files are
    written in `work`."""

    def __init__(self, folder, work, device, threads, artefacts):
        self.folder, self.work, self.device, self.threads = folder, work, device, threads
        self.artefacts = artefacts
        installed = folder / "trajd" / "bin"
        self.package = folder if installed.is_dir() else folder / "clients" / "python"
        self.trajctl = (
            installed / "trajctl" if installed.is_dir() else folder / "clients" / "cli" / "trajctl"
        )
        self.daemon_program = (
            installed / "trajd" if installed.is_dir() else folder / "daemon" / "trajd"
        )
        for program in (self.trajctl, self.daemon_program):
            if not program.exists():
                sys.exit(f"net.py: {program} is missing: build it, or give another --build")

    def prepare(self, data, recordings):
        """Makes this process one that uses the build: its package, and an environment without
        settings of trajd."""
        for name in UNSET:
            os.environ.pop(name, None)
        os.environ.update(
            LC_ALL="C.UTF-8",
            TRAJD_JOB="net",
            TRAJD_RUNTIME_DIR=str(self.work / "private"),
            TERM="dumb",
        )
        (self.work / "private").mkdir(mode=0o700, exist_ok=True)
        for name, folder in {"data": data, "recordings": recordings}.items():
            if folder.is_dir() and not os.path.lexists(name):
                os.symlink(folder, name)
        sys.path.insert(0, str(self.package))
        import trajd

        assert pathlib.Path(trajd.__file__).is_relative_to(self.package), trajd.__file__

    def run(self, *arguments, program=None, **options):
        """Runs trajctl to its end. Returns the finished process, whose output is text."""
        return subprocess.run(
            [program or self.trajctl, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            **options,
        )

    def must(self, *arguments, **options):
        """Runs trajctl, which must succeed. Returns its output."""
        done = self.run(*arguments, **options)
        if done.returncode:
            raise RuntimeError(
                f"trajctl {' '.join(map(str, arguments))} ended with {done.returncode}: "
                f"{done.stderr}"
            )
        return done.stdout

    def thread_options(self):
        return ("--threads", self.threads) if self.threads else ()

    @contextlib.contextmanager
    def daemon(self, document, name):
        """Starts a daemon with a configuration, which is a dict. Yields its endpoint; the daemon
        ends with the block."""
        config, log_path = write_config(f"{name}.yaml", self.complete(document)), pathlib.Path(
            f"{name}.log"
        )
        # the path of a socket must be short, whatever the folder is called
        with tempfile.TemporaryDirectory(prefix="net") as runtime, open(log_path, "w") as log:
            ready, told = os.pipe()
            process = subprocess.Popen(
                [
                    self.daemon_program,
                    "--config",
                    config,
                    "--set",
                    f"runtime={runtime}",
                    "--ready-fd",
                    str(told),
                ],
                stderr=log,
                stdout=log,
                pass_fds=[told],
            )
            os.close(told)
            try:
                with os.fdopen(ready) as line:
                    if line.readline() != "ready\n":
                        raise RuntimeError(
                            f"the daemon does not start: {log_path.read_text()[-2000:]}"
                        )
                yield runtime
            finally:
                process.terminate()
                process.wait(LIMIT_S)

    def complete(self, document):
        """Returns a configuration with sizes, threads, folders and GPU."""
        count = self.threads or 0
        whole = {
            "version": 1,
            "runtime": "run",
            "cache": str(self.work / "cache"),
            "state": "state",
            "memory": {"store": "6GiB", "rings": "512MiB", "reserve": 0},
            "limits": {"feeds": 200},
            "threads": {"readers": count or 2, "resample": count, "decoders": count},
        }
        if self.device == "cuda":
            whole["gpu"] = {"devices": "all", "rows": "2GiB", "rings": "4GiB", "fall_back": False}
        (self.work / "cache").mkdir(exist_ok=True)
        return {**whole, **document}


def write_config(path, document):
    """Writes a configuration or a layout as JSON, which is YAML, too."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return path
