"""The live description of a feed: fetched from the daemon, and kept in a file."""
from __future__ import annotations

import json
import os
import pathlib
import tempfile
from typing import Any, Callable, Dict, Optional, Union

from ..errors import ArgumentError

_KEY = "trajd_live"


def read(path: Union[str, "os.PathLike[str]"]) -> Optional[str]:
    """Returns the text of a file with a description. None: there is no such file, or it is something else."""
    try:
        with open(path, "rb") as file:
            if not file.read(64).lstrip().startswith(b'{"' + _KEY.encode()):
                return None
        return pathlib.Path(path).read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError):
        return None


def _number_of(ask: Callable[..., str], dataset: Optional[str]) -> int:
    """Returns the number of a dataset among those of the feed."""
    names = json.loads(ask("statistics"))["datasets"]
    if dataset is None and len(names) > 1:
        raise ArgumentError("the feed mixes datasets, whose rows are normalised each in its own way: name the one that "
                            f"the robot is like with dataset= ({', '.join(names)})")
    if dataset is not None and dataset not in names:
        raise ArgumentError(f"the feed has no dataset {dataset} (there are: {', '.join(names)})")
    return 0 if dataset is None else int(names.index(dataset))


def fetch(ask: Callable[..., str], dataset: Optional[str]) -> str:
    """Asks the daemon, page by page, and returns the text of a file: a line for each output."""
    document: Dict[str, Any] = {}
    first: Optional[int] = 0
    number = _number_of(ask, dataset)
    while first is not None:
        page = json.loads(ask("live", window=number, first=first))
        first = page["next"]
        if document:
            document["outputs"] += page["outputs"]
        else:
            document = page
    outputs = ",\n".join(json.dumps(output) for output in document.pop("outputs"))
    document["next"] = None
    return f'{json.dumps(document)[:-1]},\n"outputs": [\n{outputs}\n]}}\n'


def write(path: Union[str, "os.PathLike[str]"], text: str) -> None:
    """Writes a file under another name and renames it, so that a reader never sees half of it."""
    target = pathlib.Path(os.path.realpath(path))
    handle, temporary = tempfile.mkstemp(prefix=target.name, dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
