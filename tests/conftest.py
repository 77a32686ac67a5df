"""Fixtures of all Python tests. pyproject.toml puts tests/support on the path."""
import pytest
from daemons import Daemon
from datasets import make_demo_file


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
