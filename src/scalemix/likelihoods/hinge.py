"""Hinge pseudo-likelihood (support vector machine) by a normal variance-mean mixture."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scalemix.likelihoods._base import (
    Classification,
    Columns,
    RandomKey,
    Row,
    Rows,
    Scalar,
    Spread,
    sample_predictor,
    sample_signs,
)
from scalemix.likelihoods._quadrature import normal_nodes
from scalemix.quadratic import Quadratic
from scalemix.random import generalized_inverse_gaussian

SMOOTHING = 1e-6
"""EM replaces |u| by sqrt(u^2 + SMOOTHING^2): exact MM for a loss within SMOOTHING of the hinge."""

LOGITS = (2.0, 6.0, 12.0, 24.0)
"""The quadrature of the normalised loss is cut at its kinks, -1 and 1, and at these values of its
logit and their negatives, so that each piece is a polynomial to rounding whatever tau_0 is."""


class Hinge(Classification):
    """L(y, eta) = exp{-(2 / tau_0^2) (1 - y eta)_+}, y in {-1, 1}, as a flat mixture over lambda.

    lambda | eta ~ GIG(1/2, u^2 / tau_0^2, 1 / tau_0^2) with u = 1 - y eta, w = 1 / (tau_0^2 lambda),
    h = w y (1 + lambda); exact. L is no density in y (L(1) + L(-1) depends on eta), so the data
    cannot identify tau_0^2 and it is never learned; sqrt(2), the default, is the plain hinge loss.
    Probabilities are those of the *normalised* loss, L(y) / (L(1) + L(-1)): another model than the
    pseudo-posterior that was sampled, and the honest reading of it.
    """

    noise_scale: Float[Array, ""] | float = float(np.sqrt(2.0))

    name: ClassVar[str] = "hinge"
    target: ClassVar[str] = "signs"
    default_intercept_scale: ClassVar[float] = 10.0
    allows_latents: ClassVar[bool] = True
    latents_in_closed_form: ClassVar[bool] = False
    allows_flat_prior: ClassVar[bool] = False

    def initial(self, dtype: Any) -> Array:
        """tau_0^2, which stays as it is."""
        return jnp.asarray(self.noise_scale, dtype) ** 2

    def draw(
        self, key: RandomKey, parameters: Scalar, y: Rows, eta: Rows, power: Row, block: Columns
    ) -> Quadratic:
        """A power divides tau_0^2, exactly; a row of power 0 says nothing."""
        y, eta, power = y[:, block], eta[:, block], power[:, None]
        scale = parameters / jnp.where(power > 0, power, 1.0)
        mixing = generalized_inverse_gaussian(key, 0.5, (1 - y * eta) ** 2 / scale, 1 / scale)
        w = jnp.where(power > 0, 1 / (scale * mixing), 0.0)
        return Quadratic(w, w * y + jnp.where(power > 0, y / scale, 0.0))

    def expect(
        self, parameters: Scalar, y: Rows, eta: Rows, power: Row, block: Columns
    ) -> Quadratic:
        """E w = power / (tau_0^2 |u|) and E h = y (E w + power / tau_0^2), |u| smoothed."""
        y, eta = y[:, block], eta[:, block]
        rate = power[:, None] / parameters
        w = rate / jnp.sqrt((1 - y * eta) ** 2 + SMOOTHING**2)
        return Quadratic(w, y * (w + rate))

    def log_density(self, parameters: Scalar, y: Rows, mean: Rows, spread: Spread) -> Row:
        """Log L; with a spread the closed form of E L under eta ~ N(mean, spread), in logs.

        p = Phi(-u/s) + exp(-g u + g^2 v / 2) Phi((u - g v) / s), g = 2 / tau_0^2, u = 1 - y mean.
        """
        u, rate = (1 - y * mean)[:, 0], 2 / parameters
        if spread is None:
            return -rate * jax.nn.relu(u)
        variance = spread[0, 0]
        scale = jnp.sqrt(variance)
        return jnp.logaddexp(
            jax.scipy.stats.norm.logcdf(-u / scale),
            -rate * u
            + rate**2 * variance / 2
            + jax.scipy.stats.norm.logcdf((u - rate * variance) / scale),
        )

    def log_probabilities(
        self, parameters: Scalar, mean: Rows, spread: Spread
    ) -> Float[Array, "n 2"]:
        """The normalised loss: logit p = (2 / tau_0^2) {(1 + eta)_+ - (1 - eta)_+}."""

        def log_normalised(eta: Array) -> Array:
            gap = jax.nn.relu(1 + eta) - jax.nn.relu(1 - eta)
            return jax.nn.log_sigmoid(2 / parameters * gap)

        # The logit is 4 eta / tau_0^2 between the kinks, and half as steep beyond them.
        inner = [parameters * logit / 4 for logit in LOGITS]
        cuts: list[Array | float] = [1.0, *(jnp.where(cut < 1, cut, 2 * cut - 1) for cut in inner)]
        both = (*cuts, *(-cut for cut in cuts))

        def one(mean: Array) -> Array:
            if spread is None:
                return log_normalised(mean)
            nodes, weights = normal_nodes(mean, spread[0, 0], both)
            return jax.scipy.special.logsumexp(log_normalised(nodes), axis=1, b=weights)

        return jnp.stack([one(-mean[:, 0]), one(mean[:, 0])], axis=1)

    def sample(self, key: RandomKey, parameters: Scalar, mean: Rows, spread: Spread) -> Rows:
        """A sign a row, by the normalised loss at a draw of its predictor."""
        key_eta, key_sign = jax.random.split(key)
        eta = sample_predictor(key_eta, mean, spread)
        return sample_signs(key_sign, self.log_probabilities(parameters, eta, None))
