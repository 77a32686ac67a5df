"""Reads configs/trajd.yaml, which describes every key, and writes the guide's page of keys and trajd.yaml(5).

    keys.py --man TEMPLATE      prints the manual page: TEMPLATE with the keys in the place of @KEYS@

Above a key stands a comment: what the key does, then "Type: ... Default: ... Reload." Behind it stands the key, or
the key is commented out, with the rest of its comment block as an example. The head of the file describes this form.
"""
import argparse
import dataclasses
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
CONFIG = ROOT / "configs/trajd.yaml"
KEY = re.compile(r"([a-z][\w@/]*):(?: |$)(.*)")
RULE = re.compile(r"Type: (?P<type>.*?)\. Default: (?P<default>.*?)\.(?P<reload> Reload\.)?$")


@dataclasses.dataclass
class Key:
    path: tuple          # ("feeds", "NAME", "outputs", "NAME", "at"): a name that the user chooses is NAME
    text: list           # paragraphs; one that begins with {...}: is an item of a list
    type: str
    default: str
    reload: bool
    example: list        # lines of YAML, the key's own first
    line: int            # of the key in the file, counted from 1
    is_commented: bool

    @property
    def name(self):
        return ".".join(self.path)


def split_comment(lines):
    """Splits the lines of a comment into what stands before "Type:", the rule, and the commented-out example."""
    starts = [i for i, text in enumerate(lines) if text.startswith("Type:")]
    if not starts:
        return lines, "", []
    begin = starts[0]
    end = next((i for i in range(begin, len(lines)) if KEY.match(lines[i]) and not lines[i].startswith("Type:")), len(lines))
    return lines[:begin], " ".join(lines[begin:end]), lines[end:]


def paragraphs(lines):
    """Joins the lines of a comment: a line that begins with two spaces begins or continues an item."""
    made = []
    for line in lines:
        if not made or line.startswith("  {") or line.startswith("  ") != made[-1].startswith("  "):
            made.append(line)
        else:
            made[-1] += " " + line.strip()
    return [text.strip() for text in made]


def parse(lines, path=(), first=1, is_commented=False):
    """Yields the keys of lines of YAML, in their order."""
    stack = []  # (column, name) of the mappings around a line
    comment, rule, has_rule = [], None, False
    for number, line in enumerate(lines, first):
        stripped = line.strip()
        if stripped.startswith("#"):
            comment.append(stripped[2:])
            continue
        text, rule, example = split_comment(comment)
        has_rule = bool(rule)
        if not stripped:
            if example:
                column = len(lines[number - first - 1]) - len(lines[number - first - 1].lstrip())
                yield from describe(stack, path, column, text, rule, example, number - len(example), True)
            comment = []
            continue
        comment = []
        if stripped.startswith("-"):
            continue
        column = len(line) - len(line.lstrip())
        while stack and stack[-1][0] >= column:
            stack.pop()
        name = KEY.match(stripped)[1]
        if has_rule:
            block = [line[column:]] + [more[column:] for more in inner_lines(lines[number - first + 1:], column)]
            yield make_key((*path, *(n for _, n in stack), name), text, rule, block, number, is_commented)
        stack.append((column, name if has_rule else "NAME"))
    text, rule, example = split_comment(comment)
    if example:
        column = len(lines[-1]) - len(lines[-1].lstrip())
        yield from describe(stack, path, column, text, rule, example, first + len(lines) - len(example), True)


def inner_lines(lines, column):
    """Returns the lines of a mapping below a key, without comments, if the key has such lines."""
    inner = []
    for line in lines:
        if line.strip() and not line.strip().startswith("#"):
            if len(line) - len(line.lstrip()) <= column:
                break
            inner.append(line)
    return inner


def describe(stack, path, column, text, rule, example, line, is_commented):
    """Yields a key that is commented out, and the keys that its example describes."""
    around = (*path, *(name for at, name in stack if at < column))
    name = KEY.match(example[0])[1]
    plain = [more for more in example if more.strip() and not more.strip().startswith("#")]
    yield make_key((*around, name), text, rule, plain, line, is_commented)
    yield from parse([more for more in example[1:]], (*around, name), line + 1, is_commented)


def make_key(path, text, rule, example, line, is_commented):
    found = RULE.match(rule)
    if not found:
        raise SystemExit(f"{CONFIG}:{line}: {'.'.join(path)}: the comment does not end with \"Type: ... Default: ...\": {rule}")
    return Key(path, paragraphs(text), found["type"], found["default"], bool(found["reload"]), example, line, is_commented)


def read_keys(text=None):
    text = CONFIG.read_text() if text is None else text
    head, body = text.split("\n\n", 1)
    return list(parse(body.splitlines(), first=head.count("\n") + 3))


def read_head():
    """Returns the head behind its two paragraphs on the file itself, as Markdown: what holds for all keys, units, reload."""
    parts = "\n".join(line[2:] for line in CONFIG.read_text().split("\n\n", 1)[0].splitlines()).split("\n\n")[2:]
    return "\n\n".join(re.sub(r"(?m)^(\w+): ", r"- **\1:** ", part) if part.startswith("Sizes:") else part for part in parts)


# The page.

SECTIONS = (  # heading, and how the names begin
    ("The file", ("version",)),
    ("Folders, access and idle times", ("runtime", "cache", "state", "tuning", "group_access", "feed_idle", "journal_idle", "exit_idle")),
    ("Memory", ("memory",)),
    ("GPUs", ("gpu",)),
    ("Threads", ("threads",)),
    ("Indexing", ("index",)),
    ("Other machines", ("listen",)),
    ("Limits", ("limits",)),
    ("Datasets", ("datasets",)),
    ("Feeds", ("feeds",)),
    ("Outputs of a feed", ("feeds.NAME.outputs",)),
)
MOST_LINES = 8  # of an example; a longer one is the whole file


def section_of(key):
    """Returns the index of the section whose beginning of the name is the longest."""
    fits = [(len(start), index) for index, (_, starts) in enumerate(SECTIONS) for start in starts
            if key.name == start or key.name.startswith(start + ".")]
    return max(fits)[1]


def write_key(key, is_twice):
    """Returns the entry of a key. Of two keys of one name, the one for images says so in its heading."""
    images = " (images)" if is_twice and key.text[0].startswith("For images") else ""
    lines = [f"### `{key.name}`{images}", ""]
    for text in key.text:
        item = re.match(r"(\{.*?\}(?:, \{.*?\})*): (.*)", text)
        lines += [f"- `{item[1]}`: {item[2]}"] if item else ["", text, ""]
    facts = [f"**Type:** {key.type}", f"**Default:** {key.default}"] + (["**Reload:** yes"] if key.reload else [])
    lines += ["", "  \n".join(facts), ""]
    if len(key.example) <= MOST_LINES:
        lines += ["``` yaml", *in_context(key), "```", ""]
    return lines


def in_context(key):
    """Returns the example of a key below the mappings around it, if the user does not choose their names."""
    around = key.path[:-1] if "NAME" not in key.path else ()
    return ["  " * depth + f"{name}:" for depth, name in enumerate(around)] + ["  " * len(around) + line for line in key.example]


def page():
    """Returns units, reload and all keys as Markdown."""
    keys = read_keys()
    names = [key.name for key in keys]
    lines = [read_head()]
    for index, (heading, _) in enumerate(SECTIONS):
        lines += ["", f"## {heading}", ""]
        for key in keys:
            if section_of(key) == index:
                lines += write_key(key, names.count(key.name) > 1)
    return "\n".join(lines) + "\n"


# The manual page.

def roff(text):
    """Returns a text for mdoc: code between backticks is bold."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"`([^`]*)`", r"\\fB\1\\fR", text)
    return re.sub(r"(?m)^([.'])", r"\\&\1", text)


def manual(template):
    """Returns the manual page."""
    keys, lines = read_keys(), []
    for index, (heading, _) in enumerate(SECTIONS):
        lines += [f".Ss {heading}", ".Bl -tag -width Ds"]
        for key in keys:
            if section_of(key) == index:
                lines += [f".It Cm {key.name}", *(roff(text) for text in key.text),
                          roff(f"Type: {key.type}. Default: {key.default}.{' Reload.' if key.reload else ''}")]
        lines += [".El"]
    return template.replace("@KEYS@\n", "\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--man", metavar="TEMPLATE", type=pathlib.Path, required=True)
    sys.stdout.write(manual(parser.parse_args().man.read_text()))


if __name__ == "__main__":
    main()
