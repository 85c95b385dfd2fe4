"""The top layer: coefficients from Statistics, and the stochastic latents Z beneath them.

Everything is exact given omega. Coefficients have shape (1 + width, k), intercepts in row 0; the
latents are Z_i ~ N(f_i, tau_z^2 I), eta_i = b_0 + W_0' Z_i, and given omega

    Z_i ~ N(f_i + K_i (ytilde_i - b_0 - W_0' f_i), tau_z^2 (I - K_i W_0')),
    K_i = tau_z^2 W_0 (I / w_i + tau_z^2 W_0' W_0)^-1.

With W_0 U = B (columns orthogonal, squared lengths s^2) both cost O(width k) a row and need no
factorisation of a width x width matrix: the data inform Z_i only along the k columns of B.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from scalemix import linalg
from scalemix.quadratic import Quadratic, Statistics
from scalemix.random import gamma


class Top(NamedTuple):
    """Coefficients with the status of the factorisations they came from."""

    coefficients: Float[Array, "d k"]
    jitters: Int[Array, ""]
    """How often a factorisation needed jitter."""
    finite: Bool[Array, ""]


def design(features: Float[Array, "n p"]) -> Float[Array, "n d"]:
    """Features with a column of ones in front."""
    return jnp.concatenate([jnp.ones((features.shape[0], 1), features.dtype), features], axis=1)


def predictor(
    coefficients: Float[Array, "d k"], features: Float[Array, "n p"]
) -> Float[Array, "n k"]:
    """eta = b_0 + W_0' f."""
    return coefficients[:1] + features @ coefficients[1:]


def spread(
    coefficients: Float[Array, "d k"], latent_variance: Float[Array, ""] | float
) -> Float[Array, "k k"]:
    """Covariance that the latents leave in the predictor: tau_z^2 W_0' W_0."""
    weights = coefficients[1:]
    return latent_variance * weights.T @ weights


def _factors(statistics: Statistics) -> tuple[linalg.Factor, Array]:
    """One factor a matrix, and the linear terms grouped by the matrix they share."""
    n_matrices, width, _ = statistics.precision.shape
    grouped = statistics.linear.reshape(n_matrices, -1, width)
    return jax.vmap(linalg.factorise)(statistics.precision), grouped


def _top(factors: linalg.Factor, rows: Array) -> Top:
    coefficients = rows.reshape(-1, rows.shape[-1]).T
    return Top(
        coefficients, jnp.sum(factors.jitters, dtype=jnp.int32), jnp.all(jnp.isfinite(coefficients))
    )


def mode(statistics: Statistics) -> Top:
    """P^-1 h for each output."""
    factors, grouped = _factors(statistics)
    solve = jax.vmap(jax.vmap(linalg.solve, in_axes=(None, 0)))
    return _top(factors, solve(factors, grouped))


def draw(key: Key[Array, ""], statistics: Statistics) -> Top:
    """An exact draw from N(P^-1 h, P^-1), independent over outputs."""
    factors, grouped = _factors(statistics)
    noise = jax.random.normal(key, grouped.shape, grouped.dtype)
    sample = jax.vmap(jax.vmap(linalg.draw, in_axes=(None, 0, 0)))
    return _top(factors, sample(factors, grouped, noise))


def _directions(coefficients: Float[Array, "d k"]) -> tuple[Array, Array, Array]:
    """B = W_0 U with orthogonal columns, their squared lengths, and U."""
    weights = coefficients[1:]
    if weights.shape[1] == 1:
        return weights, jnp.sum(weights**2, axis=0), jnp.ones((1, 1), weights.dtype)
    values, vectors = jnp.linalg.eigh(weights.T @ weights)
    return weights @ vectors, jnp.maximum(values, 0), vectors


def latent_mean(
    features: Float[Array, "n p"],
    coefficients: Float[Array, "d k"],
    quadratic: Quadratic,
    latent_variance: Float[Array, ""] | float,
) -> Float[Array, "n p"]:
    """E[Z | omega, y]; `quadratic.w` is one column that serves all outputs."""
    directions, squared, turned = _directions(coefficients)
    residual = quadratic.h - quadratic.w * predictor(coefficients, features)
    gain = latent_variance / (1 + latent_variance * quadratic.w * squared[None])
    return features + (gain * (residual @ turned)) @ directions.T


def latent_noise(
    noise: Float[Array, "n p"],
    coefficients: Float[Array, "d k"],
    w: Float[Array, "n 1"] | Float[Array, ""],
    latent_variance: Float[Array, ""] | float,
) -> Float[Array, "n p"]:
    """Turn standard normal rows into rows with the conditional covariance of Z.

    tau_z (I + B diag(r) B') is its symmetric root, r = -a / (c (1 + c)), a = tau_z^2 w,
    c = sqrt(1 + a s^2): no cancellation, and the identity where w = 0.
    """
    directions, squared, _ = _directions(coefficients)
    a = latent_variance * jnp.reshape(w, (-1, 1))
    c = jnp.sqrt(1 + a * squared[None])
    along = (noise @ directions) * (-a / (c * (1 + c)))
    return jnp.sqrt(jnp.asarray(latent_variance, noise.dtype)) * (noise + along @ directions.T)


def latent_scatter(
    key: Key[Array, ""],
    degrees: Float[Array, ""],
    coefficients: Float[Array, "d k"],
    w: Float[Array, ""],
    latent_variance: Float[Array, ""] | float,
) -> Float[Array, "p p"]:
    """Scatter of copies of the latents about their mean: Wishart(degrees, covariance of Z).

    Bartlett's triangle, whose columns beyond the degrees of freedom are empty (a singular Wishart,
    and 0 at 0 degrees), turned by the root of the covariance. `degrees` is a whole number.
    """
    width = coefficients.shape[0] - 1
    dtype = coefficients.dtype
    key_diagonal, key_below = jax.random.split(key)
    left = jnp.maximum(degrees - jnp.arange(width), 0).astype(dtype)
    chi_square = 2 * gamma(key_diagonal, jnp.maximum(left, 1) / 2)
    below = jnp.tril(jax.random.normal(key_below, (width, width), dtype), -1)
    triangle = jnp.where(left[None] > 0, below + jnp.diag(jnp.sqrt(chi_square)), 0)
    root = latent_noise(triangle.T, coefficients, w, latent_variance)
    return root.T @ root


def latent_covariance(
    coefficients: Float[Array, "d k"],
    w: Float[Array, ""],
    latent_variance: Float[Array, ""] | float,
) -> Float[Array, "p p"]:
    """tau_z^2 (I - K W_0'), the covariance of Z given omega, for rows of precision w."""
    identity = jnp.eye(coefficients.shape[0] - 1, dtype=coefficients.dtype)
    root = latent_noise(identity, coefficients, w, latent_variance)
    return root.T @ root
