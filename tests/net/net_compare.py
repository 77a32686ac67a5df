"""Compares two records: lists items that differ, are missing or are new."""

import itertools
import json
import sys

LINES_MAX = 6  # of a text that differs
ITEMS_MAX = 400  # that are listed


def read(path):
    document = json.loads(path.read_text())
    if document.get("format") != 1:
        sys.exit(f"net.py: {path} is not a record of this version")
    return document


def choose(items, only, without):
    """Returns the items whose names begin with one of `only` (None: all), and with none of
    `without`."""
    return {
        name: item
        for name, item in items.items()
        if (not only or name.startswith(tuple(only))) and not name.startswith(tuple(without))
    }


def where_they_differ(before, after):
    """Returns the parts of two lines around the first character that differs."""
    begin = next(
        (n for n, (one, other) in enumerate(zip(before, after)) if one != other),
        min(len(before), len(after)),
    )
    place = slice(max(0, begin - 40), begin + 80)
    return [f"- {before[place]}", f"+ {after[place]}"]


def describe(before, after):
    """Returns the lines that say how an item differs."""
    if "text" in before and "text" in after:
        pairs = itertools.zip_longest(
            before["text"].splitlines(), after["text"].splitlines(), fillvalue=""
        )
        found = [
            line for one, other in pairs if one != other for line in where_they_differ(one, other)
        ]
        return found[:LINES_MAX] or ["the end of a long text"]
    keys = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
    return [
        f"{key}: {str(before.get(key))[:60]}, now {str(after.get(key))[:60]}"
        for key in sorted(keys)
    ]


def compare(before_path, after_path, only, without):
    """Prints the differences. Returns 1 if there are any, else 0."""
    before, after = (
        choose(read(path)["items"], only, without) for path in (before_path, after_path)
    )
    found = [("missing", name, []) for name in before.keys() - after.keys()]
    found += [("new", name, []) for name in after.keys() - before.keys()]
    found += [
        ("differs", name, describe(before[name], after[name]))
        for name in before.keys() & after.keys()
        if before[name] != after[name]
    ]
    found.sort(key=lambda one: one[1])
    for what, name, lines in found[:ITEMS_MAX]:
        print("\n    ".join([f"{what:8} {name}", *lines]))
    if len(found) > ITEMS_MAX:
        print(f"and {len(found) - ITEMS_MAX} more")
    print(
        f"{len(before)} items before, {len(after)} after: "
        f"{len(found)} differ, are missing or are new"
    )
    return 1 if found or not before else 0
