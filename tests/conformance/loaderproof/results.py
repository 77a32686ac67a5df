"""Results: one JSON line per test and case, and the text table of them."""
import json
import pathlib
import platform
import sys

from . import __version__

UNITS = {"mm": "mm", "deg": "deg", "ms": "ms", "action mm": "mm (actions)"}


def result(test, driver, case, seed, score, **more):
    """Returns a result. `more`: perfect (the score of a perfect loader), limit (that of one that waits), seconds."""
    return {"test": test, "driver": driver.name, "case": case, "seed": seed, "score": score, **more,
            "settings": {"rule": driver.rule, "docs": driver.docs}, "versions": versions(driver)}


def versions(driver):
    return {"loaderproof": __version__, "python": platform.python_version(), **driver.versions()}


def read(paths):
    """Returns the results of files and of the *.jsonl files of folders."""
    files = []
    for path in map(pathlib.Path, paths):
        files += sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    return [json.loads(line) for path in files for line in path.read_text().splitlines() if line.strip()]


def by_driver(results):
    """Returns {driver: {(test, case): result}}. Of several results of one case the last one counts."""
    found = {}
    for one in results:
        found.setdefault(one["driver"], {})[one["test"], one["case"]] = one
    return found


def short(value):
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) >= 0.01 or value == 0 else "<0.01"
    return str(value)


def brief(test, score):
    """Returns a score in a few words."""
    if "failed" in score:
        return f"failed: {score['failed'][:60]}"
    if test == "T1":
        return ", ".join(f"{short(score[unit]['mean'])} {unit}" for unit in ("mm", "deg", "ms") if unit in score)
    if test == "T2":
        return ", ".join(f"{short(100 * score[unit]['share'])} % {short(score[unit]['ahead_ms'])} ms" for unit in score)
    if test == "T3":
        return f"{short(100 * score['unmarked'])} % unmarked, {short(100 * score['nan'])} % NaN"
    return ", ".join(f"{key} {short(value)}" for key, value in score.items() if not isinstance(value, (list, dict)))


def table(results, tests=None):
    """Returns a text table per test: a row per case, a column per driver."""
    found, lines = by_driver(results), []
    drivers = sorted(found, key=lambda name: (name != "trajd", name))
    for test in sorted({one["test"] for one in results}):
        if tests and test not in tests:
            continue
        cases = list(dict.fromkeys(one["case"] for one in results if one["test"] == test))
        lines += ["", f"{test}: {TITLES[test]}"]
        for case in cases:
            lines.append(f"  {case}")
            ideal = next((one["perfect"] for one in results if (one["test"], one["case"]) == (test, case) and one.get("perfect")), None)
            if ideal:
                lines.append(f"    {'(perfect)':<24} {brief(test, ideal)}")
            limit = next((one["limit"] for one in results if (one["test"], one["case"]) == (test, case) and one.get("limit")), None)
            if limit:
                lines.append(f"    {'(limit: waits)':<24} {brief(test, limit)}")
            for driver in drivers:
                if (test, case) in found[driver]:
                    lines.append(f"    {driver:<24} {brief(test, found[driver][test, case]['score'])}")
    return "\n".join(lines[1:])


TITLES = {
    "T1": "alignment: mean error of positions, rotations and images",
    "T2": "leakage: share of observations that change with later rows, and how far ahead they look (mm, deg, image streams)",
    "T3": "masks: steps without a recorded value",
    "T4": "order: world sizes, loader processes, resuming",
    "T5": "exactly once: windows of an epoch after kill -9",
    "T6": "video: frames of another moment",
    "T7": "tidy: what is left after kill -9",
    "T8": "cost",
}


# The columns of the summary: title, test, case, and what to print of the score.
COLUMNS = (
    ("error, jitter 5 ms: mm, deg, ms", "T1", "jitter 5 ms", lambda s: " / ".join(short(s[unit]["mean"]) for unit in ("mm", "deg", "ms"))),
    ("error, latency 80 ms", "T1", "latency 80 ms", lambda s: " / ".join(short(s[unit]["mean"]) for unit in ("mm", "deg", "ms"))),
    ("looks ahead, ms", "T2", "jitter 5 ms", lambda s: " / ".join(short(s[unit]["ahead_ms"]) for unit in ("mm", "deg", "ms"))),
    ("unmarked, gaps", "T3", "drop-outs 200 ms", lambda s: f"{short(100 * s['unmarked'])} %"),
    ("unmarked, camera stops", "T3", "camera stops", lambda s: f"{short(100 * s['unmarked'])} %"),
    ("4 ranks: missing, doubled, same order", "T4", "4 ranks", lambda s: f"{s['missing']}, {s['doubled']}, {short(s['same order'])}"),
    ("resumed, 2 to 3 ranks", "T4", "resumed, 2 to 3 ranks", lambda s: "no state" if not s["state"] else
     f"{s['missing']}, {s['doubled']}, {short(s['same order'])}"),
    ("kill -9 the trainer: missing, doubled of kills", "T5", "kill -9 the trainer",
     lambda s: f"{s['missing']}, {s['doubled']} of {s['moments']}"),
    ("wrong frames", "T6", "from_timestamp a frame late per episode", lambda s: f"{s['wrong']} of {s['frames']}"))


def summary(results):
    """Returns a table in Markdown: a line per loader, a column per question."""
    found = by_driver(results)
    lines = ["| loader | " + " | ".join(column[0] for column in COLUMNS) + " |", "| --- |" + " --- |" * len(COLUMNS)]
    ideal = {}
    for made in found.values():
        for key, one in made.items():
            ideal.setdefault(key, one.get("perfect"))
    for name, made in [("(perfect)", ideal), *sorted(found.items(), key=lambda item: (item[0] != "trajd", item[0]))]:
        cells = []
        for _, test, case, words in COLUMNS:
            score = made.get((test, case)) if name == "(perfect)" else made.get((test, case), {}).get("score")
            whole = score is not None and name != "(perfect)" or test in ("T1", "T2", "T3")
            cells.append("" if not score or not whole else "failed" if "failed" in score else words(score))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def worse(test, score, base):
    """Returns what is worse in a score than in another one, in words. The limits leave room for rounding."""
    if "failed" in score:
        return [f"failed: {score['failed']}"]
    if test == "T1":
        streams = [f"{name}: {short(mean)} instead of {short(base['streams'][name])}" for name, mean in score["streams"].items()
                   if (mean or 0) > 1.15 * (base["streams"][name] or 0) + 0.02]
        kept = [f"{unit}: keeps {short(score[unit]['kept'])} of the steps" for unit in score
                if unit != "streams" and score[unit]["kept"] < base[unit]["kept"] - 0.05]
        return streams + kept
    if test == "T2":
        return [f"{unit}: looks {short(score[unit]['ahead_ms'])} ms ahead" for unit in score
                if score[unit]["ahead_ms"] > base[unit]["ahead_ms"] + 0.1]
    if test == "T3":
        return [f"{key}: {short(score[key])}" for key in ("unmarked", "nan", "overmarked") if score[key] > base[key] + 0.01]
    return [f"{key}: {short(score[key])}" for key in base
            if (score[key] > base[key] if isinstance(base[key], int) and not isinstance(base[key], bool) else score[key] != base[key])]


def say(text):
    print(text, file=sys.stderr, flush=True)
