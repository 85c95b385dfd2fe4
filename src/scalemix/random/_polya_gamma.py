r"""Polya-Gamma draws PG(b, z) for every real b >= 0, and their moments.

PG(b, z) is the law of sum_k g_k / d_k with independent g_k ~ Gamma(b, 1), k = 1, 2, ..., and
d_k = 2 pi^2 (k - 1/2)^2 + z^2 / 2 (Polson, Scott and Windle 2013, JASA 108, 1339-1349: "PSW").
It is additive in b, and b is split:

============  ===========  ===================================  =================================
part of b     function     error                                cost of an element
============  ===========  ===================================  =================================
whole, <= 16  `_whole`     exact                                b to 1.13 b passes
fraction      `_fraction`  exact                                2 random words, and 1 to 2 passes
above 16      `_large`     distribution function within 2.2e-5  5 random words
                           Laplace transform within 1.4e-7
                           mean exact, variance within 1.3e-5
                           and third cumulant within 3e-5 of it
============  ===========  ===================================  =================================

"Exact" is up to the rounding of the dtype and of its uniforms. A pass takes two or three random
words and some ten elementary functions for every element, and an array makes passes until its last
element is done: 3 to 7 for 1e6 draws of PG(1, z), some 10 for fractions. What no element needs is
not run, and which parts are needed depends on b alone. The errors are those at b = 16, the largest
over z; that of the distribution function falls as 1 / b, to 1.9e-6 at b = 170.

Devroye's sampler (`_whole`). With h = |z| / 2, X = 4 PG(1, z) has the density
cosh(h) exp(-h^2 x / 2) f(x), where f has two alternating series (PSW, section 4.1), each of which
bounds f by its first term:

    f(x) = l(x) S(exp(-4 / x)),     l(x) = sqrt(2 / (pi x^3)) exp(-1 / (2 x)),
         = r(x) S(exp(-pi^2 x)),    r(x) = (pi / 2) exp(-pi^2 x / 8),
    S(q) = sum_{n >= 0} (-1)^n (2 n + 1) q^{n (n + 1) / 2}.

With the first for x <= .64 and the second beyond, q < 2e-3: four terms leave 1e-26, less than the
grid of any uniform, so that S is simply evaluated. For small h the proposal is l(x) up to .64
(a truncated Levy variable, by its quantile function) and r(x) exp(-h^2 x / 2) beyond (exponential);
for larger h it is l(x) exp(-h^2 x / 2) on the whole line, the inverse Gaussian with mean 1 / h and
shape parameter 1, accepted with probability 1 / (1 + exp(-2 h)). PSW truncate the inverse Gaussian
by an inner loop; here every rejection starts anew, so that one loop serves all elements.

Decomposition (`_fraction`). As a process in b, PG has jumps of size x at the rate
sum_k exp(-d_k x) / x. By the theta function's two series this exceeds the rate of an inverse
Gaussian process,

    exp(-r^2 x / 2) / (sqrt(8 pi) x^{3/2}),     r^2 = pi^2 + z^2,

by a finite measure: with u = pi^2 x / 2,

    {T(u) - sqrt(pi / u) / 4} exp(-r^2 x / 2) / x,     T(u) = sum_{k >= 1} exp(-4 k (k - 1) u).

So PG(b, z) is the sum of an inverse Gaussian variable with mean b / (2 r) and shape parameter
b^2 / 4 and of the jumps of a Poisson process, b log{exp(r / 2) / (2 cosh(z / 2))} of them on
average (.88 b at z = 0, fewer beyond). They are thinned from jumps at the rate
MAXIMUM sqrt(pi^2 / (2 x)) exp(-r^2 x / 2), whose sizes are squared normals over r^2.

Matching (`_large`). g_1 / d_1 is drawn, the rest replaced by an inverse Gaussian variable and a
constant with the same mean, variance and third cumulant. Where b exp(-|z|) < 1e-6, PG(b, z) is, to
that error in total variation, the inverse Gaussian with mean b / (2 |z|) and shape parameter
b^2 / 4.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Key

from scalemix.random._inverse_gaussian import (
    broadcast_parameters,
    half_gig,
    positive_uniforms,
    squared_normal_quantile,
)

LARGEST_EXACT = 16
"""Up to this b draws are exact, in a time that grows with b. It would take more than 1e9 draws to
see the error beyond."""

TRUNCATION = 0.64
"""Where Devroye's sampler changes series; both converge at once in a wide neighbourhood of it."""

LEVY_MASS = 0.4225990946674214
"""Integral of l(x) up to TRUNCATION: 4 Phi(-1 / sqrt(.64))."""

SMALL_HALF_TILT = 1.04
"""The |z| / 2 up to which Devroye's proposal is mixed: there both proposals are accepted with
probability .89, at their worst."""

MAXIMUM = 0.566812
"""Of {T(u) - sqrt(pi / u) / 4} / sqrt(u), rounded up: it is .56681142 at u = .7308."""

LARGEST_TILT = 1e18
"""|z| is cut there, whose square is a float32."""


def polya_gamma(
    key: Key[Array, ""], b: ArrayLike, z: ArrayLike, shape: tuple[int, ...] | None = None
) -> Float[Array, "..."]:
    """Draw from the Polya-Gamma distribution PG(b, z); exact for b <= 16.

    E exp(-s omega) = {cosh(z / 2) / cosh(sqrt(z^2 / 4 + s / 2))}^b. Beyond 16 the distribution
    function is within 2.2e-5 of the true one, and the mean is right.

    Parameters
    ----------
    key
        Random key, consumed.
    b
        >= 0, any real number; at 0 the draw is exactly 0.
    z
        Any real number, the log-odds in a logistic regression. Broadcasts against `b`.
    shape
        Shape of the result; None is that of the parameters, broadcast.

    Returns
    -------
    Draws in the dtype of the parameters, NaN where b is negative or one of them is NaN. A draw too
    small for the dtype is 0.
    """
    b, z = broadcast_parameters(shape, b=b, z=z)
    return _draw(key, b, z)


def polya_gamma_mean(b: ArrayLike, z: ArrayLike) -> Float[Array, "..."]:
    """Mean of PG(b, z), b tanh(z / 2) / (2 z), with its gradients, at z = 0 too.

    Parameters
    ----------
    b, z
        As for `polya_gamma`.

    Returns
    -------
    The mean in the parameters' broadcast shape and dtype, to a few units of rounding.
    """
    b, z = broadcast_parameters(None, b=b, z=z)
    return b * _unit_cumulants(z)[0]


def polya_gamma_variance(b: ArrayLike, z: ArrayLike) -> Float[Array, "..."]:
    """Variance of PG(b, z), b {2 tanh(z / 2) - z / cosh(z / 2)^2} / (4 z^3), with its gradients.

    Parameters
    ----------
    b, z
        As for `polya_gamma`.

    Returns
    -------
    The variance in the parameters' broadcast shape and dtype, to some units of rounding.
    """
    b, z = broadcast_parameters(None, b=b, z=z)
    return b * _unit_cumulants(z)[1]


def _unit_cumulants(z: Float[Array, "..."]) -> tuple[Float[Array, "..."], ...]:
    """Mean, variance and third cumulant of PG(1, z).

    With v = z^2 / 4, tanh(z / 2) / (z / 2) is Lambert's continued fraction q = 1 / (1 + v r),
    r = 1 / (3 + v p), p = 1 / (5 + ...), all of whose terms are positive. The derivatives in v are
    q' = -q (q - r) / 2 and r' = -r (r - p) / 2, and the cumulants are derivatives in z^2 / 2:
    nothing cancels for |z| < 2, nor does it in the closed forms beyond.
    """
    absolute = jnp.abs(z)
    near = absolute < 2
    v = jnp.where(near, z, 0) ** 2 / 4
    p = 1 / jnp.asarray(19, z.dtype)  # leaves a relative error of 1e-18 at v = 1
    for odd in (17, 15, 13, 11, 9, 7, 5):
        p = 1 / (odd + v * p)
    r = 1 / (3 + v * p)
    q = 1 / (1 + v * r)
    third_near = q / 64 * ((q - r) * (2 * q - r) - r * (r - p))

    far = jnp.where(near, 2, absolute)
    e = jnp.exp(-far)
    tanh = (1 - e) / (1 + e)
    fall = far * (4 * e / (1 + e) ** 2)  # z sech^2(z / 2)
    inverse = 1 / far  # whose powers may vanish, while those of z overflow
    n = 2 * tanh - fall
    return (
        jnp.where(near, q / 4, inverse * tanh / 2),
        jnp.where(near, q * (q - r) / 16, inverse**3 * n / 4),
        jnp.where(near, third_near, inverse**5 * (3 * n - far * tanh * fall) / 4),
    )


@jax.jit
def _draw(
    key: Key[Array, ""], b: Float[Array, "..."], z: Float[Array, "..."]
) -> Float[Array, "..."]:
    """`polya_gamma` for arrays of one shape and dtype."""
    key_whole, key_fraction, key_large = jax.random.split(key, 3)
    tilt = jnp.minimum(jnp.abs(z), LARGEST_TILT)
    large = b > LARGEST_EXACT
    exact = jnp.where(large, 0, b)
    whole = jnp.floor(exact)
    fraction = exact - whole

    def none() -> Float[Array, "..."]:
        return jnp.zeros_like(b)

    # The predicates see b alone: under vmap over chains that share b they stay scalars, and what
    # is not needed is not run.
    total = (
        _whole(key_whole, whole, tilt)
        + jax.lax.cond(jnp.any(fraction > 0), lambda: _fraction(key_fraction, fraction, tilt), none)
        + jax.lax.cond(
            jnp.any(large),
            lambda: jnp.where(
                large, _large(key_large, jnp.where(large, b, LARGEST_EXACT), tilt), 0
            ),
            none,
        )
    )
    return jnp.where(b >= 0, total, jnp.nan)


def _repeat(
    key: Key[Array, ""],
    number: int,
    step: Callable[[Float[Array, "number ..."], tuple], tuple],
    pending: Callable[[tuple], Bool[Array, "..."]],
    state: tuple,
) -> tuple:
    """Apply `step` to all elements, with `number` fresh uniforms each, until none is pending."""
    shape, dtype = state[0].shape, state[0].dtype

    def body(carry: tuple) -> tuple:
        i, state = carry
        return i + 1, step(positive_uniforms(key, number, shape, dtype, step=i), state)

    start = jnp.zeros((), jnp.uint32), state
    return jax.lax.while_loop(lambda carry: jnp.any(pending(carry[1])), body, start)[1]


def _whole(
    key: Key[Array, ""], count: Float[Array, "..."], tilt: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Sum of `count` draws of PG(1, tilt), exact."""

    def step(uniforms: Float[Array, "2 ..."], state: tuple) -> tuple:
        total, remaining = state
        proposal, rejected = _devroye_trial(uniforms[0], uniforms[1], tilt / 2)
        taken = (remaining > 0) & ~rejected  # a NaN is taken, so that it ends
        return total + jnp.where(taken, proposal / 4, 0), jnp.where(taken, remaining - 1, remaining)

    return _repeat(key, 2, step, lambda state: state[1] > 0, (jnp.zeros_like(tilt), count))[0]


def _devroye_trial(
    u: Float[Array, "..."], v: Float[Array, "..."], h: Float[Array, "..."]
) -> tuple[Float[Array, "..."], Bool[Array, "..."]]:
    """Turn two uniforms into a proposal for X = 4 PG(1, 2 h), and say whether to reject it."""
    mixed = h < SMALL_HALF_TILT

    # The mixture by one uniform: u * mass counts from the far end of the exponential tail.
    rate = np.pi**2 / 8 + h**2 / 2
    exponential_mass = np.pi / 2 / rate * jnp.exp(-rate * TRUNCATION)
    mass = u * (exponential_mass + LEVY_MASS)
    beyond = mass < exponential_mass
    exponential = TRUNCATION - jnp.log(mass / exponential_mass) / rate

    # Levy: 1 / N^2 given |N| > 1.25, at (mass - exponential_mass) of the mass 4 Phi(-1.25).
    # Inverse Gaussian with mean 1 / h and shape parameter 1, as in half_gig.
    level = jnp.where(mixed, 1 - jnp.maximum(mass - exponential_mass, 0) / 2, u)
    squared = squared_normal_quantile(level)
    larger = h + squared / 2 + jnp.sqrt(squared * (h + squared / 4))
    ratio = h / larger
    take_larger = v * (1 + ratio) <= 1
    gaussian = 1 / jnp.where(take_larger, larger, h * ratio)
    x = jnp.where(mixed, jnp.where(beyond, exponential, 1 / squared), gaussian)

    # Given the root, the rest of v is uniform again.
    rest = jnp.where(take_larger, v * (1 + ratio), (v * (1 + ratio) - 1) / ratio)
    v = jnp.where(mixed, v, rest)
    inner = x <= TRUNCATION
    q = jnp.exp(-jnp.where(inner, 4 / x, np.pi**2 * x))
    series = 1 - 3 * q + 5 * q**3 - 7 * q**6
    log_mixed = jnp.where(beyond, 0, -(h**2) * x / 2)
    log_gaussian = jnp.where(
        inner, 0, 1.5 * jnp.log(np.pi / 2 * x) - np.pi**2 / 8 * x + 1 / (2 * x)
    )
    return x, v >= series * jnp.exp(jnp.where(mixed, log_mixed, log_gaussian))


def _fraction(
    key: Key[Array, ""], b: Float[Array, "..."], tilt: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Draw PG(b, tilt) exactly, in a time that grows with the largest b."""
    key_gaussian, key_jumps = jax.random.split(key)
    r = jnp.hypot(tilt, np.pi)
    uniforms = positive_uniforms(key_gaussian, 2, b.shape, b.dtype)
    gaussian = 1 / half_gig(uniforms, 2 * r / b, 4 / b**2)

    def step(uniforms: Float[Array, "3 ..."], state: tuple) -> tuple:
        total, time = state
        for_time, for_size, for_thinning = uniforms
        time = time + jnp.log(for_time)
        size = squared_normal_quantile(for_size) / r**2
        taken = (time > 0) & (for_thinning <= _thinning(np.pi**2 / 2 * size))
        return total + jnp.where(taken, size, 0), time

    time = MAXIMUM * np.pi**1.5 * b / r
    jumps = _repeat(key_jumps, 3, step, lambda state: state[1] > 0, (jnp.zeros_like(b), time))[0]
    return jnp.where(b > 0, gaussian + jumps, 0)


def _thinning(u: Float[Array, "..."]) -> Float[Array, "..."]:
    """{T(u) - sqrt(pi / u) / 4} / (MAXIMUM sqrt(u)), by the series that converges at once."""
    small = u < 0.5
    large_u = jnp.where(small, 0.5, u)
    q = jnp.exp(-8 * large_u)
    root = jnp.sqrt(large_u)
    far = (1 + q + q**3 + q**6) / root - np.sqrt(np.pi) / 4 / large_u

    small_u = jnp.where(small, u, 0.5)
    q = jnp.exp(-(np.pi**2) / 4 / small_u)
    theta = np.sqrt(np.pi) / 4 * (jnp.expm1(small_u) - 2 * (q - q**4) * jnp.exp(small_u)) / small_u
    return jnp.where(small, theta, far) / MAXIMUM


def _large(
    key: Key[Array, ""], b: Float[Array, "..."], tilt: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Draw PG(b, tilt), b >= LARGEST_EXACT, by a Gamma and an inverse Gaussian variable."""
    uniforms = positive_uniforms(key, 5, b.shape, b.dtype)
    pure = b * jnp.exp(-tilt) < 1e-6
    z = jnp.where(pure, 1, tilt)
    slope = 2 / (np.pi**2 + z**2)
    mean, variance, third = _unit_cumulants(z)
    mean, variance, third = mean - slope, variance - slope**2, third - 2 * slope**3
    gaussian_mean = jnp.where(pure, 1 / (2 * tilt), 3 * variance**2 / third)
    gaussian_shape = jnp.where(pure, 1 / 4, gaussian_mean**3 / variance)
    gaussian = 1 / half_gig(uniforms[:2], 1 / (b * gaussian_mean), 1 / (b**2 * gaussian_shape))
    rest = slope * _large_gamma(uniforms[2:], b) + b * (mean - gaussian_mean)
    return gaussian + jnp.where(pure, 0, rest)


def _large_gamma(uniforms: Float[Array, "3 ..."], a: Float[Array, "..."]) -> Float[Array, "..."]:
    """Turn three uniforms into a Gamma(a, 1) draw, a >= LARGEST_EXACT.

    The method of Marsaglia and Tsang (2000, ACM TOMS 26, 363-372), which rejects less than .2 % for
    such a. The second proposal stands: an error of 2.3e-6 in total variation, and no loop.
    """
    d = a - 1 / 3
    first, second, for_acceptance = 2 * uniforms[0] - 1, 2 * uniforms[1] - 1, uniforms[2]

    def proposal(signed: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        squared = squared_normal_quantile(jnp.abs(signed))
        y = jnp.sign(signed) * jnp.sqrt(squared / (9 * d))  # above -1, as |N| < 9
        w = y * (3 + y * (3 + y))  # (1 + y)^3 - 1
        return w, squared / 2 + d * (jnp.log1p(w) - w)

    w, log_acceptance = proposal(first)
    return d * (1 + jnp.where(jnp.log(for_acceptance) < log_acceptance, w, proposal(second)[0]))
