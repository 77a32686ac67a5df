"""make in a tree that was moved or copied with its build folder."""
import shutil
import subprocess

import pytest

from paths import ROOT

ADVICE = "This tree was moved or copied: build/ was made in {}. Please run: make clean"


@pytest.fixture
def tree(tmp_path):
    """A tree with .ci/setup alone. Its environment has no pip, so the script can install nothing."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/setup", tmp_path / ".ci/setup")
    (tmp_path / "build/release").mkdir(parents=True)
    (tmp_path / "build/venv/bin").mkdir(parents=True)
    return tmp_path


def setup(tree):
    """Runs the script without the programs that would install something."""
    return subprocess.run(["/bin/bash", tree / ".ci/setup"], env={"PATH": str(path_without_installers(tree))}, capture_output=True, text=True, timeout=60)


def path_without_installers(tree):
    programs = tree / "programs"
    programs.mkdir(exist_ok=True)
    for name in ("sed", "head", "dirname"):
        if not (programs / name).exists():
            (programs / name).symlink_to(shutil.which(name))
    return programs


def test_a_build_of_another_tree(tree):
    (tree / "build/release/CMakeCache.txt").write_text("CMAKE_HOME_DIRECTORY:INTERNAL=/elsewhere/trajd\n")
    done = setup(tree)
    assert done.returncode == 1 and done.stderr.strip() == ADVICE.format("/elsewhere/trajd")


@pytest.mark.parametrize("line", ["VIRTUAL_ENV={}/build/venv", 'VIRTUAL_ENV="{}/build/venv"', "    VIRTUAL_ENV='{}/build/venv'"])
def test_an_environment_of_another_tree(tree, line):
    """In the forms of several versions of Python."""
    (tree / "build/venv/bin/activate").write_text(line.format("/elsewhere/trajd") + "\n")
    done = setup(tree)
    assert done.returncode == 1 and done.stderr.strip() == ADVICE.format("/elsewhere/trajd")


def test_a_tree_at_its_place(tree):
    """The script goes on; here it fails where it would make the environment."""
    (tree / "build/release/CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={tree}\n")
    (tree / "build/venv/bin/activate").write_text(f"VIRTUAL_ENV={tree}/build/venv\n")
    assert "moved" not in setup(tree).stderr
    link = tree.parent / "link"
    link.symlink_to(tree)
    assert "moved" not in setup(link).stderr
