"""The figures of a benchmark, as data and as text."""
import pathlib
import shlex
import statistics
import sys


def command_line(program):
    """Returns the command as one types it, without this machine's folders."""
    return shlex.join([program] + [pathlib.Path(word).name if word.startswith("/") else word for word in sys.argv[1:]])


def middle(values, digits=1):
    """Returns the median and the range of the values."""
    return {"median": round(statistics.median(values), digits), "min": round(min(values), digits),
            "max": round(max(values), digits), "count": len(values)}


def figure(name, value, unit, **more):
    """Returns one line of the table and of the JSON. `value` is a number or a result of middle()."""
    return {"name": name, "value": value, "unit": unit, **more}


def number(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def span(value):
    """Returns a result of middle() as text such as 12.3 [11.0..14.2], or the number."""
    if isinstance(value, dict):
        return f"{number(value['median'])} [{number(value['min'])}..{number(value['max'])}]"
    return number(value)


def print_figure(one):
    ratio = f"{span(one['ratio'])}x {one['ratio_to']}" if "ratio" in one else ""
    verdict = f"{'within' if one['met'] else 'MISSES'} {one['budget']}" if "budget" in one else ""
    print(f"  {one['name']:62s} {span(one['value']):>34s} {one['unit']:10s} {ratio:36s} {verdict}".rstrip())
    if "cpu_us_per_batch" in one:
        cpu = ", ".join(f"{side} {span(value)}" for side, value in one["cpu_us_per_batch"].items())
        ratio = f"  ({span(one['cpu_ratio'])}x less than {one['ratio_to']})" if "cpu_ratio" in one else ""
        print(f"      CPU us a batch: {cpu}{ratio}")
    elif "cpu_ratio" in one:
        print(f"      of CPU time: {span(one['cpu_ratio'])}x")
    for key in ("said_ready_ms", "at_ready_mib"):
        if key in one:
            print(f"      {key}: {span(one[key])}")
