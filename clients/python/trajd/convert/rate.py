"""Rates as exact numbers."""
from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Union

BROADCAST_RATES = (24, 30, 48, 60, 120, 240)  # which "29.97" and the like stand for, times 1000 / 1001


def exact_rate(fps: Any) -> Fraction:
    """Returns a rate as an exact number: 29.97 is 30000/1001. Raises ValueError."""
    if isinstance(fps, bool) or not isinstance(fps, (int, float)) or not math.isfinite(fps) or not 1e-3 <= fps <= 1e6:
        raise ValueError
    for rate in BROADCAST_RATES:
        if fps != rate and abs(fps - rate / 1.001) < 0.005:
            return Fraction(rate * 1000, 1001)
    return Fraction(str(fps))


def attribute_of(rate: Fraction) -> Union[int, str]:
    """Returns the rate as layouts read it from an attribute."""
    return str(rate) if rate.denominator > 1 else int(rate)
