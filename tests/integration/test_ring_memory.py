"""memory.rings: `trajctl check`, `trajd --check`, a service and a private daemon of trajd.open accept the same feeds."""
import ast
import contextlib
import re
import subprocess

import pytest

from daemons import Daemon, Short
from paths import ROOT, TRAJCTL

MIB = 1 << 20
FEEDS = "datasets:\n  demo: {{path: {path}, layout: demo}}\nfeeds:\n"
FEED = """\
  {name}:
    dataset: demo
    global_batch: 32
    slots: {slots}
    anchor: {{clock: actions}}
    pad: {{after: any}}
    outputs: {{actions: {{at: 0..199}}}}
"""
LAUNCH = (ROOT / "clients/python/trajd/launch.py").read_text()
PRESETS = ast.literal_eval(re.search(r"^PRESETS = (\{.*\})$", LAUNCH, re.M)[1])  # of trajd.open, without its C module
PRIVATE = " ".join(f"--preset {key}={value}" for key, value in PRESETS.items())
REFUSED = r"feed {}: its ring of {} slots needs (\d+) bytes, and other feeds use (\d+), but memory.rings allows (\d+): set memory.rings to (\d+)MiB or more"


def of(path, **slots):
    """Returns datasets and feeds: {name: slots}."""
    return FEEDS.format(path=path) + "".join(FEED.format(name=name, slots=count) for name, count in slots.items())


def check(one):
    done = subprocess.run([TRAJCTL, "check", one.config], capture_output=True, text=True, env=one.environment(), timeout=60)
    assert done.returncode in (0, 1), done
    return done


def starts(one, options=""):
    """Starts the daemon with further options and stops it. Returns whether it was ready, and its log."""
    one.prefix = ("sh", "-c", f'exec "$@" {options}', "sh")
    one.log.unlink(missing_ok=True)
    with contextlib.suppress(AssertionError):
        one.start().stop()
    return one.process.returncode == 0, one.text()


def test_two_feeds_that_exceed_the_key_together(tmp_path, demo_file):
    """check crashed: it looked for an unread feed to close, in a program that serves none."""
    one = Daemon(tmp_path, of(demo_file, train=3, valid=4), rings="1MiB")
    found = re.search(REFUSED.format("valid", 4), check(one).stderr)
    needs, used, allowed, advised = map(int, found.groups())
    assert allowed == MIB and used < MIB < needs + used <= advised * MIB <= needs + used + 2 * MIB
    assert found[0] in starts(one)[1] and found[0] in starts(one, PRIVATE)[1]
    one.config.write_text(one.config.read_text().replace("rings: 1MiB", f"rings: {advised}MiB"))
    assert check(one).returncode == 0 and starts(one)[0] and starts(one, PRIVATE)[0]


def test_more_slots_than_the_least_keep_no_feed_out(tmp_path, demo_file):
    """A feed that states no slots has 16, or fewer where memory.rings is small, or 4 where another feed would be kept out."""
    plain = of(demo_file, train=0).replace("    slots: 0\n", "")
    wanted = {"64MiB": (16, 12, "the most: batches are small"), "2MiB": (5, 4, "as the memory for rings allows")}
    for rings, (count, credit, why) in wanted.items():
        checked = check(Daemon(tmp_path, plain, rings=rings))
        assert f"  {count} slots of {SLOT} bytes ({why}); a worker may hold {credit}\n" in checked.stdout
        assert re.search(r"^\d+ cores?: \d+ threads? to resample ", checked.stdout, re.M)
    large = FEED.format(name="valid", slots=7)
    one = Daemon(tmp_path, plain + large, rings="2MiB")  # 5 and 7 slots do not fit
    checked = check(one)
    assert [int(count) for count in re.findall(r"  (\d+) slots of", checked.stdout)] == [4, 7] and checked.returncode == 0
    assert starts(one)[0] and starts(one, PRIVATE)[0]
    larger = Daemon(tmp_path, plain + large.replace("slots: 7", "slots: 8"), rings="2MiB")
    assert re.search(REFUSED.format("valid", 8), check(larger).stderr)


def on_a_small_machine(folder, config, mib=64, memory="reserve: 0"):
    """Returns a daemon on a machine with so much free memory, whose configuration does not state all of memory:."""
    one = Short(folder, config)
    one.config.write_text(re.sub(r"memory: \{.*\}", f"memory: {{{memory}}}", one.config.read_text()))
    one.leave(mib)
    return one


SLOT = 188416  # bytes of a batch of FEED: 32 windows of 200 steps of 7 float32, masks and ids, in whole pages


@pytest.mark.parametrize("memory, most_mib", [
    ("reserve: 0", 32), ("reserve: 16MiB", 16), ("store: 16MiB, reserve: 0", 48), ("store: 16MiB, reserve: 16MiB", 32),
    ("rings: 24MiB, reserve: 0", 24), ("rings: 48MiB, reserve: 8MiB", 48), ("store: 16MiB, rings: 48MiB, reserve: 0", 48),
])
def test_check_and_every_start_draw_the_same_line(tmp_path, demo_file, memory, most_mib):
    """trajd.open gives rings a quarter of the free memory, and other starts 1 GiB, where the configuration does not state them."""
    for size_mib, fits in ((most_mib - 1, True), (most_mib + 1, False)):
        one = on_a_small_machine(tmp_path, of(demo_file, train=3, valid=size_mib * MIB // SLOT - 6), memory=memory)
        checked = check(one)
        assert (checked.returncode == 0) == fits, (size_mib, checked.stderr)
        for options in ("", PRIVATE):
            started, log = starts(one, options)
            assert started == fits, (size_mib, options, log)
            assert fits or re.search(REFUSED.format("valid", r"\d+"), log)


def test_memory_that_is_stated_and_not_there(tmp_path, demo_file):
    for memory in ("store: 60MiB, reserve: 8MiB", "rings: 64MiB, reserve: 0", "store: 1MiB, rings: 1MiB, reserve: 64MiB"):
        one = on_a_small_machine(tmp_path, of(demo_file, train=3), memory=memory)
        assert "but the machine has only 64 MiB free" in check(one).stderr, memory
        assert not starts(one)[0] and not starts(one, PRIVATE)[0], memory


def test_the_budget_grows_no_further_than_the_feeds(tmp_path, demo_file, started):
    """Only rings of the configuration's own feeds may take more than the default."""
    def budget(mib, slots, preset=""):
        one = on_a_small_machine(tmp_path, of(demo_file, train=slots), mib=mib)
        one.prefix = ("sh", "-c", f'exec "$@" {preset}', "sh")
        started(one)
        found = one.client().status()
        one.stop()
        return found["memory"]["rings_budget_bytes"], sum(feed["ring_bytes"] for feed in found["feeds"])

    assert budget(64 << 10, 3)[0] == 1024 * MIB  # the default
    assert budget(64, 3)[0] == 32 * MIB  # what is free beside the store
    grown, used = budget(64, 24 * MIB // SLOT, "--preset memory.rings=25%")
    assert grown == used > 16 * MIB


def test_a_reload_adds_a_feed_by_the_same_rule(tmp_path, demo_file, started):
    one = on_a_small_machine(tmp_path, of(demo_file, train=3))
    one.prefix = ("sh", "-c", 'exec "$@" --preset memory.rings=25%', "sh")
    started(one)

    def reload(**slots):
        one.config.write_text(one.config.read_text().split("datasets:")[0] + of(demo_file, train=3, **slots))
        return subprocess.run([TRAJCTL, "reload", "--wait", "--endpoint", one.endpoint], capture_output=True, text=True, timeout=60)

    assert "nothing has changed" in reload().stdout
    assert "new feeds: valid" in reload(valid=24 * MIB // SLOT).stdout
    status = one.client().status()
    assert status["memory"]["rings_budget_bytes"] == sum(feed["ring_bytes"] for feed in status["feeds"]) > 24 * MIB
    refused = reload(valid=24 * MIB // SLOT, test=16 * MIB // SLOT)
    assert refused.returncode == 1 and re.search(REFUSED.format("test", r"\d+"), refused.stdout + refused.stderr), refused
