"""Inverse Gaussian and generalized inverse Gaussian draws: no rejection, no cancellation.

=============================  ===========================  ======  =============================
function                       range                        exact   cost of a draw
=============================  ===========================  ======  =============================
inverse_gaussian               mean (also inf), shape > 0   yes     one normal, one uniform
generalized_inverse_gaussian   p = 1/2, chi >= 0, psi > 0   yes     one normal, one uniform
=============================  ===========================  ======  =============================

"Exact" is up to the rounding of the dtype. Both are one formula: the transformation with two roots
of Michael, Schucany and Haas (1976, The American Statistician 30, 88-90), applied to the reciprocal
of an inverse Gaussian variable, where the first root is a sum of positive terms. The textbook form
takes the root of the variable itself, a difference of nearly equal numbers where mean / shape is
large: in float32 a good part of its draws are zero or negative there.

Draws are laid out by element: the draw of element i depends on the key, on the flat index i and on
the element's own parameters, not on how many elements there are.
"""

from numbers import Real

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key


def inverse_gaussian(
    key: Key[Array, ""],
    mean: ArrayLike,
    shape_parameter: ArrayLike,
    shape: tuple[int, ...] | None = None,
) -> Float[Array, "..."]:
    """Draw from the inverse Gaussian distribution (Wald's); exact.

    The density is sqrt(s / (2 pi x^3)) exp{-s (x - m)^2 / (2 m^2 x)}, x > 0, with mean m, shape
    parameter s and variance m^3 / s. For m = inf it is Levy's distribution with scale s.

    Parameters
    ----------
    key
        Random key, consumed.
    mean
        m > 0, in the units of the draw; inf is allowed.
    shape_parameter
        s > 0, in the same units. Broadcasts against `mean`.
    shape
        Shape of the result; None is that of the parameters, broadcast.

    Returns
    -------
    Draws in the dtype of the parameters.
    """
    mean, shape_parameter = broadcast_parameters(shape, mean=mean, shape_parameter=shape_parameter)
    return 1 / _draw(key, 1 / mean, 1 / shape_parameter)


def generalized_inverse_gaussian(
    key: Key[Array, ""],
    p: float,
    chi: ArrayLike,
    psi: ArrayLike,
    shape: tuple[int, ...] | None = None,
) -> Float[Array, "..."]:
    """Draw from the generalized inverse Gaussian distribution with p = 1/2; exact.

    The density is proportional to x^(p - 1) exp{-(chi / x + psi x) / 2}, x > 0. For p = 1/2 the
    reciprocal 1 / x is inverse Gaussian with mean sqrt(psi / chi) and shape parameter psi, and at
    chi = 0 psi x is chi-squared with one degree of freedom. Every draw is positive.

    Parameters
    ----------
    key
        Random key, consumed.
    p
        The number 1/2; others do not exist yet.
    chi
        >= 0, in the units of the draw.
    psi
        > 0, in the inverse of those units. Broadcasts against `chi`.
    shape
        Shape of the result; None is that of `chi` and `psi`, broadcast.

    Returns
    -------
    Draws in the dtype of `chi` and `psi`.
    """
    if not isinstance(p, Real) or p != 0.5:
        raise ValueError(
            f"Found p = {p}: generalized_inverse_gaussian exists for p = 1/2 only, given as a "
            "number (for p = -1/2 draw inverse_gaussian(key, sqrt(chi / psi), chi))."
        )
    chi, psi = broadcast_parameters(shape, chi=chi, psi=psi)
    return _draw(key, jnp.sqrt(chi) / jnp.sqrt(psi), 1 / psi)


@jax.jit
def _draw(
    key: Key[Array, ""], centre: Float[Array, "..."], scale: Float[Array, "..."]
) -> Float[Array, "..."]:
    """`half_gig` for arrays of one shape and dtype."""
    return half_gig(positive_uniforms(key, 2, centre.shape, centre.dtype), centre, scale)


def half_gig(
    uniforms: Float[Array, "2 ..."], centre: Float[Array, "..."], scale: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Turn two uniforms into x ~ GIG(1/2, centre^2 / scale, 1 / scale).

    1 / x is inverse Gaussian with mean 1 / centre and shape parameter 1 / scale.

    (x - centre)^2 / (scale x) is chi-squared with one degree of freedom. Given its value
    2 h / scale, x is one of the two roots, whose product is centre^2; it is the larger, y, with
    probability y / (y + centre).
    """
    h = squared_normal_quantile(uniforms[0]) * (scale / 2)
    larger = centre + h + jnp.sqrt(h) * jnp.sqrt(2 * centre + h)  # h^2 itself might overflow
    ratio = centre / larger
    return jnp.where(uniforms[1] * (1 + ratio) <= 1, larger, centre * ratio)


def squared_normal_quantile(probability: Float[Array, "..."]) -> Float[Array, "..."]:
    """Quantile of the square of a standard normal variable, kept finite at 1."""
    below_one = 1 - jnp.finfo(probability.dtype).epsneg
    return 2 * jax.lax.erf_inv(jnp.minimum(probability, below_one)) ** 2


def positive_uniforms(
    key: Key[Array, ""],
    number: int,
    shape: tuple[int, ...],
    dtype: np.dtype,
    step: ArrayLike = 0,
) -> Float[Array, "number ..."]:
    """Uniform draws from (0, 1], with all the bits of a random word where they are small.

    `jax.random.uniform` has a grid of 2^-23 in float32, zero included: too coarse where the draw
    goes into a logarithm or a reciprocal. This one has 2^-32 (float32) and 2^-64 (float64).

    Parameters
    ----------
    key
        Random key, used for all steps of a loop.
    number
        Of independent arrays.
    shape, dtype
        Of each array.
    step
        Number of the step, an integer from 0 on.
    """
    # Numbering keys by array and elements by flat index, instead of drawing (number, *shape) words,
    # makes an element independent of the shape; one call hashes and compiles faster than several.
    numbers = jnp.arange(number, dtype=jnp.uint32) + jnp.asarray(step, jnp.uint32) * number
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)
    bits = 8 * dtype.itemsize
    words = jax.vmap(lambda key: jax.random.bits(key, shape, f"uint{bits}"))(keys)
    return (words.astype(dtype) + 0.5) * 2.0**-bits


def broadcast_parameters(
    shape: tuple[int, ...] | None, **parameters: ArrayLike
) -> tuple[Float[Array, "..."], ...]:
    """Bring parameters to one shape and one dtype.

    Parameters
    ----------
    shape
        Of the result; None is the parameters' own, broadcast.
    **parameters
        By name, for the message.

    Returns
    -------
    Arrays in float32 or float64, in the order of the parameters.
    """
    dtype = jnp.result_type(*parameters.values(), 0.0)
    if dtype not in (jnp.float32, jnp.float64):
        raise TypeError(
            f"Found {dtype} for {', '.join(parameters)}: draws are made in float32 or float64, so "
            "convert the parameters to one of them."
        )
    shapes = {name: jnp.shape(value) for name, value in parameters.items()}
    try:
        common = jnp.broadcast_shapes(*shapes.values(), *(() if shape is None else (tuple(shape),)))
    except ValueError:
        common = None
    if common is None or (shape is not None and common != tuple(shape)):
        raise ValueError(
            f"Found shapes {shapes}, which do not broadcast "
            + ("against each other." if shape is None else f"to shape={tuple(shape)}.")
        )
    return tuple(jnp.broadcast_to(jnp.asarray(v, dtype), common) for v in parameters.values())
