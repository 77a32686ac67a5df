"""Waits for conditions. Tests do not sleep for a fixed time."""
import time


def wait_for(condition, timeout=60.0, what="condition"):
    """Waits until condition() is true and returns its value. Fails after `timeout` seconds."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < end, f"waited {timeout} s for {what}"
        time.sleep(0.005)
    return value
