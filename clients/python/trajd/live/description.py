"""The live description of a feed: fetched from the daemon, and kept in a file."""
from __future__ import annotations

import json
import os
import re
from typing import Any, Dict, Optional, Union

from ..connection import Connection
from ..errors import ArgumentError

_KEY = "trajd_live"
# what YAML does not take, or takes for the end of a line, although JSON has it in strings
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_TEXTS = {"left_out": ("name", "role", "dtype", "reason"), "outputs": ("name", "role")}


def read(path: Union[str, "os.PathLike[str]"]) -> Optional[str]:
    """Returns the text of a file with a description. None: there is no such file, or it is something else."""
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            content = file.read(64)
            if not content.lstrip().startswith(b"{"):
                return None
            content += file.read()
    except FileNotFoundError:
        return None
    if not re.search(rb'"%s"\s*:' % _KEY.encode(), content):
        return None
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{os.fspath(path)}: a live description is UTF-8 text ({error})") from None


def parse(text: str, source: str) -> Dict[str, Any]:
    """Returns the document of a description that trajd._core.Live has taken, whose other members are checked here."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ArgumentError(f"{source}: a live description is one JSON document, without comments ({error})") from None
    for key in ("feed", "fingerprint", "norm_digest"):
        _check_text(document, key, f"{source}: {key}")
    for key, texts in _TEXTS.items():
        if not isinstance(document.get(key), list):
            raise ArgumentError(f"{source}: {key}: a list is expected")
        for place, one in enumerate(document[key]):
            for member in texts:
                _check_text(one, member, f"{source}: {key}[{place}].{member}")
    for place, one in enumerate(document["left_out"]):
        shape = one.get("shape")
        if not isinstance(shape, list) or not all(type(extent) is int for extent in shape):
            raise ArgumentError(f"{source}: left_out[{place}].shape: a list of whole numbers is expected")
    return dict(document)


def _check_text(mapping: Any, key: str, where: str) -> None:
    if not isinstance(mapping, dict) or not isinstance(mapping.get(key), str):
        raise ArgumentError(f"{where}: a text is expected")


def _number_of(connection: Connection, dataset: Optional[str]) -> int:
    """Returns the number of a dataset among those of the feed."""
    names = connection.ask("statistics")["datasets"]
    if dataset is None and len(names) > 1:
        raise ArgumentError("the feed mixes datasets, whose rows are normalised each in its own way: name the one that "
                            f"the robot is like with dataset= ({', '.join(names)})")
    if dataset is not None and dataset not in names:
        raise ArgumentError(f"the feed has no dataset {dataset} (there are: {', '.join(names)})")
    return 0 if dataset is None else int(names.index(dataset))


def _dump(value: Any) -> str:
    """Returns JSON that a YAML parser reads, too: it takes no surrogate pairs, so other characters stay as they are."""
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def fetch(connection: Connection, dataset: Optional[str]) -> str:
    """Asks the daemon, page by page, and returns the text of a file: a line for each output."""
    document, *others = connection.pages("live", window=_number_of(connection, dataset))
    for page in others:
        document["outputs"] += page["outputs"]
    outputs = ",\n".join(_dump(output) for output in document.pop("outputs"))
    document["next"] = None
    return f'{_dump(document)[:-1]},\n"outputs": [\n{outputs}\n]}}\n'
