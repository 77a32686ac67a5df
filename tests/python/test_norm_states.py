"""A state, and a job that is open, belong to the normalisation that they were made with."""
import json

import pytest

import trajd

FEED = """
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
  train:
    dataset: demo
    global_batch: 32
    tail: short
    anchor: {{clock: actions}}
    {keys}
    outputs:
      obs/robot0_eef_pos: {{at: -1..0}}
      actions: {{at: 0..15{norm}}}
"""


class Runs:
    """Starts one daemon after the other in one folder, with another `norm:` each time."""

    def __init__(self, daemon, path):
        self.daemon, self.path, self.one, self.count = daemon, path, None, 0

    def feed(self, norm, keys="", **options):
        if self.one:
            self.one.stop()
        self.count += 1
        norm = f", norm: {norm}" if norm else ""
        self.one = self.daemon(FEED.format(path=self.path, norm=norm, keys=keys), folder=f"run{self.count}")
        return trajd.connect(self.one.endpoint, feed="train", timeout=60, **options)

    def state(self, norm, keys=""):
        with self.feed(norm, keys) as feed:
            batches = feed.epoch(1)
            next(batches), next(batches)
            return json.loads(json.dumps(feed.state_dict()))

    def resume(self, norm, state, strict=True, keys=""):
        """Returns the position of the first batch."""
        with self.feed(norm, keys) as feed:
            feed.load_state_dict(state, strict=strict)
            return next(feed.epoch(1)).position


@pytest.fixture
def runs(daemon, demo_file):
    return Runs(daemon, demo_file)


def test_states_say_how_values_were_scaled(runs):
    state = runs.state("{by: mean_std, min_std: 0.01}")
    assert state["norm"]["outputs"] == {"actions": "mean_std over rows of feed train with min_std 0.01"}
    assert runs.resume("{by: mean_std, min_std: 0.01}", state) == 64
    plain = runs.state("")
    assert plain["norm"] == {"digest": f"{1:016x}", "outputs": {}} and runs.resume("", plain) == 64


@pytest.mark.parametrize("saved, found, message", [
    ("{by: mean_std, over: windows}", "mean_std", "output actions: norm was mean_std over windows of feed train, is mean_std over rows of feed train"),
    ("mean_std", "{by: mean_std, min_std: 1}", "norm was mean_std over rows of feed train, is mean_std over rows of feed train with min_std 1"),
    ("mean_std", "", "output actions: norm was mean_std over rows of feed train, is not given"),
    ("", "min_max", "output actions: norm was not given, is min_max over rows of feed train"),
    ("{scale: [1, 1, 1, 1, 1, 1, 2]}", "{scale: [1, 1, 1, 1, 1, 1, 3]}", "the same rules, but other numbers")],
    ids=["over", "min_std", "removed", "added", "numbers"])
def test_other_statistics_are_refused(runs, saved, found, message):
    state = runs.state(saved)
    with pytest.raises(trajd.StateError, match=message.replace("[", r"\[")) as caught:
        runs.resume(found, state)
    assert "strict=False" in str(caught.value) and state["norm"]["digest"] in str(caught.value)
    assert runs.resume(found, state, strict=False) == 64
    with runs.feed(found) as feed:
        assert feed.info.norm_digest != int(state["norm"]["digest"], 16)
        with pytest.raises(trajd.StateError, match=message.replace("[", r"\[")):  # now the feed is open already
            feed.load_state_dict(state)


def test_states_of_version_0_1_0_are_over_windows(runs):
    state = runs.state("{by: mean_std, over: windows}")
    del state["norm"]
    assert runs.resume("{by: mean_std, over: windows}", state) == 64
    assert runs.resume("{scale: [1, 1, 1, 1, 1, 1, 2]}", state) == 64  # 0.1.0 would do the same
    for norm, words in (("mean_std", "actions by mean_std over rows of feed train"),
                        ("{by: mean_std, over: windows, min_std: 1}", "actions by mean_std over windows of feed train with min_std 1")):
        with pytest.raises(trajd.StateError, match=f"the state is of trajd 0.1.0, whose statistics are over windows, but feed train normalises {words}: "
                                                   "write `norm: {by: RULE, over: windows}`, without min_std"):
            runs.resume(norm, state)
        assert runs.resume(norm, state, strict=False) == 64


def test_damaged_states(runs):
    state = runs.state("")
    with runs.feed("") as feed:
        for bad in (None, "x", {"digest": "xyz", "outputs": {}}, {"digest": "1f"}):
            with pytest.raises(trajd.StateError, match="norm"):
                feed.load_state_dict({**state, "norm": bad})


def test_a_daemon_that_returns_with_other_statistics(runs):
    """The daemon is killed and started again with another configuration while a job reads: the job ends."""
    for change, message in ((("norm: mean_std", "norm: {by: mean_std, over: windows}"), "norm: the job was opened with values scaled as"),
                            ((", norm: mean_std", ""), "norm: the job was opened with values scaled as")):
        with runs.feed("mean_std", reconnect=True) as feed:
            batches = feed.epoch(0)
            next(batches)
            one = runs.one
            one.kill()
            one.config.write_text(one.config.read_text().replace(*change))
            one.start()
            with pytest.raises(trajd.Error, match=message):
                for _ in batches:
                    pass
    with runs.feed("mean_std", reconnect=True) as feed:  # the same statistics: it goes on
        batches = feed.epoch(0)
        next(batches)
        runs.one.kill()
        runs.one.start()
        assert sum(1 for _ in batches) >= len(feed) - 1
