"""Laws of timescales against scipy, the paper's figures and sums over the law."""

import numpy as np
import pytest
import scipy.stats

from esnlm import Reservoir
from esnlm.reservoir.timescales import (
    closest_gaussian,
    closest_inverse_gamma,
    estimated_timescales,
    forget_bias,
    inverse_gamma_timescales,
    ks_gaussian,
    ks_inverse_gamma,
)
from esnlm.studies.timescales.markov import information, markov_copy

TIMES = np.array([0.05, 0.3, 1.0, 3.0, 4.0, 50.0, 1e4, 1e6])


def test_equation_5_as_it_is_written():
    times = TIMES[1:-1]
    np.testing.assert_allclose(forget_bias(times), -np.log(np.exp(1 / times) - 1), rtol=1e-9)


def test_equation_2_undoes_equation_5():
    np.testing.assert_allclose(1 / np.logaddexp(0, -forget_bias(TIMES)), TIMES, rtol=1e-9)


def test_a_gate_of_that_bias_keeps_exp_minus_one_over_t():
    gate = 1 / (1 + np.exp(-forget_bias(TIMES[1:])))
    np.testing.assert_allclose(gate, np.exp(-1 / TIMES[1:]), rtol=1e-9)
    np.testing.assert_allclose(estimated_timescales(gate, 1 - gate), TIMES[1:], rtol=1e-6)


def test_quantiles_are_those_of_scipy():
    quantiles = (np.arange(1150) + 0.5) / 1150
    expected = scipy.stats.invgamma(0.56).ppf(quantiles)
    np.testing.assert_allclose(inverse_gamma_timescales(0.56, 1150), expected, rtol=1e-6)


def test_the_law_of_the_second_layer_is_as_the_paper_says():
    times = inverse_gamma_timescales(0.56, 1150)
    # "80% of the units below 20"
    assert 0.78 < np.mean(times < 20) < 0.82


@pytest.mark.parametrize("alpha", [0.56, 1.5])
def test_decays_of_the_law_add_up_to_a_power_law(alpha):
    # Equation 11: the mean of exp(-s / T) is (s + 1)^-alpha.
    times = inverse_gamma_timescales(alpha, 20_000)
    for s in (1, 4, 20):
        assert np.mean(np.exp(-s / times)) == pytest.approx((s + 1) ** -alpha, rel=2e-3)


def test_leak_rates_of_a_reservoir_follow_the_same_law():
    reservoir = Reservoir(40, leak_rate=("inverse_gamma", 0.56), dtype="float64", random_state=0)
    times = -1 / np.log1p(-np.sort(reservoir.fit(n_inputs=3).leak_rate_)[::-1])
    np.testing.assert_allclose(times, inverse_gamma_timescales(0.56, 40), rtol=1e-6)


def test_distances_are_those_of_scipy():
    times = np.random.default_rng(0).lognormal(1.0, 1.0, 30)
    for found, law in (
        (ks_inverse_gamma(times, 0.8), scipy.stats.invgamma(0.8)),
        (ks_gaussian(times, 2.0), scipy.stats.norm(2.0, 0.1)),
    ):
        assert found == pytest.approx(scipy.stats.ks_1samp(times, law.cdf).statistic, rel=1e-9)


def test_the_closest_law_is_the_one_that_made_them():
    times = scipy.stats.invgamma(1.4).rvs(5000, random_state=0)
    alpha, distance = closest_inverse_gamma(times)
    assert alpha == pytest.approx(1.4, abs=0.08)
    assert distance < 0.02


def test_one_timescale_is_closer_to_a_narrow_gaussian():
    times = np.random.default_rng(1).normal(2.0, 0.1, 500)
    assert ks_gaussian(times, 2.0) < 0.1 < closest_inverse_gamma(times)[1]


def test_what_is_no_timescale():
    with pytest.raises(ValueError, match="timescales must be positive and finite, got -1"):
        forget_bias([2.0, -1.0])
    with pytest.raises(ValueError, match="timescales must be positive and finite, got inf"):
        closest_inverse_gamma([2.0, np.inf])
    with pytest.raises(ValueError, match=r"must lie in \(0, 1\), got 1"):
        estimated_timescales([0.5, 1.0], [0.5, 0.0])
    for of_none in (forget_bias, closest_inverse_gamma, closest_gaussian):
        with pytest.raises(ValueError, match="timescales of one unit or more, got none"):
            of_none([])


def test_the_closest_gaussian_of_long_timescales_is_one_of_all_means():
    times = np.r_[np.random.default_rng(0).lognormal(1, 2, 30), 80.0]
    means = np.arange(round(times.min(), 2), np.quantile(times, 0.9), 0.05)
    expected = min(ks_gaussian(times, mean) for mean in means.tolist())
    mean, distance = closest_gaussian(times)
    assert distance == pytest.approx(expected, rel=1e-9)
    assert ks_gaussian(times, mean) == pytest.approx(expected, rel=1e-9)
    assert closest_gaussian([1e5, 1e5, 1e9, 2e9])[0] == 1e5


def test_a_markov_copy_has_the_bigrams_of_the_text():
    text = np.random.default_rng(0).choice(4, p=[0.1, 0.2, 0.3, 0.4], size=20_000)
    text[1:][text[:-1] == 0] = 3
    copy = markov_copy(text, random_state=1)
    assert len(copy) == len(text)
    counts = [np.histogram2d(x[:-1], x[1:], bins=4)[0] / len(text) for x in (text, copy)]
    np.testing.assert_allclose(*counts, atol=0.01)
    with pytest.raises(ValueError, match="a Markov copy needs words"):
        markov_copy(np.array([], dtype=np.int64))


def test_information_of_a_chain_is_that_of_its_transitions():
    """A binary chain that stays with 0.9: I(d) is a sum over the powers of its matrix."""
    turns = np.random.default_rng(2).random(200_000) < 0.1
    found = information(np.cumsum(turns) % 2, longest=30)
    stays = (1 + 0.8**found.distances) / 2
    expected = np.log(2) + stays * np.log(stays) + (1 - stays) * np.log(np.maximum(1 - stays, 1e-9))
    np.testing.assert_allclose(found.nats, expected, atol=2e-3)


def test_independent_tokens_have_no_power_law():
    found = information(np.random.default_rng(0).integers(0, 5, 20_000))
    assert np.isnan(found.exponent)
    assert np.abs(found.nats).max() < 5e-3
    with pytest.raises(ValueError, match="needs a text of 2 words or more, got 1"):
        information(np.array([3]))
