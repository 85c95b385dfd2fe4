"""Polya-Gamma draws and moments against the mathematics and the package polyagamma.

Chance of a false alarm. Each Kolmogorov-Smirnov test fails a right sampler with probability 1e-4,
each comparison with five standard errors with 6e-7 (twice that where a statistic is skewed, as said
there). There are 40 of the first and some 420 of the second: by Bonferroni at most 5e-3 for the
file and a new seed. Seeds are fixed, so a run repeats itself.
"""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from polyagamma import random_polyagamma
from scipy import integrate, special, stats

from scalemix.random import _polya_gamma, polya_gamma, polya_gamma_mean, polya_gamma_variance

DRAWS = 100_000
PRECISIONS = ["float32", "float64"]


def in_precision(precision):
    return jax.enable_x64(precision == "float64")


def draws_of(key, b, z, precision="float32"):
    """DRAWS draws as float64, all by one compiled program for each precision."""
    with in_precision(precision):
        draws = polya_gamma(key, np.asarray(b, precision), np.asarray(z, precision), (DRAWS,))
    assert draws.dtype == precision
    return np.asarray(draws, np.float64)


def cumulants(b, z):
    """First four cumulants from the definition: kappa_j = b (j - 1)! sum_k d_k^-j."""
    terms = 100_000
    d = 2 * np.pi**2 * (np.arange(terms) + 0.5) ** 2 + z**2 / 2
    tail = 1 / (2 * np.pi**2 * terms)  # of the first sum; those of the others are below rounding
    sums = np.array([np.sum(1 / d) + tail, *(np.sum(d**-j) for j in (2.0, 3.0, 4.0))])
    return b * sums * np.array([1, 1, 2, 6])


def laplace_transform(s, b, z):
    """E exp(-s omega) = {cosh(z / 2) / cosh(sqrt(z^2 / 4 + s / 2))}^b."""

    def log_cosh(x):
        return x + np.log1p(np.exp(-2 * x)) - np.log(2)

    return np.exp(b * (log_cosh(z / 2) - log_cosh(np.sqrt(z**2 / 4 + s / 2))))


def errors_of_mean_and_variance(draws, b, z):
    """Deviations from the first two cumulants in standard errors, known from the first four."""
    mean, variance, _, fourth = cumulants(b, z)
    squares = (draws - mean) ** 2
    return np.array(
        [
            (np.mean(draws) - mean) / np.sqrt(variance / draws.size),
            (np.mean(squares) - variance) / np.sqrt((fourth + 2 * variance**2) / draws.size),
        ]
    )


# --- moments -----------------------------------------------------------------------------------


def density(x, b, z):
    """The alternating series of PG(b, z)'s density, to an absolute error of 1e-13."""
    n = np.arange(200)[:, None]
    log_terms = special.gammaln(n + b) - special.gammaln(n + 1) - (2 * n + b) ** 2 / (8 * x)
    terms = (-1.0) ** n * np.exp(log_terms) * (2 * n + b) / np.sqrt(2 * np.pi * x**3)
    series = 2 ** (b - 1) / special.gamma(b) * terms.sum(axis=0)
    return np.cosh(z / 2) ** b * np.exp(-(z**2) / 2 * x) * series


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("b", [0.5, 1, 2, 3.7])
@pytest.mark.parametrize("z", [0.0, 0.8, 3.0])
def test_moments_are_those_of_the_density(b, z):
    # The density is at most e^(-pi^2 x / 2) x^2.7 in order of magnitude: beyond 8 there is 1e-14.
    nodes, weights = np.polynomial.legendre.leggauss(400)
    x, weights = 4 * (nodes + 1), 4 * weights
    total, first, second = (np.sum(weights * x**j * density(x, b, z)) for j in range(3))
    np.testing.assert_allclose(total, 1, rtol=1e-8)  # of the test's own quadrature
    np.testing.assert_allclose(polya_gamma_mean(b, z), first, rtol=1e-8)
    np.testing.assert_allclose(polya_gamma_variance(b, z), second - first**2, rtol=1e-8)


@pytest.mark.parametrize(
    ("precision", "mean_tolerance", "variance_tolerance"),
    [("float64", 1e-14, 1e-10), ("float32", 1e-6, 1e-6)],
)
def test_moments_keep_their_digits(precision, mean_tolerance, variance_tolerance):
    z = np.concatenate([[0, 1e-30, 1e-12], np.geomspace(1e-8, 1400, 400), [1.99999, 2, 2.00001]])
    z = z.astype(precision)
    with mpmath.workdps(150), in_precision(precision):
        half = [mpmath.mpf(float(x)) / 2 for x in z[1:]]  # at 0 the limits are 1/4 and 1/24
        mean = [mpmath.tanh(h) / (4 * h) for h in half]
        variance = [(mpmath.tanh(h) - h * mpmath.sech(h) ** 2) / (16 * h**3) for h in half]
        expected = np.array([[0.25, *map(float, mean)], [1 / 24, *map(float, variance)]])
        for sign in (1, -1):
            # Where z^3 leaves the numbers of float32, below 1e-12, nothing may happen.
            found = polya_gamma_mean(1.0, sign * z), polya_gamma_variance(1.0, sign * z)
            assert found[0].dtype == precision
            np.testing.assert_allclose(found[0], expected[0], rtol=mean_tolerance)
            np.testing.assert_allclose(found[1], expected[1], rtol=variance_tolerance)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("moment", "curvature"), [(polya_gamma_mean, -1 / 24), (polya_gamma_variance, -1 / 60)]
)
def test_moments_have_gradients_at_zero(precision, moment, curvature):
    """E = b (1/4 - z^2/48 + ...), Var = b (1/24 - z^2/120 + ...); both are proportional to b."""
    z = np.array([0, 1e-20, 2, 1e3], precision)
    slope = jax.grad(moment, argnums=1)
    with in_precision(precision):
        by_z, second, by_b = (
            np.asarray(jax.jit(jax.vmap(f, (None, 0)))(np.ones((), precision), z))
            for f in (slope, jax.grad(slope, argnums=1), jax.grad(moment))
        )
        np.testing.assert_allclose(by_b, moment(1.0, z), rtol=4 * np.finfo(precision).eps)
    assert by_z[0] == 0
    np.testing.assert_allclose(second[0], curvature, rtol=4 * np.finfo(precision).eps)
    assert np.isfinite(by_z).all()
    assert np.isfinite(second).all()


def test_float32_moments_stay_finite_at_extremes():
    z = jnp.asarray([1e-45, 1e-20, 1e10, 1e20, 3e38], jnp.float32)
    for moment in (polya_gamma_mean, polya_gamma_variance):
        with_slope = jax.value_and_grad(moment, argnums=1)
        values, slopes = jax.jit(jax.vmap(with_slope, (None, 0)))(1.0, z)
        assert np.isfinite(values).all()
        assert np.isfinite(slopes).all()


# --- the identities behind the samplers --------------------------------------------------------


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("z", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("s", [0.1, 3.0, 100.0])
def test_fraction_decomposes_the_laplace_exponent(z, s):
    """log cosh must be the inverse Gaussian's exponent plus that of the thinned jumps."""
    r = np.hypot(np.pi, z)

    def integrand(root):  # in sqrt(x), where the integrand is smooth at 0
        x = root**2
        thinned = float(_polya_gamma._thinning(jnp.asarray(np.pi**2 / 2 * x)))
        rate = _polya_gamma.MAXIMUM * np.sqrt(np.pi**2 / 2) * np.exp(-(r**2) * x / 2)
        return -np.expm1(-s * x) * rate * thinned * 2

    change = np.sqrt(2 * 0.5) / np.pi  # the series changes at pi^2 x / 2 = 1/2
    jumps = sum(
        integrate.quad(integrand, *ends, epsrel=1e-12)[0] for ends in ((0, change), (change, 4))
    )
    gaussian = (np.sqrt(r**2 + 2 * s) - r) / 2
    # Both series are cut at 1e-17 and rounded; quad adds some 1e-12.
    np.testing.assert_allclose(jumps + gaussian, -np.log(laplace_transform(s, 1, z)), rtol=1e-10)


def test_mass_of_the_truncated_levy_proposal():
    """To rounding: the tests of draws would not see the fourth digit."""
    expected = 4 * stats.norm.cdf(-1 / np.sqrt(_polya_gamma.TRUNCATION))
    np.testing.assert_allclose(_polya_gamma.LEVY_MASS, expected, rtol=1e-15)


@pytest.mark.usefixtures("x64")
def test_thinning_is_a_probability_and_not_wasteful():
    values = np.asarray(_polya_gamma._thinning(jnp.geomspace(1e-12, 50, 100_001)))
    assert np.all(values > 0)
    assert 1 - 1e-5 < values.max() <= 1


# --- draws -------------------------------------------------------------------------------------


def theirs(b, z, seed):
    """Draws of the package polyagamma 2.

    By its exact method for whole b; else by its sum of 200 gamma terms and the mean of the rest,
    whose variance is 1e-9 of the whole. Its other methods, and so its choice by default, are off
    by many standard errors of 1e5 draws for some b that are not whole.
    """
    generator = np.random.default_rng(seed)
    if b == int(b):
        size = min(DRAWS, int(1e7 / b))  # the cost of a draw grows with b
        return random_polyagamma(b, z, size=size, method="devroye", random_state=generator)
    rest = b / (2 * np.pi**2 * 200)
    return rest + random_polyagamma(b, z, size=DRAWS, method="gamma", random_state=generator)


@pytest.mark.parametrize("b", [1, 2, 5, 0.5, 3.7, 20.3, 200, 2000])
@pytest.mark.parametrize("z", [0.0, 0.7, 3.0, 12.0])
def test_draws_have_the_law_of_another_implementation(b, z, key, seed):
    ours = draws_of(key, b, z)
    assert stats.ks_2samp(ours, theirs(b, z, seed), method="asymp").pvalue > 1e-4


B = [0.3, 0.5, 1, 2, 3.7, 5, 15.99, 16, 17, 20.3, 170, 200, 2000, 1e4]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("b", B)
def test_draws_have_their_mean_and_variance(precision, b, key):
    """2.05 and 2.2 stand on both sides of the change of Devroye's proposal.

    The sample variance is skewed most at b = .3, z = 0, where its skewness is .05: the probability
    of five standard errors is then twice the normal one.
    """
    for i, z in enumerate([0.0, -0.7, 2.05, 2.2, 12.0, 1000.0]):
        draws = draws_of(jax.random.fold_in(key, i), b, z, precision)
        errors = errors_of_mean_and_variance(draws, b, z)
        assert np.all(np.abs(errors) < 5), (z, errors)


@pytest.mark.parametrize("b", [1e-4, 1e-2, 0.5, 1, 3.7, 17])
def test_draws_have_their_laplace_transform(b, key):
    """A bounded statistic, on all scales: of the mean, and for small b that of the typical draw.

    Almost all of a draw with small b stems from few large jumps, while most draws are of the order
    of b^2: the mean alone would not see the latter.
    """
    for i, z in enumerate([0.0, 3.0, 100.0]):
        draws = draws_of(jax.random.fold_in(key, i), b, z)
        assert np.all(draws > 0)
        for s in (1 / cumulants(b, z)[0], 0.3 / b**2, 3 / b**2, 30 / b**2):
            expected, square = laplace_transform(np.array([s, 2 * s]), b, z)
            error = np.sqrt((square - expected**2) / DRAWS)
            assert abs(np.mean(np.exp(-s * draws)) - expected) < 5 * error


def test_mean_at_the_smallest_b(key):
    """A million draws: the mean of 1e5 has a skewness of .6, here .2, and 1e-6 for a failure."""
    draws = np.concatenate([draws_of(k, 1e-4, 0.7) for k in jax.random.split(key, 10)])
    assert abs(errors_of_mean_and_variance(draws, 1e-4, 0.7)[0]) < 5


def test_a_truncated_sum_fails_the_same_test(key, seed):
    """Negative control: eight gamma terms and no remainder, 2.5 % low in the mean."""
    g = np.random.default_rng(seed).standard_gamma(1.0, size=(DRAWS, 8))
    truncated = np.sum(g / (2 * np.pi**2 * (np.arange(8) + 0.5) ** 2), axis=1)
    assert abs(errors_of_mean_and_variance(truncated, 1, 0)[0]) > 5
    assert abs(errors_of_mean_and_variance(draws_of(key, 1, 0), 1, 0)[0]) < 5


@pytest.mark.parametrize("z", [0.0, 2.5])
@pytest.mark.parametrize(("b", "terms"), [(1.0, 5), (1.0, 20), (0.25, 4), (0.1, 25)])
def test_draws_add_up(b, terms, z, key):
    """J of PG(b) are one of PG(J b), across the methods: whole, large, and fractions into whole."""
    keys = jax.random.split(key, terms + 1)
    summed = np.sum([draws_of(k, b, z) for k in keys[1:]], axis=0)
    assert stats.ks_2samp(summed, draws_of(keys[0], terms * b, z), method="asymp").pvalue > 1e-4


@pytest.mark.parametrize("precision", PRECISIONS)
def test_draws_are_finite_and_not_negative_at_extremes(precision, key):
    all_b = [0, 1e-30, 1e-4, 0.3, 1, 1.5, 16, 16.1, 170, 1e4]
    all_z = [0, 1e-30, 1e-4, 2, 20, 30, 1e3, -1e3, 1e6, 1e15, 1e30, np.inf]
    grid = np.stack(np.meshgrid(all_b, all_z)).reshape(2, -1)
    b, z = (np.resize(values, DRAWS) for values in grid)
    draws = draws_of(key, b, z, precision)
    assert np.all(np.isfinite(draws))
    assert np.all(draws >= 0)
    assert np.all(draws[b == 0] == 0)
    assert np.all(draws[(b >= 1e-4) & (np.abs(z) <= 1e15)] > 0)
    # The coefficient of variation is sqrt(2 / (b z)), here up to 1.4e-3: 1e-2 is seven of it.
    certain = (b >= 1) & (z == 1e6)
    np.testing.assert_allclose(draws[certain], b[certain] / 2e6, rtol=1e-2)


def test_what_is_no_parameter_gives_nan_and_ends(key):
    nan = np.nan
    draws = draws_of(
        key, np.resize([1, 0.5, 20, nan, -1], DRAWS), np.resize([nan] * 3 + [1] * 2, DRAWS)
    )
    assert np.all(np.isnan(draws))


# --- shapes, dtypes, keys ----------------------------------------------------------------------


def test_parameters_broadcast_and_give_the_dtype(key):
    def form(function, *parameters, **options):
        result = jax.eval_shape(lambda: function(*parameters, **options))
        return result.shape, result.dtype

    b, z = np.ones((3, 1), np.float32), np.ones(4, np.float32)
    assert form(polya_gamma, key, b, z) == ((3, 4), np.float32)
    assert form(polya_gamma, key, b, z, shape=[2, 3, 4]) == ((2, 3, 4), np.float32)
    assert form(polya_gamma, key, np.ones(4, np.int32), z) == ((4,), np.float32)
    assert form(polya_gamma, key, 1, 0) == ((), np.float32)
    assert form(polya_gamma_mean, b, z) == form(polya_gamma_variance, b, z) == ((3, 4), np.float32)
    with jax.enable_x64(True):
        assert form(polya_gamma, key, 1, 0) == ((), np.float64)
        assert form(polya_gamma, key, 1, z) == ((4,), np.float32)
        assert form(polya_gamma, key, np.ones(4), z) == ((4,), np.float64)


def test_no_element_gives_no_draw(key):
    assert polya_gamma(key, 1, np.zeros((0, 2))).shape == (0, 2)


def test_wrong_parameters_are_refused(key):
    with pytest.raises(ValueError, match=r"'b': \(3,\), 'z': \(2,\)}, which do not broadcast"):
        polya_gamma(key, np.ones(3), np.ones(2))
    with pytest.raises(ValueError, match=r"do not broadcast to shape=\(4,\)"):
        polya_gamma(key, np.ones(3), 1.0, shape=(4,))
    with pytest.raises(TypeError, match="Found bfloat16 for b, z"):
        polya_gamma(key, jnp.ones(3, jnp.bfloat16), 1.0)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_longer_array_begins_with_the_draws_of_a_shorter_one(precision, key, seed):
    """By flat index, in any shape. The largest b is cut off: the whole makes more passes."""
    generator = np.random.default_rng(seed)
    z = generator.normal(scale=3, size=DRAWS).astype(precision)
    b = generator.choice([0, 0.3, 1, 2.7, 16, 40.5], size=DRAWS).astype(precision)
    b[:55] = generator.choice([0, 0.3, 1, 2.7], size=55)
    whole = draws_of(key, b, z, precision)
    with in_precision(precision):
        part = polya_gamma(key, b[:55].reshape(11, 5), z[:55].reshape(11, 5))
    # Elements stand in another place of the vector instructions, which may round otherwise.
    tolerance = 32 * np.finfo(precision).eps
    np.testing.assert_allclose(whole[:55].reshape(11, 5), part, rtol=tolerance)


def test_jit_and_vmap_give_the_same_draws(key):
    b = jnp.asarray([0, 1, 0.5, 2.5, 16, 30], jnp.float32)
    z = jnp.linspace(-4, 4, 18, dtype=jnp.float32).reshape(3, 6)
    with jax.debug_key_reuse(True):
        keys = jax.random.split(key, 3)
        shared = jax.jit(jax.vmap(polya_gamma, (0, None, 0)))(jax.random.clone(keys), b, z)
        alone = np.stack([polya_gamma(jax.random.clone(keys[i]), b, z[i]) for i in range(3)])
    # With a batched b, JAX's own rule for conditions passes each key on twice: unchecked.
    each = jax.vmap(polya_gamma)(keys, jnp.broadcast_to(b, (3, 6)), z)
    # Fused and unfused code may round differently.
    np.testing.assert_allclose(shared, alone, rtol=1e-6)
    np.testing.assert_allclose(each, alone, rtol=1e-6)


def test_chains_that_share_b_skip_what_no_element_needs(key):
    """Under vmap a condition on a batched b would turn into running both sides."""

    def conditions(axis_of_b, b):
        def draw(key, b):
            return polya_gamma(key, b, jnp.zeros(4))

        program = jax.make_jaxpr(jax.vmap(draw, (0, axis_of_b)))(jax.random.split(key), b)
        return str(program).count(" cond[")

    assert conditions(None, jnp.ones(4)) == 2
    assert conditions(0, jnp.ones((2, 4))) == 0


def test_draws_differ_by_key_by_element_and_by_part(key):
    b = np.resize([1, 0.5, 20], DRAWS)
    first, second = (draws_of(k, b, 0) for k in jax.random.split(key))
    for i in range(3):
        # float32 has some 1e7 numbers in the bulk of the law: a few of 2e5 / 3 draws coincide.
        both = np.concatenate([first[i::3], second[i::3]])
        assert np.unique(both).size > 0.99 * both.size
    # The three parts do not share their randomness: ranks of neighbours are uncorrelated.
    ranks = stats.spearmanr(first[: DRAWS // 3 * 3].reshape(-1, 3)).statistic
    assert np.all(np.abs(ranks[np.triu_indices(3, 1)]) < 5 / np.sqrt(DRAWS / 3))
