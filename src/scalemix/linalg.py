"""Cholesky factors with a status, and exact draws from N(P^-1 h, P^-1)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

FIRST_JITTER = 1e-10
"""Added to the unit diagonal of the correlation form when a plain factorisation fails."""
LAST_JITTER = 1e-2
"""Beyond this the matrix is given up and the factor is not finite."""


class Factor(NamedTuple):
    """P = D C C' D with D = diag(scale) and C lower triangular (the correlation form of P)."""

    scale: Float[Array, " d"]
    lower: Float[Array, "d d"]
    jitters: Int[Array, ""]
    """How often jitter had to be added or raised; 0 is an exact factorisation."""

    @property
    def finite(self) -> Bool[Array, ""]:
        """Whether the matrix could be factorised at all."""
        return jnp.all(jnp.isfinite(self.lower))


def factorise(precision: Float[Array, "d d"]) -> Factor:
    """Factorise a symmetric positive semi-definite matrix in correlation form.

    The correlation form makes the factor independent of the units of the columns. A column that no
    row informs and no prior holds (zero diagonal) gets unit precision; that and every jitter
    (1e-10 of the diagonal, raised tenfold until the factorisation succeeds) are counted.
    """
    diagonal = jnp.diagonal(precision)
    dead = diagonal <= 0
    scale = jnp.sqrt(jnp.where(dead, 1.0, diagonal))
    eye = jnp.eye(precision.shape[0], dtype=precision.dtype)
    correlation = precision / (scale[:, None] * scale[None, :]) + jnp.diag(dead.astype(precision.dtype))

    def fails(carry: tuple[Array, Array, Array]) -> Array:
        lower, jitter, _ = carry
        return ~jnp.all(jnp.isfinite(lower)) & (jitter < LAST_JITTER)

    def raise_jitter(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        _, jitter, count = carry
        jitter = jnp.where(count == 0, FIRST_JITTER, jitter * 10).astype(precision.dtype)
        return jnp.linalg.cholesky(correlation + jitter * eye), jitter, count + 1

    start = (jnp.linalg.cholesky(correlation), jnp.zeros((), precision.dtype), jnp.int32(0))
    lower, _, count = jax.lax.while_loop(fails, raise_jitter, start)
    return Factor(scale, lower, count + jnp.any(dead).astype(jnp.int32))


def solve(factor: Factor, linear: Float[Array, " d"]) -> Float[Array, " d"]:
    """P^-1 h by two triangular solves."""
    half = jax.scipy.linalg.solve_triangular(factor.lower, linear / factor.scale, lower=True)
    return jax.scipy.linalg.solve_triangular(factor.lower.T, half, lower=False) / factor.scale


def draw(
    factor: Factor, linear: Float[Array, " d"], noise: Float[Array, " d"]
) -> Float[Array, " d"]:
    """One exact draw from N(P^-1 h, P^-1): back-substitution of C^-1 D^-1 h + e, e ~ N(0, I)."""
    half = jax.scipy.linalg.solve_triangular(factor.lower, linear / factor.scale, lower=True)
    return jax.scipy.linalg.solve_triangular(factor.lower.T, half + noise, lower=False) / factor.scale
