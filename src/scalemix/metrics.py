r"""Scores of predictions by their published definitions: arrays in, floats out.

Rows are the first axis, n of them. A score is an average over rows, weighted by `sample_weight` if
given: of shape (n,), not negative, not all 0; a row of weight 2 counts as two rows. Smaller is
better, except for `accuracy`, and for `coverage`, which should be what was asked for. NaN anywhere
is refused.

References
----------
.. [1] T. Gneiting, A. E. Raftery (2007), Strictly proper scoring rules, prediction, and
   estimation, J. American Statistical Association 102(477), 359-378.
.. [2] C. A. T. Ferro (2014), Fair scores for ensemble forecasts, Quarterly J. Royal
   Meteorological Society 140(683), 1917-1923.
.. [3] E. P. Grimit, T. Gneiting, V. J. Berrocal, N. A. Johnson (2006), The continuous ranked
   probability score for circular variables and its application to mesoscale forecast ensemble
   verification, Quarterly J. Royal Meteorological Society 132(621C), 2925-2942.
.. [4] C. Czado, T. Gneiting, L. Held (2009), Predictive model assessment for count data,
   Biometrics 65(4), 1254-1261.
.. [5] G. W. Brier (1950), Verification of forecasts expressed in terms of probability, Monthly
   Weather Review 78(1), 1-3.
.. [6] C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger (2017), On calibration of modern neural
   networks, ICML, PMLR 70, 1321-1330.
.. [7] K. Nguyen, B. O'Connor (2015), Posterior calibration and exploratory analysis for natural
   language processing models, EMNLP, 1587-1598.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

__all__ = [
    "CalibrationBins",
    "accuracy",
    "brier_score",
    "calibration_curve",
    "coverage",
    "crps_from_samples",
    "crps_gaussian_mixture",
    "expected_calibration_error",
    "interval_score",
    "log_loss",
    "negative_log_likelihood",
    "probability_integral_transform",
    "root_mean_squared_error",
]

Floats = NDArray[np.float64]
Weight = ArrayLike | None

COMPONENTS_AT_ONCE = 1 << 15  # of a mixture: a few MiB of work space
PROBABILITY_TOLERANCE = 1e-4  # rows of float32 probabilities need not add up to 1 exactly


def negative_log_likelihood(log_density: ArrayLike, sample_weight: Weight = None) -> float:
    """Minus the log predictive density of the observation: the logarithmic score [1].

    Parameters
    ----------
    log_density : array of shape (n,)
        Log density, or log probability, of what was observed. A row of -inf gives inf.
    sample_weight : array of shape (n,), optional

    Returns
    -------
    float
        In nats; for a density it depends on the units of the target.
    """
    return _average(-_numbers(log_density, "log_density", ("n",)), sample_weight)


def root_mean_squared_error(
    y: ArrayLike, prediction: ArrayLike, sample_weight: Weight = None
) -> float:
    """Square root of the average squared error.

    Parameters
    ----------
    y, prediction : arrays of shape (n,)
    sample_weight : array of shape (n,), optional

    Returns
    -------
    float
        In the units of y.
    """
    y = _numbers(y, "y", ("n",))
    error = y - _numbers(prediction, "prediction", y.shape)
    return _average(error**2, sample_weight) ** 0.5


def coverage(y: ArrayLike, interval: ArrayLike, sample_weight: Weight = None) -> float:
    """Share of the observations that lie in their intervals, ends included.

    Parameters
    ----------
    y : array of shape (n,)
    interval : array of shape (n, 2)
        Lower and upper ends; may be infinite.
    sample_weight : array of shape (n,), optional

    Returns
    -------
    float
        From 0 to 1.
    """
    y, lower, upper = _interval(y, interval)
    return _average((lower <= y) & (y <= upper), sample_weight)


def interval_score(
    y: ArrayLike, interval: ArrayLike, coverage: float = 0.9, sample_weight: Weight = None
) -> float:
    r"""Interval score of central intervals ([1], eq. 43): their width and a fine for each miss.

    :math:`(u - l) + \frac{2}{\alpha} (l - y)_+ + \frac{2}{\alpha} (y - u)_+` with
    :math:`\alpha = 1 - \text{coverage}`.

    Parameters
    ----------
    y : array of shape (n,)
    interval : array of shape (n, 2)
        l and u, the quantiles of levels alpha / 2 and 1 - alpha / 2.
    coverage : float, default=0.9
        Probability that the intervals are meant to have.
    sample_weight : array of shape (n,), optional

    Returns
    -------
    float
        In the units of y.
    """
    if not 0.0 < coverage < 1.0:
        raise ValueError(f"found coverage={coverage}; give a probability between 0 and 1")
    y, lower, upper = _interval(y, interval)
    miss = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    return _average(upper - lower + 2.0 / (1.0 - coverage) * miss, sample_weight)


def crps_from_samples(y: ArrayLike, samples: ArrayLike, sample_weight: Weight = None) -> float:
    r"""Continuous ranked probability score of predictions given by samples, in the fair form [2].

    .. math:: \frac1S \sum_s |x_s - y| - \frac{1}{2 S (S - 1)} \sum_{s, t} |x_s - x_t|

    For independent samples this estimates without bias, whatever S, the score
    :math:`E|X - y| - \frac12 E|X - X'|` ([1], eq. 21) of the distribution they come from; the plain
    form, with :math:`S^2` for :math:`S (S - 1)`, is too large by :math:`E|X - X'| / 2S`. Sorting
    makes it O(S log S) for each row.

    Parameters
    ----------
    y : array of shape (n,)
    samples : array of shape (n, S)
        At least two, finite, for each row.
    sample_weight : array of shape (n,), optional

    Returns
    -------
    float
        In the units of y; an estimate, which can fall below 0.
    """
    y, samples = _rows_of(y, samples, "samples", 2)
    # Distances from y instead of samples: a large common offset would cost digits of the sums.
    distances = np.sort(samples - y[:, None], axis=1)
    size = distances.shape[1]
    # The k-th smallest is the larger one in k - 1 pairs and the smaller one in S - k.
    signs = 2.0 * np.arange(1, size + 1) - size - 1.0
    spread = distances @ signs / (size * (size - 1.0))
    return _average(np.mean(np.abs(distances), axis=1) - spread, sample_weight)


def crps_gaussian_mixture(
    y: ArrayLike, means: ArrayLike, scales: ArrayLike, sample_weight: Weight = None
) -> float:
    r"""Continuous ranked probability score of equal-weight mixtures of S normals, exactly [3].

    .. math:: \frac1S \sum_s A(y - \mu_s, \sigma_s)
        - \frac{1}{2 S^2} \sum_{s, t} A(\mu_s - \mu_t, (\sigma_s^2 + \sigma_t^2)^{1/2})

    where :math:`A(\mu, \sigma) = E|N(\mu, \sigma^2)|` is
    :math:`\sigma \{2 \varphi(z) + z (2 \Phi(z) - 1)\}` with :math:`z = \mu / \sigma`. Every pair is
    visited: O(S^2) for each row, about 3 ms on one core at S = 560, in work space of a few MiB
    (more only where a single row needs it).

    Parameters
    ----------
    y : array of shape (n,)
    means, scales : arrays of shape (n, S)
        Mean and standard deviation, finite and positive, of each component.
    sample_weight : array of shape (n,), optional

    Returns
    -------
    float
        In the units of y.
    """
    y, means = _rows_of(y, means, "means", 1)
    scales = _numbers(scales, "scales", means.shape)
    if not np.all((scales > 0.0) & np.isfinite(scales)):
        raise ValueError("found scales that are not positive and finite; give standard deviations")
    step = max(1, COMPONENTS_AT_ONCE // means.shape[1])
    groups = [slice(start, start + step) for start in range(0, len(y), step)]
    scores = [_mixture_scores(y[rows], means[rows], scales[rows]) for rows in groups]
    return _average(np.concatenate([np.empty(0), *scores]), sample_weight)


def probability_integral_transform(
    y: ArrayLike, samples: ArrayLike, generator: np.random.Generator | None = None
) -> Floats:
    """Where each observation stands among its predictive samples, between 0 and 1.

    (number below + U (1 + number equal)) / (S + 1). With U uniform on (0, 1) this is the randomised
    transform of [4], for targets with ties and without: exactly uniform if observation and samples
    are exchangeable. A histogram in the form of a U says that predictions are overconfident.

    Parameters
    ----------
    y : array of shape (n,)
    samples : array of shape (n, S)
    generator : numpy.random.Generator, optional
        Draws U; without it U = 1/2.

    Returns
    -------
    array of shape (n,)
    """
    y, samples = _rows_of(y, samples, "samples", 1)
    below = np.sum(samples < y[:, None], axis=1)
    equal = np.sum(samples == y[:, None], axis=1)
    place = np.full(len(y), 0.5) if generator is None else generator.random(len(y))
    return (below + place * (1 + equal)) / (samples.shape[1] + 1)


def accuracy(y: ArrayLike, prediction: ArrayLike, sample_weight: Weight = None) -> float:
    """Share of the labels that are predicted exactly.

    Parameters
    ----------
    y, prediction : arrays of shape (n,)
        Labels of any kind.
    sample_weight : array of shape (n,), optional

    Returns
    -------
    float
        From 0 to 1; larger is better.
    """
    y, prediction = np.asarray(y), np.asarray(prediction)
    _check_shape(y, "y", ("n",))
    _check_shape(prediction, "prediction", y.shape)
    return _average(y == prediction, sample_weight)


def log_loss(y_index: ArrayLike, probabilities: ArrayLike, sample_weight: Weight = None) -> float:
    """Minus the log probability of the class that was observed: the logarithmic score [1].

    Parameters
    ----------
    y_index : array of int, shape (n,)
        Observed class, as a column of `probabilities`.
    probabilities : array of shape (n, K)
        Rows add up to 1. Nothing is clipped: probability 0 for what was observed gives inf.
    sample_weight : array of shape (n,), optional

    Returns
    -------
    float
        In nats.
    """
    index, probabilities = _classes(y_index, probabilities)
    with np.errstate(divide="ignore"):  # inf is meant
        return _average(-np.log(probabilities[np.arange(len(index)), index]), sample_weight)


def brier_score(
    y_index: ArrayLike, probabilities: ArrayLike, sample_weight: Weight = None
) -> float:
    r"""Brier score in its first, multi-class form [5]: :math:`\sum_k (p_k - 1\{y = k\})^2`.

    For two classes it is twice the squared error of one probability, which often has that name.

    Parameters
    ----------
    y_index : array of int, shape (n,)
        Observed class, as a column of `probabilities`.
    probabilities : array of shape (n, K)
        Rows add up to 1.
    sample_weight : array of shape (n,), optional

    Returns
    -------
    float
        From 0 to 2.
    """
    index, probabilities = _classes(y_index, probabilities)
    error = probabilities - (index[:, None] == np.arange(probabilities.shape[1]))
    return _average(np.sum(error**2, axis=1), sample_weight)


class CalibrationBins(NamedTuple):
    """Predicted and observed frequencies of rows with similar predictions; no bin is empty."""

    confidence: Floats
    """Average prediction in each bin, increasing, shape (bins,)."""
    frequency: Floats
    """Share of the bin's rows where the event happened, shape (bins,)."""
    weight: Floats
    """Share of all rows that are in the bin, adding up to 1, shape (bins,)."""


def calibration_curve(
    correct: ArrayLike,
    confidence: ArrayLike,
    bins: int = 15,
    binning: Literal["equal_mass", "equal_width"] = "equal_mass",
    sample_weight: Weight = None,
) -> CalibrationBins:
    """Observed against predicted frequencies: the points of a reliability plot.

    Parameters
    ----------
    correct : array of bool (or 0 and 1), shape (n,)
        Whether the event happened; with several classes, whether the predicted label was right.
    confidence : array of shape (n,)
        The event's probability; with several classes, the largest one of the row.
    bins : int, default=15
    binning : {"equal_mass", "equal_width"}, default="equal_mass"
        "equal_mass" [7], also called adaptive: equal shares of the rows, as far as ties let (equal
        confidences are never parted). "equal_width" [6]: [0, 1/bins), ..., [1 - 1/bins, 1].
    sample_weight : array of shape (n,), optional

    Returns
    -------
    CalibrationBins
        At most `bins` of them.
    """
    confidence = _numbers(confidence, "confidence", ("n",))
    correct = _numbers(correct, "correct", confidence.shape)
    weight = _weights(sample_weight, len(confidence))
    share = weight / np.sum(weight)
    if np.any((confidence < 0.0) | (confidence > 1.0)):
        raise ValueError("found confidence outside 0 to 1; give probabilities")
    if not np.all((correct == 0.0) | (correct == 1.0)):
        raise ValueError("found values other than 0 and 1 in correct; give booleans")
    if bins < 1 or binning not in ("equal_mass", "equal_width"):
        raise ValueError(
            f"found bins={bins!r} and binning={binning!r}; give at least 1 bin and 'equal_mass' or "
            "'equal_width'"
        )
    position = _middle_level(confidence, share) if binning == "equal_mass" else confidence
    # The edge of a bin belongs to the upper one, also where rounding puts it just below.
    index = np.minimum((position * bins + 1e-9).astype(int), bins - 1)
    mass, predicted, observed = (
        np.bincount(index, share * values).astype(np.float64)
        for values in (np.ones_like(share), confidence, correct)
    )
    used = mass > 0.0
    return CalibrationBins(predicted[used] / mass[used], observed[used] / mass[used], mass[used])


def expected_calibration_error(
    correct: ArrayLike,
    confidence: ArrayLike,
    bins: int = 15,
    binning: Literal["equal_mass", "equal_width"] = "equal_mass",
    sample_weight: Weight = None,
) -> float:
    """Average distance of predicted from observed frequency, over bins ([6], eq. 3; [7]).

    Never negative, so in finite samples positive for the perfect forecast, too: compare on the same
    rows, and trust the log loss more.

    Parameters
    ----------
    correct, confidence, bins, binning, sample_weight
        As in `calibration_curve`.

    Returns
    -------
    float
        From 0 to 1.
    """
    curve = calibration_curve(correct, confidence, bins, binning, sample_weight)
    return float(np.sum(curve.weight * np.abs(curve.confidence - curve.frequency)))


def _mixture_scores(y: Floats, means: Floats, scales: Floats) -> Floats:
    """CRPS of each row; components stand in a circle and meet those `shift` places on."""
    size = means.shape[1]
    variances = scales**2
    circle = np.concatenate([means, means], axis=1), np.concatenate([variances, variances], axis=1)
    spread = 2.0 / np.sqrt(np.pi) * np.sum(scales, axis=1)  # s = t: E|N(0, 2 sigma_s^2)|
    for shift in range(1, size // 2 + 1):
        other_means, other_variances = (array[:, shift : shift + size] for array in circle)
        pairs = _absolute_mean(means - other_means, np.sqrt(variances + other_variances))
        # Half the circle is enough: shift S - k meets the same pairs as k, the other way round.
        spread += (1.0 if 2 * shift == size else 2.0) * np.sum(pairs, axis=1)
    error = np.mean(_absolute_mean(y[:, None] - means, scales), axis=1)
    return error - spread / (2.0 * size**2)


def _absolute_mean(mean: Floats, scale: Floats) -> Floats:
    """E|N(mean, scale^2)|."""
    z = mean / scale
    density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    return scale * (2.0 * density + z * special.erf(z / np.sqrt(2.0)))


def _middle_level(values: Floats, share: Floats) -> Floats:
    """Share of the rows below each value and half of the share that equals it, from 0 to 1."""
    group = np.unique(values, return_inverse=True)[1]
    mass = np.bincount(group, share)
    return (np.cumsum(mass) - 0.5 * mass)[group]


def _average(values: NDArray, sample_weight: Weight) -> float:
    weight = _weights(sample_weight, len(values))
    counts = weight > 0.0  # other rows do not, even where they are infinite
    return float(np.sum(weight[counts] * values[counts]) / np.sum(weight))


def _weights(sample_weight: Weight, size: int) -> Floats:
    """Checked weights of the rows, 1 each by default."""
    if size == 0:
        raise ValueError("found no rows, expected at least one; give some")
    weight = np.ones(size) if sample_weight is None else np.asarray(sample_weight, np.float64)
    weight = _numbers(weight, "sample_weight", (size,))
    if np.any(weight < 0.0) or not 0.0 < np.sum(weight) < np.inf:
        raise ValueError("found sample_weight negative, infinite or all 0; give weights of rows")
    return weight


def _numbers(values: ArrayLike, name: str, shape: tuple[int | str, ...]) -> Floats:
    """The values in float64: of the given shape (a letter is any length), without NaN."""
    array = np.asarray(values, dtype=np.float64)
    _check_shape(array, name, shape)
    wrong = np.count_nonzero(np.isnan(array))
    if wrong:
        raise ValueError(f"found {wrong} NaN in {name}, expected none; leave these rows out")
    return array


def _check_shape(array: NDArray, name: str, shape: tuple[int | str, ...]) -> None:
    fits = len(shape) == array.ndim and all(
        isinstance(wanted, str) or wanted == length
        for wanted, length in zip(shape, array.shape, strict=True)
    )
    if not fits:
        expected = str(shape).replace("'", "")
        raise ValueError(f"found {name} of shape {array.shape}, expected {expected}; reshape it")


def _interval(y: ArrayLike, interval: ArrayLike) -> tuple[Floats, Floats, Floats]:
    y = _numbers(y, "y", ("n",))
    lower, upper = _numbers(interval, "interval", (len(y), 2)).T
    wrong = np.count_nonzero(lower > upper)
    if wrong:
        raise ValueError(f"found {wrong} intervals with lower end above upper; swap the ends")
    return y, lower, upper


def _rows_of(y: ArrayLike, values: ArrayLike, name: str, fewest: int) -> tuple[Floats, Floats]:
    """Finite values of shape (n, S) for the n rows of y."""
    y = _numbers(y, "y", ("n",))
    array = _numbers(values, name, (len(y), "S"))
    if array.shape[1] < fewest:
        raise ValueError(f"found {name} of shape {array.shape}, expected S >= {fewest}; draw more")
    if not (np.all(np.isfinite(y)) and np.all(np.isfinite(array))):
        raise ValueError(f"found infinite values in y or {name}, expected none; leave them out")
    return y, array


def _classes(y_index: ArrayLike, probabilities: ArrayLike) -> tuple[NDArray[np.int64], Floats]:
    index = np.asarray(y_index)
    _check_shape(index, "y_index", ("n",))
    probabilities = _numbers(probabilities, "probabilities", (len(index), "K"))
    columns = probabilities.shape[1]
    if not np.issubdtype(index.dtype, np.integer) or np.any((index < 0) | (index >= columns)):
        raise ValueError(
            f"found y_index of dtype {index.dtype}, or not from 0 to {columns - 1}, expected a "
            "column of probabilities for each row; look labels up in classes_"
        )
    error = np.max(np.abs(np.sum(probabilities, axis=1) - 1.0), initial=0.0)
    if np.any(probabilities < 0.0) or not error <= PROBABILITY_TOLERANCE:
        raise ValueError(
            f"found probabilities below 0, or rows that miss a sum of 1 by {error:.2g}, expected "
            "distributions; normalise the rows"
        )
    return index.astype(np.int64), probabilities
