"""Outputs with `return:` (discounted sums of rewards), against sums in numpy over the rows of the file."""
import h5py
import numpy as np
import pytest

from datasets import write_robomimic
from feeds import JOBS
from daemons import Daemon

ROWS = {"demo_0": 1, "demo_1": 5, "demo_2": 40, "demo_3": 333}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("returns") / "demos.hdf5"
    random = np.random.default_rng(5)
    write_robomimic(path, {name: {"actions": np.zeros((rows, 2), "f4"), "rewards": random.normal(size=rows),
                                  "dones": (np.arange(rows) == rows - 1).astype("u1"),
                                  "obs/two": random.normal(size=(rows, 2)).astype("f4")} for name, rows in ROWS.items()})
    return path


def config(path, outputs, keys=""):
    text = JOBS.format(path=path, batch=16, tail="short", seed=3, rank_timeout="600s").replace("layout: demo", "layout: robomimic")
    text = text[:text.index("    outputs:")]
    return f"{text}    {keys}\n    outputs:\n" + "".join(f"      {name}: {{{what}}}\n" for name, what in outputs.items())


def collect(client):
    info = client.open("train")
    parts = [arrays for _, arrays in client.epoch()]
    return info, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def returns(rows, gamma, end):
    """Returns for each row t < end the sum of gamma^(k - t) rows[k] over t <= k < end."""
    return np.array([(gamma ** np.arange(end - t)) @ rows[t:end] for t in range(end)])


OUTPUTS = {
    "rewards": "at: 0..7, role: action",
    "dones": "at: 0..7, role: action",
    "rest": "from: rewards, at: 0..7, return: {gamma: 0.9}, dtype: float64",
    "ever": "from: rewards, at: -1..2, return: {gamma: 1}",
    "chunk": "from: rewards, at: 0..7, return: {gamma: 0.9, until: chunk}",
    "done": "from: dones, at: 0..7, return: {gamma: 1, until: chunk}",
    "both": "from: [obs/two, rewards], at: 0, return: {gamma: 0.5}, role: next",
}


@pytest.mark.parametrize("pad", ["edge", "zero"])
def test_returns_are_sums_of_rows(daemon, path, pad):
    client = daemon(config(path, OUTPUTS, f"pad: {{with: {pad}}}")).client()
    info, got = collect(client)
    assert info.window_count == sum(ROWS.values())
    with h5py.File(path) as file:
        for place, episode in enumerate(got["episode_index"]):
            group = file[f"data/demo_{episode}"]
            rows, done, two = (group[key][:].astype("f8") for key in ("rewards", "dones", "obs/two"))
            anchor, count = int(got["anchor_ns"][place]) // 50_000_000, len(rows)
            last = min(anchor + 8, count)
            for name, gamma, first, steps, end, of in (("rest", 0.9, 0, 8, count, rows), ("ever", 1, -1, 4, count, rows),
                                                       ("chunk", 0.9, 0, 8, last, rows), ("done", 1, 0, 8, last, done)):
                want = returns(of, gamma, end)
                for step in range(steps):
                    row, mask = anchor + first + step, got[f"{name}.mask"][place, step]
                    assert mask == (1 if row < 0 else 2 if row >= count else 0), (name, place, step)
                    if mask == 0:
                        tolerance = 1e-13 if name == "rest" else 2e-6
                        assert abs(got[name][place, step] - want[row]) <= tolerance * max(1, np.abs(of).sum()), (name, row)
                    elif mask == 2 and pad == "zero":
                        assert got[name][place, step] == 0
            both = np.concatenate([two, rows[:, None]], 1)
            want = (0.5 ** np.arange(count - anchor)) @ both[anchor:]
            np.testing.assert_allclose(got["both"][place, 0], want, rtol=2e-6, atol=1e-6)
            assert (got["done"][place, 0] == 1) == (anchor + 8 >= count)  # done within the chunk
    client.close()


def test_statistics_of_returns(daemon, path):
    """Over rows those of the return at each row; of a chunk over windows, because each step has another return."""
    outputs = {"rest": OUTPUTS["rest"], "chunk": OUTPUTS["chunk"], "dones": "at: 0..3, return: {gamma: 1}",
               "scaled": "from: rewards, at: 0..3, return: {gamma: 0.9}, norm: mean_std, dtype: float64"}
    client = daemon(config(path, outputs)).client()
    _, got = collect(client)
    answers = {}
    for name in outputs:
        while (answer := client.ask("statistics", name))["state"] == "computing":
            pass
        answers[name] = answer
    with h5py.File(path) as file:
        rows = [file[f"data/{name}/rewards"][:] for name in ROWS]
        rest = np.concatenate([returns(of, 0.9, len(of)) for of in rows])
        dones = np.concatenate([returns(file[f"data/{name}/dones"][:].astype("f8"), 1, count) for name, count in ROWS.items()])
    chunk = got["chunk"][got["chunk.mask"] == 0].astype("f8")

    def figure(name, key):
        return answers[name][key][0]

    for name, want, source in (("rest", rest, "rows"), ("dones", dones, "rows"), ("chunk", chunk, "windows")):
        assert answers[name]["source"] == source
        assert figure(name, "mean") == pytest.approx(want.mean(), rel=1e-6, abs=1e-7)
        assert figure(name, "max") == pytest.approx(want.max(), rel=1e-6)
        assert figure(name, "std") == pytest.approx(want.std(), rel=1e-6, abs=1e-7)
    valid = got["scaled.mask"] == 0
    np.testing.assert_allclose(got["scaled"][valid], (got["rest"][:, :4][valid] - rest.mean()) / rest.std(), rtol=1e-5, atol=1e-6)
    client.close()


def test_explain_adds_rows(daemon, path):
    one = daemon(config(path, {"rest": OUTPUTS["rest"], "chunk": OUTPUTS["chunk"]}))
    client = one.client()
    client.open("train")
    found = client.ask("explain", window=1 + 5 + 30)  # row 30 of the episode with 40 rows
    rest, chunk = found["outputs"]
    assert rest["sources"][0]["kind"] == "return" and found["anchor"] == 30
    part = rest["items"][2]["sources"][0]
    assert part["added"] == 8 and [row[0] for row in part["rows"]] == [32, 39]
    assert part["rows"][1][2] == pytest.approx(0.9 ** 7)
    assert [row[0] for row in chunk["items"][2]["sources"][0]["rows"]] == [32, 37]
    assert "return" in one.run("--check").stdout
    client.close()


@pytest.mark.parametrize("what, why", [
    ("from: rewards, at: 0, role: obs, return: {gamma: 1}", "which an observation may not read"),
    ("from: rewards, at: 0, return: {}", "expected {gamma: 0.99"),
    ("from: rewards, at: 0, return: {gamma: 1.5}", "gamma"),
    ("from: rewards, at: 0, return: {gamma: 1, until: end}", "known: episode, chunk"),
    ("from: rewards, at: 0, kind: mean, return: {gamma: 1}", "remove kind"),
    ("from: rewards, at: 0, return: {gamma: 1, until: chunk}, norm: {by: mean_std, over: rows}", "use over: windows"),
    ("from: rewards, at: 0..3 @ 10, return: {gamma: 1}", "the steps have another rate"),
    ("from: dones, at: 0, return: {gamma: 1}, dtype: uint8", "cannot hold"),
])
def test_what_is_refused(path, tmp_path, what, why):
    result = Daemon(tmp_path, config(path, {"x": what})).run("--check")
    assert result.returncode and why in result.stderr, result.stderr
