"""The reference of the guide is complete: each key, mask, metric, layout, command and function of C is in it, with what it is
made from; and each example of a key is accepted."""
import json
import re
import subprocess

import pytest

from daemons import smallest_config
from guide_sources import keys, sources
from paths import PROGRAM, ROOT, TRAJCTL, clean_environment

pytestmark = pytest.mark.release
KEYS = keys.read_keys()
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "PiB": 1 << 50, "ns": 1, "s": 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}
WORDS = {"KEY_STRING": ("path", "text", "ADDRESS:PORT"), "KEY_BOOL": ("true or false",), "KEY_SIZE": ("size",), "KEY_COUNT": ("count",),
         "KEY_DURATION": ("time",)}
# What else a commented-out example needs: keys that make room for it, and keys that come with it.
INSTEAD = {"feeds.NAME.mix": ("dataset",), "norm.stats": ("over", "per", "min_std"), "norm.key": ("over", "per", "min_std"),
           "norm.scale": ("by", "over", "per", "min_std", "mask"), "norm.offset": ("by", "over", "per", "min_std", "mask")}
TOGETHER = {"norm.key": ("norm.stats",), "norm.scale": ("norm.offset",), "norm.offset": ("norm.scale",), "image.view": ("image.preset",)}
FILES = {"keep.json": '{"demo_0": [[0, 51]]}', "norm_stats.json": json.dumps({"norm_stats": {"actions": {"mean": [0] * 10, "std": [1] * 10}}}),
         "tuning/nvidia-h200.tuning": (ROOT / "configs/tuning/nvidia-h200.tuning").read_text()}


def print_config(path):
    return subprocess.run([PROGRAM, "--config", path, "--print-config", "--json"], capture_output=True, text=True, env=clean_environment(), timeout=60)


def page(name):
    return sources.fill((ROOT / f"clients/docs/reference/{name}.md").read_text())


# Keys.


def table_keys():
    """Returns the names of all keys in the tables of C."""
    names = set()
    for path in ("daemon/config/config.c", *(str(p.relative_to(ROOT)) for p in (ROOT / "daemon/window").glob("*/*.c"))):
        text = (ROOT / path).read_text()
        names |= set(re.findall(r'\{"(\w+)", (?:trajd_spec_)?read_', text))  # of a feed
        for found in re.findall(r"struct trajd_yaml_key \w*keys\[\] = \{(.*?)\n *\};", text, re.S):  # of its mappings
            names |= set(re.findall(r'^ *\{"(\w+)"', found, re.M))
        names |= set(re.findall(r'struct trajd_yaml_key \w+ = \{\s*"(\w+)"', text))
        for found in re.findall(r"\{TRAJD_AUGMENT_\w+, \{(.*?), NULL\}\}", text):  # steps of `augment`
            names |= set(re.findall(r'"(\w+)"', found))
        if "prepared" not in path:  # that file reads the preparation of a file, not the configuration
            for found in re.findall(r"char \*const \w*keys\[\] = \{([^}]*?)NULL\}", text):
                names |= set(re.findall(r'"(\w+)"', found))
    return names


def scalar_keys():
    """Returns {name: (type, lowest, highest)} of the table in config_keys.c."""
    text = (ROOT / "daemon/config/config_keys.c").read_text()
    values = {"SECOND": 10**9, "DAY": 86400 * 10**9, "MIB": 1 << 20, "INT64_C": int, "false": 0}
    rows = re.findall(r'\{(NULL|"\w+"), "(\w+)", (KEY_\w+), AT\([\w.]+\), ([^,]+), ([^,]+),\s*[^}]+\}', text)
    return {".".join(filter(None, (section.strip('"').replace("NULL", ""), name))): (kind, eval(low, {}, values), eval(high, {}, values))
            for section, name, kind, low, high in rows}


def number(text):
    found = re.fullmatch(r"([\d.]+)(\w*)", text)
    return round(float(found[1]) * UNITS[found[2]])


def test_every_key_of_the_tables_is_described():
    told = {word for key in KEYS for word in (*key.path, *re.findall(r"\w+", " ".join([*key.text, key.type, *key.example])))}
    names = table_keys()
    assert {"global_batch", "max_age", "neighbours", "weight", "hold_out", "hsv_contrast", "at_most"} <= names and len(names) > 100
    assert names <= told, f"configs/trajd.yaml lacks {sorted(names - told)}"
    assert set(scalar_keys()) <= {key.name for key in KEYS}


@pytest.mark.parametrize("name", scalar_keys())
def test_type_and_range_are_those_of_the_table(name):
    kind, low, high = scalar_keys()[name]
    told = next(key.type for key in KEYS if key.name == name)
    assert told.split(",")[0] in WORDS[kind]
    if high:
        assert [number(end) for end in told.split(", ")[1].split(" to ")] == [low, high], told


def test_defaults_are_those_of_the_daemon(tmp_path, demo_file):
    """Each default of one word is what the daemon prints for a configuration without the key."""
    (tmp_path / "smallest.yaml").write_text("version: 2\n" + smallest_config(demo_file))
    document = json.loads(print_config(tmp_path / "smallest.yaml").stdout)
    compared = 0
    for key in KEYS:
        value = document
        for part in key.path:
            value = value.get(part) if isinstance(value, dict) else None
        if key.name in scalar_keys() and re.fullmatch(r"[\w.]+", key.default) and key.default != "none":
            told = key.default if value in (True, False) else number(key.default)
            assert told == (str(value).lower() if value in (True, False) else number(str(value))), key.name
            compared += 1
    assert compared > 15


def uncommented(lines, key):
    """Returns the lines with the commented-out example of the key in force."""
    lines, at = list(lines), key.line - 1
    while at < len(lines) and lines[at].lstrip().startswith("#"):
        lines[at] = re.sub(r"# ?", "", lines[at], count=1)
        at += 1
    return lines


def names_of(key):
    return {key.name, ".".join(key.path[-2:])}


@pytest.mark.parametrize("key", [key for key in KEYS if key.is_commented and ".mix." not in key.name], ids=lambda key: key.name)
def test_each_example_is_accepted(key, tmp_path):
    """The file itself is valid, and it is with any of its commented-out examples in force."""
    lines = keys.CONFIG.read_text().splitlines()
    more = [other for name in names_of(key) for word in TOGETHER.get(name, ()) for other in KEYS if word in names_of(other)]
    for one in (key, *more):
        lines = uncommented(lines, one)
    for word in (word for name in names_of(key) for word in INSTEAD.get(name, ())):
        siblings = [other for other in KEYS if other.path == (*key.path[:-1], word)]
        for other in siblings:
            lines[other.line - 1] = ""
    text = "\n".join(lines) + "\n"
    if key.name.endswith(".like"):  # the other feed
        text = text.replace("    like: train", "    like: other").replace("\nfeeds:\n", "\nfeeds:\n  other: {seed: 1, dataset: square, "
                            "global_batch: 8, anchor: {clock: actions}, outputs: {actions: {at: 0}}}\n")
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "trajd.yaml").write_text(text)
    done = print_config(tmp_path / "trajd.yaml")
    assert done.returncode == 0, done.stderr


def test_the_page_and_the_manual_have_every_key():
    made, manual = page("keys"), keys.manual((ROOT / "configs/trajd.yaml.5.in").read_text())
    assert "@KEYS@" not in manual
    for key in KEYS:
        assert f"### `{key.name}`" in made and f".It Cm {key.name}\n" in manual
        assert f"**Type:** {key.type}" in made
    assert made.count("\n### ") == len(KEYS) == manual.count("\n.It Cm ")


# The other pages.


def test_masks_and_kinds_are_those_of_the_header():
    header = (ROOT / "kernels/resample.h").read_text()
    names = re.findall(r"TRAJD_MASK_(\w+) = (\d+)", header)
    assert [(f"{code}", name) for code, name, _ in sources.enumerators("kernels/resample.h", "trajd_mask")] == [(c, n) for n, c in names]
    assert all(text for code, _, text in sources.enumerators("kernels/resample.h", "trajd_mask") if code)
    kinds = [name for name in re.findall(r"TRAJD_KIND_(\w+) = ", header) if name != "COUNT"]
    made = page("masks")
    assert all(f"- **{code}, " in made for _, code in names)
    assert len(kinds) > 5 and all(f"**`{name.lower()}`:** " in made for name in kinds)


def test_layouts_are_those_that_are_installed():
    installed = {path.stem for path in (ROOT / "configs/layouts").glob("*.yaml") if "@" not in path.stem} - {"template"}
    rows = sources.layout_rows()
    assert all(f"`{layout}`" in page("layouts") for layout in ("aloha@1", "robomimic@1"))
    assert {row["layout"] for row in rows} == installed
    for row in rows:
        assert all(row[part].strip() for part in ("Data set", "Versions", "Images", "Rate", "Traps")), row


def test_commands_are_those_of_trajctl():
    made = page("commands")
    for name in sources.ask("clients/cli/trajctl", "names").split():
        section = made[made.index(f"### trajctl {name}\n"):].split("\n### ")[0]
        options = subprocess.run([TRAJCTL, "names", name], capture_output=True, text=True, env=clean_environment()).stdout.split()
        for option in (word for word in options if word.startswith("-")):
            assert re.search(rf"^`[^`]*{option}\b[^`]*`$", section, re.M), f"{name} {option}"
    assert "--log-format FORMAT" in made


def test_each_exported_function_of_the_libraries_is_there():
    made = page("c")
    for path, least in (("clients/c/libtrajd.map", 20), ("clients/live/libtrajd_live.map", 10), ("kernels/library/libtrajd_kernels.map.in", 5)):
        public = (ROOT / path).read_text().split("\n};")[0]  # the versions behind it are private
        names = re.findall(r"^ +(trajd_\w+);", public, re.M)
        assert len(names) >= least, path
        lacking = [name for name in names if name not in made]
        assert not lacking, f"{path}: {lacking}"


def test_every_page_is_filled():
    for path in set((ROOT / "clients/docs/reference").glob("[a-z]*.md")):
        made = page(path.stem)
        assert "{{" not in made and made.startswith("# "), path
