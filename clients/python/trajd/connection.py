"""Connection: a feed's client, how long its requests wait, and the questions about the open feed."""
from __future__ import annotations

import contextlib
import functools
import json
import logging
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, TypeVar

import numpy as np

from . import _core
from .errors import LaunchError, Timeout
from .progress import Share
from .settings import Settings
from .state import Norm, Images, norm_of

log = logging.getLogger("trajd")
_T = TypeVar("_T")
Place = Tuple[int, int]  # dataset_index, episode_index

_CONNECT_WARNING_AFTER_S = 2.0  # without a daemon
CONNECT_LIMIT_S = 600.0  # then Timeout is raised; as long as libtrajd waits for a daemon that died
_FOR_EVER_MS = 24 * 3600 * 1000  # of a daemon that lives
_PAUSE_S = 0.1  # between two questions whether statistics are ready
# How long the first try of a request waits without timeout=, and each one after the warning. An OPEN is repeated each
# minute, because one that other workers hold up for so long is to fail as Busy.
ANSWER_MS, OPEN_MS = (10000, _FOR_EVER_MS), (60000, 60000)


class Explanation(Dict[str, Any]):
    """The origin of one window: source file, rows, stamps, weights, and the reason for each masked step.

    A dict with the daemon's JSON document; print it for a readable form."""

    def __repr__(self) -> str:
        head = (f"window {self['window_id']}: {self['dataset']}, {self['file']}, episode {self['episode']}, "
                f"anchor {self['anchor']} at {self['anchor_ns'] / 1e9:.6f} s")
        lines = [head]
        for output in self["outputs"]:
            for item in output["items"]:
                lines.append(f"  {output['name']}[{item['step']}] at {item['ns'] / 1e9:.6f} s: "
                             f"{self._describe(output, item)}")
        return "\n".join(lines)

    @staticmethod
    def _describe(output: Mapping[str, Any], item: Mapping[str, Any]) -> str:
        sources = []
        for source, part in zip(output["sources"], item["sources"]):
            between = " + ... + " if part.get("added", 0) > 2 else " + "
            rows = between.join(f"{weight:.6g} * row {row}" for row, _, weight in part["rows"]) or output["edge"]
            reason = f" ({part['reason']})" if part.get("reason") else ""
            sources.append(f"{source['stream']} {source['kind']} = {rows}{reason}")
        return "; ".join(sources)


def _log_notice(title: str, text: str, wait_s: float) -> None:
    """Logs whom the daemon waits for. libtrajd calls it while iteration waits."""
    until = time.strftime(", until %H:%M:%S", time.localtime(time.time() + wait_s)) if wait_s else ""
    log.warning("feed %s: %s%s", title, text, until)


def _connect(settings: Settings) -> "_core.Client":
    """Waits for the daemon. Without a timeout it waits as long as for the return of a daemon, and logs a warning."""
    def attempt(seconds: float) -> "_core.Client":
        return _core.Client(endpoint=settings.endpoint, name=settings.name, timeout_ms=max(1, int(seconds * 1000)),
                            reconnect=settings.reconnect, explicit_done=settings.device != "cpu",
                            key_file=settings.key_file, server_key=settings.server_key,
                            away_ms=settings.away_ms, notice=functools.partial(_log_notice, settings.title))

    if settings.timeout is not None:
        return attempt(settings.timeout)
    try:
        return attempt(_CONNECT_WARNING_AFTER_S)
    except Timeout as error:
        limit = settings.away_ms / 1000 or CONNECT_LIMIT_S
        log.warning("%s: waiting %g s for its start (timeout=SECONDS changes that)", error, limit)
        return attempt(limit)


class Connection:
    """A connection to a daemon. Its questions are about the feed that is open. It does not know its feed, which so ends
    when the program drops it, even while batches are kept."""

    def __init__(self, settings: Settings) -> None:
        self._title, self._timeout, self.endpoint = settings.title, settings.timeout, settings.place
        self.client = _connect(settings)
        self._texts: Dict[str, Dict[Place, Optional[str]]] = {}
        self._failure: Optional[Exception] = None  # why the daemon does not return

    def fail(self, error: Exception) -> None:
        """Has all calls that wait for the daemon raise LaunchError. Any thread may call it."""
        self._failure = error
        self.client.end_waits()

    def check_failure(self) -> None:
        if self._failure is not None:
            raise LaunchError(f"feed {self._title}: the private daemon died and does not start again: "
                              f"{self._failure}") from self._failure

    def request(self, send: Callable[[int], _T], tries_ms: Optional[Tuple[int, int]] = None) -> _T:
        """Sends a request by send(timeout_ms) and returns the answer. libtrajd sends it again if the daemon dies.

        Without timeout= it waits for the daemon as long as iteration does, and logs a warning after the first try."""
        def attempt(timeout_ms: int) -> _T:
            try:
                return send(timeout_ms)
            except Timeout:
                self.check_failure()
                raise

        if self._timeout is not None:
            return attempt(max(1, int(self._timeout * 1000)))
        first_ms, later_ms = tries_ms or ANSWER_MS
        try:
            return attempt(first_ms)
        except Timeout as error:
            log.warning("feed %s: %s: waiting until it does (timeout=SECONDS limits the wait)", self._title, error)
        while True:
            with contextlib.suppress(Timeout):
                return attempt(later_ms)

    def ask(self, what: str, timeout_ms: Optional[int] = None, **details: Any) -> Dict[str, Any]:
        """Returns the answer to a question. With `timeout_ms` it is sent once."""
        def send(limit_ms: int) -> str:
            return self.client.ask(what, timeout_ms=limit_ms, **details)

        answer: Dict[str, Any] = json.loads(self.request(send) if timeout_ms is None else send(timeout_ms))
        return answer

    def pages(self, what: str, timeout_ms: Optional[int] = None, **details: Any) -> Iterator[Dict[str, Any]]:
        """Yields the pages of an answer. A page without "next" is not made yet, and is asked for again."""
        first: Optional[int] = 0
        while first is not None:
            page = self.ask(what, timeout_ms, first=first, **details)
            first = page.get("next", first)
            yield page

    def status(self) -> Dict[str, Any]:
        status: Dict[str, Any] = json.loads(self.request(self.client.status))
        return status

    # ---- how the feed makes its values ----

    def norm(self, digest: int) -> Optional[Norm]:
        """Returns how the feed scales its values. None: a daemon of 0.1.0, which does not say."""
        if digest <= 1:
            return Norm(digest, {}) if digest else None
        return norm_of(digest, self.ask("statistics")["outputs"])

    def images(self, timeout_ms: Optional[int] = None) -> Images:
        """Returns how the feed makes its images. An output of a mixture has a name for each dataset."""
        pages = list(self.pages("pictures", timeout_ms))
        items = [item for page in pages for item in page["items"]]
        several = len({item["dataset"] for item in items}) > 1
        outputs = {item["output"] + (f" of {item['dataset']}" if several else ""): item["keys"] for item in items}
        return Images(int(pages[-1]["values_digest"], 16), outputs)

    # ---- episodes and windows ----

    def _episodes(self, name: Optional[str]) -> Tuple[List[Dict[str, Any]], List[str]]:
        """Returns all episodes, with the text `name` of each, and the names of the datasets."""
        pages = list(self.pages("episodes", name=name))
        return [item for page in pages for item in page["items"]], [dataset["name"] for dataset in pages[-1]["datasets"]]

    def episodes(self) -> List[Dict[str, Any]]:
        return self._episodes(None)[0]

    def texts(self, name: str) -> Dict[Place, Optional[str]]:
        """Returns the text `name` of each episode. Raises NotFound if no layout of the feed's datasets has such a text."""
        if name not in self._texts:
            items, datasets = self._episodes(name)
            number = {dataset: index for index, dataset in enumerate(datasets)}
            self._texts[name] = {(number[item["dataset"]], item["episode_index"]): item["meta"].get(name) for item in items}
        return self._texts[name]

    def forget_texts(self) -> None:
        """Other episodes are behind the feed's name now."""
        self._texts.clear()

    def pass_of(self, epoch: int, position: int) -> int:
        """Returns the pass over the dataset to which the window at a position of an epoch belongs."""
        return int(self.ask("position", window=epoch, first=position, count=1)["items"][0]["pass"])

    def explain(self, window_id: int, output: Optional[str], pass_number: int) -> Explanation:
        document: Dict[str, Any] = {}
        for page in self.pages("explain", window=window_id, name=output, pass_=pass_number):
            document = document or {**page, "outputs": []}
            for part in page["outputs"]:
                if document["outputs"] and document["outputs"][-1]["name"] == part["name"]:
                    document["outputs"][-1]["items"] += part["items"]
                else:
                    document["outputs"].append(part)
        del document["first"], document["next"]
        return Explanation(document)

    # ---- statistics: the daemon computes them once ----

    def _statistics_of(self, title: str, name: str, dataset: int, how: Optional[str]) -> Dict[str, Any]:
        """Returns the statistics of all features of one output. Waits while the daemon computes them."""
        joined: Dict[str, Any] = {"norm": {}}
        with contextlib.closing(Share(f"statistics of {title}", how)) as progress:
            for page in self.pages("statistics", name=name, window=dataset):
                if page["state"] != "ready":
                    progress.show(page["done"])
                    time.sleep(_PAUSE_S)
                    continue
                del page["next"]
                for part, target in ((page, joined), (page.pop("norm", {}), joined["norm"])):
                    for key, value in part.items():
                        if isinstance(value, list):
                            target.setdefault(key, []).extend(value)
                        else:
                            target.setdefault(key, value)
        return joined

    def statistics(self, names: Optional[List[str]], how: Optional[str]) -> Any:
        """Returns trajd.Stats of the outputs `names`. None: all outputs except images. `how` is progress= of Feed.stats.

        In a feed of several datasets the names are DATASET:NAME. A dataset that lacks an output has none for it."""
        from .stats import Stats, by_step
        listing = self.ask("statistics")
        lacking = {output["name"]: output["lacking"] for output in listing["outputs"]}
        if names is None:
            names = [output["name"] for output in listing["outputs"] if not output["picture"]]
        several = len(listing["datasets"]) > 1
        wanted = {f"{dataset}:{name}" if several else name: (name, number)
                  for number, dataset in enumerate(listing["datasets"]) for name in names
                  if number not in lacking.get(name, ())}
        outputs = {title: self._statistics_of(title, *one, how) for title, one in wanted.items()}
        figures = {name: by_step({key: np.array([np.nan if number is None else number for number in value], dtype=np.float64)
                                  for key, value in one.items() if isinstance(value, list)}, one)
                   for name, one in outputs.items()}
        return Stats(figures, *({name: one[key] for name, one in outputs.items() if one.get(key)}
                                for key in ("norm", "chain", "fingerprint")))
