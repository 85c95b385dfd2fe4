"""Cholesky factors with a status, and exact draws from N(P^-1 h, P^-1)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

JITTERS = (0.0, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
"""Added to the unit diagonal of the correlation form, one after the other until it factorises."""


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
    correlation = precision / (scale[:, None] * scale[None, :]) + jnp.diag(
        dead.astype(precision.dtype)
    )

    def fails(carry: tuple[Array, Array]) -> Array:
        lower, tries = carry
        return ~jnp.all(jnp.isfinite(lower)) & (tries < len(JITTERS))

    def factor(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        _, tries = carry
        jitter = jnp.asarray(JITTERS, precision.dtype)[tries]
        return jnp.linalg.cholesky(correlation + jitter * eye), tries + 1

    # The first pass is the plain factorisation; a loop holds one Cholesky to compile instead of two.
    nothing = (jnp.full_like(correlation, jnp.nan), jnp.int32(0))
    lower, tries = jax.lax.while_loop(fails, factor, nothing)
    count = tries - 1
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
    return (
        jax.scipy.linalg.solve_triangular(factor.lower.T, half + noise, lower=False) / factor.scale
    )
