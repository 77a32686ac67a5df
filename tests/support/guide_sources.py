"""The scripts of the guide that make its reference: clients/docs/reference."""
import sys

from paths import ROOT

sys.path.insert(0, str(ROOT / "clients/docs/reference"))
import keys  # noqa: E402, F401
import sources  # noqa: E402, F401
