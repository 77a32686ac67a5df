"""Shows docstrings of trajd in the guide: a list in columns (NAME, two spaces or more, text) becomes a list of items.

Docstrings are written for `help()`, where columns read best. Markdown would join their lines.
"""
import re

import griffe

ENTRY = re.compile(r"([a-z_][\w, ]*?)(?: {2,}(\S.*)|)$")


def show_columns(text):
    """Returns the docstring with its columns as items. A line that goes on behind the same column belongs to the item."""
    lines, made, column = text.split("\n"), [], 0
    for number, line in enumerate(lines):
        follows = lines[number + 1] if number + 1 < len(lines) else ""
        entry = ENTRY.match(line)
        starts = entry and (entry[2] or re.match(r" {10,}\S", follows)) and not line.endswith(":")
        if starts and "  " in line.strip() or starts and not entry[2]:
            names = ", ".join(f"`{name}`" for name in entry[1].split(", "))
            made += ([] if column else [""]) + [f"- {names}: {entry[2] or ''}".rstrip()]
            column = line.index(entry[2]) if entry[2] else len(follows) - len(follows.lstrip())
        elif column and line.startswith(" " * column):
            made.append("  " + line.strip())
        else:
            column = 0
            made.append(line)
    return "\n".join(made)


class Columns(griffe.Extension):
    def on_object(self, *, obj, **_):
        if obj.docstring:
            obj.docstring.value = show_columns(obj.docstring.value)
