#!/usr/bin/env python3
"""changelog.py FILE VERSION BEFORE: checks that FILE has the form of keepachangelog.com and tells what is new since BEFORE."""
import re
import sys

KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def sections(text):
    """Yields (title, {kind: [entry]}) of each version. Raises ValueError with the line where the form is broken."""
    title, kinds, kind = None, {}, None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            if title:
                yield title, kinds
            title, kinds, kind = line[3:], {}, None
        elif line.startswith("### "):
            kind = line[4:]
            if kind not in KINDS or kind in kinds:
                raise ValueError(f"line {number}: \"{line}\": once each of {', '.join(KINDS)}")
            kinds[kind] = []
        elif line.startswith("- "):
            if not kind:
                raise ValueError(f"line {number}: an entry stands under one of {', '.join(KINDS)}")
            kinds[kind].append(line[2:])
    if title:
        yield title, kinds


def check(text, version, before):
    found = list(sections(text))
    titles = [title for title, _ in found]
    wanted = "Unreleased" if ".dev" in version else version
    if not titles or not re.fullmatch(rf"\[?{re.escape(wanted)}\]?( - \d{{4}}-\d\d-\d\d)?", titles[0]):
        raise ValueError(f"the first section is \"{titles[0] if titles else ''}\", and CMakeLists.txt has version {version}")
    if not any(title.lstrip("[").startswith(before) for title in titles[1:]):
        raise ValueError(f"no section of version {before}")
    if not any(found[0][1].values()):
        raise ValueError(f"nothing is reported of {titles[0]}")
    return found[0]


if __name__ == "__main__":
    path, *numbers = sys.argv[1:]
    try:
        title, kinds = check(open(path).read(), *numbers)
    except ValueError as error:
        sys.exit(f"release-check: {path}: {error}")
    print(f"release-check: {path}: {title}: " + ", ".join(f"{len(entries)} {kind.lower()}" for kind, entries in kinds.items()))
