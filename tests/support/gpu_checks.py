"""Runs the checks of a script for a GPU machine, which has no pytest: one after the other, each under a time limit."""
import faulthandler
import sys
import time
import traceback


class Skipped(Exception):
    """The machine lacks something that a check needs."""


def run(tests, limit_s):
    """Returns the numbers of failed and of skipped checks. A check that takes longer than the limit ends the
    process with a traceback."""
    failed = skipped = 0
    for test in tests:
        begin = time.perf_counter()
        faulthandler.dump_traceback_later(limit_s, exit=True)
        try:
            test()
            print(f"ok {test.__name__} {time.perf_counter() - begin:.1f} s", flush=True)
        except Skipped as why:
            skipped += 1
            print(f"skipped {test.__name__}: {why}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED {test.__name__} {time.perf_counter() - begin:.1f} s\n{traceback.format_exc()}", flush=True)
    faulthandler.cancel_dump_traceback_later()
    return failed, skipped


def main(names, limit_s, gpu_count=1):
    """Runs the checks in a script's globals(), or those that the command line names, and returns the exit status.
    With fewer GPUs than `gpu_count` all checks are skipped."""
    import torch

    import trajd
    tests = [test for name, test in names.items() if name.startswith("test_") and (len(sys.argv) == 1 or name in sys.argv[1:])]
    count = torch.cuda.device_count()
    if count < gpu_count:
        print(f"0 passed, 0 failed, {len(tests)} skipped: {count} GPUs", flush=True)
        return 0
    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}, trajd {trajd.__version__}, {count} x {torch.cuda.get_device_name()}", flush=True)
    failed, skipped = run(tests, limit_s)
    print(f"{len(tests) - failed - skipped} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed else 0
