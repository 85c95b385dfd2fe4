"""Gamma draws that are cheap to compile: Marsaglia and Tsang (2000) without a loop."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

PROPOSALS = 16
"""Proposals made at once. Each is accepted with probability at least .95, so all fail less than once
in 1e20 draws (the first one would then stand)."""


def gamma(key: Key[Array, ""], shape_parameter: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Draw from Gamma(shape_parameter, rate 1) for shapes > 0, element by element.

    Exact up to the 32 random bits behind each normal and uniform. One call of the random generator
    serves all proposals: every such call costs a third of a second of compiling, and a rejection
    loop several.

    Parameters
    ----------
    key
        Consumed once.
    shape_parameter
        The Gamma's shape, any array; its dtype and shape are the result's.
    """
    result = jnp.asarray(shape_parameter)
    # Scalars a sweep: computed in float64 where the caller's trace allows it, because
    # d (1 - v + log v) cancels for large shapes.
    shape = result.astype(jax.dtypes.canonicalize_dtype(np.float64))
    bits = jax.random.bits(key, (*shape.shape, 2 * PROPOSALS + 1), jnp.uint32)
    uniform = (bits.astype(shape.dtype) + 0.5) / 2.0**32
    normal = jax.scipy.special.ndtri(uniform[..., :PROPOSALS])
    boosted = jnp.where(shape < 1, shape + 1, shape)[..., None]
    d = boosted - 1 / 3
    v = (1 + normal / jnp.sqrt(9 * d)) ** 3
    positive = v > 0
    log_v = jnp.log(jnp.where(positive, v, 1))
    limit = 0.5 * normal**2 + d * (1 - v + log_v)
    accepted = positive & (jnp.log(uniform[..., PROPOSALS:-1]) < limit)
    first = jnp.argmax(accepted, axis=-1, keepdims=True)
    draw = jnp.take_along_axis(d * v, first, axis=-1)[..., 0]
    # Gamma(a) = Gamma(a + 1) U^(1/a).
    draw = jnp.where(shape < 1, draw * uniform[..., -1] ** (1 / shape), draw)
    return draw.astype(result.dtype)
