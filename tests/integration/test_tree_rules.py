"""The rules of the tree that .ci/check-tree reads from .ci/floors."""
import sys

import pytest

from paths import ROOT

sys.path.insert(0, str(ROOT / ".ci"))
import arrows  # noqa: E402


@pytest.mark.parametrize("line", ["one-room", "no-call-circles", "never", "only -> proto", "only daemon/feed", "never a b ->", "-> proto", "proto ->",
                                  "foreign zmq.h"])
def test_a_line_without_a_room_is_a_fault(line):
    assert arrows.read_floors(f"# floors\n{line}  # why\n").faults == [f"line 2 of .ci/floors lacks a room: {line}"]


def test_the_floors_of_the_tree_have_no_fault():
    floors = arrows.read_floors((ROOT / ".ci/floors").read_text())
    assert floors.faults == [] and "proto" in floors.declared
