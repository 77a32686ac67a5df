"""The transform between recorded rows and what a policy is trained on, and its inverse, in numpy alone.

A chain is the member "chain" of an output in a file of statistics. Its rules are those of the daemon
(kernels/transform/transform.h): columns stay, lose those of the origin, or are rotations that change their form and are
taken relative to the origin's. The origin is the state at the anchor, or the step before.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

import numpy as np

__all__ = ["Chain"]

WIDTHS = {"quat_xyzw": 4, "quat_wxyz": 4, "axis_angle": 3, "matrix": 9, "rot6d": 6}
GIMBAL_COSINE = 1e-7


def _unit(v: np.ndarray) -> np.ndarray:
    """Scales vectors to length 1. Those without a direction become NaN."""
    square = np.sum(v * v, axis=-1, keepdims=True)
    with np.errstate(all="ignore"):
        result: np.ndarray = np.where((square >= 1e-30) & (square <= 1e30), v / np.sqrt(square), np.nan)
    return result


def _multiply(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    a, b, c, d = np.moveaxis(p, -1, 0)
    x, y, z, w = np.moveaxis(q, -1, 0)
    return np.stack([d * x + a * w + b * z - c * y, d * y - a * z + b * w + c * x,
                     d * z + a * y - b * x + c * w, d * w - a * x - b * y - c * z], axis=-1)


def _inverse(q: np.ndarray) -> np.ndarray:
    return q * np.array([-1.0, -1.0, -1.0, 1.0])


def _turn(q: np.ndarray, v: np.ndarray) -> np.ndarray:
    t = 2 * np.cross(q[..., :3], v)
    result: np.ndarray = v + q[..., 3:] * t + np.cross(q[..., :3], t)
    return result


def _to_matrix(q: np.ndarray) -> np.ndarray:
    x, y, z, w = np.moveaxis(q, -1, 0)
    rows = [[1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)]]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def _of_matrix(m: np.ndarray) -> np.ndarray:
    """Shepperd's method: of four candidates, takes the one with the largest component."""
    t = m[..., 0, 0] + m[..., 1, 1] + m[..., 2, 2]
    candidates = []
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        q = [None] * 4
        q[i] = 1 + m[..., i, i] - m[..., j, j] - m[..., k, k]
        q[j], q[k] = m[..., j, i] + m[..., i, j], m[..., k, i] + m[..., i, k]
        q[3] = m[..., k, j] - m[..., j, k]
        candidates.append(np.stack(q, axis=-1))
    candidates.append(np.stack([m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1],
                                1 + t], axis=-1))
    table = np.stack(candidates, axis=-2)
    best = np.argmax(np.nan_to_num(np.stack([table[..., i, i] for i in range(4)], axis=-1)), axis=-1)
    return _unit(np.take_along_axis(table, best[..., None, None], axis=-2)[..., 0, :])


def _of_two_rows(x: np.ndarray) -> np.ndarray:
    first, second = _unit(x[..., :3]), _unit(x[..., 3:6])
    for _ in range(2):  # the second pass removes rounding errors
        second = second - np.sum(first * second, axis=-1, keepdims=True) * first
        second = _unit(np.where(np.sum(second * second, axis=-1, keepdims=True) > 1e-12, second, np.nan))
    return _of_matrix(np.stack([first, second, np.cross(first, second)], axis=-2))


def _of_axis_angle(v: np.ndarray) -> np.ndarray:
    angle = np.sqrt(np.sum(v * v, axis=-1, keepdims=True))
    with np.errstate(all="ignore"):
        factor = np.where(angle < 1e-4, 0.5 - angle * angle / 48, np.sin(angle / 2) / angle)
    return _unit(np.concatenate([factor * v, np.cos(angle / 2)], axis=-1))


def _to_axis_angle(q: np.ndarray) -> np.ndarray:
    sine = np.sqrt(np.sum(q[..., :3] ** 2, axis=-1, keepdims=True))
    with np.errstate(all="ignore"):
        factor = np.where(sine > 0, 2 * np.arctan2(sine, np.abs(q[..., 3:])) / sine, 2)
    result: np.ndarray = np.where(q[..., 3:] < 0, -1, 1) * factor * q[..., :3]
    return result


def _euler_axes(form: str) -> tuple[list[int], bool]:
    """Returns the fixed axes in the order in which they are turned about, and whether the angles are in reverse order."""
    letters = form[len("euler_"):]
    moving = letters.isupper()
    axes = ["xyz".index(letter) for letter in letters.lower()]
    return (axes[::-1] if moving else axes), moving


def _of_euler(form: str, angles: np.ndarray) -> np.ndarray:
    axes, reverse = _euler_axes(form)
    q = np.broadcast_to(np.array([0.0, 0.0, 0.0, 1.0]), angles.shape[:-1] + (4,))
    for axis, angle in zip(axes, np.moveaxis(angles[..., ::-1] if reverse else angles, -1, 0)):
        turn = np.zeros(angles.shape[:-1] + (4,))
        turn[..., axis], turn[..., 3] = np.sin(angle / 2), np.cos(angle / 2)
        q = _multiply(turn, q)
    return _unit(q)


def _to_euler(form: str, q: np.ndarray) -> np.ndarray:
    (i, j, k), reverse = _euler_axes(form)
    sign, m = (1 if (i + 1) % 3 == j else -1), _to_matrix(q)
    cosine = np.hypot(m[..., i, i], m[..., j, i])
    free = cosine > GIMBAL_COSINE
    middle = np.arctan2(-sign * m[..., k, i], cosine)
    first, last = np.arctan2(sign * m[..., k, j], m[..., k, k]), np.arctan2(sign * m[..., j, i], m[..., i, i])
    if reverse:
        first, last = np.where(free, first, 0), np.where(free, last, np.arctan2(-sign * m[..., i, j], m[..., j, j]))
    else:
        first, last = np.where(free, first, np.arctan2(-sign * m[..., j, k], m[..., j, j])), np.where(free, last, 0)
    return np.stack([last, middle, first] if reverse else [first, middle, last], axis=-1)


def load_rotation(form: str, x: np.ndarray) -> np.ndarray:
    """Returns unit quaternions (x, y, z, w). What is not a rotation becomes NaN."""
    if form.startswith("quat"):
        return _unit(np.roll(x, -1, axis=-1) if form == "quat_wxyz" else x)
    if form == "matrix":
        m = x.reshape(x.shape[:-1] + (3, 3))
        good = (np.abs(m @ np.swapaxes(m, -1, -2) - np.eye(3)).max(axis=(-1, -2)) < 0.1) & (np.linalg.det(m) > 0)
        return np.where(good[..., None], _of_two_rows(x), np.nan)
    return _of_euler(form, x) if form.startswith("euler") else _of_axis_angle(x) if form == "axis_angle" else _of_two_rows(x)


def store_rotation(form: str, q: np.ndarray) -> np.ndarray:
    """Writes unit quaternions in a form: quaternions with w >= 0."""
    if form.startswith("quat"):
        q = np.where(q[..., 3:] < 0, -q, q)
        return np.roll(q, 1, axis=-1) if form == "quat_wxyz" else q
    if form in ("matrix", "rot6d"):
        return _to_matrix(q).reshape(q.shape[:-1] + (9,))[..., :WIDTHS[form]]
    return _to_euler(form, q) if form.startswith("euler") else _to_axis_angle(q)


class Chain:
    """A chain as a file of statistics describes it: `forward` makes what the policy sees, `inverse` the recorded rows."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = dict(document)
        self.parts = [dict(part) for part in document["parts"]]
        self.columns, self.output_columns = int(document["columns"]), int(document["output_columns"])
        self.reference_columns = int(document["reference_columns"])
        self.anchor_frame, self.before = document["frame"] == "anchor", document["step"] == "before"

    @property
    def id(self) -> str:
        return str(self.document["id"])

    @property
    def is_plain(self) -> bool:
        """Whether it only subtracts the same columns of a state, as openpi's DeltaActions."""
        return not self.before and all(
            part["kind"] == "plain" and "turned_by" not in part and
            (not part["relative"] or part["reference_first"] == part["first"]) for part in self.parts)

    def _of_reference(self, state: np.ndarray) -> dict[int, np.ndarray]:
        def origin(part: Mapping[str, Any]) -> np.ndarray:
            first = part["reference_first"]
            if part["kind"] == "rotation":
                form = part["reference_form"]
                return load_rotation(form, state[..., first:first + WIDTHS.get(form, 3)])
            return state[..., first:first + part["count"]]

        return {i: origin(part) for i, part in enumerate(self.parts) if part["relative"]}

    def _of_row(self, row: np.ndarray) -> dict[int, np.ndarray]:
        def origin(part: Mapping[str, Any]) -> np.ndarray:
            own = row[..., part["first"]:part["first"] + part["count"]]
            return load_rotation(part["from"], own) if part["kind"] == "rotation" else own

        return {i: origin(part) for i, part in enumerate(self.parts) if part["relative"]}

    def _forward(self, rows: np.ndarray, origin: Mapping[int, np.ndarray]) -> np.ndarray:
        out = np.empty(rows.shape[:-1] + (self.output_columns,))
        for i, part in enumerate(self.parts):
            x = rows[..., part["first"]:part["first"] + part["count"]]
            if part["kind"] == "rotation":
                q = load_rotation(part["from"], x)
                if part["relative"]:
                    zero = np.broadcast_to(_inverse(origin[i]), q.shape)
                    q = _multiply(zero, q) if self.anchor_frame else _multiply(q, zero)
                x = store_rotation(part["to"], q)
            elif part["relative"]:
                x = x - origin[i]
                if part["kind"] == "angle":
                    x = x - part["period"] * np.floor(x / part["period"] + 0.5)
                if "turned_by" in part:
                    x = _turn(np.broadcast_to(_inverse(origin[part["turned_by"]]), x.shape[:-1] + (4,)), x)
            out[..., part["output_first"]:part["output_first"] + part["output_count"]] = x
        return out

    def _inverse(self, out: np.ndarray, origin: Mapping[int, np.ndarray]) -> np.ndarray:
        rows = np.empty(out.shape[:-1] + (self.columns,))
        for i, part in enumerate(self.parts):
            x = out[..., part["output_first"]:part["output_first"] + part["output_count"]]
            if part["kind"] == "rotation":
                q = load_rotation(part["to"], x)
                if part["relative"]:
                    zero = np.broadcast_to(origin[i], q.shape)
                    q = _multiply(zero, q) if self.anchor_frame else _multiply(q, zero)
                x = store_rotation(part["from"], q)
            elif part["relative"]:
                if "turned_by" in part:
                    x = _turn(np.broadcast_to(origin[part["turned_by"]], x.shape[:-1] + (4,)), x)
                x = x + origin[i]
            rows[..., part["first"]:part["first"] + part["count"]] = x
        return rows

    def _check(self, what: str, x: Any, columns: int) -> np.ndarray:
        if np.ma.is_masked(x):
            raise ValueError(f"{what} has masked numbers, and a rotation or a difference needs all of them: fill them first, for "
                             "example with x.filled(np.nan)")
        array: np.ndarray = np.asarray(x, dtype=np.float64)
        if array.ndim == 0 or array.shape[-1] != columns:
            raise ValueError(f"{what} needs {columns} columns, and has {array.shape[-1] if array.ndim else 'none'}")
        return array

    def _origin(self, state: Any, x: np.ndarray) -> dict[int, np.ndarray]:
        if not self.reference_columns:
            return {}
        if state is None:
            raise ValueError(f"this output is relative to a state: pass its {self.reference_columns} columns")
        array = self._check("the state", state, self.reference_columns)
        steps, states = x.shape[:-2], array.shape[:-1]
        if x.ndim < 2 or len(states) > len(steps) or any(n not in (1, m) for n, m in zip(states[::-1], steps[::-1])):
            raise ValueError(f"the steps are {list(x.shape)} and the state is {list(array.shape)}, but steps are [B, T, D] and their "
                             "state is [B, D] at the anchor: take state[:, -1] of one [B, T, D], and chunk[..., None, :] of "
                             "a single step")
        return self._of_reference(array[..., None, :])

    def _steps(self, made: Callable[[np.ndarray, Mapping[int, np.ndarray]], np.ndarray], x: np.ndarray,
               state: Any, is_inverse: bool) -> np.ndarray:
        origin = self._origin(state, x)
        if not (self.before and origin):
            return made(x, origin)
        steps = []
        for t in range(x.shape[-2]):  # the origin of a step is the row of the step before it
            steps.append(made(x[..., t:t + 1, :], origin))
            origin = self._of_row(steps[-1] if is_inverse else x[..., t:t + 1, :])
        return np.concatenate(steps, axis=-2)

    def forward(self, rows: Any, state: Any = None) -> np.ndarray:
        """Returns [..., T, output_columns] of recorded rows [..., T, columns] and the state [..., reference_columns]."""
        return self._steps(self._forward, self._check("a row", rows, self.columns), state, False)

    def inverse(self, chunk: Any, state: Any = None) -> np.ndarray:
        """Returns the recorded rows of what `forward` gives."""
        return self._steps(self._inverse, self._check("a step", chunk, self.output_columns), state, True)
