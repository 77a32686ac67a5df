"""The wheels that `make wheels` has built."""
import pytest

from paths import ROOT


def published_wheel(arch):
    """Returns the path of the wheel for a processor. Skips the test if it is not built."""
    found = list((ROOT / "build" / "wheels").glob(f"trajd-*_{arch}.whl"))
    if not found:
        pytest.skip(f"no wheel for {arch} in build/wheels: run make wheels")
    return found[0]
