"""Power laws against scipy's regression, and how often their intervals contain the exponent."""

import numpy as np
import pytest
import scipy.stats

from esnlm.evaluation.power_laws import power_law

SIZES = np.geomspace(15_000, 155_000, 8)


def noisy(rng, exponent=-0.1, deviation=0.02):
    return 3 * SIZES**exponent * np.exp(deviation * rng.standard_normal(len(SIZES)))


def test_the_line_is_that_of_scipy():
    values = noisy(np.random.default_rng(0))
    law = power_law(SIZES, values)
    line = scipy.stats.linregress(np.log(SIZES), np.log(values))
    assert law.exponent == pytest.approx(line.slope, rel=1e-9)
    assert law.scale == pytest.approx(np.exp(line.intercept), rel=1e-9)


def test_the_interval_is_that_of_the_percentile_bootstrap_of_scipy():
    logs = np.log([SIZES, noisy(np.random.default_rng(1))])

    def slope(x, y):
        return scipy.stats.linregress(x, y).slope

    low, high = scipy.stats.bootstrap(
        logs, slope, paired=True, vectorized=False, method="percentile", n_resamples=2000,
        rng=np.random.default_rng(2),
    ).confidence_interval  # fmt: skip
    law = power_law(*np.exp(logs))
    assert (law.lower, law.upper) == pytest.approx((low, high), abs=0.1 * (high - low))


def test_the_interval_contains_the_exponent_in_about_nine_cases_of_ten():
    rng = np.random.default_rng(0)
    laws = [power_law(SIZES, noisy(rng), n_resamples=500) for _ in range(300)]
    assert 0.84 < np.mean([law.lower <= -0.1 <= law.upper for law in laws]) < 0.96


@pytest.mark.parametrize("y", [[1, 2, 0], [1, 2, -1], [1, 2, np.nan], [1, 2, np.inf]])
def test_points_without_a_logarithm_are_refused(y):
    with pytest.raises(ValueError, match="positive, finite points"):
        power_law([1, 2, 3], y)


def test_points_of_one_place_have_no_law():
    with pytest.raises(ValueError, match="at two places or more"):
        power_law([2, 2], [1, 3])
    with pytest.raises(ValueError, match=r"x and y of one shape \(n,\), got \(2,\), \(1,\)"):
        power_law([1, 2], [1])
