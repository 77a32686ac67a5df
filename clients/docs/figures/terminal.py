#!/usr/bin/env python3
"""Records `make demo` as an SVG in which each line appears when it was printed: terminal.py [FOLDER].

Runs tests/demo/demo.py with build/release. Of each part the first lines are shown. Readers who asked their system for
less motion see all lines at once, and so does a printer."""
import pathlib
import re
import subprocess
import sys
import time
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parents[3]
LINES, COLUMNS, CHARACTER, LEADING = 9, 112, 7.23, 17
PATHS = (f"{ROOT}/", ""), (r"\S*/clients/cli/trajctl", "trajctl"), (r"\S*/daemon/trajd\b", "trajd"), (r"build/venv/bin/", ""), \
    (r"^\d{4}-\S+Z ", ""), (r"build/demo/", "")


def record():
    """Returns [(seconds, line)] of the demonstration, with short names of programs and files."""
    command = [sys.executable, ROOT / "tests/demo/demo.py", "--build", "build/release"]
    (ROOT / "build/demo/demo.hdf5").unlink(missing_ok=True)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        begin, lines = time.monotonic(), [(0.0, "$ make demo")]
        for line in process.stdout:
            for pattern, word in PATHS:
                line = re.sub(pattern, word, line)
            lines.append((time.monotonic() - begin, line.rstrip()[:COLUMNS]))
    if process.returncode:
        sys.exit("\n".join(line for _, line in lines))
    return lines


def shorten(lines):
    """Keeps the first lines of each part."""
    kept, count = [], 0
    for at, line in lines:
        count = 0 if re.match(r"\d\. ", line) else count + 1
        if count < LINES:
            kept.append((at, line))
        elif count == LINES:
            kept.append((at, "  ..."))
    return kept


def draw(lines, path):
    width, height = round(COLUMNS * CHARACTER) + 32, len(lines) * LEADING + 60
    parts = []
    for number, (at, line) in enumerate(lines):
        style = "title" if re.match(r"\d\. ", line) else "prompt" if line.startswith("$") else "out"
        parts.append(f'<text class="line {style}" style="animation-delay:{at:.2f}s" x="16" y="{52 + number * LEADING}" '
                     f'xml:space="preserve">{escape(line)}</text>')
    text = "A recording of make demo: it writes a dataset, starts the daemon, reads batches, prints one window as it was recorded " \
           "and as it was resampled, and shows the status of the daemon."
    path.write_text(f'''<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-labelledby="title text">
<title id="title">make demo</title>
<desc id="text">{text}</desc>
<style>
text{{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1f2933}}
.back{{fill:#f7f9fb;stroke:#cbd2d9}}.title{{font-weight:bold}}.prompt{{fill:#1f6fb2}}
.line{{animation:show .01s both}}@keyframes show{{from{{opacity:0}}to{{opacity:1}}}}
@media(prefers-color-scheme:dark){{text{{fill:#d5dae1}}.back{{fill:#14171c;stroke:#3e4754}}.prompt{{fill:#6cb6ff}}}}
@media(prefers-reduced-motion:reduce),print{{.line{{animation:none}}}}
</style>
<rect class="back" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>
<circle cx="20" cy="18" r="5" fill="#e0604c"/><circle cx="38" cy="18" r="5" fill="#e2b33c"/><circle cx="56" cy="18" r="5" fill="#58a55c"/>
''' + "\n".join(parts) + "\n</svg>\n")


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent
    draw(shorten(record()), folder / "demo.svg")


if __name__ == "__main__":
    main()
