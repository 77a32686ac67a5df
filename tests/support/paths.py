"""Where the build under test lies, and the environment for its programs.

TRAJD_BUILD names the build folder (default: build/release). TRAJD_DAEMON_BUILD names another build for the daemons alone.
"""
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = (ROOT / os.environ.get("TRAJD_BUILD", "build/release")).resolve()
PROGRAM = (ROOT / os.environ.get("TRAJD_DAEMON_BUILD", BUILD)).resolve() / "daemon" / "trajd"
TRAJCTL = BUILD / "clients" / "cli" / "trajctl"
PACKAGE = BUILD / "clients" / "python"  # the folder for PYTHONPATH
SUPPORT = ROOT / "tests" / "support"
ALOHA_BYTES = SUPPORT / "layouts" / "aloha_bytes.yaml"  # frames are rows of bytes
RECORDINGS = ROOT.parent / "shared" / "data"  # real recordings; tests that read them are skipped where they are missing


def package_environment():
    """Returns the variables with which another Python finds the package of the build, and what an instrumented one needs."""
    return {"PYTHONPATH": str(PACKAGE)} | {name: os.environ[name] for name in ("LD_PRELOAD",) if name in os.environ}


def clean_environment(**more):
    """Returns the environment without LD_PRELOAD, which .ci/test sets for an instrumented libtrajd in an ordinary Python."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"} | more
