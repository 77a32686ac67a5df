"""The first page runs as it is copied: its commands print what it shows, its lines train, and its changes to other loops work."""
import re

import pytest

from datasets import make_demo_file
from page_blocks import blocks, is_as_shown
from paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.release]
README = (ROOT / "README.md").read_text()
FIRST_SCREEN = 40  # lines

ACT = """
import torch, trajd
tqdm, num_epochs, policy, seen = iter, 2, None, []

def forward_pass(data, policy):  # of ACT's imitate_episodes.py, but for .cuda()
    image_data, qpos_data, action_data, is_pad = data
    seen.append([tuple(each.shape) for each in (image_data, qpos_data, action_data, is_pad)])
    assert image_data.dtype == torch.float32 and 0 <= image_data.min() and image_data.max() <= 1
    return {"loss": (action_data - qpos_data[:, None]).abs()[~is_pad].mean()}

"""
LEROBOT = """
import trajd
class cfg: steps = 7
step = 0

def cycle(iterable):  # of LeRobot's lerobot/datasets/utils.py
    iterator = iter(iterable)
    while True:
        try:
            yield next(iterator)
        except StopIteration:
            iterator = iter(iterable)

"""


def test_the_first_screen_has_the_set_up():
    first = "\n".join(README.splitlines()[:FIRST_SCREEN])
    for command in "make demo", "make test", "make wheel", "pip install":
        assert f"$ {command}" in first


def test_the_page_runs_as_it_is_printed(shell):
    (shell.folder / "build/demo").mkdir(parents=True)
    make_demo_file(shell.folder / "build/demo/demo.hdf5", episodes=200)  # what `make demo` leaves
    assert shell.run("python $TRAJD/tests/tools/example_data.py lerobot build/demo/my_set")[0] == 0
    ran = []
    for block in blocks(README):
        for command, shown, status, printed in shell.run_block(*block):
            assert status == 0 and (not shown or is_as_shown(shown, printed)), f"{command}\n{printed}"
            ran.append(command.split()[0])
    assert ran == ["make", "make", "make", "python3", "pip", "cd", "trajctl", "trajctl", "import", "trajd.Live(\"square.yaml\",", "python"]


def changed(loop):
    """Returns the lines of a diff after the change, for a machine without a GPU."""
    lines = [line[1:] for line in loop.splitlines() if line[0] in " +"]
    return "\n".join(lines).replace('device="cuda"', 'device="cpu"')


def test_the_changes_to_other_loops(shell):
    act, lerobot = (text for kind, _, text in blocks(README) if kind == "diff")
    commands = (
        "python $TRAJD/tests/tools/example_data.py aloha aloha",
        "trajctl init --preset act aloha | sed 's/global_batch: .*/global_batch: 8/; s/image: {preset: act}/image: {}, layout: chw, norm: unit/' >act.yaml",
        "python $TRAJD/tests/tools/example_data.py lerobot my_set",
        "python -m trajd.convert lerobot my_set -o my_set.hdf5",
        "trajctl init --preset lerobot my_set.hdf5 -o my_set.yaml")
    for command in commands:
        status, printed = shell.run(command)
        assert status == 0, printed
    (shell.folder / "act.py").write_text(f"{ACT}{changed(act)}\nprint(seen)\n")
    (shell.folder / "lerobot.py").write_text(f"{LEROBOT}{changed(lerobot)}\nprint(step, batch['action'].shape, len(feed))\n")
    assert shell.run("python act.py") == (0, f"{[[(8, 2, 3, 60, 80), (8, 14), (8, 100, 14), (8, 100)]] * 4}\n")
    status, printed = shell.run("python lerobot.py")
    assert status == 0 and re.fullmatch(r"0 torch\.Size\(\[16, 100, 2\]\) \d+\n", printed), printed


def test_the_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)|src=\"([^\"]+)\"", README):
        assert (ROOT / (target[0] or target[1])).exists(), target
