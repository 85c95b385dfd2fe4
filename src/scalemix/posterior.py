"""Draws to predictions: the equal mixture over all kept draws and chains, in bounded memory.

Everything is computed for chunks of `CHUNK` rows by programs of one shape, so that a row's
prediction does not depend on the other rows of a call and a new number of rows compiles nothing.
Averages are over the draws' predictive laws (never a Gaussian fitted to their moments).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from scalemix.fit import Draw
from scalemix.rows import pad

CHUNK = 256
"""Rows predicted together."""


class Posterior(NamedTuple):
    """A model and its kept draws.

    Draws have leading axes (chains, draws); the bodies' draws axis may be of length 1, one body for
    all tops of its chain.
    """

    model: Any
    """A `Model`."""
    draws: Draw

    @property
    def n_draws(self) -> int:
        """Kept draws of all chains together."""
        chains, draws = self.draws.coefficients.shape[:2]
        return chains * draws


class _Components(NamedTuple):
    """One predictive law for each draw: leading axis s."""

    eta: Float[Array, "s n k"]
    parameters: Any
    spread: Float[Array, "s k k"] | None


def _components(model: Any, draws: Draw, x: Float[Array, "n p"]) -> _Components:
    """The body runs once for each of its draws, then a product with the tops that share it."""
    chains, tops = draws.coefficients.shape[:2]
    bodies = jax.tree.leaves(draws.body)
    n_bodies = bodies[0].shape[1] if bodies else 1
    features = jax.vmap(jax.vmap(lambda body: model.body(body, x)))(draws.body) if bodies else None
    features = x[None, None] if features is None else features
    features = jnp.broadcast_to(features, (chains, n_bodies, *features.shape[2:]))
    grouped = draws.coefficients.reshape(
        chains, n_bodies, tops // n_bodies, *draws.coefficients.shape[2:]
    )
    eta = jnp.einsum("cbnf,cbtfk->cbtnk", features, grouped[..., 1:, :]) + grouped[..., :1, :]
    merged = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), draws)
    spread = jax.vmap(model.spread)(merged.coefficients) if model.has_latents else None
    return _Components(eta.reshape(-1, *eta.shape[3:]), merged.parameters, spread)


def _per_draw(function: Callable[..., Any], components: _Components) -> Any:
    """Apply `function(parameters, eta, spread)` to each draw's law."""
    axes = (0, 0, None if components.spread is None else 0)
    return jax.vmap(function, in_axes=axes)(
        components.parameters, components.eta, components.spread
    )


@jax.jit
def _eta_chunk(model: Any, draws: Draw, x: Array) -> Array:
    return jnp.moveaxis(_components(model, draws, x).eta, 0, 1)


@jax.jit
def _moments_chunk(model: Any, draws: Draw, x: Array) -> tuple[Array, Array, Array]:
    means, variances = _per_draw(model.likelihood.moments, _components(model, draws, x))
    return means.mean(0), variances.mean(0), means.var(0)


@jax.jit
def _density_chunk(model: Any, draws: Draw, x: Array, y: Array) -> Array:
    def one(parameters: Any, eta: Array, spread: Array | None) -> Array:
        return model.likelihood.log_density(parameters, y, eta, spread)

    logs = _per_draw(one, _components(model, draws, x))
    return jax.scipy.special.logsumexp(logs, axis=0) - np.log(logs.shape[0])


@jax.jit
def _probability_chunk(model: Any, draws: Draw, x: Array) -> Array:
    logs = _per_draw(model.likelihood.log_probabilities, _components(model, draws, x))
    return jax.scipy.special.logsumexp(logs, axis=0) - np.log(logs.shape[0])


@jax.jit
def _quantile_chunk(model: Any, draws: Draw, x: Array, alpha: Float[Array, " m"]) -> Array:
    """Invert the averaged distribution function by bisection, all levels from one bracket.

    Cantelli's inequality brackets every quantile by the mixture's own moments; sharing the bracket
    makes the results non-decreasing in alpha to the last bit.
    """
    components = _components(model, draws, x)
    means, variances = _per_draw(model.likelihood.moments, components)
    centre, deviation = means.mean(0), jnp.sqrt(variances.mean(0) + means.var(0))
    low = centre - deviation / jnp.sqrt(jnp.min(alpha))
    high = centre + deviation / jnp.sqrt(1 - jnp.max(alpha))
    steps = jnp.finfo(x.dtype).nmant + 8

    def quantile(level: Array) -> Array:
        def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = bracket
            middle = (low + high) / 2

            def one(parameters: Any, eta: Array, spread: Array | None) -> Array:
                return model.likelihood.cumulative(parameters, middle, eta, spread)

            below = _per_draw(one, components).mean(0) < level
            return jnp.where(below, middle, low), jnp.where(below, high, middle)

        low_end, high_end = jax.lax.fori_loop(0, steps, halve, (low, high))
        return (low_end + high_end) / 2

    return jnp.moveaxis(jax.vmap(quantile)(alpha), 0, -1)


@partial(jax.jit, static_argnames="n_samples")
def _sample_chunk(
    model: Any, draws: Draw, x: Array, seed: Array, chunk: Array, n_samples: int
) -> Array:
    key_which, key_rows = jax.random.split(jax.random.wrap_key_data(seed, impl="threefry2x32"))
    components = _components(model, draws, x)
    n_draws = components.eta.shape[0]
    which = jax.random.randint(key_which, (n_samples,), 0, n_draws)
    keys = jax.random.split(jax.random.fold_in(key_rows, chunk), n_samples)

    def one(key: Key[Array, ""], draw: Array) -> Array:
        chosen = jax.tree.map(lambda leaf: leaf[draw], components)
        return model.likelihood.sample(key, chosen.parameters, chosen.eta, chosen.spread)

    return jnp.moveaxis(jax.vmap(one)(keys, which), 0, 1)


def _chunked(
    function: Callable[..., Any], posterior: Posterior, x: np.ndarray, *rows: np.ndarray
) -> Any:
    """Run a chunk function over all rows; float64 NumPy arrays in row order."""
    parts = []
    with jax.enable_x64(True):
        for begin in range(0, len(x), CHUNK):
            chunk = [pad(array[begin : begin + CHUNK], CHUNK) for array in (x, *rows)]
            parts.append(jax.device_get(function(posterior.model, posterior.draws, *chunk)))

    def joined(*leaves: np.ndarray) -> np.ndarray:
        whole = np.concatenate(leaves)[: len(x)].astype(np.float64)
        lost = np.isnan(whole).reshape(len(x), -1).any(axis=1)
        if lost.any():
            raise ValueError(
                f"row {np.argmax(lost)} has no prediction: its inputs, up to "
                f"{np.abs(x[np.argmax(lost)]).max():.1g} in the units of the fit, overflow float32; "
                "expected inputs nearer to the training data"
            )
        return whole

    return jax.tree.map(joined, *parts)


def eta(posterior: Posterior, x: np.ndarray) -> np.ndarray:
    """The noise-free predictor of every draw, (n, draws, k), chains in order."""
    return _chunked(_eta_chunk, posterior, x)


def moments(posterior: Posterior, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean; aleatoric variance, the mean of the draws'; epistemic, the variance of their means."""
    return _chunked(_moments_chunk, posterior, x)


def log_density(posterior: Posterior, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Log of the posterior average of the density, (n,)."""
    return _chunked(_density_chunk, posterior, x, y)


def log_probabilities(posterior: Posterior, x: np.ndarray) -> np.ndarray:
    """Log of the posterior average of the class probabilities, (n, classes)."""
    return _chunked(_probability_chunk, posterior, x)


def quantiles(posterior: Posterior, x: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Quantiles of a new observation, (n, k, levels), from the averaged distribution function."""
    levels = np.asarray(alpha, x.dtype)

    def invert(model: Any, draws: Draw, part: np.ndarray) -> Array:
        return _quantile_chunk(model, draws, part, levels)

    return _chunked(invert, posterior, x)


def sample(posterior: Posterior, x: np.ndarray, n_samples: int, seed: np.ndarray) -> np.ndarray:
    """New observations, (n, samples, k); a sample uses one draw of the posterior for all rows."""
    chunks = iter(range(len(x)))

    def draw(model: Any, draws: Draw, part: np.ndarray) -> Array:
        return _sample_chunk(model, draws, part, seed, np.uint32(next(chunks)), n_samples)

    return _chunked(draw, posterior, x)
