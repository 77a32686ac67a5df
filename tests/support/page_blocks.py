"""The blocks of a page of the guide, their commands, and what is compared of an output. Needs no other module: the GPU
machine reads pages, too."""
import doctest
import re

BLOCK = re.compile(r"^(?P<indent> *)```+ ?(?P<kind>\w+)(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n(?P<text>.*?)^(?P=indent)```+ *$", re.M | re.S)
COMMAND = re.compile(r"^\$ (.*(?:\\\n.*)*)\n((?:(?!\$ ).*\n)*)", re.M)
VARYING = (
    (r"\b[0-9a-f]{16}\b", "FINGERPRINT"),
    (r"\b\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"in \d+\.\d s\b", "in N s"),
    (r"\bdaemon \d+\b", "daemon N"),
    (r"\b(loss|training|validation) \d+\.\d+", r"\1 NUMBER"),  # of a network
    (r"(the first one) \[.*\]", r"\1 ROW"),
    (r"(?m) +$", ""),
)


def blocks(text):
    """Yields (kind, title, text) of each fenced block, without the indentation of the fence."""
    for match in BLOCK.finditer(text):
        indent = match["indent"]
        yield match["kind"], match["title"], re.sub(f"^{indent}", "", match["text"], flags=re.M)


def commands(text):
    """Returns [(command, what the page shows below it)] of a console block. A comment behind a command is not part of it."""
    return [(re.sub(r"  +# .*", "", command).replace("\\\n", " "), shown) for command, shown in COMMAND.findall(text)]


def normalised(text):
    for pattern, word in VARYING:
        text = re.sub(pattern, word, text)
    return text


def is_as_shown(shown, printed):
    return doctest.OutputChecker().check_output(normalised(shown), normalised(printed), doctest.ELLIPSIS)
