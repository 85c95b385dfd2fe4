"""Planted errors: each is caught by the joint test that the sampler passes.

Every head is compiled once with all its errors inside; `fault` chooses one while it runs, and 0 is
the sampler as it is, which the same program must pass.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import joint
import pytest
from joint import case

from scalemix import top
from scalemix.engines import Gibbs
from scalemix.likelihoods import Gaussian, Hinge, Logit, Multinomial
from scalemix.priors import Ridge
from scalemix.quadratic import Quadratic
from scalemix.random import polya_gamma

pytestmark = pytest.mark.usefixtures("x64")

CAUGHT = 1e-6
"""What a planted error's smallest p-value, times the number of functionals, must stay below."""

WIDE = {"prior": Ridge(2.5, intercept_scale=2.5), "latent_scale": 2**0.5}

(
    NONE,
    EXPECTATION,
    MODE,
    LATENT_MEAN,
    GRADIENT_BODY,
    WEIGHT_AS_FACTOR,
    PRINTED_MEAN,
    PRINTED_VARIANCE,
    PRINTED_MESSAGE,
    PRINTED_LATENT,
    PRINTED_NUMERATOR,
    ONE_VERSUS_REST,
) = range(12)


class Planted(Gibbs):
    """The sampler with an error chosen by `fault`."""

    fault: Any = NONE

    def either(self, fault: int, wrong: Any, right: Any) -> Any:
        """`wrong` where that fault is planted."""
        return jax.tree.map(lambda a, b: jnp.where(self.fault == fault, a, b), wrong, right)

    def new_quadratic(self, key: Any, parameters: Any, block: Any, *rows: Any) -> Quadratic:
        """The expectation of omega in place of its draw; for weights, w PG(1) in place of PG(w)."""
        y, eta, power = rows
        as_factor = self.fault == WEIGHT_AS_FACTOR
        own = jnp.where(as_factor & (power > 0), 1, power)
        factor = jnp.where(as_factor, power, 1)[:, None]
        drawn = super().new_quadratic(key, parameters, block, y, eta, own)
        drawn = jax.tree.map(lambda leaf: factor * leaf, drawn)
        expected = self.model.likelihood.expect(parameters, y, eta, power, block)
        right = self.either(EXPECTATION, expected, drawn)
        if isinstance(self.model.likelihood, Hinge):
            # E31 and E32 as printed: sum z^2 / lambda is multiplied by tau_0^2, not divided.
            printed = Quadratic(right.w * parameters**2, right.h * parameters)
            right = self.either(PRINTED_MESSAGE, printed, right)
        return right

    def new_top(self, key: Any, statistics: Any) -> top.Top:
        """The mode in place of a draw; the printed mean (E31) and variance (E32) of W_0."""
        right = super().new_top(key, statistics)
        mode = top.mode(statistics)
        right = self.either(MODE, mode, right)
        if not isinstance(self.model.likelihood, Hinge):
            return right
        variance = self.model.likelihood.noise_scale**2
        drawn, middle = right.coefficients, mode.coefficients
        mean = right._replace(coefficients=drawn + middle / variance - middle)
        spread = right._replace(coefficients=middle + (drawn - middle) / variance)
        right = self.either(PRINTED_MEAN, mean, right)
        return self.either(PRINTED_VARIANCE, spread, right)

    def new_latents(
        self, key: Any, state: Any, features: Any, quadratics: Any, batch: Any, copies: Any
    ) -> Any:
        """The latents' mean in place of their draw; the printed mean (E33)."""
        right = super().new_latents(key, state, features, quadratics, batch, copies)
        variance, beta = self.model.latent_variance, state.coefficients
        quadratic = jax.tree.map(lambda leaf: leaf[0], quadratics)
        mean = top.latent_mean(features, beta, quadratic, variance)
        z = self.either(LATENT_MEAN, mean[None], right.z)
        if isinstance(self.model.likelihood, Hinge):
            # With tau_0^2 lambda = 1 / w; the slack lambda is missing beside y, a W_0 below the line.
            w, weight, slack = quadratic.w, beta[1, 0], 1 / quadratic.w
            above = weight * variance * (batch.y - beta[0, 0]) + slack * features
            printed = above / (weight * variance + slack)
            half = above / (weight**2 * variance + slack)
            z = self.either(PRINTED_LATENT, (right.z[0] - mean + printed)[None], z)
            z = self.either(PRINTED_NUMERATOR, (right.z[0] - mean + half)[None], z)
            z = jnp.where(w > 0, z, right.z)  # a padded row keeps its draw
        return right._replace(z=z)


class SoftmaxWithLatents(Multinomial):
    """Allows what the package refuses."""

    allows_latents: ClassVar[bool] = True


class OneVersusRest(Gibbs):
    """One latent under a softmax: by Metropolis, which is exact, or by the one-versus-rest omegas.

    The fault takes the omegas, drawn class by class, for a Gaussian kernel in Z_i, although the
    log-sum of the other classes depends on Z_i too.
    """

    fault: Any = NONE

    def new_latents(
        self, key: Any, state: Any, features: Any, quadratics: Any, batch: Any, copies: Any
    ) -> Any:
        """Z given the top and y."""
        z, beta, variance = state.latents.z[0], state.coefficients, self.model.latent_variance
        key_normal, key_accept, key_omega = jax.random.split(key, 3)
        normal = jax.random.normal(key_normal, z.shape, z.dtype)
        proposal = features + jnp.sqrt(variance) * normal
        old = jax.nn.log_softmax(joint.predictor(beta, z), axis=1)
        new = jax.nn.log_softmax(joint.predictor(beta, proposal), axis=1)
        gain = jnp.sum(batch.y * (new - old), axis=1)
        accepted = jnp.log(jax.random.uniform(key_accept, gain.shape, z.dtype)) < gain
        exact = jnp.where(accepted[:, None], proposal, z)

        eta = joint.predictor(beta, z)
        others = jnp.exp(eta) @ (1 - jnp.eye(eta.shape[1], dtype=eta.dtype))
        rest = jnp.log(others)
        omega = polya_gamma(key_omega, jnp.ones_like(eta), eta - rest)
        working = batch.y - 0.5 + omega * (rest - beta[:1])
        precision = 1 / variance + omega @ beta[1] ** 2
        mean = (features[:, 0] / variance + working @ beta[1]) / precision
        wrong = (mean + normal[:, 0] / jnp.sqrt(precision))[:, None]
        return state.latents._replace(z=jnp.where(self.fault == NONE, exact, wrong)[None])


class Head(NamedTuple):
    """A program and the errors inside it."""

    setting: dict[str, Any]
    faults: dict[str, int]
    states: int = 10_000


HEADS = {
    # Noise as large as the signal: where it is small, the mode of the top is nearly its draw.
    "gaussian, body drawn": Head(
        {
            "likelihood": Gaussian(noise_scale=1.5),
            "width": 1,
            **WIDE,
            "body_update": joint.LinearBody(),
        },
        {"mode of the top": MODE, "mean of the latents": LATENT_MEAN, "body": GRADIENT_BODY},
    ),
    "hinge, one latent": Head(
        {"likelihood": Hinge(), "width": 1, **WIDE},
        {
            "expectation of lambda": EXPECTATION,
            "mean of the latents": LATENT_MEAN,
            "E31": PRINTED_MEAN,
            "E32": PRINTED_VARIANCE,
            "E31 and E32": PRINTED_MESSAGE,
            "E33": PRINTED_LATENT,
            "E33, numerator alone": PRINTED_NUMERATOR,
        },
    ),
    "logit, one latent": Head(
        {"likelihood": Logit(), "width": 1, **WIDE},
        {"expectation of omega": EXPECTATION, "mean of the latents": LATENT_MEAN},
    ),
    "logit, weights": Head(
        {"likelihood": Logit(), "prior": WIDE["prior"], "power": [3, 1, 2, 1, 0]},
        {"expectation of omega": EXPECTATION, "weight as a factor": WEIGHT_AS_FACTOR},
    ),
    "multinomial, weights": Head(
        {
            "likelihood": Multinomial(),
            "prior": WIDE["prior"],
            "targets": 3,
            "power": [3, 1, 2, 1, 0],
        },
        {"expectation of omega": EXPECTATION, "weight as a factor": WEIGHT_AS_FACTOR},
    ),
    "multinomial, one latent": Head(
        {
            "likelihood": SoftmaxWithLatents(),
            "engine": OneVersusRest,
            "targets": 3,
            "width": 1,
            "prior": WIDE["prior"],
            "latent_scale": 3.0,
        },
        {"one versus rest": ONE_VERSUS_REST},
        states=joint.STATES,
    ),
}


# Latents under a softmax are refused: no such path can go wrong. The logit's latents are the hinge's.
SLOW = ("multinomial, one latent", "logit, one latent")
NAMES = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in HEADS]


@pytest.mark.parametrize("name", NAMES)
def test_planted_errors_are_caught(name: str, seed: int) -> None:
    setting, faults, states = HEADS[name]

    def verdict(fault: int) -> joint.Verdict:
        planted: dict[str, Any] = {"engine": Planted, **setting, "fault": fault}
        if "body_update" in setting:
            planted["body_update"] = joint.LinearBody(fault == GRADIENT_BODY)
        found = joint.invariance(case(**planted), seed, states)
        print(f"{name}: fault {fault}, smallest p {found.p:.2g} at {found.name}")
        return found

    assert verdict(NONE).p >= joint.LEVEL  # the program without its errors
    for fault in faults.values():
        assert verdict(fault).p < CAUGHT
