"""Scores against scikit-learn, quadrature of their definitions, and examples by hand."""

import math
import tracemalloc

import numpy as np
import pytest
import sklearn.calibration
import sklearn.metrics
from scipy import integrate, stats

from scalemix import metrics

# Sums of at most a few hundred terms of order 1: 1e-12 leaves room for their rounding only.
EXACT = {"rel": 1e-12, "abs": 1e-14}


def classes(seed: int, n: int = 200, k: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Observed classes and probabilities that have little to do with them."""
    generator = np.random.default_rng(seed)
    return generator.integers(0, k, n), generator.dirichlet(np.ones(k), n)


def crps_by_quadrature(distribution, y: float) -> float:
    """The definition: integral over x of (F(x) - 1{x >= y})^2."""
    below, _ = integrate.quad(lambda x: distribution(x) ** 2, -np.inf, y, epsabs=1e-12)
    above, _ = integrate.quad(lambda x: (1 - distribution(x)) ** 2, y, np.inf, epsabs=1e-12)
    return below + above


def test_examples_by_hand() -> None:
    assert metrics.negative_log_likelihood([-1.0, -2.0, 0.5]) == pytest.approx(2.5 / 3, **EXACT)
    assert metrics.root_mean_squared_error([1, 2, 3], [1, 4, 2]) == pytest.approx(
        math.sqrt(5 / 3), **EXACT
    )
    interval = [[0, 1], [0, 1], [0, 1], [-np.inf, np.inf]]
    assert metrics.coverage([0, 1, 1.5, 9], interval) == 0.75  # ends count
    # Widths 2, misses 0, 1 and 3, each fined 2 / .2.
    assert metrics.interval_score([1, -1, 5], [[0, 2]] * 3, 0.8) == pytest.approx(
        2 + 4 * 10 / 3, **EXACT
    )
    # Pairs of 1, 2, 4 are 1, 3 and 2 apart, 2 on average; distances from 3 are 2, 1, 1.
    assert metrics.crps_from_samples([3], [[1, 2, 4]]) == pytest.approx(4 / 3 - 1, **EXACT)
    assert metrics.accuracy(["a", "b", "b"], ["a", "a", "b"]) == pytest.approx(2 / 3, **EXACT)
    probabilities = [[0.5, 0.3, 0.2], [0.1, 0.9, 0.0]]
    assert metrics.log_loss([2, 1], probabilities) == pytest.approx(
        -(math.log(0.2) + math.log(0.9)) / 2, **EXACT
    )
    assert metrics.brier_score([2, 1], probabilities) == pytest.approx(
        (0.25 + 0.09 + 0.64 + 0.01 + 0.01) / 2, **EXACT
    )


def test_perfect_forecasts() -> None:
    """Seven rows of weight 1/7 do not add up to 1 in floating point; a score of 1 is still 1."""
    y = np.arange(7)
    assert metrics.accuracy(y, y) == 1.0
    assert metrics.coverage(y, np.stack([y, y], axis=1)) == 1.0
    assert metrics.log_loss(y, np.eye(7)) == 0.0
    assert metrics.brier_score(y, np.eye(7)) == 0.0
    assert metrics.crps_from_samples(y, np.stack([y, y], axis=1)) == 0.0
    assert metrics.expected_calibration_error(np.ones(7), np.ones(7)) == 0.0


def test_infinite_losses_stay_infinite() -> None:
    assert metrics.negative_log_likelihood([0.0, -np.inf]) == np.inf
    assert metrics.negative_log_likelihood([0.0, -np.inf], [1.0, 0.0]) == 0.0
    assert metrics.log_loss([0, 1], [[1.0, 0.0], [1.0, 0.0]]) == np.inf
    assert metrics.interval_score([0.0], [[-np.inf, np.inf]]) == np.inf


def test_agrees_with_scikit_learn(seed: int) -> None:
    y, probabilities = classes(seed)
    generator = np.random.default_rng(seed + 1)
    weight = generator.exponential(size=len(y))
    for weights in (None, weight):
        found = metrics.log_loss(y, probabilities, weights)
        expected = sklearn.metrics.log_loss(y, probabilities, sample_weight=weights)
        assert found == pytest.approx(expected, **EXACT)
        found = metrics.accuracy(y, np.argmax(probabilities, axis=1), weights)
        expected = sklearn.metrics.accuracy_score(
            y, np.argmax(probabilities, axis=1), sample_weight=weights
        )
        assert found == pytest.approx(expected, **EXACT)
        observed, predicted = generator.standard_normal((2, len(y)))
        found = metrics.root_mean_squared_error(observed, predicted, weights)
        expected = sklearn.metrics.root_mean_squared_error(
            observed, predicted, sample_weight=weights
        )
        assert found == pytest.approx(expected, **EXACT)
        # Two classes: half of the multi-class form is the squared error of one probability.
        binary = y > 1
        p = probabilities[:, 2:].sum(axis=1)
        found = metrics.brier_score(binary.astype(int), np.stack([1 - p, p], axis=1), weights)
        expected = 2 * sklearn.metrics.brier_score_loss(binary, p, sample_weight=weights)
        assert found == pytest.approx(expected, **EXACT)


def test_brier_score_of_several_classes(seed: int) -> None:
    y, probabilities = classes(seed)
    squares = [
        sklearn.metrics.brier_score_loss(y == k, probabilities[:, k], pos_label=True)
        for k in range(4)
    ]
    assert metrics.brier_score(y, probabilities) == pytest.approx(sum(squares), **EXACT)


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_interval_score_is_two_pinball_losses(coverage: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    y = generator.standard_normal(100)
    weight = generator.exponential(size=100)
    interval = np.sort(generator.standard_normal((100, 2)), axis=1)
    alpha = 1 - coverage
    pinball = sum(
        sklearn.metrics.mean_pinball_loss(y, ends, alpha=level, sample_weight=weight)
        for ends, level in zip(interval.T, (alpha / 2, 1 - alpha / 2), strict=True)
    )
    found = metrics.interval_score(y, interval, coverage, weight)
    assert found == pytest.approx(2 / alpha * pinball, **EXACT)


def test_crps_from_samples_is_the_sum_over_pairs(seed: int) -> None:
    generator = np.random.default_rng(seed)
    y, samples = generator.standard_normal(20), np.round(generator.standard_cauchy((20, 31)), 1)
    pairs = np.abs(samples[:, :, None] - samples[:, None, :]).sum(axis=(1, 2)) / (2 * 31 * 30)
    expected = np.mean(np.abs(samples - y[:, None]).mean(axis=1) - pairs)
    assert metrics.crps_from_samples(y, samples) == pytest.approx(expected, **EXACT)


def test_crps_from_samples_keeps_its_digits_far_from_zero() -> None:
    y, samples = np.array([0.5, 2.25]), np.array([[1.0, 3.0, 2.5], [2.0, 0.75, 4.0]])
    near = metrics.crps_from_samples(y, samples)
    # 2^40 and these numbers add up without rounding, so the distances are the same, bit by bit.
    assert metrics.crps_from_samples(y + 2.0**40, samples + 2.0**40) == near


def test_crps_from_samples_is_fair(seed: int) -> None:
    """Three samples are enough on average; the plain form would be 0.19 too large."""
    y = np.repeat([-1.0, 0.3, 2.0], 20_000)
    samples = np.random.default_rng(seed).standard_normal((len(y), 3))
    expected = np.mean([crps_by_quadrature(stats.norm.cdf, value) for value in (-1.0, 0.3, 2.0)])
    # A row's estimate has a standard deviation of 0.6: four standard errors are 0.01.
    assert metrics.crps_from_samples(y, samples) == pytest.approx(expected, abs=0.01)


def test_mixture_of_one_is_a_normal() -> None:
    for y, mean, scale in [(0.3, 0.0, 1.0), (-2.0, 1.5, 0.25), (40.0, 0.0, 1.0)]:
        expected = crps_by_quadrature(stats.norm(mean, scale).cdf, y)
        # What the quadrature promises.
        found = metrics.crps_gaussian_mixture([y], [[mean]], [[scale]])
        assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("size", [2, 5, 8])
def test_mixture_by_quadrature(size: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    y, means = generator.standard_normal(3), 2 * generator.standard_normal((3, size))
    scales = np.exp(generator.standard_normal((3, size)))
    expected = [
        crps_by_quadrature(lambda x, m=m, s=s: np.mean(stats.norm.cdf(x, m, s)), value)
        for value, m, s in zip(y, means, scales, strict=True)
    ]
    found = metrics.crps_gaussian_mixture(y, means, scales)
    # What the quadrature promises; a pair left out or counted twice would show at 0.1 / S^2.
    assert found == pytest.approx(np.mean(expected), abs=1e-8)


def test_narrow_mixture_is_the_plain_score_of_its_means(seed: int) -> None:
    generator = np.random.default_rng(seed)
    y, means = generator.standard_normal(4), generator.standard_normal((4, 6))
    pairs = np.abs(means[:, :, None] - means[:, None, :]).mean(axis=(1, 2)) / 2
    expected = np.mean(np.abs(means - y[:, None]).mean(axis=1) - pairs)
    found = metrics.crps_gaussian_mixture(y, means, np.full((4, 6), 1e-12))
    # The pairs of a component with itself leave 1e-12 / S.
    assert found == pytest.approx(expected, abs=1e-12)


def test_mixture_in_bounded_memory(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(seed)
    y, means = generator.standard_normal(3000), generator.standard_normal((3000, 40))
    scales = np.exp(generator.standard_normal((3000, 40)))
    tracemalloc.start()
    try:
        whole = metrics.crps_gaussian_mixture(y, means, scales)
        # All pairs at once would take 38 MiB for each array of them; the input has 1 MiB.
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()
    monkeypatch.setattr(metrics, "COMPONENTS_AT_ONCE", 1)
    # One row at a time, where only the order of sums differs.
    found = metrics.crps_gaussian_mixture(y[:50], means[:50], scales[:50])
    monkeypatch.undo()
    assert found == pytest.approx(
        metrics.crps_gaussian_mixture(y[:50], means[:50], scales[:50]), **EXACT
    )
    rows = [metrics.crps_gaussian_mixture(y[i::2], means[i::2], scales[i::2]) for i in (0, 1)]
    assert whole == pytest.approx(np.mean(rows), **EXACT)


def test_probability_integral_transform_by_hand() -> None:
    samples = [[1, 2, 3], [1, 2, 2], [1, 2, 3]]
    found = metrics.probability_integral_transform([2.5, 2.0, 0.0], samples)
    # Two below and none equal; one below and two equal; none below.
    np.testing.assert_allclose(found, [2.5 / 4, 2.5 / 4, 0.5 / 4], rtol=1e-15)


@pytest.mark.parametrize("discrete", [False, True])
def test_probability_integral_transform_is_uniform(discrete: bool, seed: int) -> None:
    generator = np.random.default_rng(seed)
    together = generator.standard_normal((5000, 8))
    if discrete:
        together = np.round(together)
    found = metrics.probability_integral_transform(together[:, 0], together[:, 1:], generator)
    # A right transform fails once in a thousand seeds; the test's own seed is fixed.
    assert stats.kstest(found, "uniform").pvalue > 1e-3
    narrow = metrics.probability_integral_transform(
        together[:, 0], 0.8 * together[:, 1:], generator
    )
    assert stats.kstest(narrow, "uniform").pvalue < 1e-4


def weighted_scores(seed: int) -> dict:
    """Every score with a weight, as a function of rows and weights, on random data."""
    generator = np.random.default_rng(seed)
    y, prediction = generator.standard_normal((2, 60))
    samples = generator.standard_normal((60, 7))
    interval = np.sort(samples[:, :2], axis=1)
    index, probabilities = classes(seed, 60)
    correct = index == np.argmax(probabilities, axis=1)
    confidence = np.round(np.max(probabilities, axis=1), 2)
    arguments = {
        metrics.negative_log_likelihood: (y,),
        metrics.root_mean_squared_error: (y, prediction),
        metrics.coverage: (y, interval),
        metrics.interval_score: (y, interval),
        metrics.crps_from_samples: (y, samples),
        metrics.crps_gaussian_mixture: (y, samples, np.exp(samples)),
        metrics.accuracy: (index, np.argmax(probabilities, axis=1)),
        metrics.log_loss: (index, probabilities),
        metrics.brier_score: (index, probabilities),
        metrics.expected_calibration_error: (correct, confidence),
    }
    return {function.__name__: (function, rows) for function, rows in arguments.items()}


@pytest.mark.parametrize("name", weighted_scores(0))
def test_a_weight_is_a_number_of_copies(name: str, seed: int) -> None:
    function, rows = weighted_scores(seed)[name]
    weight = np.random.default_rng(seed).integers(0, 4, 60)
    copies = [np.repeat(array, weight, axis=0) for array in rows]
    assert function(*rows, sample_weight=weight) == pytest.approx(function(*copies), **EXACT)
    assert function(*rows, sample_weight=weight / 7) == pytest.approx(function(*copies), **EXACT)
    assert isinstance(function(*rows), float)


def test_calibration_error_by_hand() -> None:
    confidence = [0.1, 0.2, 0.3, 0.9, 0.8, 0.95]
    correct = [0, 1, 0, 1, 1, 0]
    # Halves: .6/3 against 1/3, 2.65/3 against 2/3. The same rows fall below and above 1/2.
    expected = 0.5 * (1 / 3 - 0.2) + 0.5 * (2.65 - 2) / 3
    for binning in ("equal_mass", "equal_width"):
        found = metrics.expected_calibration_error(correct, confidence, 2, binning)
        assert found == pytest.approx(expected, **EXACT)
    # Three bins of equal mass are pairs; of equal width, they hold three, none and three.
    found = metrics.expected_calibration_error(correct, confidence, 3)
    assert found == pytest.approx((0.35 + 0.05 + 0.425) / 3, **EXACT)
    found = metrics.expected_calibration_error(correct, confidence, 3, "equal_width")
    assert found == pytest.approx(expected, **EXACT)


def test_edges_belong_to_the_upper_bin() -> None:
    """Some of these times 100 lie just below a whole number in floating point (.29, .57, .58)."""
    confidence = np.arange(100) / 100
    curve = metrics.calibration_curve(confidence > 0.5, confidence, 100, "equal_width")
    np.testing.assert_allclose(curve.confidence, confidence, rtol=1e-12)


def test_calibration_curve_is_scikit_learns(seed: int) -> None:
    generator = np.random.default_rng(seed)
    confidence = generator.random(300)
    happened = generator.random(300) < confidence**2
    for ours, theirs in (("equal_width", "uniform"), ("equal_mass", "quantile")):
        found = metrics.calibration_curve(happened, confidence, 10, ours)
        frequency, average = sklearn.calibration.calibration_curve(
            happened, confidence, n_bins=10, strategy=theirs
        )
        np.testing.assert_allclose(found.confidence, average, rtol=1e-12)
        np.testing.assert_allclose(found.frequency, frequency, rtol=1e-12)
        assert found.weight.sum() == pytest.approx(1, **EXACT)
    np.testing.assert_allclose(found.weight, np.full(10, 0.1), rtol=1e-12)


def test_ties_share_a_bin(seed: int) -> None:
    confidence = np.repeat([0.2, 0.5, 1.0], [50, 3, 47])
    correct = np.random.default_rng(seed).random(100) < 0.5
    curve = metrics.calibration_curve(correct, confidence)
    np.testing.assert_allclose(curve.confidence, [0.2, 0.5, 1.0], rtol=1e-12)
    np.testing.assert_allclose(curve.weight, [0.5, 0.03, 0.47], rtol=1e-12)
    order = np.random.default_rng(seed).permutation(100)
    shuffled = metrics.calibration_curve(correct[order], confidence[order])
    for one, other in zip(curve, shuffled, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("binning", ["equal_mass", "equal_width"])
def test_calibration_error_finds_the_distance(binning: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    confidence = generator.uniform(0.5, 0.9, 100_000)
    for gap in (0.0, 0.1):
        correct = generator.random(100_000) < confidence + gap
        found = metrics.expected_calibration_error(correct, confidence, binning=binning)
        # Fifteen bins of 6700 rows and more, each frequency known within .006: .005 on average.
        assert found == pytest.approx(gap, abs=0.01)


ONE, TWO = np.ones(3), np.ones((3, 2))


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: metrics.negative_log_likelihood(TWO), r"log_density of shape \(3, 2\).*\(n,\)"),
        (lambda: metrics.negative_log_likelihood([]), "no rows"),
        (lambda: metrics.negative_log_likelihood([1.0, np.nan]), "1 NaN in log_density"),
        (lambda: metrics.negative_log_likelihood(ONE, [1, 1]), r"sample_weight .*\(2,\).*\(3,\)"),
        (lambda: metrics.negative_log_likelihood(ONE, [1, 1, -1]), "sample_weight negative"),
        (lambda: metrics.negative_log_likelihood(ONE, [0, 0, 0]), "all 0"),
        (lambda: metrics.negative_log_likelihood(ONE, [1, 1, np.inf]), "infinite"),
        (lambda: metrics.root_mean_squared_error(ONE, TWO), r"prediction .*\(3, 2\).*\(3,\)"),
        (lambda: metrics.coverage(ONE, ONE), r"interval of shape \(3,\), expected \(3, 2\)"),
        (lambda: metrics.coverage(ONE, TWO.T), r"interval of shape \(2, 3\), expected \(3, 2\)"),
        (lambda: metrics.coverage(ONE, [[1, 0]] * 3), "3 intervals with lower end above"),
        (lambda: metrics.interval_score(ONE, TWO, 1.0), "coverage=1.0"),
        (lambda: metrics.interval_score(ONE, TWO, 90), "coverage=90"),
        (lambda: metrics.crps_from_samples(ONE, TWO.T), r"samples .*\(2, 3\), expected \(3, S\)"),
        (lambda: metrics.crps_from_samples(ONE, TWO[:, :1]), r"samples .*\(3, 1\).*S >= 2"),
        (lambda: metrics.crps_from_samples(ONE, TWO * np.inf), "infinite values"),
        (lambda: metrics.crps_gaussian_mixture(ONE, TWO, ONE), r"scales .*\(3,\).*\(3, 2\)"),
        (lambda: metrics.crps_gaussian_mixture(ONE, TWO, TWO * 0), "not positive"),
        (lambda: metrics.crps_gaussian_mixture(ONE, TWO[:, :0], TWO), "S >= 1"),
        (lambda: metrics.probability_integral_transform(ONE, ONE), r"samples .*\(3, S\)"),
        (lambda: metrics.accuracy(ONE, TWO), r"prediction of shape \(3, 2\), expected \(3,\)"),
        (lambda: metrics.log_loss(ONE, TWO / 2), "y_index of dtype float64"),
        (lambda: metrics.log_loss([0, 1, 2], TWO / 2), "not from 0 to 1"),
        (lambda: metrics.log_loss([0, -1, 1], TWO / 2), "not from 0 to 1"),
        (lambda: metrics.log_loss([0, 1, 1], TWO), "miss a sum of 1 by 1"),
        (lambda: metrics.brier_score([0, 1, 1], [[1.5, -0.5]] * 3), "probabilities below 0"),
        (lambda: metrics.brier_score([0, 1], TWO / 2), r"probabilities .*\(2, K\)"),
        (lambda: metrics.calibration_curve([0, 1, 0.5], ONE), "other than 0 and 1"),
        (lambda: metrics.calibration_curve(ONE, 2 * ONE), "confidence outside 0 to 1"),
        (lambda: metrics.calibration_curve(ONE, ONE, 0), "bins=0"),
        (lambda: metrics.calibration_curve(ONE, ONE, 5, "quantile"), "binning='quantile'"),
    ],
)
def test_wrong_input_is_refused_in_one_line(call, found: str) -> None:
    with pytest.raises(ValueError, match=rf"\Afound .*{found}.*\Z"):
        call()
