"""An inbox for `trajctl preprocess` with its outbox and quarantine."""
import json
import pathlib
import re
import subprocess

from paths import TRAJCTL, clean_environment

ENVIRONMENT = clean_environment(ASAN_OPTIONS="detect_leaks=1:abort_on_error=0")


class Station:
    """The folders, and the configuration lab.yaml, whose further keys are `keys`."""

    def __init__(self, folder, source_file, inbox=None, **keys):
        self.folder, self.source_file = pathlib.Path(folder), source_file
        self.inbox, self.outbox, self.quarantine = inbox or self.folder / "inbox", self.folder / "outbox", self.folder / "quarantine"
        self.config = self.folder / "lab.yaml"
        self.inbox.mkdir(exist_ok=True)
        self.keys = {"inbox": self.inbox, "outbox": self.outbox, "quarantine": self.quarantine, "layout": "demo", "rate": 10,
                     "settle": "50ms", "threads": 2, **keys}
        self.write()

    def write(self, **keys):
        self.keys.update(keys)
        self.config.write_text("version: 1\n" + "".join(f"{k}: {v}\n" for k, v in self.keys.items()))

    def drop(self, name="a.hdf5", content=None):
        path = self.inbox / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.source_file.read_bytes() if content is None else content)
        return path

    def begin(self, *arguments, program=TRAJCTL, **options):
        return subprocess.Popen([program, "preprocess", self.config, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, env=ENVIRONMENT, **options)

    def run(self, *arguments, code=0, program=TRAJCTL):
        process = self.begin(*arguments, program=program)
        said = process.communicate(timeout=120)[0]
        assert process.returncode == code, said
        return said

    def manifest(self, name="a.hdf5"):
        return json.loads((self.outbox / f"{name}.manifest.json").read_text())

    def staged(self):
        return sorted(p.name for p in (self.outbox / ".trajd").glob("*"))


def counts(said):
    """Returns the numbers of the last line: published, quarantined, failed, at another run, still being written, in all."""
    return tuple(map(int, re.findall(r"(\d+) (?:published|quarantined|failed|[ai][tn] another|still|in (?:all|total))", said.splitlines()[-1])))
