"""Fixtures of all Python tests. pyproject.toml puts tests/support on the path."""
import re

import pytest
from daemons import Daemon
from datasets import make_demo_file
from paths import BUILD
from stacks import stacks_of_children


def pytest_collection_modifyitems(items):
    """Skips tests with the mark `release` on a build with sanitizers."""
    cache = BUILD / "CMakeCache.txt"
    if cache.exists() and re.search(r"^TRAJD_SANITIZE:STRING=.", cache.read_text(), re.M):
        for item in items:
            if item.get_closest_marker("release"):
                item.add_marker(pytest.mark.skip(reason="is about a build without sanitizers"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Adds the stacks of daemons and workers to the report of a test that waited in vain."""
    report = yield
    if report.failed and re.search(r"Timeout|waited \d", call.excinfo.exconly()):
        report.sections.append(("processes that the test has started", stacks_of_children()))
    return report


@pytest.fixture
def started():
    """started(daemon) starts the daemon. After the test all daemons are stopped, and their exit status must be 0."""
    daemons = []

    def start(daemon):
        daemons.append(daemon)
        return daemon.start()

    yield start
    for one in daemons:
        if one.process and one.process.returncode is None:
            one.stop()


@pytest.fixture
def daemon(tmp_path, started):
    """daemon(config) starts a daemon. With several daemons in one test, each has a `folder` of its own."""
    return lambda config, folder=".", **options: started(Daemon(tmp_path / folder, config, **options))


@pytest.fixture(scope="session")
def demo_file(tmp_path_factory):
    """The demonstration dataset with 24 episodes."""
    return make_demo_file(tmp_path_factory.mktemp("demo") / "demo.hdf5")
