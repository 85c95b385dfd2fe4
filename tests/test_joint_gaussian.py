"""The Gaussian head draws from its joint law; with a linear body, from the collapsed posterior."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import joint
import numpy as np
import pytest
from joint import case

from scalemix.likelihoods import Gaussian
from scalemix.priors import Ridge

pytestmark = pytest.mark.usefixtures("x64")

WIDE = 2**0.5
"""tau_z with tau_z^2 = 2. At unit scales some errors stay below what a joint test can see."""

FAST: dict[str, dict[str, Any]] = {
    "tied prior, no latents": {
        "prior": Ridge(2.5, tied_to_noise=True, intercept_scale=1.0),
        "targets": 2,
    },
    "two outputs, one latent, wide": {
        "prior": Ridge(intercept_scale=2.5),
        "targets": 2,
        "width": 1,
        "latent_scale": WIDE,
        "power": [1, 1, 1, 1, 0],  # the last row is padding
    },
}
SLOW: dict[str, dict[str, Any]] = {
    "no latents": {"prior": Ridge(intercept_scale=1.0)},
    "two outputs, two latents, tied prior, body drawn": {
        "prior": Ridge(2.5, tied_to_noise=True, intercept_scale=2.5),
        "targets": 2,
        "width": 2,
        "latent_scale": WIDE,
        "body_update": joint.LinearBody(),
    },
    "one latent": {"prior": Ridge(intercept_scale=1.0), "width": 1, "latent_scale": 1.0},
    "three latents, wide": {
        "prior": Ridge(2.5, intercept_scale=2.5),
        "width": 3,
        "latent_scale": WIDE,
        "rows": 8,
    },
    "three outputs, two latents": {
        "prior": Ridge(intercept_scale=2.5),
        "targets": 3,
        "width": 2,
        "latent_scale": WIDE,
    },
    "two outputs, no latents": {"prior": Ridge(intercept_scale=2.5), "targets": 2, "rows": 4},
    "known noise": {
        "likelihood": Gaussian(noise_scale=0.7),
        "prior": Ridge(intercept_scale=2.5),
        "width": 1,
        "latent_scale": WIDE,
    },
    "fractional weights": {
        "prior": Ridge(intercept_scale=2.5),
        "targets": 2,
        "power": [2.6, 0.7, 1, 3, 0],
    },
    "one latent, body drawn": {
        "prior": Ridge(intercept_scale=2.5),
        "width": 1,
        "latent_scale": WIDE,
        "body_update": joint.LinearBody(),
    },
}


@pytest.mark.parametrize("name", FAST)
def test_leaves_the_joint_law(name: str, seed: int) -> None:
    joint.assert_invariant(case(**{"likelihood": Gaussian(), **FAST[name]}), seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FAST, *SLOW])
def test_leaves_the_joint_law_with_more_states(name: str, seed: int) -> None:
    settings = {**FAST, **SLOW}[name]
    joint.assert_invariant(case(**{"likelihood": Gaussian(), **settings}), seed, states=120_000)


@pytest.mark.slow
def test_leaves_the_joint_law_in_float32(seed: int) -> None:
    # Rows, latents and coefficients are float32, the head's algebra float64: what a user runs.
    single = case(
        Gaussian(), Ridge(intercept_scale=2.5), targets=2, width=2, latent_scale=WIDE,
        dtype=np.float32,
    )  # fmt: skip
    joint.assert_invariant(single, seed)


# One latent under a linear body of one input: z = theta x + c + N(0, tau_z^2), y = b + W z + N(0, t).
# Given (W, t) all else is jointly Gaussian, so a grid over the two is the whole posterior.

X = np.linspace(-1.5, 2.0, 8)
Y = np.array([-1.3, -1.4, -0.2, 0.1, 0.2, 1.6, 1.2, 2.4])
LATENT_SCALE, WEIGHT_SCALE, INTERCEPT_SCALE, NEW = 0.7, 1.5, 1.0, 3.0


class Expected(NamedTuple):
    """Posterior expectations of `summary`, and the mass at the edge of the grid."""

    values: np.ndarray
    edge: float


def collapsed_posterior() -> Expected:
    """By quadrature over (W, log t), z, theta, b and c integrated out in closed form."""
    weights, log_noise = np.linspace(-9, 9, 361), np.linspace(-7, 4, 221)
    w, noise = np.meshgrid(weights, np.exp(log_noise), indexing="ij")
    one = np.ones_like(X)
    # y = D u + e with u = (b, theta, c), D = (1, W x, W), e ~ N(0, t + tau_z^2 W^2).
    design = np.stack(np.broadcast_arrays(one, w[..., None] * X, w[..., None] * one), axis=-1)
    prior = np.diag([INTERCEPT_SCALE**2, 1.0, 1.0])
    variance = noise + LATENT_SCALE**2 * w**2
    covariance = design @ prior @ design.swapaxes(-1, -2) + variance[..., None, None] * np.eye(
        len(X)
    )
    solved = np.linalg.solve(covariance, np.broadcast_to(Y[:, None], (*w.shape, len(X), 1)))
    log_density = -0.5 * (np.linalg.slogdet(covariance)[1] + (Y @ solved)[..., 0])
    # InvGamma(1, .05) in log t: t^-1 exp(-.05 / t).
    log_density += -0.5 * w**2 / WEIGHT_SCALE**2 - np.log(noise) - 0.05 / noise
    mass = np.exp(log_density - log_density.max())
    mass /= mass.sum()
    gain = prior @ design.swapaxes(-1, -2)
    mean = (gain @ solved)[..., 0]
    spread = prior - gain @ np.linalg.solve(covariance, gain.swapaxes(-1, -2))

    slope = w * mean[..., 1]
    level = mean[..., 0] + w * mean[..., 2]
    ahead = np.stack([np.ones_like(w), w * NEW, w], axis=-1)
    eta = (ahead * mean).sum(-1)
    eta_squared = eta**2 + np.einsum("...i,...ij,...j", ahead, spread, ahead)
    slope_squared = slope**2 + w**2 * spread[..., 1, 1]
    parts = [w**2, np.log(noise), slope, slope_squared, level, eta, eta_squared, np.log(variance)]
    edge = mass[[0, -1]].sum() + mass[:, [0, -1]].sum()
    return Expected(np.array([(mass * part).sum() for part in parts]), float(edge))


def summary(state: Any) -> jax.Array:
    """What does not change when (W, theta, c) change sign."""
    (theta, bias), (b, w) = state.body[0], state.coefficients[:, 0]
    noise = state.parameters
    slope, level = w * theta[0, 0], b + w * bias[0]
    eta = level + NEW * slope
    variance = noise + LATENT_SCALE**2 * w**2
    return jnp.stack([w**2, jnp.log(noise), slope, slope**2, level, eta, eta**2, jnp.log(variance)])


def test_linear_body_gives_the_collapsed_posterior(seed: int) -> None:
    expected = collapsed_posterior()
    assert expected.edge < 1e-6  # the grid holds the posterior
    setting = case(
        Gaussian(), Ridge(WEIGHT_SCALE, intercept_scale=INTERCEPT_SCALE), rows=len(X), inputs=1,
        width=1, latent_scale=LATENT_SCALE, body_update=joint.LinearBody(),
    )._replace(x=X[:, None])  # fmt: skip
    averages = joint.posterior_averages(
        setting, seed, Y[:, None], summary, chains=1_000, warmup=300, kept=300
    )
    away = joint.standard_errors_away(averages, expected.values)
    # 5 standard errors: 5e-6 for all eight together.
    assert np.all(np.abs(away) < 5), away
