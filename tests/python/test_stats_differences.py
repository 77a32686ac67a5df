"""Statistics of outputs that are differences of rows are those of the steps that the feed delivers: padding, NaN and infinite
numbers, several streams, columns that stay as recorded, chunks longer than a block of rows."""
import numpy as np
import pytest

import trajd
from datasets import write_robomimic

CONFIG = """
datasets: {{d: {{path: {path}, layout: robomimic}}}}
feeds:
  train:
    dataset: d
    global_batch: 64
    tail: short
    anchor: {{clock: actions}}
    pad: {{before: any, after: any, with: {pad}}}
    outputs:
      chunk: {{from: [actions, obs/aim], at: {at}, role: action, dtype: {dtype}, {chain}}}
"""
RELATIVE = "relative_to: {from: [obs/arm, obs/base], mask: [true, true, false, true, true]}"


def make_episodes(lengths, spoiled, dtype):
    random = np.random.default_rng(11)
    episodes = [{name: random.standard_normal((length, width)).astype(dtype)
                 for name, width in (("actions", 3), ("obs/aim", 2), ("obs/arm", 2), ("obs/base", 3))} for length in lengths]
    if spoiled:
        first, second = episodes[:2]
        first["actions"][5, 1] = np.nan
        first["obs/arm"][9, 0] = np.nan
        first["actions"][12, 0] = np.inf
        first["obs/arm"][11, 0] = np.inf  # row 12 minus state 11 is NaN
        second["actions"][7, 2] = -np.inf  # of a column that stays as recorded
        second["obs/base"][0] = -np.inf
    return episodes


def figures(values, axes):
    values = values.astype(np.float64)
    finite = np.where(np.isfinite(values), values, np.nan)
    return {"count": np.isfinite(values).sum(axes), "mean": np.nanmean(finite, axes), "std": np.nanstd(finite, axes),
            "min": np.nanmin(finite, axes), "max": np.nanmax(finite, axes), "q01": np.nanquantile(finite, 0.01, axes),
            "q50": np.nanquantile(finite, 0.5, axes), "q99": np.nanquantile(finite, 0.99, axes)}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lengths, at, spoiled, per, pad", [
    ((40, 23, 7), "-3..6", True, "output", "edge"),
    ((40, 23, 7), "-3..6", True, "step", "zero"),
    ((40, 23), "2..2", False, "output", "edge"),
    ((2300, 40), "0..1150", False, "output", "edge"),
])
def test_statistics_are_those_of_the_steps(daemon, tmp_path, lengths, at, spoiled, per, pad, dtype):
    write_robomimic(tmp_path / "d.hdf5", {f"demo_{i}": one for i, one in enumerate(make_episodes(lengths, spoiled, dtype))})
    chain = f"{RELATIVE}, norm: {{by: mean_std, per: step}}" if per == "step" else RELATIVE
    config = CONFIG.format(path=tmp_path / "d.hdf5", at=at, dtype=dtype, chain=chain, pad=pad)
    one = daemon(config)
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        stats = feed.stats()
        found = stats["chunk"]
        if per == "step":
            plain = daemon(config.replace(", norm: {by: mean_std, per: step}", ""), "plain")
            with trajd.connect(plain.endpoint, feed="train", timeout=60) as other:
                steps = [(batch["chunk"].copy(), batch.mask("chunk").copy()) for batch in other.epoch(0)]
        else:
            steps = [(batch["chunk"].copy(), batch.mask("chunk").copy()) for batch in feed.epoch(0)]
    values, mask = (np.concatenate(parts) for parts in zip(*steps))
    assert values.shape[0] == sum(lengths)
    if spoiled:
        assert (mask == 5).sum() > 10  # NaN
    values = np.where(mask[..., None] == 0, values, np.nan)
    wanted = figures(values, 0 if per == "step" else (0, 1))
    for name, want in wanted.items():
        if name in ("mean", "std"):
            np.testing.assert_allclose(found[name], want, rtol=1e-12, atol=1e-13, err_msg=name)
        else:
            np.testing.assert_allclose(found[name], want, rtol=1e-15, atol=0, err_msg=name)
