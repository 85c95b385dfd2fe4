"""The contract of a prior on the top layer's coefficients."""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Float, Key

from scalemix.quadratic import Quadratic, Sums

Scales = Any
"""What a prior has learned of its own scales: a PyTree of arrays, () when all are fixed."""


class Prior(eqx.Module):
    """A normal law of the coefficients given scales, and the scales' own update.

    Coefficients have shape (1 + width, k), the intercepts in row 0. `noise` is the likelihood's
    noise variance, used by priors that are tied to it.
    """

    name: ClassVar[str]
    """The word of the interface."""

    @abstractmethod
    def initial(self, dtype: Any) -> Scales:
        """Scales to start a chain from."""

    @abstractmethod
    def quadratic(
        self, scales: Scales, width: int, k: int, noise: Float[Array, ""] | float
    ) -> Quadratic:
        """Quadratic(1/v, m/v) over coefficients: w (1 + width, #k), h (1 + width, k)."""

    def refresh(
        self,
        key: Key[Array, ""],
        scales: Scales,
        coefficients: Float[Array, "d k"],
        prior_power: Float[Array, ""],
    ) -> Scales:
        """Draw the scales given the coefficients, the joint prior raised to `prior_power`."""
        return scales

    def maximise(
        self, scales: Scales, coefficients: Float[Array, "d k"], prior_power: Float[Array, ""]
    ) -> Scales:
        """The mode of what `refresh` draws from."""
        return scales

    def tied(self, coefficients: Float[Array, "d k"]) -> Sums | None:
        """What a prior tied to the noise adds to the noise's own sums; None if it is not tied."""
        return None

    @abstractmethod
    def log_density(
        self, scales: Scales, coefficients: Float[Array, "d k"], noise: Float[Array, ""] | float
    ) -> Float[Array, ""] | float:
        """Log prior of coefficients and scales, constants left out."""
