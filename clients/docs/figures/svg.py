"""Writes figures as SVG: one file for light and for dark pages, with a title and a description for those who hear it.

A figure has a viewBox and no colours of its own: shapes have classes, and a style sheet with prefers-color-scheme
gives them the colours of the page around it.
"""
from xml.sax.saxutils import escape, quoteattr

COLOURS = {  # class: light, dark
    "ink": ("#1f2933", "#e4e7eb"),
    "soft": ("#7b8794", "#9aa5b1"),
    "paper": ("#ffffff", "#1e2129"),
    "panel": ("#eef1f5", "#2c313c"),
    "blue": ("#1f6fb2", "#6cb6ff"),
    "orange": ("#c4530a", "#ff9d5c"),
    "green": ("#2b7a3d", "#6fcf85"),
    "red": ("#b3261e", "#ff8a80"),
    "violet": ("#6d4bb3", "#b79cff"),
    "band": ("#f3c9c5", "#6a2f2c"),
    "shade": ("#d5e6f5", "#1d3b57"),
}


def style_sheet():
    def rules(index):
        return "".join(f".f-{name}{{fill:{pair[index]}}}.s-{name}{{stroke:{pair[index]}}}" for name, pair in COLOURS.items())

    return (f"text{{font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif}}"
            f".mono{{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}}{rules(0)}"
            f"@media(prefers-color-scheme:dark){{{rules(1)}}}")


class Figure:
    """A drawing of width x height. `title` names it and `text` says what a reader would see."""

    def __init__(self, width, height, title, text):
        self.width, self.height, self.title, self.text = width, height, title, text
        self.parts = []
        self.rect(0, 0, width, height, fill="paper", rx=8)

    def shape(self, name, fill=None, stroke=None, body="", **attributes):
        classes = [f"f-{fill}" if fill else "", f"s-{stroke}" if stroke else "", attributes.pop("also", "")]
        given = {key.replace("_", "-"): f"{value:g}" if isinstance(value, float) else value for key, value in attributes.items()}
        if not fill:
            given["fill"] = "none"
        text = "".join(f" {key}={quoteattr(str(value))}" for key, value in given.items())
        self.parts.append(f'<{name} class="{" ".join(filter(None, classes))}"{text}>{body}</{name}>')

    def rect(self, x, y, width, height, fill=None, stroke=None, **more):
        self.shape("rect", fill, stroke, x=x, y=y, width=width, height=height, **more)

    def circle(self, x, y, radius, fill=None, stroke=None, **more):
        self.shape("circle", fill, stroke, cx=round(float(x), 2), cy=round(float(y), 2), r=radius, **more)

    def line(self, points, stroke="ink", width=1.5, **more):
        self.shape("polyline", None, stroke, points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), stroke_width=width, **more)

    def arrow(self, x1, y1, x2, y2, stroke="ink", width=1.5, **more):
        """Draws an arrow that is horizontal or vertical."""
        self.line([(x1, y1), (x2, y2)], stroke, width, **more)
        dx, dy = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
        back, side = 7, 4
        self.shape("polygon", stroke, None, points=" ".join(f"{x:.1f},{y:.1f}" for x, y in (
            (x2, y2), (x2 - dx * back - dy * side, y2 - dy * back - dx * side), (x2 - dx * back + dy * side, y2 - dy * back + dx * side))))

    def text_at(self, x, y, text, fill="ink", size=14, anchor="start", mono=False, **more):
        self.shape("text", fill, None, escape(text), x=x, y=y, font_size=size, text_anchor=anchor, also="mono" if mono else "", **more)

    def box(self, x, y, width, height, *lines, fill="panel", stroke="soft", size=14):
        """Draws a box with centred lines of text, of which the first is bold."""
        self.rect(x, y, width, height, fill, stroke, rx=6)
        top = y + height / 2 - (len(lines) - 1) * size * 0.65 + size * 0.35
        for number, line in enumerate(lines):
            bold = {"font_weight": "bold"} if number == 0 else {}
            self.text_at(x + width / 2, top + number * size * 1.3, line, "ink" if number == 0 else "soft", size if number == 0 else size - 1.5,
                         "middle", **bold)

    def save(self, path):
        parts = "\n".join(self.parts)
        path.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}" '
            f'role="img" aria-labelledby="title text">\n<title id="title">{escape(self.title)}</title>\n'
            f'<desc id="text">{escape(self.text)}</desc>\n<style>{style_sheet()}</style>\n{parts}\n</svg>\n')
