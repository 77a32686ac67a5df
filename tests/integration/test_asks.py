"""Queries about a feed (the message ASK), sent to a real daemon."""
import json
import re
import shutil
import subprocess

import h5py
import pytest

import libtrajd as trajd
from daemons import Daemon
from datasets import natural
from paths import BUILD, clean_environment
from waiting import wait_for

FEED = """
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
  policy:
    dataset: demo
    global_batch: 32
    anchor: {{clock: actions}}
    outputs: {{actions: {{at: -1..2}}}}
"""


def pages(client, what, count=0, **question):
    """Returns the items of all pages, and the last page."""
    items, first = [], 0
    while first is not None:
        page = client.ask(what, first=first, count=count, **question)
        assert page["first"] == first and len(page["items"]) > 0
        items += page["items"]
        first = page["next"]
    return items, page


def test_episodes(daemon, demo_file):
    client = daemon(FEED.format(path=demo_file)).client()
    info = client.open("policy")
    items, page = pages(client, "episodes")
    assert page["fingerprint"] == f"{info.fingerprint:016x}" and page["episodes"] == len(items)
    with h5py.File(demo_file) as file:
        names = sorted(file["data"], key=natural)
        rows = [len(file["data"][name]["actions"]) for name in names]
    assert [item["episode"] for item in items] == names
    assert [item["rows"] for item in items] == rows
    assert [item["episode_index"] for item in items] == list(range(len(names)))
    assert {item["dataset"] for item in items} == {"demo"} and {item["file"] for item in items} == {"demo.hdf5"}
    assert len({item["digest"] for item in items}) == len(items)
    assert pages(client, "episodes", count=5)[0] == items
    assert len(client.ask("episodes", first=3, count=2)["items"]) == 2
    client.close()


def test_many_episodes_come_in_pages(daemon, tmp_path):
    path = tmp_path / "many.hdf5"
    with h5py.File(path, "w") as file:
        for number in range(2000):
            demo = file.create_group(f"data/demo_{number}")
            demo["actions"] = [[float(number)]] * 2
    client = daemon(FEED.format(path=path).replace("layout: demo", "layout: robomimic")).client()
    client.open("policy")
    first = client.ask("episodes")
    assert 100 < len(first["items"]) < 2000 and first["next"] == len(first["items"])
    items, _ = pages(client, "episodes")
    assert [item["episode"] for item in items] == [f"demo_{number}" for number in range(2000)]
    client.close()


def test_texts_of_episodes(daemon, tmp_path):
    """The task's texts in LIBERO's files, by the shipped layout. Also a layout with more than one text per episode."""
    path = tmp_path / "task.hdf5"
    with h5py.File(path, "w") as file:
        for number in range(3):
            file[f"data/demo_{number}/actions"] = [[float(number)]] * 4
            for key in range(16):
                file[f"data/demo_{number}"].attrs[f"key_{key}"] = f"{number} " + "\\x" * 2000
        file["data"].attrs["problem_info"] = json.dumps({"problem_name": "x", "language_instruction": "pick up the \u00fcber-bowl"})
    one = daemon(FEED.format(path=path).replace("layout: demo", "layout: robomimic").replace("global_batch: 32", "global_batch: 4"))
    client = one.client()
    client.open("policy")
    items, _ = pages(client, "episodes")
    assert [item["meta"] for item in items] == [{"language": "pick up the \u00fcber-bowl"}] * 3
    assert pages(client, "episodes", name="language")[0] == items
    with pytest.raises(trajd.TrajdError, match=r"layout robomimic has no meta task \(metas: language\)"):
        client.ask("episodes", name="task")
    client.close()
    one.stop()

    keys = ", ".join(f"key_{key}: {{attribute: '@key_{key}'}}" for key in range(16))
    layout = tmp_path / "keys.yaml"
    layout.write_text("layout: keys\nepisodes: {files: '*', groups: /data/demo_*}\nclocks: {actions: {rate: 20}}\n"
                      "streams: {actions: {kind: previous}}\nmeta: {" + keys + "}\n")
    for _ in ("indexed", "from the cache"):
        one = daemon(FEED.format(path=path).replace("layout: demo", f"layout: {layout}").replace("global_batch: 32", "global_batch: 4"))
        client = one.client()
        client.open("policy")
        items, _ = pages(client, "episodes")
        assert [item["meta_left_out"] for item in items] == [[f"key_{key}" for key in range(16)]] * 3
        for key in (0, 15):
            items, _ = pages(client, "episodes", name=f"key_{key}")
            assert [item["meta"] for item in items] == [{f"key_{key}": f"{n} " + "\\x" * 2000} for n in range(3)]
        client.close()
        one.stop()


def test_episodes_by_their_texts(daemon, tmp_path):
    path, layout = tmp_path / "tasks.hdf5", tmp_path / "tasks.yaml"
    tasks = ["open", "close", None, "open", "push"]
    with h5py.File(path, "w") as file:
        for number, task in enumerate(tasks):
            file[f"data/demo_{number}/actions"] = [[float(number)]] * 4
            if task:
                file[f"data/demo_{number}"].attrs["task"] = task
            file[f"data/demo_{number}"].attrs["hand"] = number % 2
    layout.write_text("layout: tasks\nepisodes: {files: '*', groups: /data/demo_*}\nclocks: {actions: {rate: 20}}\n"
                      "streams: {actions: {kind: previous}}\nmeta: {task: {attribute: '@task'}, hand: {attribute: '@hand'}}\n")
    one = daemon(f"datasets: {{d: {{path: {path}, layout: {layout}}}}}")
    spec = "{{dataset: d, global_batch: 4, anchor: {{clock: actions}}, outputs: {{actions: {{at: 0}}}}{}}}"
    prints = set()
    for where, wanted in (("", {0, 1, 2, 3, 4}), (", where: {task: open}", {0, 3}), (", where: {task: [open, push]}", {0, 3, 4}),
                          (", where: {task: open, hand: 1}", {3}), (", where: {hand: '0'}", {0, 2, 4})):
        client = one.client()
        prints.add(client.open(spec=spec.format(where)).fingerprint)
        seen = {int(episode) for _, arrays in client.epoch() for episode in arrays["episode_index"]}
        assert seen == wanted
        client.close()
    assert len(prints) == 5
    client = one.client()
    for where, message in (("task: shut", r'where.task: no episode has "shut" \(the first has "open"\)'),
                           ("tusk: open", r"where.tusk: layout tasks has no such text \(did you mean task\?\)"),
                           ("task: push, hand: 1", "leave no window")):
        with pytest.raises(trajd.TrajdError, match=message):
            client.open(spec=spec.format(f", where: {{{where}}}"))
    client.close()


def diff(*arguments):
    result = subprocess.run([BUILD / "clients/cli/trajctl", "diff", *arguments], text=True, capture_output=True, timeout=30,
                            env=clean_environment())
    return result.returncode, result.stdout + result.stderr


def test_a_difference_names_the_episode(daemon, demo_file, tmp_path):
    """Two daemons have files that differ in one row. Their fingerprints differ, and so does one digest."""
    answers, daemons = [], []
    for side in ("a", "b"):
        folder = tmp_path / side
        folder.mkdir()
        copy = folder / "demo.hdf5"
        shutil.copy(demo_file, copy)
        if side == "b":
            with h5py.File(copy, "r+") as file:
                file["data/demo_5/actions"][0, 0] += 1
        daemons.append(Daemon(folder, FEED.format(path=copy)).start())
        client = daemons[-1].client()
        client.open("policy")
        answers.append(pages(client, "episodes"))
        client.close()
    (left, a), (right, b) = answers
    endpoints = [one.endpoint for one in daemons]
    status, text = diff(*endpoints, "policy")
    assert status == 1 and "dataset demo: demo.hdf5: demo_5: the content differs" in text and text.count("\n") == 2
    status, text = diff(endpoints[0], endpoints[0], "policy")
    assert status == 0 and "the same" in text
    status, text = diff(*endpoints, "other")
    assert status == 1 and "no open feed other" in text
    for one in daemons:
        one.stop()
    assert a["fingerprint"] != b["fingerprint"]
    assert [x["episode"] for x, y in zip(left, right) if x["digest"] != y["digest"]] == ["demo_5"]


def test_differences_of_lists(daemon, tmp_path):
    """Episodes that one side lacks at the beginning, in the middle and at the end of lists of several pages."""
    daemons = []
    for side, left_out in (("a", {0, 700, 701}), ("b", {5, 1199})):
        folder = tmp_path / side
        folder.mkdir()
        with h5py.File(folder / "many.hdf5", "w") as file:
            for number in set(range(1200)) - left_out:
                file[f"data/demo_{number}/actions"] = [[float(number)]] * (3 if side == "a" and number == 900 else 2)
        daemons.append(Daemon(folder, FEED.format(path=folder / "many.hdf5").replace("layout: demo", "layout: robomimic")).start())
    a, b = (one.endpoint for one in daemons)
    status, text = diff(a, b, "policy")
    assert status == 1
    assert re.findall(r"demo_\d+: .*", text) == [f"demo_0: only at {b}", f"demo_5: only at {a}", f"demo_700: only at {b}",
                                                 f"demo_701: only at {b}", f"demo_900: 3 rows at {a}, 2 at {b}", f"demo_1199: only at {a}"]
    for one in daemons:
        one.stop()


def test_bad_questions(daemon, demo_file):
    client = daemon(FEED.format(path=demo_file)).client()
    with pytest.raises(trajd.TrajdError, match="open a feed first"):
        client.ask("episodes")
    with pytest.raises(trajd.TrajdError, match="there is no feed with the number 4711"):
        client.ask("episodes", feed_id=4711)
    client.open("policy")
    with pytest.raises(trajd.TrajdError, match=r'unknown question "episode" \(did you mean episodes\? questions: .*episodes'):
        client.ask("episode")
    with pytest.raises(trajd.TrajdError, match="episode 24 does not exist: the feed has 24 episodes") as caught:
        client.ask("episodes", first=24)
    assert caught.value.status == trajd.NOT_FOUND
    with pytest.raises(trajd.TrajdError, match="does not exist"):
        client.ask("episodes", first=2**64 - 1)
    client.close()


def test_a_feed_that_is_gone(daemon, demo_file):
    """A feed from a job's specification is closed some time after the job. Then a query about it is refused, and
    other feeds go on."""
    one = daemon(f"datasets: {{demo: {{path: {demo_file}, layout: demo}}}}\nfeed_idle: 100ms")
    spec = '{dataset: demo, global_batch: 8, anchor: {clock: actions}, outputs: {actions: {at: 0..1}}}'
    client, other = one.client(), one.client()
    client.open(spec=spec)
    feed_id = client.status()["feeds"][0]["feed_id"]
    assert other.ask("episodes", feed_id=feed_id)["episodes"] == 24
    client.close()

    def is_gone():
        try:
            other.ask("episodes", feed_id=feed_id)
        except trajd.TrajdError as error:
            assert error.status == trajd.NOT_FOUND
            return True
        return False

    wait_for(is_gone, what="the feed to be closed")
    other.open(spec=spec)
    assert other.ask("episodes")["episodes"] == 24
    other.close()
