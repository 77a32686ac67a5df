"""The HTML report: the tables of all results, and plots as SVG inside the page."""
import html
import io

from . import results
from .results import TITLES, brief, by_driver, short, worse

UNITS = (("mm", "positions, mm"), ("deg", "rotations, degrees"), ("ms", "images, ms"))
FIGURE_CASE = "jitter 5 ms"
STYLE = """body{font:15px/1.45 sans-serif;max-width:75em;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:.5em 0 2em}td,th{border:1px solid #ccc;padding:.25em .6em;text-align:left;font-size:13px}
th{background:#f2f2f2}.fine{background:#e7f5e7}.worse{background:#fbe5e1}.ideal{color:#666}code{background:#f2f2f2}svg{max-width:100%;height:auto}"""
ABOUT = """<p>A recording is made by closed formulas, so the world is known at each moment. Each loader reads it in its own
format, with the settings that its documentation gives. A cell is green if its score is that of a perfect loader, and red
if it is worse. The line <i>perfect</i> has the score of a loader that uses all that was recorded and reads no
observation after its anchor. The line <i>limit</i> is one that waits for the next row: the data allow no less error.</p>"""


def as_svg(figure):
    file = io.StringIO()
    figure.savefig(file, format="svg", bbox_inches="tight")
    text = file.getvalue()
    return text[text.index("<svg"):]


def scores(found, test, case):
    """Returns {driver: score} of a case, with those of the perfect loader and the limit."""
    made = {driver: cases[test, case]["score"] for driver, cases in sorted(found.items()) if (test, case) in cases}
    for cases in found.values():
        if (test, case) in cases:
            one = cases[test, case]
            made |= {name: one[key] for name, key in (("perfect", "perfect"), ("limit", "limit")) if one.get(key)}
    return made


def figure_of_leakage(found):
    """Returns a figure: error against leakage, a point per loader and kind of stream."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(1, 3, figsize=(13, 5))
    error, leak = scores(found, "T1", FIGURE_CASE), scores(found, "T2", FIGURE_CASE)
    for axis, (unit, title) in zip(axes, UNITS):
        points = {driver: (leak[driver][unit]["ahead_ms"], error[driver][unit]["mean"]) for driver in error
                  if driver in leak and error[driver][unit]["mean"] is not None}
        for place, drivers in near(points).items():
            ideal = "perfect" in drivers or "limit" in drivers
            axis.plot(*place, "o", color="tab:red" if "trajd" in drivers else "black" if ideal else "tab:blue")
            axis.annotate("\n".join(drivers), place, xytext=(5, 0), textcoords="offset points", fontsize=7, va="center")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("looks ahead of the anchor, ms")
        axis.margins(x=0.5)
        axis.set_ylim(0, 1.25 * axis.get_ylim()[1])
    axes[0].set_ylabel(f"mean error ({FIGURE_CASE})")
    return figure


def near(points):
    """Returns {point: drivers}: drivers whose points could not be distinguished share one."""
    width, height = (max((abs(point[axis]) for point in points.values()), default=1) or 1 for axis in (0, 1))
    groups = {}
    for driver, point in points.items():
        close = next((other for other in groups if abs(other[0] - point[0]) < 0.04 * width
                      and abs(other[1] - point[1]) < 0.03 * height), point)
        groups.setdefault(close, []).append(driver)
    return groups


def figure_of_faults(found):
    """Returns a figure: the mean error of each loader for each fault of the recording."""
    from matplotlib import pyplot
    cases = list(dict.fromkeys(case for driver in found.values() for test, case in driver if test == "T1"))
    figure, axes = pyplot.subplots(3, 1, figsize=(13, 9), sharex=True)
    for axis, (unit, title) in zip(axes, UNITS):
        for driver, made in sorted(found.items()):
            values = [made[("T1", case)]["score"].get(unit, {}).get("mean") if ("T1", case) in made else None for case in cases]
            axis.plot(cases, [float("nan") if value is None else max(value, 1e-3) for value in values], "o-",
                      lw=2.5 if driver == "trajd" else 1, label=driver)
        axis.set_yscale("log")
        axis.set_ylabel(title)
    axes[0].legend(fontsize=7, ncol=3)
    return figure


def table(found, test):
    cases = list(dict.fromkeys(case for driver in found.values() for one, case in driver if one == test))
    drivers = [driver for driver in sorted(found, key=lambda name: (name != "trajd", name)) if any(one == test for one, _ in found[driver])]
    lines = [f"<h2>{test}: {html.escape(TITLES[test])}</h2><table><tr><th>case</th>"]
    lines += [f"<th>{html.escape(name)}</th>" for name in ("perfect", "limit", *drivers)]
    for case in cases:
        all_ = scores(found, test, case)
        lines.append(f"</tr><tr><th>{html.escape(case)}</th>")
        for name in ("perfect", "limit"):
            lines.append(f'<td class="ideal">{html.escape(brief(test, all_[name])) if name in all_ else ""}</td>')
        for driver in drivers:
            one = found[driver].get((test, case))
            if one is None:
                lines.append("<td></td>")
                continue
            complaints = worse(test, one["score"], one["perfect"]) if one.get("perfect") else []
            kind = "worse" if complaints else "fine" if one.get("perfect") else ""
            lines.append(f'<td class="{kind}" title="{html.escape("; ".join(complaints))}">{html.escape(brief(test, one["score"]))}</td>')
    return "".join(lines) + "</tr></table>"


def settings(found):
    rows = []
    for driver, made in sorted(found.items()):
        one = next(iter(made.values()))
        versions = ", ".join(f"{name} {version}" for name, version in one["versions"].items())
        rows.append(f"<tr><th>{html.escape(driver)}</th><td>{html.escape(one['settings']['rule'])}</td>"
                    f"<td>{html.escape(one['settings']['docs'])}</td><td>{html.escape(versions)}</td><td>{short(one['seed'])}</td></tr>")
    return ("<h2>Loaders</h2><table><tr><th>loader</th><th>how times become rows</th><th>settings follow</th><th>versions</th>"
            f"<th>seed</th></tr>{''.join(rows)}</table>")


def page(paths):
    """Returns the report of files of results. The plots need matplotlib; without it, the page says so."""
    found = by_driver(results.read(paths))
    try:
        plots = (f"<h2>Error against leakage</h2>{as_svg(figure_of_leakage(found))}"
                 f"<h2>Error by the fault of the recording</h2>{as_svg(figure_of_faults(found))}")
    except ImportError:
        plots = "<p>There are no plots, because matplotlib is not installed.</p>"
    tests = sorted({test for made in found.values() for test, _ in made})
    body = "".join(table(found, test) for test in tests)
    return (f"<!doctype html><html lang=en><meta charset=utf-8><title>Conformance of data loaders</title><style>{STYLE}</style>"
            f"<h1>What data loaders do to time, masks and order</h1>{ABOUT}{plots}{body}{settings(found)}</html>")
