"""The one message of the house, and what rows become.

Given its augmentation variables a likelihood is quadratic in the linear predictor,

    log L(y_i, eta_i | omega_i) = -1/2 w_i eta_i^2 + h_i eta_i + const,

and `Quadratic` carries the pair (w, h). Summed over rows against a design it becomes `Statistics`,
to which priors add a `Quadratic` over coefficients. Nothing else crosses rows.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Quadratic(NamedTuple):
    """Precision and linear term of a Gaussian kernel, per row or per coefficient.

    A column of `w` may serve all columns of `h`: `w` of shape (n, 1) beside `h` of shape (n, q) is
    one precision shared by q outputs.
    """

    w: Float[Array, "n #k"]
    """Precision, non-negative; 0 where a row says nothing."""
    h: Float[Array, "n k"]
    """Precision times working response (never divided by `w`)."""


class Sums(NamedTuple):
    """The scalars that a likelihood's own scale needs of the rows."""

    count: Float[Array, ""]  # type: ignore[assignment]
    """Number of observed values, each counted with its power."""
    loss: Float[Array, ""]
    """Sum of the values' losses (squared residuals for the Gaussian), each with its power."""

    def __add__(self, other: "Sums") -> "Sums":  # type: ignore[override]
        return Sums(self.count + other.count, self.loss + other.loss)


class Statistics(NamedTuple):
    """What the top layer needs of the rows: P and h of `exp(-1/2 b'Pb + h'b)`, per output."""

    precision: Float[Array, "#k d d"]
    """One matrix an output, or one for all."""
    linear: Float[Array, "k d"]

    def __add__(self, other: "Statistics") -> "Statistics":  # type: ignore[override]
        return Statistics(self.precision + other.precision, self.linear + other.linear)

    def with_prior(self, prior: Quadratic) -> "Statistics":
        """Add a diagonal Gaussian prior, a `Quadratic` over coefficients: w (d, #k), h (d, k)."""
        diagonal = jax.vmap(jnp.diag)(prior.w.T.astype(self.precision.dtype))
        return Statistics(self.precision + diagonal, self.linear + prior.h.T)
