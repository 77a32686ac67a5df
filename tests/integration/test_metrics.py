"""trajctl metrics: the text is OpenMetrics, its names are those that are documented, and its numbers are right."""
import json
import os
import re
import socket
import subprocess
import sys

import pytest

from daemons import smallest_config
from guide_sources import sources
from paths import PACKAGE, ROOT, TRAJCTL, clean_environment, package_environment
from image_files import random_frames, write_encoded
from waiting import wait_for

IMAGES = """
datasets: {{arm: {{path: {path}, layout: aloha, color: rgb}}}}
feeds:
  train:
    dataset: arm
    global_batch: 4
    bad_rows: keep
    anchor: {{clock: steps}}
    outputs: {{top: {{from: observations/images/top, at: 0, image: {{resize: [20, 30], filter: nearest}}}}}}
"""
TYPES = {"counter": ("_total",), "gauge": ("",), "info": ("_info",), "histogram": ("_bucket", "_sum", "_count")}


def run(*arguments, **options):
    return subprocess.run([TRAJCTL, "metrics", *arguments], capture_output=True, env=clean_environment(), timeout=60, **options)


def parse(text):
    """Returns {sample name: {labels: value}}. Fails where the text breaks a rule of OpenMetrics."""
    assert text.endswith("# EOF\n")
    samples, family, kind, seen = {}, None, None, set()
    for line in text.splitlines()[:-1]:
        if line.startswith("# "):
            word, name, rest = re.fullmatch(r"# (TYPE|UNIT|HELP) (\w+) (.+)", line).groups()
            if word == "TYPE":
                assert name not in seen, f"{name} comes twice"
                family, kind = name, rest
                seen.add(name)
            assert name == family and (word != "UNIT" or name.endswith("_" + rest))
            continue
        name, labels, value = re.fullmatch(r'(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)', line).groups()
        assert name in {family + suffix for suffix in TYPES[kind]}, line
        assert (labels or "") not in samples.setdefault(name, {}), f"{line} comes twice"
        samples[name][labels or ""] = float(value)
    return samples


def of(samples, name, *labels):
    """Returns the sum of the samples that have all these labels."""
    found = [value for key, value in samples[name].items() if all(label in key for label in labels)]
    assert found, f"{name} {labels}"
    return sum(found)


@pytest.fixture
def served(daemon, demo_file):
    """A daemon, a worker that has read three batches, and the samples."""
    one = daemon(smallest_config(demo_file, batch=16))
    worker = one.client(name="trainer")
    worker.open("train", credit=2)
    for _ in range(3):
        worker.next().release()
    wait_for(lambda: worker.status()["producers"][0]["batches"] >= 6, what="batches ahead")
    yield one, worker, parse(run("--endpoint", one.endpoint, text=True).stdout)
    worker.close()  # else the daemon waits for it when it ends, five seconds


def test_numbers(served):
    one, worker, samples = served
    assert of(samples, "trajd_feed_batches_made_total", 'feed="train"') >= 6
    assert of(samples, "trajd_worker_batches_done_total", 'worker="trainer"', 'feed="train"', f'pid="{os.getpid()}"') in (2, 3)
    assert of(samples, "trajd_dataset_episodes", 'state="kept"') == 24 and of(samples, "trajd_dataset_episodes", 'state="quarantined"') == 0
    assert of(samples, "trajd_memory_bytes", 'purpose="ring"') > 0 and of(samples, "trajd_memory_bytes", 'purpose="rows"') > 0
    assert of(samples, "trajd_memory_bytes", 'purpose="process"') > 1 << 20
    assert of(samples, "trajd_memory_limit_bytes", 'purpose="rings"') == 64 << 20
    count = of(samples, "trajd_ready_to_sent_seconds_count")
    assert count >= 3 and of(samples, "trajd_ready_to_sent_seconds_bucket", 'le="+Inf"') == count
    buckets = [value for key, value in samples["trajd_ready_to_sent_seconds_bucket"].items()]
    assert buckets == sorted(buckets)
    # the first batch had to be made before the worker had one
    assert 0 < of(samples, "trajd_worker_wait_seconds_total") < 30
    assert of(samples, "trajd_worker_wait_seconds_total") == pytest.approx(of(samples, "trajd_feed_wait_seconds_total"), abs=1e-5)
    assert 'worker="trajctl"' not in str(samples)


def test_waiting_workers_and_waiting_data(served):
    """While no worker asks, only the data waits. The worker that goes keeps its sums in the feed's."""
    one, worker, before = served
    nobody = "trajd_feed_nobody_asks_seconds_total"
    wait_for(lambda: of(parse(run("--endpoint", one.endpoint, text=True).stdout), nobody) > of(before, nobody) + 0.3, what="time without a worker")
    after = parse(run("--endpoint", one.endpoint, text=True).stdout)
    assert of(after, "trajd_worker_nobody_asks_seconds_total", 'worker="trainer"') > 0.3
    worker.close()
    wait_for(lambda: not of(parse(run("--endpoint", one.endpoint, text=True).stdout), "trajd_job_workers", 'feed="train"'), what="the end of the session")
    gone = parse(run("--endpoint", one.endpoint, text=True).stdout)
    assert "trajd_worker_wait_seconds_total" not in gone
    assert of(gone, "trajd_feed_wait_seconds_total") >= of(before, "trajd_feed_wait_seconds_total")


def test_images(daemon, tmp_path):
    """A feed whose images are decoded: its workers wait for that."""
    write_encoded(tmp_path / "episode_0.hdf5", {"top": random_frames(40, 240, 320, 1)}, bad=[("top", 5)])
    one = daemon(IMAGES.format(path=tmp_path))
    worker = one.client(name="trainer")
    worker.open("train", credit=2)
    for _ in range(8):
        worker.next().release()
    samples = parse(run("--endpoint", one.endpoint, text=True).stdout)
    assert of(samples, "trajd_dataset_frames_decoded_total") >= 16 and of(samples, "trajd_memory_bytes", 'purpose="frames"') > 0
    assert of(samples, "trajd_feed_work_seconds_total", 'work="decode"') > 0
    waits = {cause: of(samples, "trajd_worker_wait_seconds_total", f'cause="{cause}"') for cause in ("rows", "decode", "kernels")}
    assert waits["decode"] == max(waits.values()) > 0, waits


def test_a_worker_that_waits_for_the_slots_of_another(daemon, demo_file):
    one = daemon(smallest_config(demo_file, batch=16).replace("global_batch:", "slots: 4, global_batch:"))
    greedy, late = one.client(name="greedy"), one.client(name="late")
    greedy.open("train", credit=4)
    held = [greedy.next() for _ in range(4)]  # all slots
    late.open("train", credit=2)

    def waited():
        return of(parse(run("--endpoint", one.endpoint, text=True).stdout), "trajd_worker_wait_seconds_total", 'worker="late"', 'cause="slots"')

    wait_for(lambda: waited() > 0.2, what="a wait for slots")
    told = subprocess.run([TRAJCTL, "status", "--endpoint", one.endpoint], capture_output=True, text=True, env=clean_environment()).stdout
    assert re.search(r"^late .* waited [\d.]+ s for data, most for slots$", told, re.M), told
    assert ": 2 workers, " in told, "trajctl itself is none"
    assert not re.search(r"^greedy .*most for slots", told, re.M), told
    for batch in held:
        batch.release()


def test_names_are_documented(served):
    told = {name for name, _, _, _ in sources.metric_families()}
    page = set(re.findall(r"^\.It Ic (trajd\w*)", (ROOT / "clients/cli/trajctl.1").read_text(), re.M))
    source = (ROOT / "clients/cli/metrics/metrics.c").read_text()
    written = set(re.findall(r'"(trajd_\w+)"', source)) | {"trajd"}
    assert told == page == written
    shown = {re.sub("_(total|info|bucket|sum|count)$", "", name) for name in served[2]}
    assert shown <= written and len(shown) > 25


@pytest.mark.parametrize("host, is_allowed", [
    ("127.0.0.1:7879", True), ("127.0.0.1", True), ("10.3.2.1:80", True), ("[::1]:7879", True), ("[fe80::1]", True), ("localhost:7879", True),
    ("LocalHost", True), ("trajd.localhost", True), (socket.gethostname() + ":7879", True), ("gpu3.example.org:7879", True), ("GPU4", True),
    ("attacker.example", False), ("attacker.example:7879", False), ("127.0.0.1.attacker.example", False), ("localhost.attacker.example", False),
    ("example.org", False), ("gpu3.example.org.attacker.example", False), ("[::1", True), ("", False), ("x[::1]", False), (".localhost", False)])
def test_a_host_that_is_not_this_machine(served, host, is_allowed):
    """A page of another site, whose name leads to 127.0.0.1, must not read the metrics."""
    for field in ("Host: ", "host:\t", "Accept: a\r\nHOST:"):
        request = f"GET /metrics HTTP/1.1\r\n{field}{host}\r\n\r\n".encode()
        done = run("--http", "--endpoint", served[0].endpoint, "--allow-host", "gpu3.example.org,gpu4", input=request)
        assert done.stdout.startswith(b"HTTP/1.1 200 OK" if is_allowed else b"HTTP/1.1 421 Misdirected Request"), done.stdout[:80]
        assert is_allowed == (b"trajd_connections" in done.stdout)


def test_two_hosts(served):
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: attacker.example\r\n\r\n"
    assert run("--http", "--endpoint", served[0].endpoint, input=request).stdout.startswith(b"HTTP/1.1 421 ")


@pytest.mark.parametrize("request_, status", [
    (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", b"200 OK"), (b"GET / HTTP/1.0\r\n\r\n", b"200 OK"), (b"GET /metrics?a=b HTTP/1.1\n\n", b"200 OK"),
    (b"GET /metricsx HTTP/1.1\r\n\r\n", b"404 Not Found"), (b"GET /etc/passwd HTTP/1.1\r\n\r\n", b"404 Not Found"), (b"\r\n\r\n", b"405 "),
    (b"POST /metrics HTTP/1.1\r\n\r\n", b"405 "), (b"GET / HTTP/1.1\r\n" + b"a" * 9000, b"431 "), (b"\0" * 100 + b"\r\n\r\n", b"405 "),
    (b"", None), (b"GET /metr", None)])
def test_requests(served, request_, status):
    done = run("--http", "--endpoint", served[0].endpoint, input=request_)
    if status is None:
        assert done.stdout == b"" and done.returncode == 0
        return
    head, body = done.stdout.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 " + status) and f"Content-Length: {len(body)}".encode() in head
    if status == b"200 OK":
        assert b"application/openmetrics-text; version=1.0.0; charset=utf-8" in head and parse(body.decode())


def test_a_daemon_that_is_dead(tmp_path):
    done = run("--http", "--endpoint", tmp_path, input=b"GET / HTTP/1.1\r\n\r\n")
    assert done.returncode == 1 and done.stdout.startswith(b"HTTP/1.1 503 ") and b"no daemon answers" in done.stderr
    done = run("--endpoint", tmp_path)
    assert done.returncode == 1 and done.stdout == b""
    assert run("--json").returncode == 2


PROGRAM = """
import json, sys, trajd
with trajd.connect(sys.argv[1], feed="train", framework="numpy") as feed:
    for batch in feed.epoch(0):
        pass
    print(json.dumps([feed.metrics(), len(feed)]))
"""


def test_python(daemon, demo_file):
    if not list((PACKAGE / "trajd").glob("_core*")):
        pytest.skip("built without Python's headers")
    one = daemon(smallest_config(demo_file, batch=16))
    done = subprocess.run([sys.executable, "-c", PROGRAM, one.endpoint], capture_output=True, text=True, timeout=60,
                          env=clean_environment(**package_environment()))
    assert done.returncode == 0, done.stderr
    numbers, length = json.loads(done.stdout)
    assert all(name.startswith("trajd/") and isinstance(number, float) for name, number in numbers.items())
    assert numbers["trajd/batches"] == length and numbers["trajd/windows_made"] >= length * 16
    assert numbers["trajd/dataloading_seconds"] > 0 and sum(v for k, v in numbers.items() if "wait_seconds/" in k) > 0
    assert {f"trajd/wait_seconds/{cause}" for cause in ("rows", "decode", "kernels", "slots", "other")} <= numbers.keys()
    assert numbers["trajd/row_cache_bytes"] > 0 and numbers["trajd/episodes_quarantined"] == 0
