"""Key styles: the names and shapes of a feed's outputs in a batch.

A style is a list of rules. A rule selects outputs by role, name and content, and gives each a key. The first rule that
fits an output applies. NAME below is the output's name without a leading `obs/`. Keys with dots are flat; keys with
slashes are nested dicts. B is the number of rows, T of steps, D of features, K of cameras. `..._is_pad` is bool, True
for padding. "0..1" means float32 from 0 to 1; images are otherwise as stored.

    raw               observations  as in the feed, `obs/NAME`
                      actions       as in the feed
                      padding       `NAME_is_pad`; for `obs/x`: `obs_is_pad/x`
                      augmentation  `NAME.augment`, a key of the batch itself, also for `obs/x`
                      lack          `NAME.missing`, bool [B, D], likewise: columns that the episode lacks
                      ids           `window_id`, `dataset_index`, `episode_index`, `anchor_ns`
    robomimic         observations  `obs/NAME`
                      actions       `actions`
                      padding       `actions_is_pad`, and `pad_mask` [B, T, 1], True where the mask is 0 (valid)
                      ids           `index`
    lerobot           observations  `observation.NAME`; images `observation.images.NAME`, uint8 [B, T, C, H, W]
                      actions       `action`
                      padding       `KEY_is_pad`
                      ids           `index`, `episode_index`, `dataset_index`, and the text `task`
    act               observations  `image` [B, K, C, H, W], 0..1; `qpos` [B, D]
                      actions       `action`
                      padding       `is_pad`, `action_is_pad`
    diffusion_policy  observations  `obs/NAME`; images [B, T, C, H, W], 0..1
                      actions       `action`
                      padding       `action_is_pad`
    openpi            observations  `image/NAME` [B, H, W, C]; `state` [B, D]
                      actions       `actions`
                      padding       `actions_is_pad`, and `image_mask/NAME` [B], True where the mask is 0 (valid)
                      ids           the text `prompt`

If a style has no T for an observation, the observation is the last one of the window.

`..._is_pad` is True for steps outside the episode only. A step that is missing, too old, in a gap, bad or NaN is
not padding, and most trainers have no key for it: `batch.mask(NAME)` has the reason for each step, in every style.

The names and shapes come from robomimic's SequenceDataset.__getitem__ (`pad_mask` is True where the step is recorded),
LeRobotDataset (`<key>_is_pad`; images as with its return_uint8), ACT's EpisodicDataset (in this order: `image, qpos,
action, is_pad = list(batch.values())[:4]`), diffusion_policy's ReplayImageDataset, and openpi's Observation.from_dict
with its repacked LeRobot keys. LeRobot's `timestamp` and `frame_index` do not exist here: a window is anchored at a
time (`batch.anchor_ns`), not at a frame."""
from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

from .errors import ArgumentError


log = logging.getLogger("trajd")

PIXEL_TYPES = ("u8", "f16", "bf16", "f32")


class Tensor(NamedTuple):
    """A tensor of a feed's schema. `shape` is that of one row: [T, ...] for an output, [] for an id."""

    name: str
    role: str
    of: Optional[str]
    dtype: str
    shape: Sequence[int]

    @property
    def is_channels_first(self) -> bool:
        return len(self.shape) == 4 and self.shape[1] in (1, 3) and self.shape[3] not in (1, 3, 4)

    @property
    def is_image(self) -> bool:
        """Tells whether the output has images: u8 as they are in files, or what the feed makes of them (`layout: chw`, `norm:`)."""
        if len(self.shape) != 4 or self.dtype not in PIXEL_TYPES:
            return False
        return self.is_channels_first or self.shape[3] in (3, 4) or (self.dtype == "u8" and self.shape[3] == 1)

    def remaining(self, steps: Sequence[str]) -> Tuple[str, ...]:
        """Returns the steps of a rule that the feed has not done itself."""
        done = {"channels_first": self.is_channels_first, "unit_range": self.dtype != "u8"}
        return tuple(step for step in steps if not done.get(step, False))


@dataclass(frozen=True)
class Field:
    """How the value of a key is made: from which tensors of the schema, and by which steps."""

    sources: Tuple[int, ...] = ()
    steps: Tuple[str, ...] = ()  # names of functions in arrays.py, applied in turn
    meta: Optional[str] = None   # the name of an episode's text, instead of tensors


Plan = Dict[str, Union[Field, "Plan"]]


@dataclass(frozen=True)
class Rule:
    key: str
    role: Optional[str] = None     # one of OUTPUT_ROLES; None: any
    name: str = r".*"              # matches the output's whole name without a leading obs/
    image: Optional[bool] = None
    steps: Tuple[str, ...] = ()
    gather: bool = False           # all outputs are stacked to one, [B, K, ...]
    pad: Optional[str] = None      # keys of the padding flags, separated by spaces
    valid: Optional[str] = None    # key of flags that are True where the mask has no reason against the step
    valid_steps: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Style:
    rules: Tuple[Rule, ...]
    ids: Dict[str, str] = field(default_factory=dict)   # key -> id tensor
    texts: Dict[str, str] = field(default_factory=dict)  # key -> name of an episode's text
    needs: Tuple[str, ...] = ()                          # keys that a feed must have for this style


OUTPUT_ROLES = ("obs", "action", "next", "goal")
RAW_IDS = {name: name for name in ("window_id", "dataset_index", "episode_index", "anchor_ns")}

STYLES: Dict[str, Style] = {
    "raw": Style((Rule("{full}", pad="{pad}"),), ids=RAW_IDS),
    "robomimic": Style((
        Rule("obs/{name}", role="obs"),
        Rule("actions", role="action", name="actions?", pad="actions_is_pad", valid="pad_mask",
             valid_steps=("as_column",)),
        Rule("{full}", role="goal", steps=("last_step",)),
        Rule("{name}")), ids={"index": "window_id"}, needs=("actions",)),
    "lerobot": Style((
        Rule("observation.images.{dotted}", role="obs", image=True, steps=("channels_first",),
             pad="observation.images.{dotted}_is_pad"),
        Rule("observation.{dotted}", role="obs", pad="observation.{dotted}_is_pad"),
        Rule("action", role="action", name="actions?", pad="action_is_pad"),
        Rule("{dotted}", pad="{dotted}_is_pad")),
        ids={"index": "window_id", "episode_index": "episode_index", "dataset_index": "dataset_index"},
        texts={"task": "language"}, needs=("action",)),
    "act": Style((
        Rule("image", role="obs", image=True, gather=True, steps=("last_step", "channels_first", "unit_range")),
        Rule("qpos", role="obs", name="(robot_)?(qpos|state)", steps=("last_step",)),
        Rule("action", role="action", name="actions?", pad="is_pad action_is_pad"),
        Rule("{name}")), needs=("qpos", "action")),
    "diffusion_policy": Style((
        Rule("obs", role="obs", name="obs"),
        Rule("obs/{name}", role="obs", image=True, steps=("channels_first", "unit_range")),
        Rule("obs/{name}", role="obs"),
        Rule("action", role="action", name="actions?", pad="action_is_pad"),
        Rule("{name}")), needs=("obs", "action")),
    "openpi": Style((
        Rule("image/{name}", role="obs", image=True, steps=("last_step",), valid="image_mask/{name}",
             valid_steps=("last_step",)),
        Rule("state", role="obs", name="(robot_)?(state|qpos)", steps=("last_step",)),
        Rule("actions", role="action", name="actions?", pad="actions_is_pad"),
        Rule("{name}")), texts={"prompt": "language"}, needs=("state", "actions")),
}


def _short(name: str) -> str:
    return name[4:] if name.startswith("obs/") else name


def _fits(rule: Rule, tensor: Tensor) -> bool:
    return ((rule.role is None or rule.role == tensor.role) and
            (rule.image is None or rule.image == tensor.is_image) and
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


def _check_gathered(style: str, rule: Rule, tensors: List[Tensor]) -> None:
    """Checks that the images of all cameras need the same steps."""
    for tensor in tensors[1:]:
        if tensor.remaining(rule.steps) != tensors[0].remaining(rule.steps):
            raise ArgumentError(f"style {style} stacks {tensors[0].name}, {tensors[0].dtype}, and {tensor.name}, "
                                f"{tensor.dtype}: give both outputs the same norm: and layout:")


_named: "Set[Tuple[str, str]]" = set()  # styles and feeds of this process


def name_preset(style: str, feed: str, plan: Plan) -> None:
    """Logs, once for a feed and style, that the style scales images here, and the key that does it in the feed."""
    scaled = [key for key, value in plan.items() if isinstance(value, Field) and "unit_range" in value.steps]
    scaled += [f"{key}/{name}" for key, group in plan.items() if isinstance(group, dict)
               for name, value in group.items() if isinstance(value, Field) and "unit_range" in value.steps]
    if scaled and (style, feed) not in _named:
        _named.add((style, feed))
        log.warning("feed %s: style %s scales %s to 0..1 in the training's thread. With `image: {preset: %s}` in these "
                    "outputs, the feed does it", feed, style, ", ".join(scaled), style)


def make_plan(style: str, schema: Sequence[Tensor]) -> Plan:
    """Returns the keys of a batch as nested dicts of Fields: observations and actions, then flags, then ids and texts.

    Raises ArgumentError if the style needs an output that the feed does not have, or if two outputs get the same
    key."""
    chosen = STYLES[style]
    masks = {tensor.of: index for index, tensor in enumerate(schema) if tensor.role == "mask"}
    taken: List[Tuple[int, Tensor, Rule]] = []
    for index, tensor in enumerate(schema):
        if tensor.role in OUTPUT_ROLES:
            taken.append((index, tensor, next(rule for rule in chosen.rules if _fits(rule, tensor))))
    order = {id(rule): place for place, rule in enumerate(chosen.rules)}
    if chosen.rules[0].gather:  # ACT's source unpacks a tuple: the order of the keys is that of the rules
        taken.sort(key=lambda item: order[id(item[2])])
    plan: Plan = {}
    for rule in chosen.rules:
        gathered = tuple(index for index, _, by in taken if by is rule) if rule.gather else ()
        if gathered:
            _check_gathered(style, rule, [schema[index] for index in gathered])
            _put(plan, rule.key, Field(gathered, (*schema[gathered[0]].remaining(rule.steps), "stack")), style)
    for index, tensor, rule in taken:
        if not rule.gather:
            _put(plan, _expand(rule.key, tensor.name), Field((index,), tensor.remaining(rule.steps)), style)
    for index, tensor, rule in taken:
        if tensor.name in masks:
            _put_flags(plan, rule, tensor, masks[tensor.name], style)
    for index, tensor in enumerate(schema):
        if tensor.role in ("augment", "missing") and style == "raw":
            plan[tensor.name] = Field((index,))  # not in the group obs, which policies map over
    positions = {tensor.name: index for index, tensor in enumerate(schema) if tensor.role == "ids"}
    for key, name in chosen.ids.items():
        if name in positions:
            _put(plan, key, Field((positions[name],)), style)
    for key, name in chosen.texts.items():
        _put(plan, key, Field(meta=name), style)
    for key in chosen.needs:
        if key not in plan:
            names = ", ".join(tensor.name for tensor in schema if tensor.role in OUTPUT_ROLES)
            raise ArgumentError(f"style {style} needs {key}, and no output of this feed becomes it (there are: {names})")
    return plan
