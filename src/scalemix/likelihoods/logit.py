"""Logistic likelihood of two classes by Polya-Gamma augmentation (Polson, Scott, Windle 2013)."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scalemix.likelihoods._base import (
    Classification,
    Columns,
    Parameters,
    RandomKey,
    Row,
    Rows,
    Spread,
    sample_predictor,
    sample_signs,
)
from scalemix.likelihoods._quadrature import normal_nodes
from scalemix.quadratic import Quadratic
from scalemix.random import polya_gamma, polya_gamma_mean

CUTS = (-24.0, -12.0, -6.0, -2.0, 2.0, 6.0, 12.0, 24.0)
"""Where the quadrature cuts the logistic function, so that each piece is a polynomial to rounding."""


class Logit(Classification):
    """P(y) = sigma(y eta), y in {-1, 1}.

    sigma(y eta)^b = 2^-b e^{b y eta / 2} E exp(-omega eta^2 / 2) with omega ~ PG(b, 0) for every real
    power b > 0, so w = omega | eta ~ PG(b, eta) and h = b y / 2. Exact where `polya_gamma` is.
    """

    name: ClassVar[str] = "logit"
    target: ClassVar[str] = "signs"
    default_intercept_scale: ClassVar[float] = 10.0
    allows_latents: ClassVar[bool] = True
    latents_in_closed_form: ClassVar[bool] = False
    allows_flat_prior: ClassVar[bool] = False

    def initial(self, dtype: Any) -> tuple[()]:
        """There are no parameters."""
        return ()

    def draw(
        self, key: RandomKey, parameters: Parameters, y: Rows, eta: Rows, power: Row, block: Columns
    ) -> Quadratic:
        """omega ~ PG(power, eta)."""
        power = power[:, None]
        return Quadratic(polya_gamma(key, power, eta[:, block]), power * y[:, block] / 2)

    def expect(
        self, parameters: Parameters, y: Rows, eta: Rows, power: Row, block: Columns
    ) -> Quadratic:
        """E omega = power tanh(eta / 2) / (2 eta)."""
        power = power[:, None]
        return Quadratic(polya_gamma_mean(power, eta[:, block]), power * y[:, block] / 2)

    def log_density(self, parameters: Parameters, y: Rows, mean: Rows, spread: Spread) -> Row:
        """Log sigma(y eta), or the logarithm of its logistic-normal average, by quadrature."""
        margin = (y * mean)[:, 0]
        if spread is None:
            return jax.nn.log_sigmoid(margin)
        nodes, weights = normal_nodes(margin, spread[0, 0], CUTS)
        return jax.scipy.special.logsumexp(jax.nn.log_sigmoid(nodes), axis=1, b=weights)

    def log_probabilities(
        self, parameters: Parameters, mean: Rows, spread: Spread
    ) -> Float[Array, "n 2"]:
        """Of -1 and of 1."""
        ones = jnp.ones_like(mean)
        negative = self.log_density(parameters, -ones, mean, spread)
        return jnp.stack([negative, self.log_density(parameters, ones, mean, spread)], axis=1)

    def sample(self, key: RandomKey, parameters: Parameters, mean: Rows, spread: Spread) -> Rows:
        """A sign a row, given a draw of its predictor."""
        key_eta, key_sign = jax.random.split(key)
        eta = sample_predictor(key_eta, mean, spread)
        return sample_signs(key_sign, self.log_probabilities(parameters, eta, None))
