"""CHANGELOG.md has the form of keepachangelog, which .ci/changelog.py checks before a release."""
import re
import subprocess
import sys

import pytest
from paths import PROGRAM, ROOT, TRAJCTL

sys.path.insert(0, str(ROOT / ".ci"))
import changelog  # noqa: E402

GOOD = "# Changelog\n\n## Unreleased\n\n### Added\n\n- one\n  more\n\n### Fixed\n\n- two\n\n## 0.1.0 - 2026-11-22\n\n### Added\n\n- all\n"


VERSION = re.search(r"set\(TRAJD_VERSION ([^)]+)\)", (ROOT / "CMakeLists.txt").read_text())[1]
BEFORE = (ROOT / "tests/upgrade/released").read_text().split()[0]


def test_ours():
    _, kinds = changelog.check((ROOT / "CHANGELOG.md").read_text(), VERSION, BEFORE)
    assert kinds["Added"]


def test_programs_do_not_call_themselves_the_version_before():
    said = {subprocess.run([path, "--version"], capture_output=True, text=True).stdout.split()[1] for path in (PROGRAM, TRAJCTL)}
    assert said == {VERSION} and VERSION != BEFORE


def test_all_files_name_one_version():
    images = {match for path in ("Dockerfile", "kubernetes.yaml", "kubernetes_shards.yaml")
              for match in re.findall(r"registry\.example/trajd:(\S+)", (ROOT / "configs/clusters" / path).read_text())}
    assert images == {VERSION}
    cited = dict(re.findall(r"^(version|date-released): (.*)", (ROOT / "CITATION.cff").read_text(), re.M))
    if ".dev" not in VERSION:  # between releases the version to cite is the last one
        title, _ = changelog.check((ROOT / "CHANGELOG.md").read_text(), VERSION, BEFORE)
        assert title == f"{cited['version']} - {cited['date-released']}" and cited["version"] == VERSION


def test_entries_are_counted():
    assert changelog.check(GOOD, "0.2.0.dev0", "0.1.0") == ("Unreleased", {"Added": ["one"], "Fixed": ["two"]})


@pytest.mark.parametrize("old, new, message", [
    ("### Fixed", "### Mended", "line 10: \"### Mended\""),
    ("### Fixed", "### Added", "line 10"),
    ("### Added\n\n- one", "- one", "line 5: an entry stands under one of"),
    ("## Unreleased", "## 0.2.0", "the first section is \"0.2.0\""),
    ("## 0.1.0 - 2026-11-22", "## 0.0.9", "no section of version 0.1.0"),
    ("- one\n  more\n\n### Fixed\n\n- two\n", "", "nothing is reported of Unreleased")])
def test_what_is_refused(old, new, message):
    with pytest.raises(ValueError, match=message):
        changelog.check(GOOD.replace(old, new, 1), "0.2.0.dev0", "0.1.0")
