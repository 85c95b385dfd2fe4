"""Gibbs sampling of everything but an optimised body; J copies are its power or its copies."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from scalemix import top
from scalemix.engines._base import Engine, Latents, Powers, State, row_normals
from scalemix.likelihoods import Parameters
from scalemix.priors import Scales
from scalemix.quadratic import Quadratic, Statistics
from scalemix.rows import Batch, by_block

SCHEDULES = ("constant", "geometric")
TARGETS = ("map", "mle")


class Gibbs(Engine):
    """Posterior draws; with J copies, draws from p(theta)^rho p(y | theta)^J.

    Exact for the top, scales, omega and latents given the body. `copies_target` "map" has rho = J
    (concentrates at the posterior's mode), "mle" has rho = 1 (at the maximum of the marginal
    likelihood; the paper's). J is an *inverse* temperature: only the schedule that raises it
    (`"geometric"`) helps to leave local modes, a large constant J does not.
    """

    copies: int = eqx.field(static=True, default=1)
    copies_schedule: str = eqx.field(static=True, default="constant")
    copies_target: str = eqx.field(static=True, default="map")
    annealing: int = 1
    """Sweeps over which a geometric schedule raises J from 1."""

    name: ClassVar[str] = "gibbs"

    def powers(self, time: Int[Array, ""], dtype: Any) -> Powers:
        """J_t = J, or ceil(J^(t / annealing)) up to J."""
        copies = jnp.asarray(self.copies, dtype)
        if self.copies > 1 and self.copies_schedule == "geometric":
            raised = copies ** (jnp.asarray(time, dtype) / self.annealing)
            # A whole power may come out a rounding above itself: 125^(1/3) is 5.0000005 in float32.
            copies = jnp.minimum(jnp.ceil(raised * (1 - 1e-5)), copies)
        return Powers(copies, copies if self.copies_target == "map" else jnp.ones((), dtype))

    @property
    def kept_copies(self) -> int:
        """J where each copy's latents have an omega of their own, else 1."""
        apart = self.model.has_latents and not self.model.likelihood.latents_in_closed_form
        return self.copies if apart else 1

    def new_parameters(self, key: Key[Array, ""], parameters: Parameters, *rows: Any) -> Parameters:
        """Drawn from their collapsed conditional."""
        return self.model.likelihood.refresh(key, parameters, *rows)

    def new_scales(self, key: Key[Array, ""], state: State, prior_power: Array) -> Scales:
        """Drawn given the coefficients."""
        return self.model.prior.refresh(key, state.scales, state.coefficients, prior_power)

    def new_quadratic(
        self, key: Key[Array, ""], parameters: Parameters, block: Int[Array, " b"], *rows: Any
    ) -> Quadratic:
        """omega drawn, with the keys of the rows' blocks."""

        def draw(key_block: Key[Array, ""], y: Array, eta: Array, power: Array) -> Quadratic:
            return self.model.likelihood.draw(key_block, parameters, y, eta, power, block)

        return by_block(draw, key, *rows)

    def new_top(self, key: Key[Array, ""], statistics: Statistics) -> top.Top:
        """An exact draw."""
        return top.draw(key, statistics)

    def new_latents(
        self,
        key: Key[Array, ""],
        state: State,
        features: Float[Array, "n p"],
        quadratics: Quadratic | None,
        batch: Batch,
        copies: Float[Array, ""],
    ) -> Latents:
        """Exact draws: each kept copy's rows, or the mean and the scatter of all J at once.

        For a Gaussian likelihood all copies share one covariance S, so their mean is
        N(mu_i, S / J) and their scatter an independent Wishart(n (J - 1), S): the law of a stack of
        J copies, at the cost of one.
        """
        likelihood, variance = self.model.likelihood, self.model.latent_variance
        key_rows, key_scatter = jax.random.split(key)
        normals = row_normals(key_rows, self.kept_copies, features)
        closed = likelihood.latents_in_closed_form
        if closed:
            real = (batch.power > 0).astype(features.dtype)
            eta = top.predictor(state.coefficients, features)
            quadratic = likelihood.expect(
                state.parameters, batch.y, eta, real, jnp.arange(batch.y.shape[1])
            )
            quadratics = jax.tree.map(lambda leaf: leaf[None], quadratic)
        shrink = jnp.sqrt(copies) if closed else 1.0

        assert quadratics is not None

        def one(quadratic: Quadratic, noise: Array) -> Array:
            mean = top.latent_mean(features, state.coefficients, quadratic, variance)
            return (
                mean + top.latent_noise(noise, state.coefficients, quadratic.w, variance) / shrink
            )

        z = jax.vmap(one)(quadratics, normals)
        if not closed or self.copies == 1:
            width = features.shape[1]
            return Latents(z, jnp.zeros((width, width), features.dtype))
        degrees = jnp.sum(batch.power > 0) * (copies - 1)
        w = 1 / jnp.asarray(likelihood.noise_variance(state.parameters))
        scatter = top.latent_scatter(key_scatter, degrees, state.coefficients, w, variance)
        return Latents(z, scatter)
