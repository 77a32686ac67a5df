"""Debian's prometheus scrapes trajctl metrics and evaluates the queries of the dashboard."""
import contextlib
import json
import pathlib
import re
import shutil
import socket
import socketserver
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request

import pytest

from daemons import smallest_config
from guide_sources import sources
from paths import ROOT, TRAJCTL, clean_environment
from waiting import wait_for

UNPACKED = ROOT / "build/prometheus/usr/bin/prometheus"  # .ci/setup test
PROMETHEUS = shutil.which("prometheus") or (str(UNPACKED) if UNPACKED.exists() else None)
MONITORING = ROOT / "configs/monitoring"
DASHBOARD = json.loads((MONITORING / "trajd-dashboard.json").read_text())
needs_prometheus = pytest.mark.skipif(not PROMETHEUS, reason="prometheus is neither installed nor in build/prometheus (.ci/setup test)")


def queries():
    return [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]]


@contextlib.contextmanager
def scraped(endpoint):
    """Answers requests as trajd-metrics.socket does: a trajctl for each connection. Yields the address."""
    class Answer(socketserver.BaseRequestHandler):
        def handle(self):
            subprocess.run([TRAJCTL, "metrics", "--http", "--endpoint", endpoint], stdin=self.request, stdout=self.request,
                           env=clean_environment(), timeout=30)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield "127.0.0.1:%d" % server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


class Prometheus:
    def __init__(self, folder, target):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = "127.0.0.1:%d" % probe.getsockname()[1]
        config = (MONITORING / "prometheus.yml").read_text()
        assert "127.0.0.1:7879" in config and "scrape_interval: 10s" in config
        (folder / "prometheus.yml").write_text(config.replace("127.0.0.1:7879", target).replace("10s", "500ms"))
        with open(folder / "log", "w") as log:
            self.process = subprocess.Popen([PROMETHEUS, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                                             f"--web.listen-address={self.address}"], stderr=log, stdout=log, env=clean_environment())
        self.log = folder / "log"

    def ask(self, expr):
        """Returns [(labels, value)]. Fails where the query has an error."""
        expr = expr.replace("$__rate_interval", "5s").replace("$feed", ".*").replace("$instance", ".*")
        assert "$" not in expr, expr
        address = f"http://{self.address}/api/v1/query?" + urllib.parse.urlencode({"query": expr})
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                document = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it is starting
                return []
            raise AssertionError(f"{expr}: {error.read().decode()}") from None
        except OSError:  # it is starting
            assert self.process.poll() is None, self.log.read_text()
            return []
        assert document["status"] == "success"
        return [(item["metric"], float(item["value"][1])) for item in document["data"]["result"]]

    def value(self, expr):
        found = self.ask(expr)
        return found[0][1] if found else float("nan")


@pytest.fixture
def prometheus(daemon, demo_file, tmp_path):
    """A prometheus that scrapes a daemon, and a worker of it."""
    one = daemon(smallest_config(demo_file, batch=16))
    with scraped(one.endpoint) as target:
        server = Prometheus(tmp_path, target)
        try:
            wait_for(lambda: server.value("up") == 1, 30, "the first scrape")
            yield server, one
        finally:
            server.process.terminate()
            server.process.wait(30)


def read_until(client, condition, what):
    """Reads epoch after epoch until the condition holds, which is looked at after each epoch."""
    epochs = iter(range(1 << 30))

    def read_epoch():
        client.open("train", epoch=next(epochs), credit=2)
        while (batch := client.next()) is not None:
            batch.release()
        return condition()

    wait_for(read_epoch, 60, what)


@pytest.mark.slow
@needs_prometheus
def test_each_query_has_an_answer(prometheus):
    server, one = prometheus
    client = one.client(name="trainer")
    missing = dict.fromkeys(queries())

    def all_answered():
        for panel, expr in list(missing):
            if server.ask(expr):
                del missing[panel, expr]
        return not missing

    try:
        read_until(client, all_answered, "an answer of each query")
    except AssertionError:
        raise AssertionError(f"no data for {sorted(missing)}") from None
    (_, waits), (_, windows) = server.ask(dict(queries())["Training waits for data"])[0], server.ask(dict(queries())["Windows per second"])[0]
    assert 0 <= waits <= 1.2 and windows > 100


@pytest.mark.slow
@needs_prometheus
def test_a_training_that_holds_up_its_data(prometheus):
    """A worker that holds its batches: the data waits for it, and it does not wait for the data."""
    server, one = prometheus
    client = one.client(name="trainer")
    client.open("train", credit=2)
    held = client.next()
    ahead, waits = (dict(queries())[title] for title in ("Data waits for training", "Training waits for data"))
    whom = dict(queries()[::-1])["Workers that production waits for"]
    wait_for(lambda: server.value(ahead) > 0.9 and server.value(waits) < 0.02, 60, "the data to be ahead")
    wait_for(lambda: [labels["worker"] for labels, share in server.ask(whom) if share > 0.9] == ["trainer"], 60, "its name")
    held.release()


def test_the_dashboard_is_whole():
    """Each metric of the queries is documented, panels have different numbers, and each has a description."""
    told = {name for name, _, _, _ in sources.metric_families()}
    for panel, expr in queries():
        for name in re.findall(r"\btrajd_\w+", expr):
            assert re.sub("_(total|bucket)$", "", name) in told, f"{panel}: {name}"
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers) > 10 and all(panel["description"] for panel in DASHBOARD["panels"])
    places = [(p["x"], p["y"]) for p in (panel["gridPos"] for panel in DASHBOARD["panels"])]
    assert len(set(places)) == len(places)
    assert {item["name"] for item in DASHBOARD["templating"]["list"]} == {"datasource", "instance", "feed"}


@needs_prometheus
def test_the_scrape_job_is_right():
    promtool = pathlib.Path(PROMETHEUS).with_name("promtool")
    done = subprocess.run([promtool, "check", "config", MONITORING / "prometheus.yml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
