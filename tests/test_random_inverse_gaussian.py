"""Inverse Gaussian and generalized inverse Gaussian draws against SciPy and quadrature.

Chance of a false alarm. Each Kolmogorov-Smirnov test fails a right sampler with probability 1e-4,
each comparison with five standard errors with 6e-7. There are 26 of the first and 20 of the second,
by Bonferroni at most 3e-3 for the file and a new seed. Seeds are fixed, so a run repeats itself.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import integrate, stats

from scalemix.random import generalized_inverse_gaussian, inverse_gaussian

DRAWS = 100_000
PRECISIONS = ["float32", "float64"]


def in_precision(precision):
    return jax.enable_x64(precision == "float64")


def assert_same_law(draws, cdf):
    assert stats.kstest(np.asarray(draws, np.float64), cdf).pvalue > 1e-4


def assert_mean(draws, mean, variance):
    error = np.mean(draws, dtype=np.float64) - mean
    assert abs(error) < 5 * np.sqrt(variance / np.size(draws))


# Ratios mean / shape from nearly degenerate, by ordinary, to nearly Levy.
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("mean", "shape_parameter"), [(1, 1e4), (3, 20), (0.7, 0.5), (1, 1e-3), (1e3, 1e-4), (1e-3, 1)]
)
def test_inverse_gaussian_has_scipys_law(precision, mean, shape_parameter, key):
    with in_precision(precision):
        draws = inverse_gaussian(key, jnp.asarray(mean, precision), shape_parameter, (DRAWS,))
    assert draws.dtype == precision
    # SciPy's parameters: mu = mean / scale, and the shape parameter is the scale.
    law = stats.invgauss(mean / shape_parameter, scale=shape_parameter)
    assert_same_law(draws, law.cdf)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_infinite_mean_is_levys_law(precision, key):
    with in_precision(precision):
        draws = inverse_gaussian(key, jnp.asarray(jnp.inf, precision), 2.5, (DRAWS,))
    assert np.isfinite(draws).all()
    assert_same_law(draws, stats.levy(scale=2.5).cdf)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("mean", "shape_parameter"), [(1, 1e4), (3, 20), (0.7, 0.5)])
def test_inverse_gaussian_has_its_moments(precision, mean, shape_parameter, key):
    """E x = m, E 1/x = 1/m + 1/s; Var x = m^3/s, Var 1/x = 1/(m s) + 2/s^2."""
    m, s = mean, shape_parameter
    with in_precision(precision):
        draws = np.asarray(inverse_gaussian(key, jnp.asarray(m, precision), s, (DRAWS,)))
    assert_mean(draws, m, m**3 / s)
    assert_mean(1 / draws, 1 / m + 1 / s, 1 / (m * s) + 2 / s**2)


@pytest.mark.parametrize("mean", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("ratio", [1e-20, 1e-8, 1.0, 1e8, 1e20])
def test_inverse_gaussian_stays_positive_and_finite_in_float32(mean, ratio, key):
    draws = inverse_gaussian(key, jnp.float32(mean), jnp.float32(mean * ratio), (DRAWS,))
    assert np.all((np.asarray(draws) > 0) & np.isfinite(draws))
    if ratio == 1e20:
        # The standard deviation is 1e-10 of the mean, less than half a unit of rounding; the
        # reciprocals of parameter and draw leave two such units.
        np.testing.assert_allclose(draws, mean, rtol=3e-7)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("chi", [0.0, 1e-8, 0.3, 5.0])
def test_half_gig_has_scipys_law(precision, chi, key, seed):
    psi = 1.7
    with in_precision(precision):
        draws = generalized_inverse_gaussian(key, 0.5, jnp.asarray(chi, precision), psi, (DRAWS,))
    assert draws.dtype == precision
    if chi == 0:
        assert_same_law(draws, stats.chi2(1, scale=1 / psi).cdf)
        return
    # geninvgauss's distribution function is a quadrature for each point: compare with its draws...
    law = stats.geninvgauss(0.5, np.sqrt(chi * psi), scale=np.sqrt(chi / psi))
    theirs = law.rvs(DRAWS, random_state=seed)
    assert stats.ks_2samp(np.asarray(draws, np.float64), theirs, method="asymp").pvalue > 1e-4
    # ... and, exactly, with the reciprocal of an inverse Gaussian variable.
    reciprocal = stats.recipinvgauss(1 / np.sqrt(chi * psi), scale=1 / psi)
    assert_same_law(draws, reciprocal.cdf)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("chi", [0.3, 5.0])
def test_half_gig_has_the_moments_of_its_density(precision, chi, key):
    """Moments by quadrature of the density; 1e-8 of them, which is far below the five errors."""
    psi = 1.7

    def moment(order):
        def integrand(x):
            return x ** (order - 0.5) * np.exp(-(chi / x + psi * x) / 2)

        parts = [integrate.quad(integrand, *ends, epsrel=1e-10)[0] for ends in ((0, 1), (1, 99))]
        return sum(parts)

    total, low, first, second, low_second = (moment(order) for order in (0, -1, 1, 2, -2))
    with in_precision(precision):
        draws = np.asarray(
            generalized_inverse_gaussian(key, 0.5, jnp.asarray(chi, precision), psi, (DRAWS,))
        )
    assert_mean(draws, first / total, second / total - (first / total) ** 2)
    assert_mean(1 / draws, low / total, low_second / total - (low / total) ** 2)
    # math.md 2.1: E 1/x = sqrt(psi / chi), E x = sqrt(chi / psi) + 1 / psi.
    np.testing.assert_allclose(low / total, np.sqrt(psi / chi), rtol=1e-8)
    np.testing.assert_allclose(first / total, np.sqrt(chi / psi) + 1 / psi, rtol=1e-8)


@pytest.mark.parametrize("chi", [1e-38, 1e-30, 1e-16, 1e-12, 1e-4])
def test_half_gig_is_positive_in_float32_where_the_textbook_form_is_not(chi, key, seed):
    million = 1_000_000
    draws = generalized_inverse_gaussian(key, 0.5, jnp.float32(chi), jnp.float32(0.5), (million,))
    bad = np.sum(~((np.asarray(draws) > 0) & np.isfinite(draws)))
    assert bad == 0

    # Planted error: the first root of 1 / x ~ IG(m, s) as a difference, in float32.
    m, s = np.float32(np.sqrt(0.5 / chi)), np.float32(0.5)
    y = np.random.default_rng(seed).standard_normal(million, np.float32) ** 2
    with np.errstate(over="ignore", invalid="ignore"):
        root = m + m**2 * y / (2 * s) - m / (2 * s) * np.sqrt(4 * m * s * y + m**2 * y**2)
    assert (np.mean(~(root > 0)) > 0.1) == (chi < 1e-4)


def test_only_one_half_exists(key):
    for p in (1, -0.5, 0.4999, None, jnp.ones(2) / 2):
        with pytest.raises(ValueError, match=r"Found p = .*exists for p = 1/2 only"):
            generalized_inverse_gaussian(key, p, 1.0, 1.0)


def test_parameters_broadcast(key):
    def form(function, *parameters, shape=None):
        result = jax.eval_shape(lambda: function(*parameters, shape=shape))
        return result.shape, result.dtype

    mean = np.ones((3, 1), np.float32)
    scale = np.ones(4, np.float32)
    for function, *first in (
        (inverse_gaussian, key),
        (generalized_inverse_gaussian, key, 0.5),
    ):
        assert form(function, *first, mean, scale) == ((3, 4), np.float32)
        assert form(function, *first, mean, scale, shape=[2, 3, 4]) == ((2, 3, 4), np.float32)
        assert form(function, *first, 1, 2) == ((), np.float32)
        assert form(function, *first, 1.0, np.zeros((0, 2))) == ((0, 2), np.float32)
        with jax.enable_x64(True):
            assert form(function, *first, 1, 2) == ((), np.float64)
            assert form(function, *first, 1, scale) == ((4,), np.float32)


def test_wrong_parameters_are_refused(key):
    with pytest.raises(ValueError, match=r"'chi': \(3,\), 'psi': \(2,\)}, which do not broadcast"):
        generalized_inverse_gaussian(key, 0.5, np.ones(3), np.ones(2))
    with pytest.raises(ValueError, match=r"do not broadcast to shape=\(2,\)"):
        inverse_gaussian(key, np.ones(3), 1.0, shape=(2,))
    with pytest.raises(ValueError, match=r"do not broadcast to shape=\(1,\)"):
        inverse_gaussian(key, np.ones(3), 1.0, shape=(1,))
    with pytest.raises(TypeError, match="Found float16 for mean, shape_parameter"):
        inverse_gaussian(key, jnp.ones(3, jnp.float16), 1.0)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("which", ["inverse_gaussian", "generalized_inverse_gaussian"])
def test_a_longer_array_begins_with_the_draws_of_a_shorter_one(precision, which, key, seed):
    def draw(first, second):
        if which == "inverse_gaussian":
            return inverse_gaussian(key, first, second)
        return generalized_inverse_gaussian(key, 0.5, first, second)

    first, second = np.random.default_rng(seed).gamma(1.0, size=(2, 37, 5)).astype(precision)
    with in_precision(precision):
        whole = draw(first, second)
        part = draw(first[:11], second[:11])
    assert whole.dtype == precision
    # Rows stand in another place of the vector instructions, which may round otherwise.
    np.testing.assert_allclose(whole[:11], part, rtol=4 * np.finfo(precision).eps)


def test_jit_and_vmap_give_the_same_draws(key, keys_used_once):
    keys = jax.random.split(key, 3)
    mean = jnp.linspace(0.5, 2, 6, dtype=jnp.float32)

    def draw(key):
        ours = inverse_gaussian(key, mean, 2.0)
        return ours, generalized_inverse_gaussian(jax.random.fold_in(key, 1), 0.5, mean, ours)

    together = jax.jit(jax.vmap(draw))(keys)
    alone = [draw(keys[i]) for i in range(3)]
    for got, expected in zip(together, zip(*alone, strict=True), strict=True):
        # Fused and unfused code may round differently.
        np.testing.assert_allclose(got, np.stack(expected), rtol=1e-6)


def test_draws_differ_by_key_and_by_element(key):
    first, second = (inverse_gaussian(k, jnp.ones(1000), 1.0) for k in jax.random.split(key))
    assert np.unique(np.concatenate([first, second])).size == 2000
    assert_array_equal(first, inverse_gaussian(jax.random.split(key)[0], jnp.ones(1000), 1.0))
