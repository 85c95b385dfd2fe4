"""Expectation-maximisation: the mode of top and scales given the body, which moves beside them."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from scalemix import top
from scalemix.engines._base import Engine, Latents, Powers, State
from scalemix.likelihoods import Parameters
from scalemix.priors import Scales
from scalemix.quadratic import Quadratic, Statistics
from scalemix.rows import Batch


class EM(Engine):
    """Monotone in the log posterior with a fixed body (ECM); a body moved by `adam` guarantees nothing.

    With latents the E-step needs the moments of Z given y, in closed form for `gaussian` only.
    """

    name: ClassVar[str] = "em"

    def __check_init__(self) -> None:
        """Refuse latents whose E-step has no closed form."""
        likelihood = self.model.likelihood
        if self.model.has_latents and not likelihood.latents_in_closed_form:
            raise ValueError(
                f"found engine 'em' with likelihood '{likelihood.name}' and latent_scale > 0: its "
                "E-step has no closed form; use engine='gibbs' or 'j_copies', latent_scale=0, or "
                "likelihood='gaussian'"
            )

    def powers(self, time: Int[Array, ""], dtype: Any) -> Powers:
        """One of each."""
        return Powers(jnp.ones((), dtype), jnp.ones((), dtype))

    def new_parameters(self, key: Key[Array, ""], parameters: Parameters, *rows: Any) -> Parameters:
        """Their conditional mode."""
        return self.model.likelihood.maximise(parameters, *rows)

    def new_scales(self, key: Key[Array, ""], state: State, prior_power: Array) -> Scales:
        """Their conditional mode."""
        return self.model.prior.maximise(state.scales, state.coefficients, prior_power)

    def new_quadratic(
        self, key: Key[Array, ""], parameters: Parameters, block: Int[Array, " b"], *rows: Any
    ) -> Quadratic:
        """The expectation of (w, h)."""
        y, eta, power = rows
        return self.model.likelihood.expect(parameters, y, eta, power, block)

    def new_top(self, key: Key[Array, ""], statistics: Statistics) -> top.Top:
        """The mode."""
        return top.mode(statistics)

    def new_latents(
        self,
        key: Key[Array, ""],
        state: State,
        features: Float[Array, "n p"],
        quadratics: Quadratic | None,
        batch: Batch,
        copies: Float[Array, ""],
    ) -> Latents:
        """E[Z | y], and n times its covariance as the scatter."""
        variance, coefficients = self.model.latent_variance, state.coefficients
        quadratic = jax.tree.map(lambda leaf: leaf[0], quadratics)
        mean = top.latent_mean(features, coefficients, quadratic, variance)
        w = 1 / jnp.asarray(self.model.likelihood.noise_variance(state.parameters))
        covariance = top.latent_covariance(coefficients, w, variance)
        return Latents(mean[None], jnp.sum(batch.power > 0) * covariance)
