"""Statistics of a feed's outputs, and normalisation with them.

    stats = Stats.load("stats.json")                # written by `trajctl stats FEED -o stats.json`
    actions = stats.to_robot("actions", policy(stats.normalize("obs/state", state)), state)

This module and chain.py need only numpy, neither the daemon nor the compiled extension: so they also run on the robot.
`to_robot` undoes the whole chain of an output: its norm, its rotations, and what it is relative to. It reads and
writes the files of trajd, openpi (norm_stats.json) and LeRobot (stats.json). Its rules are those of the daemon:

    mean_std   (x - mean) / std
    min_max    maps [min, max] onto [-1, 1]
    q01_q99    maps [q01, q99] onto [-1, 1], without clipping

With `min_std`, mean_std divides by at least that. Otherwise a feature is flat if its std, or half its range, is at most
1e-6 of its greatest magnitude. A flat feature gets scale 1, and its mean (or min, or q01) becomes 0. Features without statistics pass unchanged. Scale and offset are rounded to
float32, as in the daemon.
"""
from __future__ import annotations

import errno
import json
import os
import pathlib
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .chain import Chain

__all__ = ["Stats"]

FIGURES = ("mean", "std", "min", "max", "q01", "q10", "q50", "q90", "q99")
COUNTS = ("count", "nan", "infinite")
RULES = ("mean_std", "min_max", "q01_q99")
FORMATS = ("trajd", "openpi", "lerobot")
FLAT = 1e-6
# The names in files of others, and what outputs are called that are written under them, as in their styles
STATE, ACTIONS = r"(obs/)?(robot_)?(state|qpos)", r"(obs/)?actions?"
NAMES = {"openpi": {"state": STATE, "actions": ACTIONS},
         "lerobot": {"observation.state": STATE + r"|observation\.state", "action": ACTIONS}}
TITLES = {"openpi": "openpi", "lerobot": "LeRobot"}


def _numbers(value: Any) -> np.ndarray:
    """Returns the numbers of a nested list as float64 [features]. null becomes NaN."""
    flat: list[float] = []

    def walk(item: Any) -> None:
        if isinstance(item, (list, tuple)):
            for one in item:
                walk(one)
        else:
            flat.append(float("nan") if item is None else float(item))

    walk(value)
    return np.array(flat, dtype=np.float64)


def _array(x: Any) -> np.ndarray:
    """Returns x as an array. A masked one stays masked."""
    return x if isinstance(x, np.ma.MaskedArray) else np.asarray(x)


def _plain(values: np.ndarray) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values.ravel()]


def _read_entry(entry: Mapping[str, Any]) -> dict[str, np.ndarray]:
    if not isinstance(entry, Mapping):
        raise ValueError("not a mapping of figures")
    found = {figure: _numbers(entry[figure]) for figure in FIGURES if figure in entry}
    sizes = {len(values) for values in found.values()}
    if len(sizes) != 1:
        raise ValueError("no figures" if not sizes else f"figures of {sorted(sizes)} features")
    features = sizes.pop()
    for count in COUNTS:
        if count in entry:  # LeRobot has one number for all features
            found[count] = np.broadcast_to(_numbers(entry[count]), features).copy()
    return by_step(found, entry)


def by_step(figures: Mapping[str, np.ndarray], entry: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Returns figures as [steps, features] if each step has its own ("norm_steps")."""
    steps = int(entry.get("norm_steps", 1))
    return {name: values.reshape(steps, -1) if steps > 1 else values for name, values in figures.items()}


def _make_chain(document: Mapping[str, Any]) -> Chain:
    """Makes a chain. Files without one need this module alone."""
    try:
        from .chain import Chain
    except ImportError:  # the two files were copied without the package
        from chain import Chain  # type: ignore[no-redef]
    return Chain(document)


def _magnitude(figures: Mapping[str, np.ndarray], by: str) -> np.ndarray:
    names = ("q01", "q99") if by == "q01_q99" else ("mean", "min", "max", "q01", "q99")
    tables = [np.abs(figures[name]) for name in names if name in figures]
    greatest: np.ndarray = np.maximum.reduce([np.where(np.isfinite(table), table, 0) for table in tables])
    return greatest


def _scale_and_offset(figures: Mapping[str, np.ndarray], by: str, name: str,
                      min_std: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns scale and offset, float32 [features] each: normalised = x * scale + offset."""
    needs = {"mean_std": ("mean", "std"), "min_max": ("min", "max"), "q01_q99": ("q01", "q99")}[by]
    missing = [need for need in needs if need not in figures]
    if missing:
        raise KeyError(f"statistics of {name} have no {' and no '.join(missing)}, which {by} needs "
                       f"(there are: {', '.join(figures)})")
    low, high = figures[needs[0]], figures[needs[1]]
    with np.errstate(all="ignore"):
        centre, width, flat_centre = (
            (low, np.fmax(high, min_std), low) if by == "mean_std" else (low + (high - low) / 2, (high - low) / 2, low))
        scale, offset = (1 / width).astype(np.float32), (-centre / width).astype(np.float32)
        flat = (~(width > FLAT * _magnitude(figures, by)) & (not min_std)) | ~np.isfinite(scale) | ~np.isfinite(offset)
        scale[flat], offset[flat] = 1, (-flat_centre)[flat]
    unknown = ~np.isfinite(offset)
    scale[unknown], offset[unknown] = 1, 0
    return scale, offset


def _names_of_others(format: str, outputs: Sequence[str]) -> dict[str, str]:
    """Returns the name of each output in a file of openpi, which has only those of NAMES, or of LeRobot."""
    names: dict[str, str] = {} if format == "openpi" else {output: output for output in outputs}
    renamed: dict[str, str] = {}
    title = TITLES[format]
    for name, pattern in NAMES[format].items():
        found = [output for output in outputs if re.fullmatch(pattern, output)]
        if len(found) > 1:
            raise ValueError(f"{' and '.join(found)} would both be {name!r} in {title}'s file")
        if not found:
            warnings.warn(f"no output is called {name}: {title} will not normalise it", stacklevel=3)
        renamed.update({output: name for output in found})
    if format == "openpi" and not renamed:
        raise ValueError("openpi's file has the names state and actions, and no output has one of them "
                         f"(there are: {', '.join(outputs)})")
    return {**names, **renamed}


def write_file(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file under another name and renames it, so that a reader never sees half of it."""
    path = pathlib.Path(path)
    if path.exists() and not path.is_file():  # a pipe or a terminal is written to, and not replaced
        try:
            special = os.open(path, os.O_WRONLY | os.O_NONBLOCK)  # without O_NONBLOCK, it would wait for a reader
        except OSError as error:
            if error.errno == errno.ENXIO and path.is_fifo():
                raise OSError(errno.ENXIO, "a pipe that no process reads: start its reader first", str(path)) from None
            raise
        os.set_blocking(special, True)
        with os.fdopen(special, "w", encoding="utf-8") as file:
            file.write(text)
        return
    path = pathlib.Path(os.path.realpath(path))  # a symbolic link stays, and its target is replaced
    handle, temporary = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


class Stats(Mapping[str, Mapping[str, np.ndarray]]):
    """A mapping from outputs to figures: `stats["actions"]["mean"]` is float64 [features].

    The figures are mean, std, min, max, q01, q10, q50, q90, q99, count, nan and infinite, as far as the file has
    them. The features of an image are its channels. With `norm: {per: step}` they are [steps, features]."""

    def __init__(self, figures: Mapping[str, Mapping[str, np.ndarray]],
                 norms: Mapping[str, Mapping[str, Any]] | None = None,
                 chains: Mapping[str, Mapping[str, Any]] | None = None,
                 fingerprints: Mapping[str, str] | None = None) -> None:
        self._figures = {name: dict(entry) for name, entry in figures.items()}
        self._norms = {name: dict(norm) for name, norm in (norms or {}).items()}
        self._chains = {name: _make_chain(chain) for name, chain in (chains or {}).items()}
        self._fingerprints = dict(fingerprints or {})

    def __repr__(self) -> str:
        return f"Stats({', '.join(self)})"

    # ---- files ----

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Stats:
        """Reads a file of trajd, openpi or LeRobot. The content shows which. Raises ValueError."""
        if os.path.exists(path) and not os.path.isfile(path):
            raise ValueError(f"{os.fspath(path)}: not a regular file")
        try:
            document = json.loads(pathlib.Path(path).read_text())
        except ValueError as error:
            raise ValueError(f"{path}: not a file of statistics: it is not valid JSON ({error})") from None
        if not isinstance(document, dict):
            raise ValueError(f"{path}: not a file of statistics: neither trajd's nor openpi's (norm_stats) nor a "
                             "mapping of names as LeRobot's")
        own = "trajd_statistics" in document
        if own and document["trajd_statistics"] != 1:
            raise ValueError(
                f"{path}: statistics of version {document['trajd_statistics']}; only version 1 can be read")
        entries = document.get("outputs") if own else document.get("norm_stats", document)
        if not isinstance(entries, dict):
            raise ValueError(f"{path}: {'outputs' if own else 'norm_stats'}: a mapping of names is expected")
        figures: dict[str, dict[str, np.ndarray]] = {}
        for name, entry in entries.items():
            try:
                figures[name] = _read_entry(entry)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path}: statistics of {name}: {error}") from None
        members = ({name: entry[key] for name, entry in entries.items() if own and key in entry}
                   for key in ("norm", "chain", "fingerprint"))
        try:
            return cls(figures, *members)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: the norm or the chain of an output cannot be read: {error!r}") from None

    def save(self, path: str | os.PathLike[str], format: str = "trajd") -> None:
        """Writes a file in the format "trajd", "openpi" or "lerobot".

        openpi's file has only "state" (of an output state, qpos, robot_state or robot_qpos) and "actions" (or action).
        LeRobot's calls these "observation.state" and "action", and others as the feed does. An output with
        `relative_to:` fits where it only subtracts the same columns of the state: in LeRobot with
        use_relative_actions, in openpi with DeltaActions.

        It is written under another name and then renamed, so a reader never sees half of it. Raises ValueError and
        OSError."""
        if format not in FORMATS:
            raise ValueError(f"there is no format {format!r} (there are: {', '.join(FORMATS)})")
        wanted = ("mean", "std", "q01", "q99") if format == "openpi" else FIGURES
        names = (_names_of_others(format, list(self._figures)) if format != "trajd" else
                 {name: name for name in self._figures})
        self._check_format(format, list(names))
        entries: dict[str, Any] = {}
        for output, name in names.items():
            entry = self._figures[output]
            entries[name] = {figure: _plain(entry[figure]) for figure in wanted if figure in entry}
            if format == "trajd":
                entries[name].update(
                    {count: [int(value) for value in entry[count].ravel()] for count in COUNTS if count in entry})
                entries[name].update(self._description(name))
            elif format == "lerobot" and "count" in entry:
                entries[name]["count"] = [int(entry["count"].max())]
        document = {"trajd": {"trajd_statistics": 1, "outputs": entries}, "openpi": {"norm_stats": entries},
                    "lerobot": entries}[format]
        write_file(path, json.dumps(document, indent=1, allow_nan=False))

    def _description(self, name: str) -> dict[str, Any]:
        """Returns what a file of trajd says of an output beside its figures."""
        found: dict[str, Any] = {}
        shape = next(iter(self._figures[name].values())).shape
        if len(shape) > 1:
            found["norm_steps"] = shape[0]
        if name in self._norms:
            found["norm"] = self._norms[name]
        if name in self._chains:
            found["chain"] = self._chains[name].document
        if name in self._fingerprints:
            found["fingerprint"] = self._fingerprints[name]
        return found

    def _check_format(self, format: str, names: Sequence[str]) -> None:
        """Refuses a format that cannot say what its figures are of."""
        for name in names if format != "trajd" else ():
            chain = self._chains.get(name)
            if next(iter(self._figures[name].values())).ndim > 1:
                raise ValueError(f"the format {format} has one figure for all steps, and {name} has one for each")
            if chain and not chain.is_plain:
                raise ValueError(f"the format {format} cannot say how {name} is made of the recording (rotation or "
                                 "relative_to): save it in the format trajd")

    # ---- a mapping of names ----

    def __getitem__(self, name: str) -> Mapping[str, np.ndarray]:
        if name not in self._figures:
            raise KeyError(f"no statistics of {name} (there are: {', '.join(self._figures)})")
        return self._figures[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._figures)

    def __len__(self) -> int:
        return len(self._figures)

    # ---- normalising ----

    def scale_and_offset(self, name: str, by: str | None = None,
                         mask: Sequence[bool] | None = None, min_std: float = 0) -> tuple[np.ndarray, np.ndarray]:
        """Returns scale and offset, float32 [features] each: normalised = x * scale + offset.

        by       a rule: "mean_std", "min_max" or "q01_q99". None: the normalisation of the feed when the file was
                 written, which leaves outputs unchanged that the feed does not normalise
        mask     one bool for each feature, only with `by`: False leaves the feature unchanged
        min_std  only with by="mean_std": the least that is divided by. ACT has 0.01

        Raises KeyError if there are no such statistics, and ValueError for wrong arguments."""
        figures = self[name]
        features = next(iter(figures.values())).shape
        if by is None and mask is not None:
            raise ValueError("mask needs by=, the rule that it applies to")
        if min_std and by != "mean_std":
            raise ValueError("min_std needs by='mean_std', which divides by the std")
        if by is None and name in self._norms:
            norm = self._norms[name]
            scale, offset = (np.array(norm[key], dtype=np.float32) for key in ("scale", "offset"))
            return (scale.reshape(features), offset.reshape(features)) if len(features) > 1 else (scale, offset)
        if by is None and not self._norms:
            raise ValueError(
                f"the file does not say how {name} is normalised: give by={' or by='.join(map(repr, RULES))}")
        if by is None:
            return np.ones(features, np.float32), np.zeros(features, np.float32)
        if by not in RULES:
            raise ValueError(f"there is no rule {by!r} (there are: {', '.join(RULES)})")
        scale, offset = _scale_and_offset(figures, by, name, min_std)
        if mask is not None:
            if len(mask) != features[-1]:
                raise ValueError(f"mask: one bool for each feature of {name} is expected ({features[-1]}), not {len(mask)}")
            keep = np.asarray(mask, dtype=bool)
            scale, offset = np.where(keep, scale, np.float32(1)), np.where(keep, offset, np.float32(0))
        return scale, offset

    @staticmethod
    def _check(name: str, given: Any, scale: np.ndarray) -> np.ndarray:
        x = _array(given)
        if x.shape[-1:] != scale.shape[-1:] and scale.shape != (1,):
            raise ValueError(f"{name} has {scale.shape[-1]} features, and the last axis of x is "
                             f"{x.shape[-1] if x.ndim else 'missing'}")
        if scale.ndim > 1 and x.shape[-2:] != scale.shape:
            raise ValueError(f"{name} has statistics for each of {len(scale)} steps: x must be [..., {len(scale)}, "
                             f"{scale.shape[-1]}], and its shape is {x.shape}")
        return x

    @staticmethod
    def _typed_as(x: Any, result: np.ndarray) -> np.ndarray:
        typed: np.ndarray = result.astype(np.float64 if _array(x).dtype == np.float64 else np.float32)
        return typed

    def normalize(self, name: str, x: Any, by: str | None = None, mask: Sequence[bool] | None = None,
                  min_std: float = 0) -> np.ndarray:
        """Normalises x [..., features] as the daemon does. `by`, `mask` and `min_std` as in scale_and_offset.

        A masked array of numpy stays masked. Computes in float64. Returns float64 for float64, and float32 for all other types."""
        scale, offset = self.scale_and_offset(name, by, mask, min_std)
        return self._typed_as(x, self._check(name, x, scale).astype(np.float64) * scale + offset)

    def unnormalize(self, name: str, x: Any, by: str | None = None, mask: Sequence[bool] | None = None,
                    min_std: float = 0) -> np.ndarray:
        """The inverse of normalize: returns x [..., features] in the units of the recording. Types as in normalize."""
        scale, offset = self.scale_and_offset(name, by, mask, min_std)
        return self._typed_as(x, (self._check(name, x, scale).astype(np.float64) - offset) / scale)

    # ---- the whole chain ----

    @property
    def chains(self) -> dict[str, Chain]:
        """The chains by output: outputs without `rotation:` and `relative_to:` have none."""
        return dict(self._chains)

    def _is_recorded(self, name: str) -> bool:
        """Whether the feed delivers the output without a norm. Raises ValueError for a file of another tool, which does not
        say so."""
        if name in self and not self._norms and not self._fingerprints:
            raise ValueError(f"the file does not say how {name} is normalised (one of `trajctl stats FEED -o` does): use "
                             f"normalize or unnormalize, which take by={' or by='.join(map(repr, RULES))}")
        return name in self and name not in self._norms

    def to_policy(self, name: str, rows: Any, state: Any = None) -> np.ndarray:
        """Makes what the feed delivers of recorded rows [..., T, columns]: the chain of the output, then its norm.

        `state` is the row of `relative_to:` at the anchor, as recorded: [B, D] for rows [B, T, D], [D] for rows [T, D].
        Computes in float64. Returns
        float64 for float64, and float32 for all other types. Raises ValueError for other widths."""
        chain = self._chains.get(name)
        made = chain.forward(rows, state) if chain else _array(rows).astype(np.float64)
        return self._typed_as(rows, made if self._is_recorded(name) else self.normalize(name, made))

    def to_robot(self, name: str, chunk: Any, state: Any = None) -> np.ndarray:
        """The inverse of to_policy: returns rows [..., T, columns] as they were recorded, of what a policy gives.

        `state` is that of the robot when the policy was asked: [B, D] for a chunk [B, T, D], and [D] for [T, D]. Of
        states [B, T, D] take state[:, -1], and of a single step chunk[..., None, :]. Raises ValueError for other
        shapes. Quaternions have w >= 0."""
        chain = self._chains.get(name)
        made = _array(chunk).astype(np.float64)
        made = made if self._is_recorded(name) else self.unnormalize(name, made)
        return self._typed_as(chunk, chain.inverse(made, state) if chain else made)
