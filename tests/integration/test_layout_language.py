"""Keys of layouts: what each reads is equal to h5py's reading, and each rule that a file breaks gives its message."""
import json
import subprocess

import h5py
import numpy as np
import pytest

from paths import TRAJCTL


def inspect(layout, path):
    """Returns the document of `trajctl inspect`, or the message of its failure."""
    done = subprocess.run([TRAJCTL, "inspect", "--json", "--layout", layout, path], capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout)[0] if done.returncode == 0 else done.stderr


def write(folder, layout, arrays, attributes=None, name="one.hdf5"):
    """Writes a layout and a file with these arrays and attributes. Returns both paths."""
    (folder / "lab.yaml").write_text(layout)
    with h5py.File(folder / name, "w") as file:
        for path, data in arrays.items():
            file[path] = data
        for place, value in (attributes or {}).items():
            owner, key = place.split("@")
            file[owner or "/"].attrs[key] = value
    return folder / "lab.yaml", folder / name


def reasons(document):
    return [episode["quarantine"] for episode in document["episodes"] if episode["quarantine"]]


def rows(count, width=3):
    return np.arange(count * width, dtype=np.float32).reshape(count, width)


# rows: first

FIRST = """\
layout: lab
episodes: {{files: "*.hdf5", groups: /traj_*}}
clocks: {clocks}
streams:
  actions: {{path: actions, kind: previous}}
  qpos: {{path: obs/qpos, kind: linear, rows: first}}
  half: {{path: obs/qpos, kind: linear, rows: first, columns: "0:1"}}
  "more/*": {{path: more/*, kind: linear, rows: first}}
"""
REGULAR, STAMPED = "{steps: {rate: 20}}", "{steps: {path: t, unit: s}}"


def t_plus_one(count, observed, clocks, **more):
    arrays = {"traj_0/actions": rows(count), "traj_0/obs/qpos": rows(observed, 2), "traj_0/t": np.arange(count) * 0.05}
    return arrays | {f"traj_0/more/{name}": data for name, data in more.items()}


@pytest.mark.parametrize("clocks", [REGULAR, STAMPED], ids=["regular", "stamped"])
def test_the_last_row_is_left_out(tmp_path, clocks):
    layout, path = write(tmp_path, FIRST.format(clocks=clocks), t_plus_one(10, 11, clocks, env=rows(11)))
    document = inspect(layout, path)
    assert document["episodes"][0]["rows"] == {"steps": 10} and document["trimmed_rows"] == 2, document
    assert {s["name"]: s["most_rows"] for s in document["streams"]} == {"actions": 10, "qpos": 10, "half": 10, "more/env": 10}


@pytest.mark.parametrize("clocks", [REGULAR, STAMPED], ids=["regular", "stamped"])
@pytest.mark.parametrize("observed", [9, 10, 12])
def test_other_row_counts_quarantine(tmp_path, clocks, observed):
    layout, path = write(tmp_path, FIRST.format(clocks=clocks), t_plus_one(10, observed, clocks))
    assert "exactly one row more" in inspect(layout, path) and f"obs/qpos: has {observed} rows" in inspect(layout, path)


def test_only_streams_without_their_last_row(tmp_path):
    layout = FIRST.format(clocks=REGULAR).replace("  actions: {path: actions, kind: previous}\n", "")
    layout, path = write(tmp_path, layout, t_plus_one(10, 11, REGULAR, env=rows(11)))
    assert inspect(layout, path)["episodes"][0]["rows"] == {"steps": 10}


def test_a_resampled_file_has_no_such_row(tmp_path):
    layout, path = write(tmp_path, FIRST.format(clocks=REGULAR), t_plus_one(20, 21, REGULAR))
    done = subprocess.run([TRAJCTL, "resample", path, "-o", tmp_path / "out.hdf5", "--layout", layout, "--rate", "10", "--assume-rate"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert len(file["traj_0/obs/qpos"]) == len(file["traj_0/actions"])
    assert reasons(inspect(layout, tmp_path / "out.hdf5")) == []


def test_streams_of_one_array_agree_on_its_rows(tmp_path):
    layout, path = write(tmp_path, FIRST.format(clocks=REGULAR).replace("linear, rows: first, columns", "linear, columns"), {"x": rows(3)})
    assert "stream qpos has the same path and another value of rows" in inspect(layout, path)


# rates that files state

RATE = """\
layout: lab
episodes: {{files: "*.hdf5", groups: /}}
clocks: {{steps: {{rate: {rate}}}}}
streams: {{actions: {{kind: previous}}}}
"""


def rate_of(folder, rate, arrays=None, attributes=None):
    """Returns the rate that is read, and where it comes from; or the message."""
    layout, path = write(folder, RATE.format(rate=rate), {"actions": rows(10)} | (arrays or {}), attributes)
    document = inspect(layout, path)
    if isinstance(document, str):
        return document
    return document["clocks"][0]["lowest_rate_hz"], document["clocks"][0]["rate_source"]


@pytest.mark.parametrize("rate, hz", [
    ('{attribute: "/@dt", unit: s}', 20), ('{attribute: "/@dt_ms", unit: ms}', 50), ('{attribute: "/@dt32", unit: s}', 30),
    ('{attribute: "/@info", json: a.period, unit: us}', 40), ('{attribute: "/@slow", unit: hz}', 0.5),
    ("{path: additional_info/frequency}", 15), ("{path: /additional_info/dt, unit: s}", 25), ("{path: texts/info, json: fps}", 12),
    ('{attribute: "/@absent", unit: s, default: 9}', 9), ("{path: absent/frequency, default: 9}", 9)])
def test_rates_that_files_state(tmp_path, rate, hz):
    arrays = {"additional_info/frequency": np.int32(15), "additional_info/dt": np.array([0.04]), "texts/info": '{"fps": 12}'}
    attributes = {"@dt": 0.05, "@dt_ms": 20, "@dt32": np.float32(1 / 30), "@info": '{"a": {"period": 25000}}', "@slow": 0.5}
    assert rate_of(tmp_path, rate, arrays, attributes) == (hz, "assumed" if "absent" in rate else "declared")


@pytest.mark.parametrize("rate, message", [
    ("{path: x}", '"(not one number)" of x is not a rate'), ("{path: x, unit: ms, default: 20}", '"(not one number)" of x is not a period'),
    ("{path: group, default: 20}", "of group is not a rate"), ("{path: none}", "none states no rate"),
    ('{attribute: "/@zero", unit: s}', "is not a period"), ("{path: half}", "below 1 Hz"), ("{path: lost, default: 20}", "of lost is not a rate")])
def test_numbers_that_are_no_rate(tmp_path, rate, message):
    arrays = {"x": rows(4), "group/y": rows(2), "half": np.float64(0.5), "lost": h5py.SoftLink("/nowhere")}
    said = rate_of(tmp_path, rate, arrays, {"@zero": 0.0})
    assert (said == (20, "assumed") if "lost" in rate else message in said), said


def test_resample_writes_the_new_period(tmp_path):
    layout, path = write(tmp_path, RATE.format(rate='{attribute: "/@dt", unit: ms}'), {"actions": rows(41)}, {"@dt": 25.0})
    done = subprocess.run([TRAJCTL, "resample", path, "-o", tmp_path / "out.hdf5", "--layout", layout, "--rate", "10", "--assume-rate"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert file.attrs["dt"] == 100 and len(file["actions"]) == 11
    layout, path = write(tmp_path, RATE.format(rate="{path: fps}"), {"actions": rows(41), "fps": 40})
    done = subprocess.run([TRAJCTL, "resample", path, "-o", tmp_path / "two.hdf5", "--layout", layout, "--rate", "10", "--assume-rate"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "fps is copied and keeps the rate of the source" in done.stderr + done.stdout, done
    assert inspect(layout, tmp_path / "two.hdf5")["clocks"][0]["lowest_rate_hz"] == 10


# a * in the path of a clock or of a single stream

STAR = """\
layout: lab
episodes: {files: "*.hdf5", groups: /data/demo_*}
clocks:
  left: {path: stamps/*_left_capture, unit: ms}
streams:
  left: {path: images/*_left/depth, kind: previous}
  serials: {path: images/*_left/depth, kind: previous, columns: "0:1"}
  "images/*": {path: images/*, kind: linear}
  "stamps/*": {path: stamps/*, kind: linear}
"""


def starred(**more):
    arrays = {}
    for number, serial in enumerate((8, 23, 8)):
        at = f"data/demo_{number}"
        arrays |= {f"{at}/stamps/{serial}_left_capture": np.arange(6) * 50, f"{at}/stamps/{serial}_right_capture": np.arange(6) * 50,
                   f"{at}/images/{serial}_left/depth": rows(6) + number, f"{at}/images/speed": rows(6), f"{at}/images/9_left/other": rows(6)}
    return arrays | more


def test_a_star_matches_one_dataset(tmp_path):
    layout, path = write(tmp_path, STAR, starred())
    document = inspect(layout, path)
    assert [e["matches"] for e in document["episodes"]] == [
        {"images/*_left/depth": f"images/{serial}_left/depth", "stamps/*_left_capture": f"stamps/{serial}_left_capture"}
        for serial in (8, 23, 8)], document["episodes"]
    names = {s["name"]: (s["dataset"], s["episodes"]) for s in document["streams"]}
    assert names == {"left": ("images/*_left/depth", 3), "serials": ("images/*_left/depth", 3), "images/speed": ("images/speed", 3),
                     "stamps/8_right_capture": ("stamps/8_right_capture", 2),
                     "stamps/23_right_capture": ("stamps/23_right_capture", 1)}
    text = subprocess.run([TRAJCTL, "inspect", "--layout", layout, path], capture_output=True, text=True, timeout=60).stdout
    assert "the dataset stamps/8_left_capture (another one in 1 episode)" in text and "the dataset images/8_left/depth" in text, text


def test_two_matches_are_an_error(tmp_path):
    layout, path = write(tmp_path, STAR, starred(**{"data/demo_1/stamps/7_left_capture": np.arange(6) * 50,
                                                    "data/demo_2/images/1_left/depth": rows(6)}))
    assert reasons(inspect(layout, path)) == [
        "one.hdf5: demo_1: stamps/*_left_capture: two datasets match it, stamps/23_left_capture and stamps/7_left_capture: write a path "
        "that matches one",
        "one.hdf5: demo_2: images/*_left/depth: two datasets match it, images/1_left/depth and images/8_left/depth: write a path that "
        "matches one"]


def test_no_match_is_a_missing_dataset(tmp_path):
    arrays = {name: data for name, data in starred().items() if "demo_1/stamps/23_left" not in name}
    arrays = {name: data for name, data in arrays.items() if name != "data/demo_2/images/8_left/depth"}
    layout, path = write(tmp_path, STAR, arrays)
    assert reasons(inspect(layout, path)) == ["one.hdf5: demo_1: stamps/*_left_capture: missing (the stamps of clock left)",
                                              "one.hdf5: demo_2: images/*_left/depth: missing (the layout requires it)"]


def test_a_name_with_a_star_in_a_file(tmp_path):
    layout, path = write(tmp_path, STAR, starred(**{"data/demo_0/images/odd*name": rows(6)}))
    document = inspect(layout, path)
    assert reasons(document) == [] and "images/odd*name" in [s["name"] for s in document["streams"]]


def test_resample_needs_names(tmp_path):
    layout, path = write(tmp_path, STAR, starred())
    done = subprocess.run([TRAJCTL, "resample", path, "-o", tmp_path / "out.hdf5", "--layout", layout, "--rate", "10", "--assume-rate"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "images/*_left/depth" in done.stderr and "write it without one" in done.stderr, done.stderr


# episodes inside one group's arrays

SPLIT = """\
layout: lab
episodes: {{files: "*.hdf5", groups: {groups}, split: {split}}}
clocks: {{steps: {{rate: 10}}}}
streams:
  actions: {{kind: previous}}
  "infos/*": {{kind: linear}}
"""
LENGTHS = [5, 40, 1, 30, 24]  # of 100 rows


def flags(ends, count=100):
    data = np.zeros(count, bool)
    data[list(ends)] = True
    return data


def several(**columns):
    """Arrays of five episodes, in every storage that h5py writes, and the columns."""
    return {"actions": rows(100, 4), "infos/short": np.arange(100, dtype=np.int16)} | columns


def write_several(folder, split, columns, groups="/", inside="", **storage):
    layout, path = write(folder, SPLIT.format(split=split, groups=groups), {f"{inside}{n}": d for n, d in several(**columns).items()})
    with h5py.File(path, "r+") as file:
        for name, more in {"gzip": {"compression": "gzip", "chunks": (7, 2)}, "chunked": {"chunks": (16, 3)}}.items():
            file.create_dataset(f"{inside}infos/{name}", data=rows(100, 3) + len(name), **more)
    return layout, path


ENDS = np.cumsum(LENGTHS)
SPLITS = [
    ("{flags: terminals}", {"terminals": flags(ENDS - 1)}),
    ("{flags: [terminals, timeouts]}", {"terminals": flags([4, 75]).astype(np.float32), "timeouts": flags([44, 45, 99])[:, None]}),
    ("{lengths: episode_lengths}", {"episode_lengths": np.array(LENGTHS)}),
    ("{ends: meta/episode_ends}", {"meta/episode_ends": ENDS.astype(np.uint32)}),
    ("{starts: first}", {"first": np.concatenate([[0], ENDS[:-1]]).astype(float)}),
]


@pytest.mark.parametrize("split, columns", SPLITS, ids=[split for split, _ in SPLITS])
@pytest.mark.parametrize("groups, inside, name", [("/", "", "episode_{}"), ("/runs/*", "runs/one/", "one/episode_{}")], ids=["file", "group"])
def test_episodes_of_one_array(tmp_path, split, columns, groups, inside, name):
    layout, path = write_several(tmp_path, split, columns, groups, inside)
    document = inspect(layout, path)
    assert reasons(document) == [] and [e["id"] for e in document["episodes"]] == [name.format(i) for i in range(5)], document
    assert [e["rows"]["steps"] for e in document["episodes"]] == LENGTHS
    assert subprocess.run([TRAJCTL, "validate", "--layout", layout, path], capture_output=True, timeout=60).returncode in (0, 1)


@pytest.mark.parametrize("split, columns, message", [
    ("{flags: terminals}", {"terminals": flags([4, 44])}, "episode_2: terminals: not set in the rows 45 to 99"),
    ("{flags: terminals}", {"terminals": flags([])}, "episode_0: terminals: not set in the rows 0 to 99"),
    ("{flags: [terminals, timeouts]}", {"terminals": flags([98]), "timeouts": flags([44])}, "episode_2: terminals and the other flags: not set"),
    ("{flags: terminals}", {"terminals": flags([4, 99]), "timeouts": flags([44])}, "timeouts: another episode begins at row 45 of 100"),
    ("{flags: terminals}", {"terminals": flags([4], 90)}, "actions: has 100 rows, and the episodes of terminals have 90"),
    ("{flags: [terminals, timeouts]}", {"terminals": flags([4]), "timeouts": flags([4], 90)}, "timeouts: has 90 rows, and terminals has 100"),
    ("{flags: terminals}", {}, "terminals: missing"),
    ("{flags: terminals}", {"terminals": np.zeros((100, 2))}, "terminals: has no rows, or is not a column of numbers"),
    ("{lengths: n}", {"n": np.array([50, 60])}, "actions: has 100 rows, and the episodes of n have 110"),
    ("{lengths: n}", {"n": np.array([50, 0, 50])}, "episode_1: n: the episode has 0 rows at row 50"),
    ("{lengths: n}", {"n": np.array([50, -1, 51])}, "n: row 1 is -1, and no number of rows"),
    ("{lengths: n}", {"n": np.array([50, 0.5, 49.5])}, "n: row 1 is 0.5, and no number of rows"),
    ("{lengths: n}", {"n": np.array([50, np.nan])}, "n: row 1 is nan, and no number of rows"),
    ("{ends: n}", {"n": np.array([60, 50, 100])}, "n: row 1 is 50, before row 60 of the episode before it"),
    ("{ends: n}", {"n": np.array([60, 90])}, "actions: has 100 rows, and the episodes of n have 90"),
    ("{starts: n}", {"n": np.array([10, 50])}, "n: the first episode begins at row 10"),
    ("{starts: n}", {"n": np.array([0, 101])}, "n: the last episode begins at row 101 of 100"),
    ("{starts: n}", {"n": np.array([0, 50, 40])}, "n: row 2 is 40, before row 50"),
])
def test_ends_that_do_not_add_up(tmp_path, split, columns, message):
    layout, path = write_several(tmp_path, split, columns)
    document = inspect(layout, path)
    said = document if isinstance(document, str) else " ".join(reasons(document))
    assert "one.hdf5" in said and message in said, said


def test_other_lengths_of_optional_streams(tmp_path):
    layout, path = write_several(tmp_path, "{flags: terminals}", {"terminals": flags(ENDS - 1), "infos/one": rows(1)})
    document = inspect(layout, path)
    assert reasons(document) == [] and any("infos/one: left out: has 1 row," in note for note in document["notes"]), document["notes"]


@pytest.mark.parametrize("key, message", [("split: {flags: a, ends: b}", "only one of"), ("split: {}", "needs one of"),
                                          ("split: {ends: [a, b]}", "a text is expected"), ("split: {flags: []}", "1 to 8"), ("split: {flag: a}", "flags")])
def test_mistakes_in_split(tmp_path, key, message):
    layout, path = write(tmp_path, SPLIT.format(split="{flags: x}", groups="/").replace("split: {flags: x}", key), several())
    assert message in inspect(layout, path)
    layout, path = write(tmp_path, FIRST.format(clocks=REGULAR).replace("/traj_*}", "/traj_*, split: {ends: n}}"), {"x": rows(2)})
    assert "does not go with rows: first" in inspect(layout, path)


def test_windows_do_not_cross_episodes(tmp_path, daemon):
    layout, path = write_several(tmp_path, *SPLITS[1])
    client = daemon(f"""
datasets: {{one: {{path: {path}, layout: {layout}}}}}
feeds:
  train: {{dataset: one, global_batch: 8, tail: short, anchor: {{clock: steps}}, pad: {{before: 2, with: edge}}, outputs: {{
    actions: {{at: -2..0}}, packed: {{from: infos/gzip, at: -2..0}}, plain: {{from: infos/chunked, at: -2..0}}}}}}
""").client()
    client.open("train")
    seen = []
    with h5py.File(path) as file:
        for _, arrays in client.epoch():
            for row in range(len(arrays["window_id"])):
                anchor = int(arrays["actions"][row, 2, 0]) // 4
                seen.append(anchor)
                begin = int(max(end for end in [0, *ENDS] if end <= anchor))
                at = np.maximum([anchor - 2, anchor - 1, anchor], begin)
                for name, dataset in (("actions", "actions"), ("packed", "infos/gzip"), ("plain", "infos/chunked")):
                    assert np.array_equal(arrays[name][row], file[dataset][:][at]), (name, anchor)
    client.close()
    assert sorted(seen) == list(range(100))


# texts of JSON files

TEXTS = """\
layout: lab
episodes: {{files: "*.hdf5", groups: {groups}}}
meta: {{text: {meta}}}
clocks: {{steps: {{rate: 10}}}}
streams: {{actions: {{kind: previous}}}}
"""
TRAJECTORIES = {"env_info": {"env_id": "Pick"}, "episodes": [
    {"episode_id": 10, "task": "ten", "success": True}, {"episode_id": 2, "task": "two \u00e9\n", "success": False},
    {"episode_id": 7, "task": None}]}


def texts(folder, meta, documents, names=("traj_2", "traj_7", "traj_10"), **attributes):
    """Returns the text of each episode, or the message; and the document of inspect."""
    layout, path = write(folder, TEXTS.format(meta=meta, groups="/traj_*" if names else "/"),
                         {f"{name}/actions": rows(3) for name in names or [""]},
                         {f"{name}@task_id": value for name, value in attributes.items()})
    for name, document in documents.items():
        (folder / name).write_text(document if isinstance(document, str) else json.dumps(document))
    document = inspect(layout, path)
    return document if isinstance(document, str) else [episode["meta"]["text"] for episode in document["episodes"]]


@pytest.mark.parametrize("meta, expected", [
    ('{file: "{stem}.json", list: episodes, by: number, key: episode_id, json: task}', ["two \u00e9\n", None, "ten"]),
    ('{file: "{stem}.json", list: episodes, by: number, key: episode_id, json: success}', ["false", None, "true"]),
    ('{file: "{stem}.json", json: env_info.env_id}', ["Pick"] * 3),
    ("{file: names.json, by: episode}", ["b", None, "a"]),
    ("{file: padded.json, by: number}", ["b", "c", None]),
    ("{file: files.json, by: file, list: tasks}", ["of the file"] * 3),
    ("{file: several.json, json: seen}", ["one"] * 3),
    ('{file: tasks.json, by: "@task_id", key: id, json: words}', ["fold", None, "wipe"]),
    ("{file: none.json}", [None] * 3)])
def test_texts_of_json_files(tmp_path, meta, expected):
    documents = {"one.json": TRAJECTORIES, "names.json": {"traj_10": "a", "traj_2": "b"}, "padded.json": {"007": "c", "2": "b"},
                 "files.json": {"tasks": {"one": "of the file", "two.hdf5": "another"}}, "several.json": {"seen": ["one", "two", "three"]},
                 "tasks.json": [{"id": 5, "words": "fold"}, {"id": "x", "words": "wipe"}]}
    assert texts(tmp_path, meta, documents, traj_2=5, traj_10="x") == expected


def test_a_hash_picks_one_of_several(tmp_path):
    names = [f"traj_{i}" for i in range(40)]
    found = texts(tmp_path, "{file: all.json, pick: hash}", {"all.json": ["a", "b", "c"]}, names)
    assert set(found) == {"a", "b", "c"} and found == texts(tmp_path, "{file: all.json, pick: hash}", {}, names)


@pytest.mark.parametrize("by, folder", [("file", ""), ("episode", ""), ("file", "sub"), ("number", "sub")])
def test_texts_of_whole_files(tmp_path, by, folder):
    (tmp_path / "sub").mkdir()
    meta = f"{{file: {'../' if folder else ''}tasks.json, by: {by}}}"
    layout, path = write(tmp_path, TEXTS.format(meta=meta, groups="/"), {"actions": rows(3)}, name=f"{folder}/episode_12.hdf5".strip("/"))
    (tmp_path / "tasks.json").write_text(json.dumps({"episode_12.hdf5": "twelve", "12": "twelve"}))
    assert [e["meta"]["text"] for e in inspect(layout, path)["episodes"]] == ["twelve"]


@pytest.mark.parametrize("meta, document, message", [
    ("{file: a.json, by: episode}", "{\"a\": ", "it is not JSON"), ("{file: a.json}", "\"a\" \"b\"", "it is not JSON"),
    ("{file: a.json}", "", "it is not JSON"), ("{file: a.json}", "[" * 100, "it is not JSON"),
    ("{file: a.json, list: episodes, by: episode}", {"other": {}}, "it has no episodes"),
    ("{file: a.json, list: a.b, by: episode}", {"a": {"b": 3}}, "a.b: is neither a list nor a mapping"),
    ("{file: a.json, by: episode}", ["x"], "is a list: `key` of the layout must name"),
    ("{file: a.json, by: episode, key: id}", {"x": 1}, "is a mapping, and `key` of the layout needs a list"),
    ("{file: a.json, by: episode, key: id}", [{"id": "traj_2"}, {"no": 1}], "entry 1: no text or number id"),
    ("{file: a.json, by: number, key: id}", [{"id": 2}, {"id": "02"}], "two entries are of 2"),
    ("{file: a.json, by: episode}", {"traj_2": {"x": 1}}, "traj_2: is not a text of at most 4096 bytes"),
    ("{file: a.json, json: t}", {"t": [["x"]]}, "t: is not a text of at most 4096 bytes"),
    ("{file: a.json}", json.dumps("x" * 5000), "is not a text of at most 4096 bytes"),
    ("{file: a.json, required: true, json: t}", {"s": "x"}, "meta text: missing (a.json, json t)"),
    ("{file: none.json, required: true}", {}, "meta text: missing (none.json)")])
def test_json_of_the_wrong_shape(tmp_path, meta, document, message):
    said = texts(tmp_path, meta, {"a.json": document}, names=("traj_2",))
    assert isinstance(said, str) and message in said and (".json" in said) and "traj_2" in said, said


@pytest.mark.parametrize("meta, message", [
    ("{file: /a.json}", "relative to the data file"), ('{file: "{name}.json"}', "relative to the data file"), ("{file: a/../b.json}", "relative"),
    ("{file: a.json, key: id}", "needs by"), ("{file: a.json, by: name}", "by"), ("{attribute: \"@a\", pick: hash}", "belongs to a text of a JSON"),
    ("{file: a.json, path: b}", "one of them"), ("{file: a.json, pick: last}", "pick")])
def test_mistakes_in_texts(tmp_path, meta, message):
    said = texts(tmp_path, meta, {})
    assert "lab.yaml:3" in said and message in said, said


def test_a_changed_json_file_gives_its_new_texts(tmp_path):
    """The texts are part of the fingerprint, and no cache has them."""
    meta = "{file: tasks.json, by: episode}"
    assert texts(tmp_path, meta, {"tasks.json": {"traj_2": "fold"}}) == ["fold", None, None]
    before = inspect(tmp_path / "lab.yaml", tmp_path / "one.hdf5")["fingerprint"]
    (tmp_path / "tasks.json").write_text(json.dumps({"traj_2": "wipe"}))
    after = inspect(tmp_path / "lab.yaml", tmp_path / "one.hdf5")
    assert after["fingerprint"] != before and after["episodes"][0]["meta"]["text"] == "wipe"
