"""Gaussian likelihood: y ~ N_q(eta, tau_0^2 I), one noise scale for all outputs. No augmentation."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scalemix.likelihoods._base import (
    Columns,
    RandomKey,
    Regression,
    Row,
    Rows,
    Scalar,
    Spread,
)
from scalemix.quadratic import Quadratic, Sums
from scalemix.random import gamma

NOISE_SHAPE, NOISE_RATE = 1.0, 0.05
"""tau_0^2 ~ InvGamma(1, .05), in the units of the target as it is fitted."""


class Gaussian(Regression):
    """y_i ~ N(eta_i, tau_0^2 I_q). Everything here is exact.

    Parameters
    ----------
    noise_scale
        tau_0, a standard deviation; `None` learns tau_0^2 ~ InvGamma(1, .05).
    """

    noise_scale: Float[Array, ""] | float | None = None

    name: ClassVar[str] = "gaussian"
    target: ClassVar[str] = "real"
    default_intercept_scale: ClassVar[float] = 1.0
    allows_latents: ClassVar[bool] = True
    latents_in_closed_form: ClassVar[bool] = True
    allows_flat_prior: ClassVar[bool] = True

    def initial(self, dtype: Any) -> Array:
        """tau_0^2: the fixed one, or the prior's mode .025 to start from."""
        if self.noise_scale is None:
            return jnp.asarray(NOISE_RATE / (NOISE_SHAPE + 1), dtype)
        return jnp.asarray(self.noise_scale, dtype) ** 2

    def draw(
        self, key: RandomKey, parameters: Scalar, y: Rows, eta: Rows, power: Row, block: Columns
    ) -> Quadratic:
        """w = power / tau_0^2, one column for all outputs; h = w y."""
        return self.expect(parameters, y, eta, power, block)

    def expect(
        self, parameters: Scalar, y: Rows, eta: Rows, power: Row, block: Columns
    ) -> Quadratic:
        """As `draw`: there is no omega to take an expectation over."""
        w = (power / parameters)[:, None]
        return Quadratic(w, w * y[:, block])

    def _conditional(
        self, y: Rows, eta: Rows, power: Row, extra: Sums, prior_power: Scalar
    ) -> tuple[Array, Array]:
        """Shape and rate of tau_0^2 | beta, rows (math: InvGa(r(a+1)-1 + n/2, r c + RSS/2)).

        Residuals are formed before they are squared: y'(y - Zm) cancels when the fit is good.
        """
        count = y.shape[1] * jnp.sum(power) + extra.count
        loss = jnp.sum(power[:, None] * (y - eta) ** 2) + extra.loss
        shape = prior_power * (NOISE_SHAPE + 1) - 1 + count / 2
        return shape, prior_power * NOISE_RATE + loss / 2

    def refresh(
        self,
        key: RandomKey,
        parameters: Scalar,
        y: Rows,
        eta: Rows,
        power: Row,
        extra: Sums,
        prior_power: Scalar,
    ) -> Array:
        """tau_0^2 ~ InvGamma(shape, rate), exact; unchanged where it is fixed."""
        if self.noise_scale is not None:
            return parameters
        shape, rate = self._conditional(y, eta, power, extra, prior_power)
        return (rate / gamma(key, shape)).astype(parameters.dtype)

    def maximise(
        self, parameters: Scalar, y: Rows, eta: Rows, power: Row, extra: Sums, prior_power: Scalar
    ) -> Array:
        """The mode rate / (shape + 1); unchanged where tau_0 is fixed."""
        if self.noise_scale is not None:
            return parameters
        shape, rate = self._conditional(y, eta, power, extra, prior_power)
        return (rate / (shape + 1)).astype(parameters.dtype)

    def log_prior(self, parameters: Scalar) -> Array | float:
        """Log InvGamma density of a learned tau_0^2."""
        if self.noise_scale is not None:
            return 0.0
        return -(NOISE_SHAPE + 1) * jnp.log(parameters) - NOISE_RATE / parameters

    def noise_variance(self, parameters: Scalar) -> Array:
        """tau_0^2 itself."""
        return parameters

    def _covariance(self, parameters: Array, k: int, spread: Array | None) -> Array:
        noise = parameters * jnp.eye(k, dtype=parameters.dtype)
        return noise if spread is None else noise + spread

    def log_density(self, parameters: Scalar, y: Rows, mean: Rows, spread: Spread) -> Row:
        """Log N_q(y; mean, tau_0^2 I + spread)."""
        k = y.shape[1]
        if spread is None:
            quadratic = jnp.sum((y - mean) ** 2, axis=1) / parameters
            log_determinant = k * jnp.log(parameters)
        else:
            lower = jnp.linalg.cholesky(self._covariance(parameters, k, spread))
            white = jax.scipy.linalg.solve_triangular(lower, (y - mean).T, lower=True)
            quadratic = jnp.sum(white**2, axis=0)
            log_determinant = 2 * jnp.sum(jnp.log(jnp.diagonal(lower)))
        return -0.5 * (quadratic + log_determinant + k * jnp.log(2 * jnp.pi))

    def sample(self, key: RandomKey, parameters: Scalar, mean: Rows, spread: Spread) -> Rows:
        """mean + C e with CC' = tau_0^2 I + spread."""
        lower = jnp.linalg.cholesky(self._covariance(parameters, mean.shape[1], spread))
        return mean + jax.random.normal(key, mean.shape, mean.dtype) @ lower.T

    def moments(self, parameters: Scalar, mean: Rows, spread: Spread) -> tuple[Array, Array]:
        """Mean and the diagonal of tau_0^2 I + spread."""
        variance = jnp.diagonal(self._covariance(parameters, mean.shape[1], spread))
        return mean, jnp.broadcast_to(variance, mean.shape)

    def cumulative(self, parameters: Scalar, y: Rows, mean: Rows, spread: Spread) -> Rows:
        """Phi((y - mean) / s), s^2 the output's variance."""
        _, variance = self.moments(parameters, mean, spread)
        return jax.scipy.stats.norm.cdf((y - mean) / jnp.sqrt(variance))
