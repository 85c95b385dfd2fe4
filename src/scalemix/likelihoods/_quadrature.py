"""Expectations under a normal law of a predictor, exact to rounding for any variance."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

POINTS = 16
"""Gauss-Legendre points of a piece."""
REACH = 8.5
"""Standard deviations kept on each side; the mass beyond is 2e-17."""
GRID = np.linspace(-REACH, REACH, 5)
"""Edges in standard units: 16 points integrate the bell to rounding on pieces this wide."""


def normal_nodes(
    mean: Float[Array, " n"], variance: Float[Array, ""], cuts: Sequence[Array | float]
) -> tuple[Float[Array, "n m"], Float[Array, "n m"]]:
    """Nodes and weights of E f(eta), eta ~ N(mean, variance), for f smooth between its cuts.

    Gauss-Legendre piece by piece; pieces end at the cuts (values of eta at which f bends) and at a
    grid of standard deviations. Weights of a row sum to 1 to rounding; with variance 0 the nodes are
    the mean.
    """
    rule = np.polynomial.legendre.leggauss(POINTS)
    nodes, weights = jnp.asarray(rule[0], mean.dtype), jnp.asarray(rule[1], mean.dtype)
    scale = jnp.sqrt(variance)
    safe = jnp.maximum(scale, jnp.finfo(mean.dtype).tiny)
    inside = [jnp.clip((cut - mean) / safe, -REACH, REACH) for cut in cuts]
    edges = jnp.sort(jnp.stack([*inside, *(jnp.full_like(mean, edge) for edge in GRID)]), axis=0)
    half = (edges[1:] - edges[:-1])[..., None] / 2
    t = (edges[1:] + edges[:-1])[..., None] / 2 + half * nodes[None, None]
    density = jnp.exp(-0.5 * t**2) / np.sqrt(2 * np.pi) * half * weights[None, None]
    flat = (mean.shape[0], -1)
    eta = mean[:, None] + scale * jnp.moveaxis(t, 1, 0).reshape(flat)
    return eta, jnp.moveaxis(density, 1, 0).reshape(flat)
