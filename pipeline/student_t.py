"""Student's t by its incomplete beta function, in plain Python.

SciPy has the same as `scipy.special.stdtr` and `stdtrit`, which the tests compare with; importing that costs
a command 0.3 s, as much as all else that scoring loads.
"""

import itertools
import math

# Relative; Newton and the continued fraction stop there.
PRECISION = 1e-14


def outside(t: float, degrees: float) -> float:
    """P(|T| > t), the two-sided p value.

    With n degrees of freedom it is I(x; n / 2, 1 / 2) at x = n / (n + t^2) (Abramowitz and Stegun 26.7.1).

    Args:
        t: 0 or more.
        degrees: of freedom, above 0.

    >>> outside(2.0, 1)  # Cauchy: 1 - 2 / pi * arctan(2)
    0.29516...
    """
    half, square = degrees / 2, t * t
    if square == 0:
        return 1.0
    x, rest = degrees / (degrees + square), square / (degrees + square)
    # x^(n/2) rest^(1/2) / B(n/2, 1/2); log1p(t^2 / n) is -log x, to all digits where x is close to 1.
    front = math.exp(_log_gamma_ratio(half) - half * math.log1p(square / degrees))
    front *= math.sqrt(rest / math.pi)
    if x < (half + 1) / (half + 2.5):  # where the fraction is short
        return front / (half * _fraction(x, half, 0.5))
    return 1 - front / (0.5 * _fraction(rest, 0.5, half))


def two_sided(confidence: float, degrees: float) -> float:
    """The t with P(|T| <= t) = confidence.

    Args:
        confidence: 0 or more, below 1.
        degrees: of freedom, above 0.

    >>> two_sided(0.95, 2)
    4.30265...
    """
    scale = 2 * math.exp(_log_gamma_ratio(degrees / 2)) / math.sqrt(degrees * math.pi)
    t = 0.0
    while True:  # P(|T| <= t) is concave in t, so that Newton's steps climb to the root and never pass it
        density = scale * math.exp(-(degrees + 1) / 2 * math.log1p(t * t / degrees))
        step = (confidence - (1 - outside(t, degrees))) / density
        if not step > PRECISION * t:  # NaN ends it too
            return t + step
        t += step


def _log_gamma_ratio(a: float) -> float:
    """Log of Gamma(a + 1/2) / Gamma(a)."""
    if a < 50:
        return math.lgamma(a + 0.5) - math.lgamma(a)
    # The difference would lose digits; of this series the first term left out is below 1e-16.
    return 0.5 * math.log(a) - 1 / (8 * a) + 1 / (192 * a**3) - 1 / (640 * a**5) + 17 / (14336 * a**7)


def _fraction(x: float, a: float, b: float) -> float:
    """1 + d(1) / (1 + d(2) / (1 + ..., that I(x; a, b) is divided by, by Lentz's method.

    Abramowitz and Stegun 26.5.8.
    """
    value = c = 1.0
    d = 0.0
    for m in itertools.count():
        odd = -(a + m) * (a + b + m) / ((a + 2 * m) * (a + 2 * m + 1))
        even = (m + 1) * (b - m - 1) / ((a + 2 * m + 1) * (a + 2 * m + 2))
        for term in (odd * x, even * x):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            value *= c * d
        if not abs(c * d - 1) > PRECISION:
            break
    return value
