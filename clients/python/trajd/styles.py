"""Key styles: what the outputs of a feed are called in a batch, and how they lie.

One table. A rule takes the outputs whose role, name and content it names and gives each a key; the first rule that fits counts.
`{name}` is the output's name without a leading `obs/`. Keys with dots stay flat; those with slashes are nested dicts.

| style | observations | actions | padding (True = padding) | valid (True = valid) | pictures | of each row |
| --- | --- | --- | --- | --- | --- | --- |
| raw | `obs/NAME`, as in the feed | as in the feed | `NAME_is_pad`, for `obs/x` under `obs_is_pad/x` | | as stored | `window_id`, `dataset_index`, `episode_index`, `anchor_ns` |
| robomimic | `obs/NAME` | `actions` | `actions_is_pad` | `pad_mask` [B, T, 1] | as stored | `index` |
| lerobot | `observation.NAME`, pictures `observation.images.NAME` | `action` | `KEY_is_pad` | | uint8 [B, T, C, H, W] | `index`, `episode_index`, `dataset_index`, `task` |
| act | `image` [B, K, C, H, W], `qpos` [B, D] | `action` | `is_pad`, `action_is_pad` | | float32 0..1 | |
| diffusion_policy | `obs/NAME` | `action` | `action_is_pad` | | float32 0..1 [B, T, C, H, W] | |
| openpi | `image/NAME` [B, H, W, C], `state` [B, D] | `actions` | `actions_is_pad` | `image_mask/NAME` [B] | as stored | `prompt` |

Sources of the names and shapes: robomimic's SequenceDataset.__getitem__ (`pad_mask` True where the step is recorded), LeRobotDataset
(`<key>_is_pad`; pictures are what it calls return_uint8), ACT's EpisodicDataset (image, qpos, action, is_pad in this order:
`image, qpos, action, is_pad = list(batch.values())[:4]`), diffusion_policy's ReplayImageDataset, openpi's Observation.from_dict
and its repacked LeRobot keys. Where a style has one row per observation it is the last one of the window. `timestamp` and
`frame_index` of LeRobot are not there: a window is anchored in time (`batch.anchor_ns`), not at a frame."""
from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from .errors import ArgumentError


class Tensor(NamedTuple):
    """An entry of a feed's schema; shape is that of one row: [T, ...] of an output, [] of an id."""

    name: str
    role: str
    of: Optional[str]
    dtype: str
    shape: Sequence[int]

    @property
    def is_picture(self) -> bool:
        return self.dtype == "u8" and len(self.shape) == 4 and self.shape[3] in (1, 3, 4)


@dataclass(frozen=True)
class Field:
    """How a key's value is made: of which tensors of the schema, and what is done to each in turn."""

    sources: Tuple[int, ...] = ()
    steps: Tuple[str, ...] = ()  # names of functions of arrays.py
    meta: Optional[str] = None   # a text of the episode, one per row


Plan = Dict[str, Union[Field, "Plan"]]


@dataclass(frozen=True)
class Rule:
    key: str
    role: Optional[str] = None     # obs, action; None: any
    name: str = r".*"              # all of the output's name, without a leading obs/
    picture: Optional[bool] = None
    steps: Tuple[str, ...] = ()
    gather: bool = False           # several outputs become one, stacked behind the rows
    pad: Optional[str] = None      # key of the padding flags
    valid: Optional[str] = None    # key of their opposite
    valid_steps: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Style:
    rules: Tuple[Rule, ...]
    ids: Dict[str, str] = field(default_factory=dict)   # key -> id tensor
    texts: Dict[str, str] = field(default_factory=dict)  # key -> name of an episode's text
    needs: Tuple[str, ...] = ()                          # keys without which the style means nothing


RAW_IDS = {name: name for name in ("window_id", "dataset_index", "episode_index", "anchor_ns")}

STYLES: Dict[str, Style] = {
    "raw": Style((Rule("{full}", pad="{pad}"),), ids=RAW_IDS),
    "robomimic": Style((
        Rule("obs/{name}", role="obs"),
        Rule("actions", role="action", name="actions?", pad="actions_is_pad", valid="pad_mask", valid_steps=("as_column",)),
        Rule("{name}")), ids={"index": "window_id"}, needs=("actions",)),
    "lerobot": Style((
        Rule("observation.images.{dotted}", role="obs", picture=True, steps=("channels_first",),
             pad="observation.images.{dotted}_is_pad"),
        Rule("observation.{dotted}", role="obs", pad="observation.{dotted}_is_pad"),
        Rule("action", role="action", name="actions?", pad="action_is_pad"),
        Rule("{dotted}", pad="{dotted}_is_pad")),
        ids={"index": "window_id", "episode_index": "episode_index", "dataset_index": "dataset_index"},
        texts={"task": "language"}, needs=("action",)),
    "act": Style((
        Rule("image", role="obs", picture=True, gather=True, steps=("last_step", "channels_first", "unit_range")),
        Rule("qpos", role="obs", name="(robot_)?(qpos|state)", steps=("last_step",)),
        Rule("action", role="action", name="actions?", pad="is_pad action_is_pad"),
        Rule("{name}")), needs=("qpos", "action")),
    "diffusion_policy": Style((
        Rule("obs", role="obs", name="obs"),
        Rule("obs/{name}", role="obs", picture=True, steps=("channels_first", "unit_range")),
        Rule("obs/{name}", role="obs"),
        Rule("action", role="action", name="actions?", pad="action_is_pad"),
        Rule("{name}")), needs=("obs", "action")),
    "openpi": Style((
        Rule("image/{name}", role="obs", picture=True, steps=("last_step",), valid="image_mask/{name}", valid_steps=("last_step",)),
        Rule("state", role="obs", name="(robot_)?(state|qpos)", steps=("last_step",)),
        Rule("actions", role="action", name="actions?", pad="actions_is_pad"),
        Rule("{name}")), texts={"prompt": "language"}, needs=("state", "actions")),
}


def _short(name: str) -> str:
    return name[4:] if name.startswith("obs/") else name


def _fits(rule: Rule, tensor: Tensor) -> bool:
    return ((rule.role is None or rule.role == tensor.role) and (rule.picture is None or rule.picture == tensor.is_picture) and
            re.fullmatch(rule.name, _short(tensor.name)) is not None)


def _expand(key: str, name: str) -> str:
    group, slash, rest = name.partition("/")
    return key.format(full=name, name=_short(name), dotted=_short(name).replace("/", "."),
                      pad=f"{group}_is_pad/{rest}" if slash else f"{name}_is_pad")


def _put(plan: Plan, path: str, value: Field, style: str) -> None:
    *groups, last = path.split("/")
    for group in groups:
        inner = plan.setdefault(group, {})
        if isinstance(inner, Field):
            raise ArgumentError(f"style {style}: {group} is an output and also a group of outputs ({path})")
        plan = inner
    if last in plan:
        raise ArgumentError(f"style {style}: two outputs would both be called {path}")
    plan[last] = value


def _put_flags(plan: Plan, rule: Rule, tensor: Tensor, mask: int, style: str) -> None:
    for key in (rule.pad or "").split():
        _put(plan, _expand(key, tensor.name), Field((mask,), ("is_pad",)), style)
    if rule.valid is not None:
        _put(plan, _expand(rule.valid, tensor.name), Field((mask,), ("is_valid", *rule.valid_steps)), style)


def make_plan(style: str, schema: Sequence[Tensor]) -> Plan:
    """The keys of a batch of that schema: nested dicts of Fields, observations and actions before flags, those before ids.
    ArgumentError: the style needs an output that the feed has not, or two would have one name."""
    chosen = STYLES[style]
    masks = {tensor.of: index for index, tensor in enumerate(schema) if tensor.role == "mask"}
    taken: List[Tuple[int, Tensor, Rule]] = []
    for index, tensor in enumerate(schema):
        if tensor.role in ("obs", "action"):
            taken.append((index, tensor, next(rule for rule in chosen.rules if _fits(rule, tensor))))
    order = {id(rule): place for place, rule in enumerate(chosen.rules)}
    if chosen.rules[0].gather:  # a tuple in its source: the order of keys is the order of the rules
        taken.sort(key=lambda item: order[id(item[2])])
    plan: Plan = {}
    for rule in chosen.rules:
        gathered = tuple(index for index, _, by in taken if by is rule) if rule.gather else ()
        if gathered:
            _put(plan, rule.key, Field(gathered, (*rule.steps, "stack")), style)
    for index, tensor, rule in taken:
        if not rule.gather:
            _put(plan, _expand(rule.key, tensor.name), Field((index,), rule.steps), style)
    for index, tensor, rule in taken:
        if tensor.name in masks:
            _put_flags(plan, rule, tensor, masks[tensor.name], style)
    positions = {tensor.name: index for index, tensor in enumerate(schema) if tensor.role == "ids"}
    for key, name in chosen.ids.items():
        if name in positions:
            _put(plan, key, Field((positions[name],)), style)
    for key, name in chosen.texts.items():
        _put(plan, key, Field(meta=name), style)
    for key in chosen.needs:
        if key not in plan:
            names = ", ".join(tensor.name for tensor in schema if tensor.role in ("obs", "action"))
            raise ArgumentError(f"style {style} needs {key}, which no output of this feed is (there are: {names})")
    return plan
