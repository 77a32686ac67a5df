"""Rows in GPU memory and rows that travel with each batch, mixtures, bad rows, and budgets, with the fake GPU of
tests/fake."""
import os
import re
import textwrap

import h5py
import numpy as np
import pytest

import libtrajd as trajd
from daemons import FAKE_PROGRAM, GpuDaemon
from datasets import make_demo_file, write_robomimic
from fake_gpu import CONFIG, UUID, collect
from fake_gpu import data  # noqa: F401  (fixtures)
from paths import ROOT

STREAMED_ROWS = """
    gpu: {{devices: all, rows: {rows}, rings: 64MiB}}
    datasets: {{demo: {{path: {data}, layout: {layout}}}}}
    feeds:
      grid:
        dataset: demo
        global_batch: 16
        slots: 4
        rate: 10
        anchor: {{clock: pose}}
        pad: {{before: 3, after: any, with: edge}}
        outputs:
          joints:  {{from: joint_pos, at: -4..0, max_gap: 3ms}}
          smooth:  {{from: obs/object, at: -2..0, kind: mean, width: 130ms}}
          near:    {{from: pose_pos, at: -2..0, kind: nearest}}
          gripper: {{from: gripper_cmd, at: -4..0, max_age: 10ms}}
          eef:     {{from: obs/robot0_eef_pos, at: -3..0}}
          turn:    {{from: obs/robot0_eef_quat, at: -3..0}}
          actions: {{from: [pose_pos, gripper_cmd, actions], at: 0..30, role: action, norm: mean_std}}
      rows:
        dataset: demo
        global_batch: 16
        slots: 4
        anchor: {{clock: actions}}
        pad: {{before: 1, after: any, with: zero}}
        outputs:
          eef:     {{from: obs/robot0_eef_pos, at: -1..0}}
          smooth:  {{from: obs/robot0_eef_pos, at: -1..0, kind: mean, width: 200ms}}
          pose:    {{from: pose_quat, at: -1..0}}
          joints:  {{from: joint_pos, at: "-35ms..0ms @ 100"}}
          actions: {{at: 0..15}}
          end:     {{goal: {{from: last, of: obs/robot0_eef_pos}}}}
          later:   {{at: -1..0, goal: {{from: future, of: pose_quat}}}}
      rates:
        dataset: demo
        global_batch: 16
        slots: 4
        anchor: {{rate: 7}}
        pad: {{before: any, after: any}}
        rate: 15
        outputs:
          eef:     {{from: obs/robot0_eef_pos, at: -5..0}}
          object:  {{from: obs/object, at: -5..0}}
          actions: {{at: 0..9}}
          later:   {{at: -2..0, goal: {{from: future, p: geometric, gamma: 0.9, of: obs/object}}}}
"""


def lay_out(folder, rate):
    """Writes the demo layout with another rate for its regular clock, whose rows then are at fractions of a
    nanosecond."""
    text = (ROOT / "configs/layouts/demo.yaml").read_text()
    begin = text.index("{rate: {attribute")
    end = text.index(", rows: actions", begin)
    path = folder / "other.yaml"
    path.write_text(text[:begin] + "{rate: " + rate + text[end:])
    return path


@pytest.mark.parametrize("rows, store, rate", [("64KiB", "64MiB", None), ("128KiB", "64MiB", "30"), ("64KiB", "700KiB", "30000/1001")])
def test_rows_beyond_the_budget_come_batch_by_batch(tmp_path, data, rows, store, rate):
    """Rows that are not resident come from host memory (from files where the store is small). The batches are the
    same, bit for bit."""
    layout = "demo" if rate is None else lay_out(tmp_path, rate)
    daemon = GpuDaemon(tmp_path / "small", STREAMED_ROWS.format(data=data, rows=rows, layout=layout), program=FAKE_PROGRAM, store=store).start()
    for feed in ("grid", "rows", "rates"):
        here, there = daemon.client(), daemon.client()
        here.open(feed)
        info = there.open(feed, job="gpu", gpu=UUID)
        assert info.gpu == UUID.encode(), info.gpu_refusal
        host, device = collect(here), collect(there)
        assert host.keys() == device.keys() and len(host) > 4
        for position, arrays in host.items():
            for name, array in arrays.items():
                np.testing.assert_array_equal(array, device[position][name], err_msg=f"{feed}: {name} at {position}")
        gpu = here.status()["gpus"][0]
        places = {(item["path"], item["place"]) for item in gpu["resident"]}
        assert feed != "grid" or {("joint_pos", "host"), ("gripper_cmd", "gpu")} <= places
        assert feed != "rates" or rows != "64KiB" or ("obs/object", "host") in places
        assert gpu["rows_bytes"] <= gpu["rows_budget_bytes"]
        here.close()
        there.close()
    daemon.stop()


WIDE_LAYOUT = """
    layout: wide
    version: 1
    episodes: {files: "*.hdf5", groups: /data/demo_*}
    clocks: {rows: {rate: 20, rows: wide}}
    streams: {wide: {path: wide, clock: rows, kind: previous}, narrow: {path: narrow, clock: rows, kind: previous}}
"""

WIDE = """
    gpu: {{devices: all, rows: 128MiB, rings: 32MiB}}
    datasets: {{wide: {{path: {path}, layout: {layout}}}}}
    feeds:
      train: {{dataset: wide, global_batch: 256, slots: 4, order: sequential, anchor: {{clock: rows}},
              outputs: {{wide: {{at: 0}}, narrow: {{at: 0}}}}}}
"""


@pytest.mark.parametrize("store", ["256MiB", "74MiB"])  # all of the store, and no more than the long episode
def test_rows_that_go_there_in_many_chunks(tmp_path, store):
    """An episode that is longer than all buffers together, between short ones: each row is in its place."""
    counts = [3, 0, 18000, 2, 700, 1]
    rows = np.arange(sum(counts), dtype=np.float32)
    with h5py.File(tmp_path / "wide.hdf5", "w") as file:
        for n, begin in enumerate(np.cumsum(counts) - counts):
            some = rows[begin:begin + counts[n]]
            file[f"data/demo_{n}/wide"] = np.repeat(some[:, None], 1024, 1)
            file[f"data/demo_{n}/narrow"] = np.stack([some, -some], 1)
    (tmp_path / "wide.yaml").write_text(textwrap.dedent(WIDE_LAYOUT))
    daemon = GpuDaemon(tmp_path / "run", WIDE.format(path=tmp_path / "wide.hdf5", layout=tmp_path / "wide.yaml"), program=FAKE_PROGRAM, store=store).start()
    client = daemon.client()
    info = client.open("train", gpu=UUID)
    assert info.gpu == UUID.encode(), info.gpu_refusal
    batches = collect(client)
    assert sorted(batches) == list(range(0, len(rows) - 255, 256))
    for position, arrays in batches.items():
        wanted = rows[position:position + 256]
        np.testing.assert_array_equal(arrays["narrow"].reshape(256, 2), np.stack([wanted, -wanted], 1))
        np.testing.assert_array_equal(arrays["wide"].reshape(256, 1024), np.repeat(wanted[:, None], 1024, 1))
    gpu = client.status()["gpus"][0]
    assert {item["place"] for item in gpu["resident"]} == {"gpu"} and gpu["filled_bytes"] >= rows.nbytes * 1024
    client.close()
    daemon.stop()


MIXTURE = """
    gpu: {{devices: all, rows: {rows}, rings: 64MiB}}
    datasets: {{demo: {{path: {data}, layout: demo}}, other: {{path: {other}, layout: demo}}}}
    feeds:
      train:
        global_batch: 16
        slots: 4
        rate: 10
        mix:
          demo:  {{weight: 2, streams: {{lift: gone}}}}
          other: {{weight: 1, streams: {{lift: obs/object}}, filter: train{own}}}
        epoch: 320
        anchor: {{clock: pose}}
        pad: {{before: 2, after: any, with: edge}}
        outputs:
          joints:  {{from: joint_pos, at: -4..0}}
          lift:    {{from: lift, at: -1..0, missing: zero}}
          actions: {{from: [pose_pos, gripper_cmd], at: 0..7, role: action}}
"""


OWN_STEPS = ", rate: 15, anchor: {clock: actions}, outputs: {joints: {at: -5..-1, kind: previous}, actions: {at: -1..6}}"


@pytest.mark.parametrize("rows, own", [("64MiB", ""), ("192KiB", ""), ("64MiB", OWN_STEPS)])
def test_a_mixture(tmp_path, data, rows, own):
    """The windows of each dataset go to their own rows, with one launch per dataset. One dataset lacks a stream,
    (with few rows) is not resident, or has steps, a rate and anchors of its own."""
    other = tmp_path / "other.hdf5"
    make_demo_file(other, "--seed", "5", episodes=4)
    daemon = GpuDaemon(tmp_path / "mixture", MIXTURE.format(data=data, other=other, rows=rows, own=own), program=FAKE_PROGRAM).start()
    here, there = daemon.client(), daemon.client()
    here.open("train")
    info = there.open("train", job="gpu", gpu=UUID)
    assert info.gpu == UUID.encode(), info.gpu_refusal
    host, device = collect(here), collect(there)
    assert host.keys() == device.keys() and len(host) == 20
    for position, arrays in host.items():
        assert len(set(arrays["dataset_index"])) == 2
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, device[position][name], err_msg=f"{name} at {position}")
    resident = here.status()["gpus"][0]["resident"]
    assert {item["dataset"] for item in resident} == {"demo", "other"}
    assert {item["place"] for item in resident} == ({"gpu"} if rows == "64MiB" else {"gpu", "host"})
    here.close()
    there.close()
    daemon.stop()


BAD_ROWS = """
    gpu: {{devices: all, rows: 64KiB, rings: 16MiB}}
    datasets: {{demo: {{path: {path}, layout: demo}}}}
    feeds:
      train:
        dataset: demo
        global_batch: 16
        slots: 4
        bad_rows: {bad_rows}
        anchor: {{clock: actions}}
        pad: {{before: 1, after: any, with: zero}}
        outputs:
          object:  {{from: obs/object, at: -1..0}}
          actions: {{at: 0..3}}
"""


@pytest.mark.parametrize("bad_rows", ["keep", "error"])
def test_rows_that_come_along_and_cannot_be_read(tmp_path, bad_rows):
    path = tmp_path / "cut.hdf5"
    make_demo_file(path, episodes=24)
    daemon = GpuDaemon(tmp_path / "bad", BAD_ROWS.format(path=path, bad_rows=bad_rows), program=FAKE_PROGRAM, store="64KiB").start()
    client = daemon.client()
    info = client.open("train", gpu=UUID)
    assert info.gpu == UUID.encode(), info.gpu_refusal
    os.truncate(path, path.stat().st_size // 2)
    rows = bad = failed = 0
    while True:
        try:
            batch = client.next()
        except trajd.TrajdError as error:
            assert error.status == trajd.DATA and "cut.hdf5" in str(error), error
            failed += 1
            continue
        if batch is None:
            break
        arrays = batch.copy()
        missing = arrays["object.mask"][:, 1] == 6
        assert np.isnan(arrays["object"][missing]).all() and np.isfinite(arrays["object"][~missing]).all()
        rows += len(missing)
        bad += missing.sum()
        batch.release()
    assert (failed == 0 and bad > 0 and rows // 16 == info.window_count // 16) if bad_rows == "keep" else (failed > 0 and bad == 0)
    client.close()
    daemon.stop()


def test_a_batch_that_failed_is_done_when_it_is_told(tmp_path):
    """A checkpoint counts a failed batch as DONE, whatever releases are still waiting."""
    path = tmp_path / "cut.hdf5"
    make_demo_file(path, episodes=24)
    daemon = GpuDaemon(tmp_path / "bad", BAD_ROWS.format(path=path, bad_rows="error"), program=FAKE_PROGRAM, store="64KiB").start()
    client, watcher = daemon.client(), daemon.client()
    client.open("train", gpu=UUID, credit=8)
    os.truncate(path, path.stat().st_size // 2)
    taken = failed = 0
    while failed < 20:
        try:
            client.next().release()
        except trajd.TrajdError as error:
            assert error.status == trajd.DATA, error
            failed += 1
        taken += 1
        client.checkpoint()
        assert watcher.status()["batches_done"] == taken
    client.close()
    watcher.close()
    daemon.stop()


def test_slots_that_nobody_asked_for(tmp_path, data):
    """A feed without `slots` has sixteen slots where the budget has room for them, else four."""
    for rings, slots, count in (("64MiB", "", 16), ("6MiB", "", 4), ("6MiB", "slots: 5", 5)):
        text = CONFIG.replace("global_batch: 16", "global_batch: 500").replace("slots: {slots}", slots).format(data=data, gpu="").replace("rings: 16MiB", f"rings: {rings}")
        daemon = GpuDaemon(tmp_path / f"{rings}{len(slots)}", text, program=FAKE_PROGRAM).start()
        client = daemon.client()
        info = client.open("train", gpu=UUID)
        assert info.gpu == UUID.encode(), info.gpu_refusal
        (feed,) = [one for one in client.status()["feeds"] if one["name"].endswith(UUID)]
        assert feed["slots"]["count"] == count, feed
        client.close()
        daemon.stop()


@pytest.mark.parametrize("rings", [4, 8, 16])
def test_slots_that_nobody_asked_for_and_rows_that_come_along(tmp_path, data, rings):
    """The memory for sixteen slots is freed before four are tried. A sanitizer looks for leaks."""
    text = STREAMED_ROWS.format(data=data, rows="64KiB", layout="demo").replace("slots: 4", "").replace("rings: 64MiB}", f"rings: {rings}MiB}}")
    daemon = GpuDaemon(tmp_path / "gpu", text, program=FAKE_PROGRAM).start()
    client = daemon.client()
    client.open("grid", gpu=UUID)
    assert len(collect(client)) > 4
    client.close()
    daemon.stop()


def test_rows_that_no_room_is_left_for(tmp_path, data):
    """Streamed rows take memory beside the rings."""
    text = STREAMED_ROWS.format(data=data, rows="64KiB", layout="demo").replace("rings: 64MiB}", "rings: 2MiB}")
    daemon = GpuDaemon(tmp_path / "small", text, program=FAKE_PROGRAM).start()
    client = daemon.client()
    info = client.open("grid", gpu=UUID)
    assert info.gpu is None and b"but gpu.rings on" in info.gpu_refusal
    assert len(collect(client)) > 4
    client.close()
    daemon.stop()


def test_pinned_memory_is_within_the_budget(tmp_path, data):
    """Streamed rows use pinned memory, which `memory.rings` counts. With less of it fewer batches are in flight;
    without any the batches are in host memory."""
    def ask(name, rings):
        daemon = GpuDaemon(tmp_path / name, STREAMED_ROWS.format(data=data, rows="64KiB", layout="demo"), program=FAKE_PROGRAM, rings=rings).start()
        client = daemon.client()
        rings = sum(feed["ring_bytes"] for feed in client.status()["feeds"])
        info = client.open("grid", gpu=UUID)
        told = info.gpu, info.gpu_refusal  # the client's own memory
        assert len(collect(client)) > 4
        client.close()
        daemon.stop()
        return rings, *told

    rings, gpu, _ = ask("wide", "64MiB")
    assert gpu == UUID.encode()
    _, gpu, why = ask("none", rings)
    wanted, left = map(int, re.fullmatch(rb"feed grid@\S+: pinned memory for streamed rows needs (\d+) bytes, but memory.rings has only (\d+) bytes left", why).groups())
    assert gpu is None and wanted > left
    assert ask("two", rings + wanted - left)[1] == UUID.encode()
    assert ask("short", rings + wanted - left - 1)[1] is None


PARTS = """
    gpu: {{devices: all, rows: 64MiB, rings: 16MiB}}
    datasets:
      whole: {{path: {folder}/whole.hdf5, layout: robomimic}}
      parts: {{path: {folder}/parts.hdf5, layout: robomimic}}
    feeds:
      whole:
        dataset: whole
        global_batch: 8
        anchor: {{clock: actions}}
        outputs: {{actions: {{from: [actions, actions_abs], at: 0..3, missing: zero}}}}
      parts: {{like: whole, dataset: parts}}
"""


def test_columns_that_episodes_lack(tmp_path):
    """Batches are on the GPU where no episode lacks a part of an output, and in host memory where one does."""
    rows = {"actions": np.ones((20, 2)), "actions_abs": np.ones((20, 3))}
    write_robomimic(tmp_path / "whole.hdf5", {"demo_0": rows, "demo_1": rows})
    write_robomimic(tmp_path / "parts.hdf5", {"demo_0": rows, "demo_1": {"actions": rows["actions"]}})
    daemon = GpuDaemon(tmp_path / "gpu", PARTS.format(folder=tmp_path), program=FAKE_PROGRAM).start()
    for feed in ("whole", "parts"):
        client = daemon.client()
        info = client.open(feed, gpu=UUID)
        assert (info.gpu == UUID.encode()) == (feed == "whole")
        assert feed == "whole" or b"outputs.actions: some episodes lack some of its streams, so batches are in host memory" in info.gpu_refusal
        for arrays in collect(client).values():
            lacks = (arrays["episode_index"] == 1) & (feed == "parts")
            np.testing.assert_array_equal(arrays["actions.missing"], lacks[:, None] & np.array([False, False, True, True, True]))
            assert set(np.unique(arrays["actions.mask"])) <= {0, 2} and (arrays["actions"][:, 0, :2] == 1).all()
        client.close()
    daemon.stop()
