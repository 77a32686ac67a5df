"""The guide: tutorials and the notebook run as they are printed, the site is built without a warning, and messages that it
explains exist."""
import json
import os
import re
import subprocess
import time

import pytest

from page_blocks import blocks, is_as_shown
from paths import BUILD, ROOT, TRAJCTL
from pythons import find_python

pytestmark = pytest.mark.release
GUIDE = ROOT / "clients/docs"
MKDOCS = ROOT / "build/venv-docs/bin/mkdocs"


@pytest.mark.slow
@pytest.mark.parametrize("page, commands", [("tutorials/act", 15), ("tutorials/diffusion-policy", 7), ("tutorials/lerobot", 5),
                                            ("tutorials/ros2", 10), ("how-to/layout", 4)])
def test_a_page_prints_what_it_shows(shell, page, commands):
    ran = []
    for block in blocks((GUIDE / f"{page}.md").read_text()):
        for command, shown, status, printed in shell.run_block(*block):
            is_killed = "--kill-after" in command
            assert status == (-9 if is_killed else 0) and (not shown or is_as_shown(shown, printed)), f"{command}\n{printed}"
            ran.append((command, printed))
    assert len(ran) == commands
    if page == "tutorials/act":  # the page says that a run that was killed has the same losses
        whole, killed, resumed = (printed for command, printed in ran if command.startswith("python train.py"))
        assert killed + resumed == whole and killed.count("\n") == 3


@pytest.mark.slow
def test_the_notebook_prints_what_it_shows(shell):
    python = find_python("matplotlib, PIL, h5py")
    if not python:
        pytest.skip("no Python of this machine has matplotlib")
    assert shell.run("python $TRAJD/tests/tools/example_data.py robomimic lift.hdf5")[0] == 0
    cells = [cell for cell in json.loads((GUIDE / "tutorials/notebook.ipynb").read_text())["cells"] if cell["cell_type"] == "code"]
    mark = "#### the next cell ####"
    source = f"import matplotlib\nmatplotlib.use('svg')\n" + f"\nprint({mark!r})\n".join("".join(cell["source"]) for cell in cells)
    (shell.folder / "notebook.py").write_text(source)
    status, printed = shell.run(f"{python} notebook.py")
    assert status == 0
    for cell, text in zip(cells, printed.split(f"{mark}\n"), strict=True):
        shown = "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")
        assert is_as_shown(shown, text), text


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The guide as a site."""
    if not MKDOCS.exists():
        pytest.skip("build/venv-docs is missing: .ci/setup docs makes it")
    folder = tmp_path_factory.mktemp("site")
    begin = time.monotonic()
    done = subprocess.run([MKDOCS, "build", "--strict", "-f", GUIDE / "mkdocs.yml", "-d", folder], capture_output=True, text=True, timeout=300,
                          env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "TRAJD_BUILD": str(BUILD)})
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin < 30
    return folder


def test_the_site_is_built_without_a_warning(site):
    assert (site / "index.html").exists() and (site / "tutorials/act/index.html").exists()


def test_the_site_needs_no_network(site):
    for page in site.rglob("*.html"):
        for name in re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"?(?:https?:)?//[^\"> ]+", page.read_text()):
            assert "canonical" in name, f"{page}: {name}"


def test_the_search_finds(site):
    """Every page of the answer is in the index of the search, with the words that people type."""
    entries = json.loads((site / "search/search_index.json").read_text())["docs"]
    for words, place in (("rank dies", "how-to/several-nodes"), ("gap", "reference/masks"), ("norm", "how-to/statistics")):
        found = [entry["location"] for entry in entries if words in f"{entry['title']} {entry['text']}".lower()]
        assert any(location.startswith(place) for location in found), found


def test_messages_that_are_explained_exist():
    text = (GUIDE / "how-to/troubleshooting.md").read_text()
    messages = re.findall(r"^### `(.*)`$", text, re.M)
    paths = subprocess.run(["git", "ls-files", "-z", "daemon", "clients", "kernels"], cwd=ROOT, capture_output=True, text=True, check=True)
    # joins the strings of a message that is written in several pieces, and takes out what is put into it
    tree = "\n".join(re.sub(r"\"\s*f?\"", "", (ROOT / path).read_text()) for path in paths.stdout.split("\0") if path.endswith((".py", ".c", ".h")))
    for message in messages:
        for part in re.split(r" ?\.\.\. ?", message):
            assert part in tree, part
    assert len(messages) > 20


def yaml_blocks():
    """Yields the outputs that pages of how-to show for the recordings of tests/tools/example_data.py."""
    for path in sorted((GUIDE / "how-to").glob("*.md")):
        for kind, title, text in blocks(path.read_text()):
            if kind == "yaml" and text.startswith("      ") and re.search("observations/|agentview", text):
                yield pytest.param(text, id=f"{path.stem}-{text.split(':')[0].strip()}")


@pytest.mark.slow
@pytest.mark.parametrize("outputs", list(yaml_blocks()))
def test_outputs_of_the_pages_are_accepted(shell, outputs):
    form, file = ("robomimic", "lift.hdf5") if "agentview" in outputs else ("aloha", "aloha")
    assert shell.run(f"python $TRAJD/tests/tools/example_data.py {form} {file}")[0] == 0
    head = f"""version: 2
datasets: {{data: {{path: {file}, layout: {form}}}}}
feeds:
  train:
    dataset: data
    global_batch: 4
    anchor: {{clock: {"actions" if form == "robomimic" else "steps"}}}
    outputs:
"""
    (shell.folder / "page.yaml").write_text(head + outputs)
    done = subprocess.run([TRAJCTL, "check", "page.yaml"], cwd=shell.folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
