"""Shows docstrings of trajd in the guide: a list in columns (NAME, two spaces or more, text) becomes a list of items.

Docstrings are written for `help()`, where columns read best. Markdown would join their lines.
"""
import re

import griffe

ENTRY = re.compile(r"([a-z_][\w, ]*?)( {2,}|(?<!,) (?=\S)|$)(.*)")
INNER = re.compile(r" +(\w+) {2,}(\S.*)")


def item_of(line, following, column):
    """Returns the names and the text of an entry, and the column of its text; None for any other line."""
    found = ENTRY.match(line)
    if not found:
        return None
    names, gap, text = found.groups()
    if len(gap) > 1 or gap == " " and column and len(names) + 1 == column:
        return names, text, len(names) + len(gap)
    indent = len(following) - len(following.lstrip())
    return (names, "", indent) if not gap and indent > 8 else None


def show_columns(text):
    """Returns the docstring with its columns as items. A line that goes on behind the same column belongs to the item."""
    lines, made, column = text.split("\n"), [], 0
    for line, following in zip(lines, [*lines[1:], ""]):
        item = item_of(line, following, column)
        inner = INNER.fullmatch(line) if column and line.startswith(" " * (column + 1)) else None
        if item:
            names = ", ".join(f"`{name}`" for name in item[0].split(", "))
            made += ([] if column else [""]) + [f"- {names}: {item[1]}".rstrip()]
            column = item[2]
        elif inner:
            made.append(f"    - `{inner[1]}`: {inner[2]}")
        elif column and (line.startswith(" " * column) or not line.strip() and item_of(following, "", column)):
            made.append("  " + line.strip() if line.strip() else "")
        else:
            column = 0
            made.append(line)
    return "\n".join(made)


class Columns(griffe.Extension):
    def on_object(self, *, obj, **_):
        if obj.docstring:
            obj.docstring.value = show_columns(obj.docstring.value)
