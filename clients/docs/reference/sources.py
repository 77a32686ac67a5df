"""Makes the parts of the reference that have one source elsewhere: headers, tables, layouts, the help of the programs.

A page has a marker such as {{ metrics }} or {{ header clients/c/trajd.h }} in a line of its own; `fill` replaces it.
mkdocs calls `fill` for each page through the hook at the end. Run as a program, it prints a page as it is filled.
"""
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import keys  # noqa: E402 (the file beside this one)

ROOT = keys.ROOT
BUILD = (ROOT / os.environ.get("TRAJD_BUILD", "build/release")).resolve()
MARKER = re.compile(r"^\{\{ (\w+)(?: (\S+))? \}\}$", re.M)


def join(lines):
    """Joins the lines of a comment of C to paragraphs; lines that are indented stay as code."""
    text = []
    for line in lines:
        is_code = line.startswith("    ") or line.startswith("  ") and not line.startswith("   ")
        if not line:
            text.append("")
        elif is_code:
            text.append("    " + line if not line.startswith("    ") else line)
        elif text and text[-1] and not text[-1].startswith("    "):
            text[-1] += " " + line
        else:
            text += ["", line] if text and text[-1].startswith("    ") else [line]
        if is_code and len(text) > 1 and text[-2] and not text[-2].startswith("    "):
            text.insert(-1, "")
    return "\n\n".join("\n".join(text).split("\n\n"))


def comment_lines(comment):
    """Returns the lines of a comment of C without its stars."""
    inner = re.sub(r"^/\*|\*/$", "", comment.strip())
    return [re.sub(r"^ *\* ?", "", line).rstrip() if i else line.strip() for i, line in enumerate(inner.split("\n"))]


# Enumerations of a header: masks and kinds.


def enumerators(header, name):
    """Returns [(number, word, text)] of an enum whose members have a comment before or behind them."""
    text = (ROOT / header).read_text()
    body = re.search(rf"enum {name} \{{\n(.*?)\n\}};", text, re.S)[1]
    found, before = [], ""
    for token in re.finditer(r"/\*.*?\*/|TRAJD_(\w+) = (\d+),(?:[ \t]*(/\*.*?\*/))?", body, re.S):
        if token[1] is None:
            before = token[0]
        elif not token[1].endswith("_COUNT"):
            found.append((int(token[2]), token[1].split("_", 1)[1], join(comment_lines(token[3] or before or "/* */"))))
            before = ""
    return found


def masks():
    lines = []
    for number, name, text in enumerators("kernels/resample.h", "trajd_mask"):
        lines += [f"**{number}, `{name}`:** {text or 'the step is valid'}", ""]
    return "\n".join(lines)


def kinds():
    lines = []
    for _, name, text in enumerators("kernels/resample.h", "trajd_kind"):
        code = re.match(r"(v\[i\](?: if .*?, else v\[i\+1\]| \+ a \(v\[i\+1\] - v\[i\]\))?)$", text)
        lines += [f"**`{name.lower()}`:** {f'`{code[1]}`' if code else text}", ""]
    return "\n".join(lines)


# Metrics: the table of trajctl metrics.


def metric_families():
    """Returns [(name, type, labels, help)] from the tables in metrics.c."""
    text = (ROOT / "clients/cli/metrics/metrics.c").read_text()
    labels = {}
    for part, holder, rest in re.findall(r"\[(OF_\w+)\] =\s*\{\"\w+\",\s*(?:NULL|\"\w+\"),\s*(NULL|\"\w+\"),\s*(\{\{.*?\}\})\}", text, re.S):
        labels[part] = re.findall(r"\"(\w+)\"", holder) + re.findall(r"\{\"(\w+)\",", rest)
    table = re.search(r"static const struct metric metrics\[\] = \{(.*?)\n\};", text, re.S)[1]
    families = []
    for part, row in re.findall(r"\{(OF_\w+),(.*?)\}(?=,|\s*$)", table, re.S):
        words = re.findall(r"NULL|\"(?:[^\"\\]|\\.)*\"", re.sub(r"\"\s*\n\s*\"", "", row))
        words = [word.strip('"') for word in words]
        if len(words) > 2:
            families.append((words[2], words[3], labels.get(part, []) + words[5:], words[4]))
        else:
            same = labels.get(part, [])
            name, kind, known, told = families[-1]
            families[-1] = (name, kind, [label for label in same if label not in known] + known, told)
    name, told = re.search(r"\"# TYPE (\w+) info\\n# HELP \w+ (.*?)\\n", text).groups()
    info = re.findall(r"write_label\(out, &is_first, \"(\w+)\", cli_text\(root", text)
    families.insert(0, (name, "info", info, told))
    name = re.search(r"static const char name\[\] = \"(\w+)\"", text)[1]
    told = re.search(r"write_head\(out, name, \"histogram\",\s*(.*?)\);", text, re.S)[1]
    families.append((name, "histogram", [], "".join(re.findall(r"\"(.*?)\"", told))))
    return families


def metrics():
    lines = []
    for name, kind, labels, told in metric_families():
        unit = next((word for word in ("seconds", "bytes") if name.endswith("_" + word)), "")
        kind = f"{kind}, in {unit}" if unit else kind
        named = f" Labels: {', '.join(f'`{label}`' for label in labels)}." if labels else ""
        lines += [f"`{name}` ({kind})", f":   {told}{named}", ""]
    return "\n".join(lines)


# Layouts: the head of each file, and the rates that it states.


def layout_rate(text):
    """Returns where the times of a layout come from, from its block `clocks:`."""
    clocks = re.search(r"(?m)^clocks:(.*?)(?=^\w)", text, re.S)[1]
    place = re.search(r"rate: \{(attribute|path): \"?([^\s\",}]+)\"?(?:, json: ([\w.]+))?", clocks)
    default = re.search(r"default: ([\d.]+)", clocks)
    fixed = re.search(r"rate: ([\d.]+)", clocks)
    told = [f"`{place[3]}` in `{place[2]}`" if place[3] else f"`{place[2]}`"] if place else []
    told += [f"{(default or fixed)[1]} Hz (assumed)"] if default or fixed else []
    has_stamps = "path:" in re.sub(r"(rate|start): \{[^}]*\}", "", clocks)
    told = [", else ".join(told)] if told else []
    return "; other clocks: ".join(told + ["stamps"]) if has_stamps else told[0]


def layout_rows():
    """Returns [{"layout": ..., "Data set": ..., ..., "Rate": ...}] of the installed layouts, by name, without those of 0.1.0."""
    rows = []
    for path in sorted((ROOT / "configs/layouts").glob("*.yaml")):
        text = path.read_text()
        head = " ".join(re.findall(r"(?m)^# (.*)", text[:text.index("\nlayout:") + 1]))
        tags = dict(re.findall(r"(Data set|Versions|Images|Traps): (.*?)(?= (?:Data set|Versions|Images|Traps): |$)", head))
        if tags:
            rows.append({"layout": path.stem, **tags, "Rate": layout_rate(text)})
    return rows


def layouts():
    lines = ["| layout | data set |", "| --- | --- |"]
    lines += [f"| [`{row['layout']}`](#{slug(row['layout'])}) | {row['Data set']} |" for row in layout_rows()]
    for row in layout_rows():
        lines += ["", f"### `{row['layout']}` {{ #{slug(row['layout'])} }}", "", f"**Data set:** {row['Data set']}.", "",
                  f"**Versions:** {row['Versions']}.", "", f"**Images:** {row['Images']}.", "", f"**Rate:** {row['Rate']}.", "", row["Traps"]]
    return "\n".join(lines)


def slug(name):
    return "layout-" + name


# Commands: the help that trajctl makes of its tables of options.


def ask(program, *words):
    path = BUILD / program
    if not path.exists():
        raise SystemExit(f"{path} is missing, and the page of commands is made from its --help: build it first (make build)")
    return subprocess.run([path, *words], capture_output=True, text=True, check=True, env={**os.environ, "ARGP_HELP_FMT": "opt-doc-col=120,rmargin=1000"}).stdout


def command(name):
    """Returns what a command does, its syntax and its options, from its --help."""
    text = ask("clients/cli/trajctl", name, "--help")
    usage = re.match(r"usage: ((?:.*\n(?: +\S.*\n)*?)+?)(?=\S|\n)", text)[1]
    rest = text[len("usage: " + usage):]
    summary = next(line for line in rest.split("\n") if line)
    lines = [f"### trajctl {name}", "", f"{summary[0].upper()}{summary[1:]}.", "", "``` text", *(line.strip() for line in usage.strip().split("\n")), "```", ""]
    for option, told in re.findall(r"(?m)^ +(-\S.*?)  +(\S.*)$", rest):
        if option != "-h, --help":
            lines += [f"`{option}`", f":   {told}", ""]
    return "\n".join(lines)


def daemon():
    return "``` text\n" + ask("daemon/trajd", "--help") + "```"


# Headers of C.


def header(path):
    """Returns what a header declares: its opening comment, then each declaration with the comment before it."""
    text = (ROOT / path).read_text()
    opening = re.match(r"/\*.*?\*/", text, re.S)[0]
    body = text[len(opening):]
    begin = re.search(r"extern \"C\" \{\n#endif\n", body)
    body = body[begin.end():] if begin else body
    end = re.search(r"\n#ifdef __cplusplus\n\}", body)
    lines = [join(comment_lines(opening))]
    for comment, code in declarations(body[:end.start()] if end else body):
        name = declared_name(code)
        lines += ["", f"### `{name}`" if name else "", "", "```c", code, "```", "", join(comment_lines(comment)) if comment else ""]
    return "\n".join(lines)


def declarations(text):
    """Yields (comment, code) of each declaration: a function, a struct, an enum, a definition of the preprocessor."""
    at = 0
    token = re.compile(r"/\*.*?\*/|#[^\n]*\n|[;{}]", re.S)
    comment, begin, depth = "", 0, 0
    while found := token.search(text, at):
        at = found.end()
        if depth == 0 and found[0].startswith("/*") and not text[begin:found.start()].strip():
            comment = "" if found[0].startswith("/* ----") else found[0]
            begin = at
        elif found[0].startswith("#") and depth == 0:
            code = found[0].strip()
            if code.startswith("#define") and " " in code[8:]:
                yield comment, code
            comment, begin = "", at
        elif found[0] in "{}":
            depth += 1 if found[0] == "{" else -1
            if depth == 0 and "static inline" in text[begin:at]:
                yield comment, text[begin:text.index("{", begin)].strip() + ";"
                comment, begin = "", at
        elif found[0] == ";" and depth == 0:
            code = text[begin:at].strip("\n")
            if not re.fullmatch(r"struct \w+;", code.strip()):
                yield comment, code
            comment, begin = "", at


def declared_name(code):
    """Returns the name of a declaration as a heading shows it."""
    found = (re.match(r"#define (\w+)", code) or re.match(r"((?:struct|enum) \w+) \{", code)
             or re.search(r"\b(trajd_\w+)\(", code))
    return found[1] if found else ""


# The protocol: documents of the tree.


def document(path):
    """Returns a Markdown file of the tree without its first heading. A link to a file that is not a page becomes its path."""
    text = (ROOT / path).read_text().split("\n", 1)[1]
    folder = os.path.dirname(path)

    def relink(found):
        name, target = found.groups()
        if target.startswith(("http", "#")):
            return found[0]
        place = os.path.normpath(os.path.join(folder, target))
        return f"[{name}]({DOCUMENTS[place]})" if place in DOCUMENTS else f"{name} (`{place}` of the source)"

    return re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", relink, text)


DOCUMENTS = {"proto/PROTOCOL.md": "protocol.md", "proto/PROTOCOL-JSON.md": "protocol.md#documents"}
PARTS = {"keys": keys.page, "masks": masks, "kinds": kinds, "metrics": metrics, "layouts": layouts, "command": command,
         "daemon": daemon, "header": header, "document": document}


def fill(text):
    """Returns the text of a page with what its markers stand for."""
    return MARKER.sub(lambda found: PARTS[found[1]](*filter(None, [found[2]])), text)


def on_page_markdown(markdown, **_):
    return fill(markdown)


if __name__ == "__main__":
    sys.stdout.write(fill(pathlib.Path(sys.argv[1]).read_text()))
