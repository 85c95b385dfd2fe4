"""Normal priors on the top layer: `Ridge`, its scale learned by default, and `Flat`."""

from numbers import Real
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from scalemix.priors._base import Prior
from scalemix.quadratic import Quadratic, Sums
from scalemix.random import gamma

SCALE_SHAPE, SCALE_RATE = 5.0, 5.0
"""A learned weight variance is InvGamma(5, 5): centred on weights of unit variance."""


def _positive(name: str, value: Any, otherwise: str = "") -> float:
    if isinstance(value, Real) and 0 < float(value) < float("inf"):
        return float(value)
    raise ValueError(f"Ridge: found {name}={value!r}; give a positive finite number{otherwise}")


class Ridge(Prior):
    """beta_j ~ N(0, scale^2), the intercepts N(0, intercept_scale^2). Exact.

    Parameters
    ----------
    scale
        Prior standard deviation of a weight, or `"learn"`: one variance for all weights,
        InvGamma(5, 5), drawn in every sweep.
    tied_to_noise
        Multiply both variances by the noise variance (the conjugate form; takes a fixed scale).
    intercept_scale
        `None`: 1 under a standardised real target, 10 otherwise.
    """

    scale: float | None
    """A fixed standard deviation; `None` where the variance is learned."""
    tied_to_noise: bool = eqx.field(static=True)
    intercept_scale: float | None

    name: ClassVar[str] = "ridge"

    def __init__(
        self,
        scale: float | str = "learn",
        tied_to_noise: bool = False,
        intercept_scale: float | None = None,
    ) -> None:
        """Refuse what is no prior, by name."""
        if scale == "learn" and tied_to_noise:
            raise ValueError("Ridge: found tied_to_noise=True with scale='learn'; give a number")
        self.scale = None if scale == "learn" else _positive("scale", scale, " or 'learn'")
        self.tied_to_noise = tied_to_noise
        self.intercept_scale = (
            None if intercept_scale is None else _positive("intercept_scale", intercept_scale)
        )

    @property
    def learns(self) -> bool:
        """Whether the weights' variance is drawn."""
        return self.scale is None

    def with_intercept_scale(self, default: float) -> "Ridge":
        """The same prior with the intercept's scale settled."""
        if self.intercept_scale is not None:
            return self
        return Ridge("learn" if self.scale is None else self.scale, self.tied_to_noise, default)

    def initial(self, dtype: Any) -> Array | tuple[()]:
        """The weights' variance: 1 where it is learned."""
        return jnp.ones((), dtype) if self.learns else ()

    def _variances(self, scales: Any, width: int, dtype: Any) -> Array:
        weights = scales if self.learns else jnp.asarray(self.scale, dtype) ** 2
        intercept = jnp.asarray(self.intercept_scale, dtype) ** 2
        return jnp.concatenate([intercept[None], jnp.broadcast_to(weights, (width,))])

    def quadratic(self, scales: Any, width: int, k: int, noise: Array | float) -> Quadratic:
        """Precision 1 / v (1 / (v tau_0^2) when tied), zero mean."""
        dtype = jnp.result_type(noise, *jax.tree.leaves(scales))
        variances = self._variances(scales, width, dtype)
        if self.tied_to_noise:
            variances = variances * noise
        return Quadratic(1 / variances[:, None], jnp.zeros((1 + width, k), dtype))

    def _conditional(self, coefficients: Array, prior_power: Array) -> tuple[Array, Array]:
        """Shape and rate of the weights' variance, InvGa(r(5+1)-1 + r d/2, r(5 + |W|^2/2))."""
        weights = coefficients[1:]
        shape = prior_power * (SCALE_SHAPE + 1 + weights.size / 2) - 1
        return shape, prior_power * (SCALE_RATE + jnp.sum(weights**2) / 2)

    def refresh(
        self, key: Key[Array, ""], scales: Any, coefficients: Array, prior_power: Array
    ) -> Any:
        """v ~ InvGamma(shape, rate) given the weights, exact; nothing where it is fixed."""
        if not self.learns:
            return scales
        shape, rate = self._conditional(coefficients, prior_power)
        return (rate / gamma(key, shape)).astype(scales.dtype)

    def maximise(self, scales: Any, coefficients: Array, prior_power: Array) -> Any:
        """The mode rate / (shape + 1)."""
        if not self.learns:
            return scales
        shape, rate = self._conditional(coefficients, prior_power)
        return (rate / (shape + 1)).astype(scales.dtype)

    def tied(self, coefficients: Array) -> Sums | None:
        """d and sum beta_j^2 / v_j, which join the noise variance's conditional."""
        if not self.tied_to_noise:
            return None
        variances = self._variances((), coefficients.shape[0] - 1, coefficients.dtype)
        count = jnp.asarray(coefficients.size, coefficients.dtype)
        return Sums(count, jnp.sum(coefficients**2 / variances[:, None]))

    def log_density(self, scales: Any, coefficients: Array, noise: Array | float) -> Array:
        """Sum of log N(beta_j; 0, v_j), and log InvGamma(v; 5, 5) where v is learned."""
        precision = self.quadratic(scales, coefficients.shape[0] - 1, 1, noise).w
        result = 0.5 * jnp.sum(jnp.log(precision) - precision * coefficients**2)
        if self.learns:
            result = result - (SCALE_SHAPE + 1) * jnp.log(scales) - SCALE_RATE / scales
        return result


class Flat(Prior):
    """The paper's improper flat prior; for likelihoods whose posterior stays proper under it."""

    name: ClassVar[str] = "flat"

    def initial(self, dtype: Any) -> tuple[()]:
        """There are no scales."""
        return ()

    def quadratic(self, scales: Any, width: int, k: int, noise: Array | float) -> Quadratic:
        """Nothing: zero precision."""
        dtype = jnp.result_type(noise)
        return Quadratic(jnp.zeros((1 + width, 1), dtype), jnp.zeros((1 + width, k), dtype))

    def log_density(
        self, scales: Any, coefficients: Float[Array, "d k"], noise: Array | float
    ) -> float:
        """A constant."""
        return 0.0
