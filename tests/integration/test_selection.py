"""Which episodes a feed has: `episodes:` and `split:`, in a real daemon, up to the windows that a worker gets."""
import json
import re
import subprocess

import h5py
import numpy as np
import pytest

from datasets import write_robomimic
from paths import BUILD
from waiting import wait_for

COUNT = 12
FEED = """
  {name}:
    dataset: {dataset}
    global_batch: 4
    tail: short
    anchor: {{clock: actions}}
    outputs: {{actions: {{at: 0}}}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A robomimic file of twelve episodes, in which demo_5 is bad, and a folder of ALOHA files, of which one is cut off."""
    folder = tmp_path_factory.mktemp("selection")
    write_robomimic(folder / "demos.hdf5", {f"demo_{e}": np.full((10, 2), e, "f4") for e in range(COUNT)})
    with h5py.File(folder / "demos.hdf5", "r+") as file:
        del file["data/demo_5/actions"]
        file["data/demo_5/actions"] = np.zeros((10, 3), "f4")
    (folder / "lab").mkdir()
    for e in range(5):
        with h5py.File(folder / "lab" / f"episode_{e}.hdf5", "w") as file:
            file["action"] = file["observations/qpos"] = np.full((20, 14), e, "f4")
    whole = (folder / "lab" / "episode_2.hdf5").read_bytes()
    (folder / "lab" / "episode_2.hdf5").write_bytes(whole[:len(whole) // 2])
    return folder


def feed(name, dataset="demos", **keys):
    lab = dataset == "lab"
    text = FEED.format(name=name, dataset=dataset)
    if lab:
        text = text.replace("clock: actions", "clock: steps").replace("outputs: {actions:", "outputs: {action:")
    return text + "".join(f"    {key}: {value}\n" for key, value in keys.items())


def config(folder, *feeds):
    return (f"datasets:\n  demos: {{path: {folder}/demos.hdf5, layout: robomimic}}\n  lab: {{path: {folder}/lab, layout: aloha}}\n"
            "feeds:" + "".join(feeds))


def read(client, **opened):
    """Returns the feed's warnings, and the episodes of its windows, by the value that fills their actions."""
    info = client.open(**opened)
    values = []
    for _, arrays in client.epoch():
        values += arrays.get("actions", arrays.get("action"))[:, 0, 0].astype(int).tolist()
    return [info.warnings[i].decode() for i in range(info.warning_count)], values


def check(one):
    return subprocess.run([BUILD / "clients/cli/trajctl", "check", one.config], capture_output=True, text=True, env=one.environment())


def test_numbers_names_and_files(daemon, folder):
    one = daemon(config(
        folder, feed("numbers", episodes="[0..2, 7]"), feed("names", episodes="[demo_11, demo_3]"),
        feed("bad", episodes="[4..6]"), feed("files", "lab", episodes="[episode_1.hdf5, 2, 3]")))
    client = one.client()
    assert {name: sorted(set(read(client, feed=name)[1])) for name in ("numbers", "names", "bad", "files")} == {
        "numbers": [0, 1, 2, 7], "names": [3, 11], "bad": [4, 6], "files": [1, 3]}
    assert len(read(client, feed="numbers")[1]) == 40
    numbers, bad, files = (read(client, feed=name)[0] for name in ("numbers", "bad", "files"))
    assert numbers == []
    assert any(text.startswith("episodes: 1 of the 3 listed episodes are quarantined and not used (the first: demos.hdf5: demo_5")
               for text in bad), bad
    assert any(text.startswith("episodes: 1 of the 3 listed episodes are quarantined and not used (the first: episode_2.hdf5")
               for text in files), files
    listed = json.loads(subprocess.run([BUILD / "clients/cli/trajctl", "inspect", "--json", "--layout", "aloha", folder / "lab"],
                                       capture_output=True, text=True).stdout)
    assert [(e["number"], e["id"]) for e in listed[0]["episodes"]] == [(n, f"episode_{n}.hdf5") for n in (0, 1, 3, 4)]
    printed = check(one).stdout
    assert "  episodes: 4 of 12 are listed\n" in printed and "  episodes: 3 of 5 are listed\n" in printed
    client.close()


def test_a_split_by_count(daemon, folder):
    """The parts are disjoint and together everything, also in a specification that a job sends."""
    parts = [feed(part, split=f"{{hold_out: 3, take: {part}}}") for part in ("train", "validation")]
    one = daemon(config(folder, *parts))
    client = one.client()
    train, validation = (set(read(client, feed=part)[1]) for part in ("train", "validation"))
    assert len(validation) == 3 and not train & validation
    assert train | validation == set(range(COUNT)) - {5}
    spec = ('{"dataset": "demos", "global_batch": 4, "tail": "short", "anchor": {"clock": "actions"}, "episodes": ["0..9"], '
            '"split": {"hold_out": 2, "take": "validation"}, "outputs": {"actions": {"at": 0}}}')
    sent = set(read(client, spec=spec)[1])
    assert len(sent) == 2 and sent <= set(range(10)) - {5}
    assert "split: 3 episodes held out for validation; this feed takes them" in check(one).stdout
    client.close()


def test_a_feed_like_another(daemon, folder):
    """In the configuration, in what a job sends, and in what is printed."""
    train = feed("train", split="{hold_out: 3, take: train}", seed=5)
    one = daemon(config(folder, "\n  valid: {like: train, split: {take: validation}, outputs: {actions: null, next: {from: actions, "
                        "at: 1, role: action}}}\n", train))
    client = one.client()
    client.open(feed="valid")
    held = set()
    for _, arrays in client.epoch():
        assert "actions" not in arrays
        held |= set(arrays["next"][:, 0, 0].astype(int).tolist())
    sent = read(client, spec='{"like": "train", "split": {"take": "validation"}}')[1]
    assert len(held) == 3 and set(sent) == held and not held & set(read(client, feed="train")[1])
    with pytest.raises(Exception, match="spec:1: like: the configuration has no feed tain"):
        client.open(spec='{"like": "tain"}')
    printed = one.run("--print-config").stdout
    assert "like:" not in printed and printed.count("hold_out\": 3") == 2
    client.close()


def test_ranges(daemon, folder, tmp_path):
    """From a file and from what a job sends. A job cannot let the daemon read a file that its configuration does not name."""
    (tmp_path / "keep.json").write_text('{"demo_0": [[2, 5], [7, 10]], "demos.hdf5:demo_3": [[0, 10]], "nowhere": [[0, 1]]}')
    one = daemon(config(folder, feed("kept", ranges="keep.json", order="sequential")))
    client = one.client()
    info = client.open("kept")
    rows = [(int(e), int(ns)) for _, arrays in client.epoch() for e, ns in zip(arrays["episode_index"], arrays["anchor_ns"])]
    assert rows == [(0, 50_000_000 * row) for row in (2, 3, 4, 7, 8, 9)] + [(3, 50_000_000 * row) for row in range(10)]
    assert info.window_count == 16
    warnings = [info.warnings[i].decode() for i in range(info.warning_count)]
    assert "keep.json: 1 of the 3 keys name no episode of the dataset (the first: nowhere)" in warnings[0]
    assert "keep.json: 9 of the 11 selected episodes have no range there, and so no window (the first: demos.hdf5: demo_1)" in warnings[1]
    assert len(read(client, spec='{"like": "kept", "seed": 4}')[1]) == 16
    assert read(client, spec='{"like": "kept", "ranges": null, "episodes": [1], "seed": 4}')[1] == [1] * 10
    assert read(client, spec='{"like": "kept", "ranges": {"demo_3": [[1, 3]]}}')[1] == [3, 3]
    with pytest.raises(Exception, match="spec:1: ranges: a feed that a job sends can only name a file that a feed of the daemon's"):
        client.open(spec='{"like": "kept", "ranges": "/etc/passwd"}')
    assert re.search(r"  ranges: 4 ranges of 3 episodes in .*/keep.json", check(one).stdout)
    client.close()


def statistics(client):
    """Returns the mean of the values that fill the actions, when it is known."""
    return wait_for(lambda: (found := client.ask("statistics", "actions"))["state"] != "computing" and found)["mean"][0]


def test_statistics_count_what_is_selected(daemon, folder):
    """Rows of ranges, and all rows of the episodes where each epoch draws one window of them."""
    ranges = "{demo_0: [[0, 4]], demo_10: [[2, 3], [9, 10]]}"
    one = daemon(config(folder, feed("kept", ranges=ranges), feed("drawn", windows="one_per_episode", episodes="[0, 1, 7]"),
                        feed("over", ranges=ranges, outputs="{actions: {at: 0, norm: {over: windows}}}").replace(
                            "    outputs: {actions: {at: 0}}\n", "", 1)))
    client = one.client()
    for name, mean in (("kept", 2 * 10 / 6), ("over", 2 * 10 / 6), ("drawn", 8 / 3)):
        client.open(name)
        assert statistics(client) == pytest.approx(mean), name
    client.close()


def test_datasets_of_a_mixture_select_for_themselves(daemon, folder):
    """The feed's keys count where a dataset has none of its own."""
    more = f"  more: {{path: {folder}/demos.hdf5, layout: robomimic}}\n"
    mix = feed("mixed", split="{hold_out: 2, take: validation}", ranges="{demo_8: [[0, 2]], demo_9: [[8, 10]]}", epoch=40).replace(
        "    dataset: demos\n", """    mix:
      demos: {weight: 1, episodes: [8, 9], split: 0..1}
      more: {weight: 1, episodes: [1, 3, 4], ranges: {demo_1: [[0, 3]], demo_3: [[0, 10]], demo_4: [[0, 10]]}}
""")
    one = daemon(config(folder, mix).replace("feeds:", more + "feeds:"))
    client = one.client()
    client.open("mixed")
    seen = {0: set(), 1: set()}
    for _, arrays in client.epoch():
        for dataset, value, ns in zip(arrays["dataset_index"], arrays["actions"][:, 0, 0], arrays["anchor_ns"]):
            seen[int(dataset)].add((int(value), int(ns) // 50_000_000))
    assert seen[0] == {(8, 0), (8, 1), (9, 8), (9, 9)}
    held = {episode for episode, _ in seen[1]}
    assert len(held) == 2 and held < {1, 3, 4} and {row for episode, row in seen[1] if episode == 1} <= {0, 1, 2}
    client.close()


def reload(one):
    return subprocess.run([BUILD / "clients/cli/trajctl", "reload", "--wait", "--endpoint", one.endpoint], capture_output=True,
                          text=True, env=one.environment())


def test_a_reload_changes_the_feeds_that_are_like_another(daemon, folder):
    one = daemon(config(folder, feed("train", seed=5), "  valid: {like: train, split: {hold_out: 2, take: validation}}\n", feed("other")))
    one.config.write_text(one.config.read_text().replace("seed: 5", "seed: 6"))
    done = reload(one)
    assert done.returncode == 0 and re.search(r"changed feeds: train, valid$|feeds: train, valid$", done.stdout.strip()), done


def test_ranges_that_have_changed(daemon, folder, tmp_path):
    """A reload sees another content of the file."""
    (tmp_path / "keep.json").write_text('{"demo_0": [[2, 5]]}')
    one = daemon(config(folder, feed("kept", ranges="keep.json"), feed("other")))
    client = one.client()
    assert client.open("kept").window_count == 3
    client.close()
    (tmp_path / "keep.json").write_text('{"demo_0": [[2, 6]]}')
    wait_for(lambda: reload(one).returncode == 0, what="the reload")
    client = one.client()
    assert client.open("kept").window_count == 4
    client.close()


@pytest.mark.parametrize("keys, message", [
    ({"episodes": "[0, 12]"}, r"trajd.yaml:\d+: feeds.one.episodes\[1\]: there is no episode 12: the dataset has 12 episodes"),
    ({"episodes": "[demo_12]"}, r"trajd.yaml:\d+: feeds.one.episodes\[0\]: no episode and no file of the dataset is called demo_12"),
    ({"ranges": "nowhere.json"}, r"trajd.yaml:\d+: feeds.one.ranges: .*nowhere.json: No such file"),
    ({"ranges": "trajd.yaml"}, r"trajd.yaml:\d+: feeds.one.ranges: .*trajd.yaml:1: expected .\"EPISODE\""),
    ({"ranges": "{demo_1: [[3, 11]]}"}, r"demo_1: \[3, 11\] ends behind the last row: clock actions has 10 rows"),
    ({"split": "{hold_out: 11, take: train}"}, r"split.hold_out is 11, but the other keys select 11 episodes"),
])
def test_mistakes_name_file_line_and_key(daemon, folder, keys, message):
    one = daemon(config(folder, feed("good")))
    one.config.write_text(one.config.read_text() + feed("one", **keys))
    done = check(one)
    assert done.returncode
    assert re.search(message, done.stderr), done.stderr
