"""How far Markov chains can be trusted: rank R-hat, effective sample size, Monte Carlo error, SBC.

Draws have the shape (chains, draws, ...): at least one chain of at least four draws, all finite
(else ValueError). Each function works on all trailing axes at once, in float64, and returns one
number per quantity, in the trailing shape. Where a split leaves an odd draw, the middle one is left
out. A quantity whose draws are all the same (a fixed noise scale) has converged: its R-hat is 1,
its effective sample size the number of draws, its Monte Carlo error 0.

References
----------
.. [1] A. Vehtari, A. Gelman, D. Simpson, B. Carpenter, P.-C. Buerkner (2021), Rank-normalization,
   folding, and localization: an improved R-hat, Bayesian Analysis 16(2), 667-718.
.. [2] C. J. Geyer (1992), Practical Markov chain Monte Carlo, Statistical Science 7(4), 473-483.
.. [3] S. Talts, M. Betancourt, D. Simpson, A. Vehtari, A. Gelman (2018), Validating Bayesian
   inference algorithms with simulation-based calibration, arXiv:1804.06788.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft, special, stats

__all__ = [
    "effective_sample_size_bulk",
    "effective_sample_size_tail",
    "monte_carlo_error_mean",
    "monte_carlo_error_quantile",
    "r_hat",
    "sbc_chi_square",
    "sbc_ranks",
    "within_chain_r_hat",
]

FEWEST_DRAWS = 4


def r_hat(draws: ArrayLike) -> NDArray[np.float64]:
    """Rank-normalised split R-hat [1]: whether chains, and the halves of each, agree.

    The larger of two: R-hat of the normal scores of the draws (finds differences in place) and of
    the normal scores of their distances from the median (differences in spread).

    Parameters
    ----------
    draws : array of shape (chains, draws, ...)

    Returns
    -------
    array of shape (...)
        Near 1 at convergence; 1.01 is the usual alarm [1]. Infinite where every half chain stands
        still, but not all at the same value.
    """
    values, trailing = _columns(draws)
    halves = _split(values)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    place, spread = (_potential_scale_reduction(_rank(part)[None]) for part in (halves, folded))
    # Distances from the median can be constant where the draws are not: nan, which fmax ignores.
    return _shaped(np.where(_is_constant(values), 1.0, np.fmax(place, spread)), trailing)


def within_chain_r_hat(draws: ArrayLike) -> NDArray[np.float64]:
    r"""Rank-normalised R-hat between the two halves of each chain, pooled over the chains.

    `r_hat` is large when chains have settled in different modes of a network, which is no failure
    of the sampler. This one compares each chain with itself only: it finds drift, in place or in
    spread, and is blind to what distinguishes the chains.

    Each chain c is cut into halves of m draws, and its 2m draws, by themselves, are replaced by the
    normal scores of their ranks. From means and variances (divisor m - 1) of the halves, and with B
    and W the averages of :math:`B_c` and :math:`W_c` over the chains,

    .. math:: B_c = m \operatorname{var}(\text{half means}), \quad
        W_c = \operatorname{mean}(\text{half variances}), \quad
        \hat R = \sqrt{\left(\tfrac{m-1}{m} W + \tfrac1m B\right) / W}.

    As in [1] the result is the larger of this and of the same for distances from the median, here
    each chain's own. A chain that stands still adds nothing to B and W; if all do, wherever each
    of them stands, the result is 1 (`r_hat` tells).

    Parameters
    ----------
    draws : array of shape (chains, draws, ...)

    Returns
    -------
    array of shape (...)
        Near 1 without drift.

    Notes
    -----
    Measured by simulation with normal draws, independent and autoregressive (coefficient .9):

    =============  ==========================  =========================  ===================
    chains, draws  independent: 99 %, 99.9 %   the same, largest of 20    autoregressive:
                   of one quantity             quantities: 95 %, 99 %     50 %, 99 % of one
    =============  ==========================  =========================  ===================
    8, 70          1.025, 1.035                1.031, 1.037               1.164, 1.374
    8, 350         1.005, 1.007                1.006, 1.008               1.044, 1.116
    1, 100         1.070, 1.115                1.096, 1.128               1.113, 1.875
    =============  ==========================  =========================  ===================

    Thresholds of 1.04, 1.009 and 1.14 so raise a false alarm for less than 1 % of fits that watch
    20 quantities with independent draws. For C chains elsewhere the threshold is near
    :math:`\{1 + (F - 1) / m\}^{1/2}`, F the upper .01/40 point of the F distribution with C and
    C (2m - 2) degrees of freedom. Autocorrelation raises all values: alarms then say that the
    chains are short for their memory, which is true.
    """
    values, trailing = _columns(draws)
    halves = _split(values)
    # One row per chain again, without an odd draw: (chains, 2m, quantities).
    chains = np.concatenate(np.split(halves, 2), axis=1)
    folded = np.abs(chains - np.median(chains, axis=1, keepdims=True))
    shape = (len(chains), 2, *halves.shape[1:])
    place, spread = (
        _potential_scale_reduction(_normal_scores(part, axis=1).reshape(shape))
        for part in (chains, folded)
    )
    still = np.all(values == values[:, :1], axis=(0, 1))
    return _shaped(np.where(still, 1.0, np.fmax(place, spread)), trailing)


def effective_sample_size_bulk(draws: ArrayLike) -> NDArray[np.float64]:
    """Effective sample size in the bulk: of the normal scores of the split draws ([1], section 4).

    Autocorrelations are averaged over chains, with the variance between chains in the denominator,
    and summed along Geyer's initial monotone sequence [2]. At most N log10(N) of N draws.

    Parameters
    ----------
    draws : array of shape (chains, draws, ...)

    Returns
    -------
    array of shape (...)
        A number of independent draws.
    """
    values, trailing = _columns(draws)
    return _shaped(_effective_sample_size(_rank(_split(values))), trailing)


def effective_sample_size_tail(draws: ArrayLike, probability: float = 0.05) -> NDArray[np.float64]:
    """Effective sample size in the tails: the smaller one of those of two quantiles ([1], sec. 4).

    Parameters
    ----------
    draws : array of shape (chains, draws, ...)
    probability : float, default=0.05
        Level of the lower quantile; the upper one has 1 - `probability`.

    Returns
    -------
    array of shape (...)
        A number of independent draws.
    """
    values, trailing = _columns(draws)
    sizes = [_quantile_sample_size(values, level) for level in (probability, 1.0 - probability)]
    return _shaped(np.minimum(*sizes), trailing)


def monte_carlo_error_mean(draws: ArrayLike) -> NDArray[np.float64]:
    """Monte Carlo standard error of the mean: standard deviation / sqrt(effective sample size).

    The effective sample size is that of the split draws themselves, not of their normal scores:
    mean and variance must exist.

    Parameters
    ----------
    draws : array of shape (chains, draws, ...)

    Returns
    -------
    array of shape (...)
        In the units of the draws.
    """
    values, trailing = _columns(draws)
    deviation = np.where(_is_constant(values), 0.0, np.std(values, axis=(0, 1), ddof=1))
    return _shaped(deviation / np.sqrt(_effective_sample_size(_split(values))), trailing)


def monte_carlo_error_quantile(draws: ArrayLike, probability: float) -> NDArray[np.float64]:
    """Monte Carlo standard error of a quantile ([1], section 4).

    With S the effective sample size of the event "draw <= quantile" the level that the estimate
    truly has is taken as Beta(S p + 1, S (1 - p) + 1); the error is half the distance between the
    draws at the 16 % and 84 % points of that.

    Parameters
    ----------
    draws : array of shape (chains, draws, ...)
    probability : float
        Level p of the quantile.

    Returns
    -------
    array of shape (...)
        In the units of the draws.
    """
    values, trailing = _columns(draws)
    size = _quantile_sample_size(values, probability)
    one_sigma = special.ndtr([[-1.0], [1.0]])
    levels = stats.beta.ppf(one_sigma, size * probability + 1.0, size * (1.0 - probability) + 1.0)
    ordered = np.sort(values.reshape(-1, values.shape[2]), axis=0)
    positions = levels * len(ordered) - 1.0
    outward = np.stack([np.floor(positions[0]), np.ceil(positions[1])])
    indices = np.clip(outward, 0, len(ordered) - 1).astype(int)
    low, high = np.take_along_axis(ordered, indices, axis=0)
    return _shaped((high - low) / 2.0, trailing)


def sbc_ranks(
    prior_value: ArrayLike, posterior_draws: ArrayLike, generator: np.random.Generator | None = None
) -> NDArray[np.int64]:
    """Ranks for simulation-based calibration: the number of draws below the true value [3].

    Each simulation draws a value from the prior, data given that value, and nearly independent
    draws of the posterior given these data. If the sampler is right the rank of the value is
    uniform on 0, 1, ..., draws.

    Parameters
    ----------
    prior_value : array of shape (simulations, ...)
    posterior_draws : array of shape (simulations, draws, ...)
        Thinned: dependent draws give ranks that are not uniform.
    generator : numpy.random.Generator, optional
        Breaks ties at random (discrete quantities). Without it a tie is an error.

    Returns
    -------
    array of int, shape (simulations, ...)
    """
    value, draws = np.asarray(prior_value), np.asarray(posterior_draws)
    if draws.ndim < 2 or value.shape != draws.shape[:1] + draws.shape[2:]:
        raise ValueError(
            f"found prior_value of shape {value.shape} and posterior_draws of shape {draws.shape}, "
            "expected (simulations, ...) and (simulations, draws, ...); move the axes"
        )
    _check_finite(value, "prior_value")
    _check_finite(draws, "posterior_draws")
    below = np.sum(draws < value[:, None], axis=1)
    ties = np.sum(draws == value[:, None], axis=1)
    if generator is not None:
        return below + generator.integers(0, ties, endpoint=True)
    if np.any(ties):
        raise ValueError(
            f"found {np.count_nonzero(ties)} values equal to some of their posterior draws, "
            "expected none; give a generator, which breaks ties at random"
        )
    return below


def sbc_chi_square(ranks: ArrayLike, n_draws: int, bins: int) -> NDArray[np.float64]:
    """P-value of Pearson's chi-square test that ranks are uniform on 0, 1, ..., n_draws [3].

    Parameters
    ----------
    ranks : array of int, shape (simulations, ...)
        From `sbc_ranks`.
    n_draws : int
        Posterior draws per simulation.
    bins : int
        From 2 to n_draws + 1; best a divisor of n_draws + 1, else bins differ in size, which the
        test takes into account. At least 5 simulations must be expected in each.

    Returns
    -------
    array of shape (...)
        Small where the sampler is wrong. Asymptotic in the number of simulations.
    """
    ranks = np.asarray(ranks)
    whole = np.issubdtype(ranks.dtype, np.integer)
    if ranks.ndim < 1 or not whole or np.any((ranks < 0) | (ranks > n_draws)):
        raise ValueError(
            f"found ranks of dtype {ranks.dtype} and shape {ranks.shape}, expected integers from 0 "
            f"to n_draws = {n_draws} of shape (simulations, ...); compute them by sbc_ranks"
        )
    if not 2 <= bins <= n_draws + 1:
        raise ValueError(f"found bins={bins}; give a number from 2 to n_draws + 1 = {n_draws + 1}")
    bin_of_rank = np.arange(n_draws + 1) * bins // (n_draws + 1)
    expected = len(ranks) * np.bincount(bin_of_rank) / (n_draws + 1)
    if expected.min() < 5.0:
        raise ValueError(
            f"found {len(ranks)} simulations for {bins} bins, {expected.min():.1f} in one, needed "
            "at least 5; use fewer bins or more simulations"
        )
    found = bin_of_rank[ranks.reshape(len(ranks), -1)]
    counts = np.stack([np.count_nonzero(found == index, axis=0) for index in range(bins)], axis=1)
    statistic = np.sum((counts - expected) ** 2 / expected, axis=1)
    return _shaped(special.chdtrc(bins - 1, statistic), ranks.shape[1:])


def _columns(draws: ArrayLike) -> tuple[NDArray[np.float64], tuple[int, ...]]:
    """Checked draws of shape (chains, draws, quantities), and the trailing shape."""
    values = np.asarray(draws, dtype=np.float64)
    if values.ndim < 2 or values.shape[0] < 1 or values.shape[1] < FEWEST_DRAWS:
        raise ValueError(
            f"found draws of shape {values.shape}, expected (chains, draws, ...) with at least one "
            f"chain of {FEWEST_DRAWS} draws; move the axes or keep more draws"
        )
    _check_finite(values, "draws")
    return values.reshape(*values.shape[:2], -1), values.shape[2:]


def _check_finite(values: NDArray, name: str) -> None:
    wrong = np.count_nonzero(~np.isfinite(values))
    if wrong:
        raise ValueError(
            f"found {wrong} of {values.size} numbers in {name} that are not finite, expected none; "
            "leave out the chains that diverged"
        )


def _shaped(columns: NDArray[np.float64], trailing: tuple[int, ...]) -> NDArray[np.float64]:
    """One result per quantity in the trailing shape, a NumPy number where that is ()."""
    return columns.reshape(trailing)[()]


def _is_constant(values: NDArray) -> NDArray[np.bool_]:
    """Whether all draws of all chains are the same, per quantity."""
    return np.all(values == values[:1, :1], axis=(0, 1))


def _split(values: NDArray) -> NDArray:
    """First halves of all chains, then second halves: twice the chains, half the draws."""
    half = values.shape[1] // 2
    return np.concatenate([values[:, :half], values[:, -half:]], axis=0)


def _normal_scores(values: NDArray, axis: int) -> NDArray[np.float64]:
    """Phi^-1((rank - 3/8) / (N + 1/4)) of the average ranks of N values ([1], section 4)."""
    return special.ndtri((stats.rankdata(values, axis=axis) - 0.375) / (values.shape[axis] + 0.25))


def _rank(chains: NDArray) -> NDArray[np.float64]:
    """Normal scores among the draws of all chains."""
    return _normal_scores(chains.reshape(-1, chains.shape[2]), axis=0).reshape(chains.shape)


def _variance(values: NDArray, axis: int) -> NDArray[np.float64]:
    """Sample variance, exactly 0 (not 1e-33) where the values are all the same."""
    return np.where(np.ptp(values, axis=axis) == 0.0, 0.0, np.var(values, axis=axis, ddof=1))


def _potential_scale_reduction(parts: NDArray) -> NDArray[np.float64]:
    """R-hat of (groups, parts, n draws, quantities): parts are compared within their group.

    The square root of ((n - 1) W / n + B / n) / W, with B and W averaged over the groups.
    """
    n_draws = parts.shape[2]
    between = n_draws * np.mean(_variance(np.mean(parts, axis=2), axis=1), axis=0)
    within = np.mean(_variance(parts, axis=2), axis=(0, 1))
    # 0 / 0 is a constant quantity, B / 0 are parts that stand still apart: nan and inf are meant.
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt((n_draws - 1 + between / within) / n_draws)


def _quantile_sample_size(values: NDArray, probability: float) -> NDArray[np.float64]:
    """Effective sample size for the event "draw <= quantile of all draws"."""
    if not 0.0 < probability < 1.0:
        raise ValueError(f"found probability={probability}; give a level between 0 and 1")
    event = values <= np.quantile(values, probability, axis=(0, 1))
    return _effective_sample_size(_split(event.astype(np.float64)))


def _effective_sample_size(chains: NDArray) -> NDArray[np.float64]:
    """Effective sample size of (chains, draws, quantities) as they are ([1], section 3; [2])."""
    n_chains, n_draws, _ = chains.shape
    total = n_chains * n_draws
    autocovariance = _autocovariance(chains)
    within = autocovariance[0] * n_draws / (n_draws - 1)
    means = np.mean(chains, axis=1)
    pooled = autocovariance[0] + (_variance(means, axis=0) if n_chains > 1 else 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):  # constant quantities, set below
        correlation = 1.0 - (within - autocovariance) / pooled
    correlation[0] = 1.0

    # In truth the sums of two lags (0, 1), (2, 3), ... are positive and fall. The series ends at
    # the first estimate that is not positive, or at the last one with enough products behind it;
    # of that pair the even lag alone counts, and once.
    n_pairs = max((n_draws - 3) // 2, 0) + 1
    even, odd = correlation[0 : 2 * n_pairs : 2], correlation[1 : 2 * n_pairs : 2]
    pairs = even + odd
    ends = pairs <= 0.0
    ends[-1] = True
    last = np.argmax(ends, axis=0)[None]
    before = np.arange(n_pairs)[:, None] < last
    falling = np.minimum.accumulate(pairs, axis=0)
    final = np.take_along_axis(even, last, axis=0)[0]
    broken = np.take_along_axis(pairs, last, axis=0)[0] < 0.0
    final = np.where(broken, np.maximum(final, 0.0), final)
    time = 2.0 * np.sum(falling, axis=0, where=before) + final - 1.0

    # Antithetic chains: the bound keeps the estimate from running away ([1], section 3).
    size = total / np.maximum(time, 1.0 / np.log10(total))
    return np.where(_is_constant(chains), float(total), size)


def _autocovariance(chains: NDArray) -> NDArray[np.float64]:
    """Autocovariances (divisor n) at lags 0 .. n - 1, averaged over chains: (draws, quantities)."""
    n_draws = chains.shape[1]
    length = fft.next_fast_len(2 * n_draws, real=True)  # padded: the ends do not meet
    spectrum = fft.rfft(chains - np.mean(chains, axis=1, keepdims=True), length, axis=1)
    power = np.mean(spectrum.real**2 + spectrum.imag**2, axis=0)
    return fft.irfft(power, length, axis=0)[:n_draws] / n_draws
