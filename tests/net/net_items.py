"""The items of a record: a digest per name, with what helps to find a difference."""

import contextlib
import hashlib
import json
import re
import sys
import tempfile
import traceback

import numpy as np

TEXT_MAX = 4000  # characters of a text that a record keeps beside its digest
FORMAT = 1


def digest_of(array):
    """Returns the digest of an array's bytes, in C order. Texts and values of variable length are
    taken one by one."""
    array = np.asarray(array)
    if array.dtype.hasobject:
        return hashlib.sha256(
            b"\0".join(digest_of_value(one).encode() for one in array.ravel())
        ).hexdigest()
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def digest_of_value(value):
    if isinstance(value, (bytes, str)):
        return hashlib.sha256(value if isinstance(value, bytes) else value.encode()).hexdigest()
    return digest_of(value)


class Chain:
    """One digest of an array per batch, one after the other. The rows are counted, and dtype and
    shape of the first batch are kept."""

    def __init__(self):
        self.hash, self.dtype, self.shape, self.count = hashlib.sha256(), None, None, 0

    def add(self, array):
        array = np.ascontiguousarray(array)
        if self.dtype is None:
            self.dtype, self.shape = str(array.dtype), list(array.shape)
        self.hash.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
        self.count += 1

    def item(self):
        return {
            "sha256": self.hash.hexdigest(),
            "dtype": self.dtype,
            "shape": self.shape,
            "batches": self.count,
        }


class Items:
    """All items, by name. `replaced` are pairs of a text, such as the path of a folder, and what
    stands for it."""

    def __init__(self, replaced):
        self.items, self.error_count = {}, 0
        self._replaced = sorted(replaced, key=lambda pair: -len(pair[0]))

    def part(self, name, cases):
        return Part(self, name, cases)

    def normal(self, text):
        """Returns the text without paths of folders that differ from record to record."""
        for found, stands_for in self._replaced:
            text = text.replace(found, stands_for)
        text = re.sub("[^\\s:(\"'=]*/(configs|trajd)/layouts", "<layouts>", text)
        return re.sub(f"{tempfile.gettempdir()}/net[^/ ,:;\"']*", "<runtime>", text)

    def put(self, name, item):
        assert name not in self.items, f"two items are called {name}"
        self.items[name] = item

    def write(self, path, parts):
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {"format": FORMAT, "parts": parts, "items": dict(sorted(self.items.items()))}
        path.write_text(json.dumps(document, indent=0, ensure_ascii=False) + "\n")


class Part:
    """The items of one part; `cases` are the beginnings of the names of those to run, none of them
    means all."""

    def __init__(self, items, name, cases):
        self._items, self.name, self._cases = items, name, cases

    def has(self, case):
        return not self._cases or any(case.startswith(one) for one in self._cases)

    @contextlib.contextmanager
    def case(self, name):
        """Runs a case. If it fails, that is an item, and the other cases follow."""
        try:
            yield
        except Exception as error:
            self._items.error_count += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            print(
                f"{self.name}/{name} failed: {error!r:.600} ({where.filename}:{where.lineno})",
                file=sys.stderr,
            )
            self.text(
                f"{name}/failed", f"{type(error).__name__}: {re.sub('[0-9]+', '0', str(error))}"
            )

    def put(self, name, item):
        self._items.put(f"{self.name}/{name}", item)

    def array(self, name, array, **more):
        array = np.asarray(array)
        self.put(
            name,
            {
                "sha256": digest_of(array),
                "dtype": str(array.dtype),
                "shape": list(array.shape),
                **more,
            },
        )

    def chain(self, name, chain):
        self.put(name, chain.item())

    def bytes(self, name, content):
        self.put(name, {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)})

    def text(self, name, text, *patterns):
        """Adds a text. `patterns` are pairs for re.sub, applied after the paths are replaced."""
        text = self._items.normal(text)
        for pattern, stands_for in patterns:
            text = re.sub(pattern, stands_for, text, flags=re.M)
        self.put(name, {"sha256": digest_of_value(text), "text": text[:TEXT_MAX]})

    def json(self, name, document, *patterns):
        self.text(
            name, json.dumps(document, indent=0, sort_keys=True, ensure_ascii=False), *patterns
        )
