"""Gamma draws against scipy's distribution function. Ten tests at p > 1e-4: one false alarm in 1000."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from scalemix.random import gamma

DRAWS = 100_000


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("shape", [0.5, 1.0, 3.3, 50.0, 1e4])
def test_law(key: jax.Array, shape: float, dtype: type) -> None:
    draws = np.asarray(jax.jit(gamma)(key, jnp.full(DRAWS, shape, dtype)), np.float64)
    assert np.all(draws > 0)
    assert stats.kstest(draws, stats.gamma(shape).cdf).pvalue > 1e-4
    # The tail that a distance of distribution functions hardly sees: binomial, five standard errors.
    beyond = np.mean(draws > stats.gamma(shape).isf(1e-3))
    assert abs(beyond - 1e-3) < 5 * np.sqrt(1e-3 / DRAWS)


@pytest.mark.usefixtures("x64")
def test_a_shape_without_its_third_is_caught(key: jax.Array) -> None:
    # The planted error: Marsaglia and Tsang's cube of a normal about the shape instead of shape - 1/3.
    cube = 3.3 * (1 + jax.random.normal(key, (DRAWS,), jnp.float64) / np.sqrt(9 * 3.3)) ** 3
    assert stats.kstest(np.asarray(cube), stats.gamma(3.3).cdf).pvalue < 1e-6


def test_draws_belong_to_the_key_alone(key: jax.Array) -> None:
    first, again = gamma(key, jnp.full(3, 2.0)), gamma(key, jnp.full(3, 2.0))
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(first)) == 3
