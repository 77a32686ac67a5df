"""The checks of a script for a GPU machine, which has no pytest: one after the other, each under a time limit."""
import faulthandler
import time
import traceback


def run(tests, limit_s):
    """The number of those that failed. One that takes longer ends the process, with the stack: a hang is a failure."""
    failed = 0
    for test in tests:
        begin = time.perf_counter()
        faulthandler.dump_traceback_later(limit_s, exit=True)
        try:
            test()
            print(f"ok {test.__name__} {time.perf_counter() - begin:.1f} s", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED {test.__name__}\n{traceback.format_exc()}", flush=True)
    faulthandler.cancel_dump_traceback_later()
    return failed
