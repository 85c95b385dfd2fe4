"""R-hat, sample sizes and Monte Carlo errors against ArviZ, their definitions and simulation."""

import itertools
import json
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from scalemix.diagnostics import (
    effective_sample_size_bulk,
    effective_sample_size_tail,
    monte_carlo_error_mean,
    monte_carlo_error_quantile,
    r_hat,
    sbc_chi_square,
    sbc_ranks,
    within_chain_r_hat,
)

CHAINWISE = [
    r_hat,
    within_chain_r_hat,
    effective_sample_size_bulk,
    effective_sample_size_tail,
    monte_carlo_error_mean,
    lambda draws: monte_carlo_error_quantile(draws, 0.1),
]
# "version" and, per case, the results of arviz_stats.base.array_stats on `fixture_draws(case)`:
# rhat(draws, method="rank"), ess(draws, method="bulk"), ess(draws, method="tail", prob=(.05, .95)),
# mcse(draws, method="mean"), mcse(draws, method="quantile", prob=.1). Its R-hat needs two chains.
FIXTURE = json.loads((Path(__file__).parent / "data" / "arviz_fixture.json").read_text())


def autoregressive(noise: np.ndarray, coefficient: float) -> np.ndarray:
    """Stationary chains of variance 1 along the second axis, from standard normal noise."""
    draws = np.array(noise)
    for t in range(1, draws.shape[1]):
        draws[:, t] = coefficient * draws[:, t - 1] + draws[:, t] * (1 - coefficient**2) ** 0.5
    return draws


def fixture_draws(case: str) -> np.ndarray:
    """The draws of one case, of shape (chains, draws)."""
    # RandomState: its stream is frozen, that of a Generator may change with NumPy.
    state = np.random.RandomState(sorted(FIXTURE["results"]).index(case))
    normal = state.standard_normal
    match case:
        case "independent":
            return normal((8, 70))
        case "independent, odd":
            return normal((4, 51))
        case "autoregressive":
            return autoregressive(normal((4, 200)), 0.9)
        case "autoregressive, odd":
            return autoregressive(normal((8, 351)), 0.7)
        case "antithetic":
            return autoregressive(normal((3, 101)), -0.9)
        case "chains shifted":
            return normal((4, 70)) + np.arange(4)[:, None]
        case "chains of different spread":
            return normal((4, 70)) * np.array([1.0, 1.0, 1.0, 4.0])[:, None]
        case "trend":
            return normal((2, 100)) + np.linspace(0, 2, 100)
        case "heavy tails":
            return state.standard_cauchy((4, 151))
        case "discrete":
            return state.poisson(1.5, (4, 90)).astype(float)
        case "two values":
            return (normal((4, 75)) > 0.3).astype(float)
        case "one chain":
            return autoregressive(normal((1, 100)), 0.5)
        case "short":
            return normal((2, 7))
    raise ValueError(case)


@pytest.mark.parametrize("case", sorted(FIXTURE["results"]))
def test_agrees_with_arviz(case: str) -> None:
    draws = fixture_draws(case)
    found = {
        "r_hat": r_hat(draws),
        "bulk": effective_sample_size_bulk(draws),
        "tail": effective_sample_size_tail(draws),
        "mean": monte_carlo_error_mean(draws),
        "quantile": monte_carlo_error_quantile(draws, 0.1),
    }
    expected = FIXTURE["results"][case]
    # The same definitions, summed in another order; the fixture holds all digits.
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-6, abs=0)


@pytest.mark.parametrize("function", CHAINWISE)
def test_quantities_are_separate(function, seed: int) -> None:
    noise = np.random.default_rng(seed).standard_normal((3, 41, 2, 4))
    draws = autoregressive(noise, 0.5) * np.arange(1, 5) + np.arange(3)[:, None, None, None]
    draws[..., 0] = np.round(draws[..., 0])
    draws[..., 1, 1] = 7.0
    together = function(draws)
    assert together.shape == (2, 4)
    assert together.dtype == np.float64
    alone = [[function(draws[:, :, i, j]) for j in range(4)] for i in range(2)]
    assert np.ndim(alone[0][0]) == 0
    # Only the order of sums differs.
    np.testing.assert_allclose(together, alone, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(8, 70), (1, 4), (3, 5)])
def test_constant_quantity_has_converged(shape: tuple[int, int], dtype: type) -> None:
    draws = np.full(shape, 0.1, dtype)  # not a binary fraction: its mean may be off by an ulp
    found = [function(draws) for function in CHAINWISE]
    used = shape[0] * (shape[1] - shape[1] % 2)  # an odd draw is left out
    assert found == [1.0, 1.0, used, used, 0.0, 0.0]


@pytest.mark.parametrize("n_draws", [4, 14, 20, 70, 99])
def test_chains_that_stand_still(n_draws: int) -> None:
    """The mean of equal numbers is often off by an ulp: that is no variance."""
    apart = np.repeat([[0.1], [0.2], [0.3]], n_draws, axis=1)
    assert r_hat(apart) == np.inf
    assert within_chain_r_hat(apart) == 1.0
    jumped = np.repeat([[0.1, 0.3], [0.1, 0.3]], n_draws, axis=1)
    assert within_chain_r_hat(jumped) == np.inf


@pytest.mark.parametrize("function", [r_hat, within_chain_r_hat, effective_sample_size_bulk])
def test_only_ranks_count(function, seed: int) -> None:
    """For the part that compares places; spread is taken out by draws that never differ in it."""
    draws = autoregressive(np.random.default_rng(seed).standard_normal((4, 60)), 0.8)
    draws += np.linspace(0, 3, 60)  # the drift in place dominates
    # Ranks of transformed draws are the same, so are all digits.
    assert function(draws**3) == function(draws)
    assert function(np.float32(1e-30) * draws) == function(draws)


def test_effective_sample_size_of_an_autoregression(seed: int) -> None:
    noise = np.random.default_rng(seed).standard_normal((4, 1000, 200))
    for coefficient in (-0.5, 0.0, 0.6):
        draws = autoregressive(noise, coefficient)
        expected = 4000 * (1 - coefficient) / (1 + coefficient)
        found = effective_sample_size_bulk(draws)
        # The average of 200 varies by 1 %; one over a noisy time is up to 5 % too large.
        assert np.mean(found) == pytest.approx(expected, rel=0.1)


def test_monte_carlo_error_of_the_mean(seed: int) -> None:
    n_chains, n_draws, coefficient = 4, 400, 0.6
    noise = np.random.default_rng(seed).standard_normal((n_chains, n_draws, 500))
    errors = monte_carlo_error_mean(autoregressive(noise, coefficient) * 3.0 + 10.0)
    lags = np.arange(1, n_draws)
    inflation = 1 + 2 * np.sum((1 - lags / n_draws) * coefficient**lags)
    expected = 3.0**2 * inflation / (n_chains * n_draws)
    # A squared error varies by about 20 % (0.9 % for 500 of them), with a bias of a few per cent.
    assert np.mean(errors**2) == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.95])
def test_monte_carlo_error_of_a_quantile(probability: float, seed: int) -> None:
    draws = np.random.default_rng(seed).standard_normal((4, 4000, 100))
    errors = monte_carlo_error_quantile(draws, probability)
    density = stats.norm.pdf(stats.norm.ppf(probability))
    expected = math.sqrt(probability * (1 - probability) / 16_000) / density
    # The asymptotic standard deviation. The average of 100 errors varies by 1.4 %; they are up to
    # 2 % too large because the ends of the interval are draws, rounded outwards.
    assert np.mean(errors) == pytest.approx(expected, rel=0.08)


def within_by_definition(chains: list[list[float]]) -> float:
    """R-hat between the halves of each chain, straight from its definition, place and spread."""
    normal = statistics.NormalDist()
    candidates = []
    for fold in (False, True):
        between, within = [], []
        for chain in chains:
            m = len(chain) // 2
            values = chain[:m] + chain[-m:]
            if fold:
                middle = statistics.median(values)
                values = [abs(value - middle) for value in values]
            ranks = [
                sum(other < value for other in values) + (values.count(value) + 1) / 2
                for value in values
            ]
            scores = [normal.inv_cdf((rank - 3 / 8) / (2 * m + 1 / 4)) for rank in ranks]
            halves = scores[:m], scores[m:]
            between.append(m * statistics.variance(map(statistics.mean, halves)))
            within.append(statistics.mean(map(statistics.variance, halves)))
        b, w = statistics.mean(between), statistics.mean(within)
        candidates.append(math.sqrt(((m - 1) / m * w + b / m) / w))
    return max(candidates)


@pytest.mark.parametrize(
    "chains",
    [
        [[0.3, 2.0, -1.0, 4.0], [10.0, 9.0, 12.0, 11.0]],
        [[1.0, 2.0, 99.0, 3.0, 4.0]],  # the middle draw is left out
        [[1.0, 1.0, 2.0, 2.0, 1.0, 3.0], [0.0, 5.0, 5.0, 0.0, 5.0, 5.0]],  # ties
        [[0.1, -0.2, 0.15, -3.0, 4.0, 5.5]],  # the spread decides
    ],
)
def test_within_chain_r_hat_is_its_definition(chains: list[list[float]]) -> None:
    # A dozen operations on numbers of order 1; the normal quantiles agree to 1e-15.
    assert within_chain_r_hat(chains) == pytest.approx(within_by_definition(chains), rel=1e-12)


def test_within_chain_r_hat_sees_drift_and_no_modes(seed: int) -> None:
    # Whole multiples of 2^-20: the offsets below are added without rounding.
    draws = np.round(np.random.default_rng(seed).standard_normal((8, 70)) * 2**20) / 2**20
    modes = draws + 16.0 * np.arange(8)[:, None]
    threshold = 1.04  # that of the docstring
    assert r_hat(modes) > 2.0
    assert within_chain_r_hat(modes) == within_chain_r_hat(draws)
    assert within_chain_r_hat(modes + np.linspace(0.0, 1.5, 70)) > threshold
    # The place stays and the spread grows elevenfold.
    assert within_chain_r_hat(modes + draws * np.linspace(0.0, 10.0, 70)) > threshold


@pytest.mark.parametrize(
    ("chains", "n_draws", "threshold", "n_fits"),
    [(8, 70, 1.04, 400), (8, 350, 1.009, 60), (1, 100, 1.14, 400)],
)
def test_false_alarms_of_the_documented_thresholds(
    chains: int, n_draws: int, threshold: float, n_fits: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    draws = generator.standard_normal((chains, n_draws, n_fits, 20))
    largest = np.max(within_chain_r_hat(draws), axis=-1)
    # Were the rate 1 %, more alarms than this would have a probability below 1e-3.
    assert np.count_nonzero(largest > threshold) <= stats.binom.isf(1e-3, n_fits, 0.01)
    # The thresholds are not merely far away: half as far from 1, alarms are frequent.
    assert np.mean(largest > 1 + (threshold - 1) / 2) > 0.15


@pytest.mark.parametrize("function", CHAINWISE)
@pytest.mark.parametrize(
    ("draws", "found"),
    [
        (np.zeros(10), "shape (10,)"),
        (np.zeros((2, 3)), "shape (2, 3)"),
        (np.zeros((0, 9)), "shape (0, 9)"),
        (np.full((2, 9), np.nan), "18 of 18"),
        (np.append(np.zeros((1, 8)), [[np.inf]], axis=1), "1 of 9"),
    ],
)
def test_wrong_draws_are_refused(function, draws: np.ndarray, found: str) -> None:
    with pytest.raises(ValueError, match=r"\Afound .*[;,] .*\Z") as caught:
        function(draws)
    assert found in str(caught.value)


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1])
def test_wrong_probability_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match=r"\Afound probability="):
        monte_carlo_error_quantile(np.zeros((2, 9)), probability)


def posterior_ranks(seed: int, inflation: float) -> np.ndarray:
    """Ranks under theta ~ N(0, 1), x ~ N(theta, 1), with the posterior's spread inflated."""
    generator = np.random.default_rng(seed)
    theta = generator.standard_normal((1000, 50))
    mean = (theta + generator.standard_normal(theta.shape)) / 2
    noise = generator.standard_normal((1000, 39, 50))
    return sbc_ranks(theta, mean[:, None] + inflation * math.sqrt(0.5) * noise)


def test_calibration_of_a_right_and_a_wrong_posterior(seed: int) -> None:
    ranks = posterior_ranks(seed, 1.0)
    assert ranks.shape == (1000, 50)
    p_values = sbc_chi_square(ranks, 39, 10)
    # Fifty p-values of independent tests are uniform; a right test fails once in a thousand.
    assert stats.kstest(p_values, "uniform").pvalue > 1e-3
    wrong = sbc_chi_square(posterior_ranks(seed, 1.3), 39, 10)
    # A spread that is 30 % too large moves the ends by a third: chi-square is about 60 on 9.
    assert np.median(wrong) < 1e-4


def test_ranks_by_hand() -> None:
    prior_value = np.array([[0.5, 9.0], [2.5, -1.0]])
    draws = np.array([[[0, 1], [1, 2], [2, 3]], [[0, 1], [1, 2], [2, 3]]], float)
    np.testing.assert_array_equal(sbc_ranks(prior_value, draws), [[1, 3], [3, 0]])


def test_ties_are_broken_at_random(seed: int) -> None:
    generator = np.random.default_rng(seed)
    draws = generator.poisson(1.0, (20_000, 9))
    value = generator.poisson(1.0, 20_000)
    with pytest.raises(ValueError, match=r"equal to some of their posterior draws"):
        sbc_ranks(value, draws)
    # Value and draws are exchangeable, so the ranks are uniform; 1e-3 is the false-alarm rate.
    assert sbc_chi_square(sbc_ranks(value, draws, generator), 9, 10) > 1e-3
    assert sbc_chi_square(np.sum(draws < value[:, None], axis=1), 9, 10) < 1e-9


@pytest.mark.parametrize("bins", [2, 3, 7, 8])
def test_chi_square_is_scipys(bins: int, seed: int) -> None:
    ranks = np.random.default_rng(seed).integers(0, 8, 200)
    edges = [next(r for r in range(9) if r * bins >= b * 8) for b in range(bins + 1)]
    counts = [np.count_nonzero((ranks >= a) & (ranks < b)) for a, b in itertools.pairwise(edges)]
    expected = stats.chisquare(counts, np.diff(edges) * 200 / 8).pvalue
    # Two implementations of one special function.
    assert sbc_chi_square(ranks, 7, bins) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("ranks", "n_draws", "bins", "found"),
    [
        (np.arange(100.0), 99, 10, "dtype float64"),
        (np.int64(3), 99, 10, r"shape \(\)"),
        (np.arange(100), 98, 10, "from 0 to n_draws = 98"),
        (np.arange(100), 99, 1, "bins=1"),
        (np.arange(100), 99, 101, "bins=101"),
        (np.arange(100), 99, 25, "4.0 in one"),
    ],
)
def test_wrong_ranks_are_refused(ranks, n_draws: int, bins: int, found: str) -> None:
    with pytest.raises(ValueError, match=rf"\Afound .*{found}.*\Z"):
        sbc_chi_square(ranks, n_draws, bins)


def test_ranks_of_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(3,\) and posterior_draws of shape \(2, 9\)"):
        sbc_ranks(np.zeros(3), np.ones((2, 9)))
    with pytest.raises(ValueError, match="1 of 18 numbers in posterior_draws"):
        sbc_ranks(np.zeros(2), np.where(np.arange(18) == 4, np.nan, 1.0).reshape(2, 9))
