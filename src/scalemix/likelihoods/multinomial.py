"""Softmax likelihood of many classes by conditional (one-vs-rest) Polya-Gamma augmentation."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from scalemix.likelihoods._base import (
    Classification,
    Columns,
    Parameters,
    RandomKey,
    Row,
    Rows,
    Spread,
)
from scalemix.quadratic import Quadratic
from scalemix.random import polya_gamma, polya_gamma_mean


class Multinomial(Classification):
    """P(y = k) = exp(eta_k) / sum_l exp(eta_l), y as indicators (n, K), a predictor for each class.

    Given the others, class k is logistic in eta_k - c_k with c_k = log sum_{l != k} exp(eta_l):
    w = omega ~ PG(b, eta_k - c_k), h = b (y_k - 1/2) + omega c_k (Holmes and Held 2006; Polson,
    Scott, Windle 2013). One block a class, in sequence, c_k recomputed each time: exact for the top
    weights. It gives *no* Gaussian conditional for latents Z (c_k depends on Z), so they are refused.
    """

    name: ClassVar[str] = "multinomial"
    target: ClassVar[str] = "indicators"
    default_intercept_scale: ClassVar[float] = 10.0
    allows_latents: ClassVar[bool] = False
    latents_in_closed_form: ClassVar[bool] = False
    allows_flat_prior: ClassVar[bool] = False

    def blocks(self, n_predictors: int) -> np.ndarray:
        """One class after the other."""
        return np.arange(n_predictors)[:, None]

    def identified(self, eta: Rows) -> Array:
        """Predictors about their mean: adding one number to all classes changes nothing."""
        return eta - jnp.mean(eta, axis=1, keepdims=True)

    def initial(self, dtype: Any) -> tuple[()]:
        """There are no parameters."""
        return ()

    def _rest(self, eta: Rows, block: Columns) -> Array:
        """c_k: log of the summed exponentials of all other classes, (n, 1)."""
        others = eta.at[:, block].set(-jnp.inf)
        return jax.scipy.special.logsumexp(others, axis=1, keepdims=True)

    def draw(
        self, key: RandomKey, parameters: Parameters, y: Rows, eta: Rows, power: Row, block: Columns
    ) -> Quadratic:
        """omega ~ PG(power, eta_k - c_k)."""
        rest, power = self._rest(eta, block), power[:, None]
        omega = polya_gamma(key, power, eta[:, block] - rest)
        return Quadratic(omega, power * (y[:, block] - 0.5) + omega * rest)

    def expect(
        self, parameters: Parameters, y: Rows, eta: Rows, power: Row, block: Columns
    ) -> Quadratic:
        """E omega = power tanh(t / 2) / (2 t), t = eta_k - c_k: monotone, block by block."""
        rest, power = self._rest(eta, block), power[:, None]
        omega = polya_gamma_mean(power, eta[:, block] - rest)
        return Quadratic(omega, power * (y[:, block] - 0.5) + omega * rest)

    def log_density(self, parameters: Parameters, y: Rows, mean: Rows, spread: Spread) -> Row:
        """Log softmax at the observed class."""
        return jnp.sum(y * jax.nn.log_softmax(mean, axis=1), axis=1)

    def log_probabilities(self, parameters: Parameters, mean: Rows, spread: Spread) -> Rows:
        """The logarithm of the softmax."""
        return jax.nn.log_softmax(mean, axis=1)

    def sample(self, key: RandomKey, parameters: Parameters, mean: Rows, spread: Spread) -> Rows:
        """Indicators of one class a row (Gumbel maximum)."""
        drawn = jax.random.categorical(key, mean, axis=1)
        return jax.nn.one_hot(drawn, mean.shape[1], dtype=mean.dtype)
