"""Group: a dict of a batch's arrays, each of which is made when it is first read."""
from __future__ import annotations

import sys
from typing import Any, Callable, Dict, ItemsView, Iterable, Iterator, List, Mapping, Set, Tuple, ValuesView

from .errors import names_there_are
from .styles import Field, Plan


def _paths(group: Mapping[str, Any]) -> Iterator[str]:
    """Yields "actions", "obs/x", ...: the paths of all arrays."""
    for key, value in dict.items(group):  # type: ignore[arg-type]
        if isinstance(value, dict) and value:
            yield from (f"{key}/{path}" for path in _paths(value))
        else:
            yield str(key)


class Group(Dict[str, Any]):
    """A dict of arrays and further groups, such as batch["obs"]. group["a/b"] is group["a"]["b"].

    Each array is made when it is first read. All else is as in a dict: torch's pytree, jax, dict_apply of
    diffusion_policy, and apply_to_collection of Lightning map over it. What they return, copy(), a pickle and
    type(group)(...) are plain dicts: they have the arrays, but not the methods of a batch."""

    __slots__ = ("_plan", "_make")

    _plan: Plan
    _make: Callable[[Field], Any]

    def __new__(cls, *arguments: Any, **named: Any) -> Any:
        return dict(*arguments, **named)

    def _begin(self, plan: Plan, make: Callable[[Field], Any]) -> None:
        """Puts the plan in the place of the values. __getitem__ replaces a Field by its array."""
        self._plan, self._make = plan, make
        dict.update(self, plan)
        for key, entry in plan.items():
            if isinstance(entry, dict):
                inner = dict.__new__(Group)
                inner._begin(entry, make)
                dict.__setitem__(self, key, inner)

    def _forget(self) -> None:
        """Drops all arrays of the plan."""
        for key, entry in self._plan.items():
            value = dict.get(self, key)
            if isinstance(entry, dict) and isinstance(value, Group):
                value._forget()
            else:
                dict.__setitem__(self, key, entry)

    def _fill(self) -> None:
        for key in self:
            self[key]

    # ---- reading: the methods of dict would return Fields ----

    def __getitem__(self, key: str) -> Any:
        try:
            value = dict.__getitem__(self, key)
        except KeyError:
            return self._find(key)
        if value.__class__ is Field:
            value = self._make(value)
            dict.__setitem__(self, key, value)
        return value

    def _find(self, path: Any) -> Any:
        found: Any = self
        for part in path.split("/") if isinstance(path, str) else (path,):
            if not isinstance(found, dict) or not dict.__contains__(found, part):
                raise KeyError(f"{path} ({names_there_are(path, _paths(self))})")
            found = found[part]
        return found

    def __contains__(self, key: object) -> bool:
        if dict.__contains__(self, key):
            return True
        first, slash, rest = key.partition("/") if isinstance(key, str) else (key, "", "")
        inner = dict.get(self, first)
        return bool(slash) and isinstance(inner, dict) and rest in inner

    def __iter__(self) -> Iterator[str]:  # because of it, dict(group) and {**group} use keys() and __getitem__
        return dict.__iter__(self)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        self._fill()
        return dict.items(self)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        self._fill()
        return dict.values(self)

    def pop(self, key: str, *default: Any) -> Any:
        if dict.__contains__(self, key):
            self[key]
        return dict.pop(self, key, *default)

    def popitem(self) -> Tuple[str, Any]:
        self._fill()
        return dict.popitem(self)

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            dict.__setitem__(self, key, default)
        return self[key]

    def __eq__(self, other: object) -> bool:
        for side in (self, other):
            if isinstance(side, Group):
                side._fill()
        return bool(dict.__eq__(self, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __or__(self, other: Mapping[str, Any]) -> Any:
        return {**self.copy(), **other}

    # ---- plain dicts ----

    def copy(self) -> Dict[str, Any]:
        """Returns a plain dict, with plain dicts inside. It has the same arrays."""
        return {key: value.copy() if isinstance(value, Group) else value for key, value in self.items()}

    __copy__ = copy

    def __reduce__(self) -> Any:
        return dict, (self.copy(),)

    def __repr__(self) -> str:
        return f"Group({', '.join(self)})"


# ---- libraries that map over a dict only if its class is registered ----

_registered: Set[str] = set()


def _flatten(group: Group) -> Tuple[List[Any], Tuple[str, ...]]:
    return list(group.values()), tuple(group)


def _unflatten(values: Iterable[Any], keys: Iterable[str]) -> Dict[str, Any]:
    return dict(zip(keys, values))


def _register_torch(pytree: Any, kind: type) -> None:
    def flatten_with_keys(group: Group) -> Tuple[List[Any], Tuple[str, ...]]:
        return [(pytree.MappingKey(key), value) for key, value in group.items()], tuple(group)

    if hasattr(pytree, "MappingKey"):
        pytree.register_pytree_node(kind, _flatten, _unflatten, flatten_with_keys_fn=flatten_with_keys)
    else:  # torch before 2.3
        pytree._register_pytree_node(kind, _flatten, _unflatten)


def _register_jax(tree_util: Any, kind: type) -> None:
    tree_util.register_pytree_node(kind, _flatten, lambda keys, values: _unflatten(values, keys))


def register(*kinds: type) -> None:
    """Registers classes of groups with the pytrees of torch and jax, as far as the program has imported them."""
    for name, enter in (("torch.utils._pytree", _register_torch), ("jax.tree_util", _register_jax)):
        module = sys.modules.get(name)
        if module is not None and name not in _registered:
            _registered.add(name)
            for kind in kinds:
                enter(module, kind)
