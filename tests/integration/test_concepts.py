"""Concepts and commands: what the pages run prints what they show, and a figure has the numbers of these runs."""
import json
import re

import pytest

from guide_pages import blocks, is_as_shown
from paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.release]
GUIDE = ROOT / "clients/docs"


@pytest.mark.parametrize("page", ("concepts/windows", "concepts/time", "concepts/order", "how-to/robot", "reference/commands"))
def test_a_page_prints_what_it_shows(page, shell):
    ran = 0
    for block in blocks((GUIDE / f"{page}.md").read_text()):
        for command, shown, status, printed in shell.run_block(*block):
            assert status == 0, f"{command}\n{printed}"
            assert not shown or is_as_shown(shown, printed), f"{command}\n{printed}"
            ran += 1
    assert ran >= 3


def test_the_figure_of_the_order_is_that_of_the_page():
    shown = re.findall(r"^[01] (\[\[.*\]\])$", (GUIDE / "concepts/order.md").read_text(), re.M)
    drawn = [[window for batch in json.loads(epoch) for window in batch] for epoch in shown]
    source = (GUIDE / "figures/concepts.py").read_text()
    assert [json.loads(numbers) for numbers in re.findall(r"(\[[\d, ]+\])[,)]", re.search(r"EPOCHS = \((.*?\))\n", source, re.S)[1])] == drawn
