"""The one sweep that all engines share, in named steps.

    refresh scales -> move the body -> draw omega and the top, block by block -> latents

Scales are refreshed with omega integrated out; the body moves on the likelihood with omega
integrated out (given the latents where there are any), so the omega drawn after it is fresh; the
latents use the omega of their sweep. Where its pieces are draws (`Gibbs`) each step leaves the joint
law invariant; where they are expectations and modes (`EM`) none decreases the log posterior.
"""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from scalemix import top
from scalemix.bodies import Parameters as Body
from scalemix.body_updates import BodyUpdate, Target
from scalemix.engines._model import Model
from scalemix.likelihoods import Parameters
from scalemix.priors import Scales
from scalemix.quadratic import Quadratic, Statistics, Sums
from scalemix.rows import Batch, by_block, summarise


class Latents(NamedTuple):
    """The latents of a sweep."""

    z: Float[Array, "c n p"]
    """One row-by-row array, or one for each copy where copies must be kept apart."""
    scatter: Float[Array, "p p"]
    """Sum over rows and copies of (Z - z)(Z - z)': what z leaves out where it is a mean."""


class State(NamedTuple):
    """What the next sweep needs."""

    body: Body
    memory: Any
    """The body update's own."""
    coefficients: Float[Array, "d k"]
    """Top layer, intercepts in row 0."""
    parameters: Parameters
    """The likelihood's own."""
    scales: Scales
    """The prior's own."""
    latents: Latents | None


class Info(NamedTuple):
    """What a sweep did."""

    jitters: Int[Array, ""]
    """How often a factorisation needed jitter."""
    body_steps: Int[Array, ""]
    """Steps that the body update took."""
    finite: Bool[Array, ""]
    """Whether the new state and its features are finite throughout."""


class Monitor(NamedTuple):
    """What a reader wants of a state."""

    log_joint: Float[Array, ""]
    """Log posterior up to a constant, omega and latents integrated out: the true objective of EM."""
    noise: Float[Array, ""]
    """The likelihood's noise variance (1 where it has none)."""


class Powers(NamedTuple):
    """How often the likelihood and the prior count in a sweep."""

    copies: Float[Array, ""]
    prior: Float[Array, ""]


class Rows(NamedTuple):
    """The rows as the top sees them, latents or features, one set a kept copy."""

    z: Float[Array, "c n p"]
    scatter: Float[Array, "p p"]
    power: Float[Array, "c n"]
    counted: Float[Array, " c"]
    """1 for copies that count, 0 for those that wait until J has risen to them."""


class Engine(eqx.Module):
    """One sweep of a chain: `initial(key, batch) -> State`, `step(...) -> (State, Info)`.

    An engine never loops over sweeps; the driver does. Rows of power 0 stand behind all others;
    with latents a power is 0 or 1 (a weight of 2 is not a duplicated row there).
    """

    model: Model
    body_update: BodyUpdate

    name: ClassVar[str]
    """The word of the interface."""

    @abstractmethod
    def powers(self, time: Int[Array, ""], dtype: Any) -> Powers:
        """J and the prior's power at sweep `time`."""

    @abstractmethod
    def new_parameters(self, key: Key[Array, ""], parameters: Parameters, *rows: Any) -> Parameters:
        """The likelihood's parameters given `rows` = (y, eta, power, extra, prior power)."""

    @abstractmethod
    def new_scales(self, key: Key[Array, ""], state: State, prior_power: Array) -> Scales:
        """The prior's scales given the coefficients."""

    @abstractmethod
    def new_quadratic(
        self, key: Key[Array, ""], parameters: Parameters, block: Int[Array, " b"], *rows: Any
    ) -> Quadratic:
        """omega drawn, or its expectation, given `rows` = (y, eta, power)."""

    @abstractmethod
    def new_top(self, key: Key[Array, ""], statistics: Statistics) -> top.Top:
        """The coefficients of a block, drawn, or their mode."""

    @abstractmethod
    def new_latents(
        self,
        key: Key[Array, ""],
        state: State,
        features: Float[Array, "n p"],
        quadratics: Quadratic | None,
        batch: Batch,
        copies: Float[Array, ""],
    ) -> Latents:
        """Latents given omega (leading axis: kept copies): drawn, or their moments."""

    @property
    def kept_copies(self) -> int:
        """How many copies of the latents are kept row by row."""
        return 1

    def initial(self, key: Key[Array, ""], batch: Batch) -> State:
        """A start: the body's own, a random top, latents scattered about the body's features."""
        model, dtype = self.model, batch.x.dtype
        key_body, key_memory, key_top, key_latent = jax.random.split(key, 4)
        body = model.body.initial(key_body, batch.x.shape[1], dtype)
        width, k = model.body.n_features(batch.x.shape[1]), batch.y.shape[1]
        weights = jax.random.normal(key_top, (width, k), dtype) / jnp.sqrt(
            jnp.asarray(width, dtype)
        )
        latents = None
        if model.has_latents:
            features = model.body(body, batch.x)
            noise = row_normals(key_latent, self.kept_copies, features)
            scale = jnp.asarray(model.latent_scale, dtype)
            latents = Latents(features[None] + scale * noise, jnp.zeros((width, width), dtype))
        return State(
            body,
            self.body_update.initial(key_memory, body, batch.x.shape[0]),
            jnp.concatenate([jnp.zeros((1, k), dtype), weights]),
            model.likelihood.initial(dtype),
            model.prior.initial(dtype),
            latents,
        )

    def step(
        self,
        key: Key[Array, ""],
        time: Int[Array, ""],
        progress: Float[Array, ""] | None,
        state: State,
        batch: Batch,
    ) -> tuple[State, Info]:
        """One sweep.

        Parameters
        ----------
        key, time
            Key and index of the sweep.
        progress
            How far the body's moves will have come, up to 1. Beyond 1 the body stays; `None` says so
            before anything is compiled.
        """
        # One split for the whole sweep: each call of the generator costs .3 s of compiling.
        key_parameters, key_scales, key_body, key_top, key_latents = jax.random.split(key, 5)
        powers = self.powers(time, batch.x.dtype)
        state = self.refresh((key_parameters, key_scales), state, batch, powers)
        steps = jnp.int32(0)
        if progress is not None and jax.tree.leaves(state.body):
            state, steps = self.move(key_body, progress, state, batch, powers)
        features = self.model.body(state.body, batch.x)
        state, quadratics, jitters = self.visit(key_top, state, features, batch, powers)
        if self.model.has_latents:
            latents = self.new_latents(
                key_latents, state, features, quadratics, batch, powers.copies
            )
            state = state._replace(latents=latents)
        healthy = finite((state._replace(memory=None), features))
        return state, Info(jitters, steps, healthy)

    def move(
        self,
        key: Key[Array, ""],
        progress: Float[Array, ""],
        state: State,
        batch: Batch,
        powers: Powers,
    ) -> tuple[State, Int[Array, ""]]:
        """Move the body unless its moves are spent; also the number of steps it took."""

        def go(state: State) -> tuple[State, Int[Array, ""]]:
            target = self.target(state, batch, powers)
            body, memory, moved = self.body_update.move(
                key, progress, state.body, state.memory, target
            )
            return state._replace(body=body, memory=memory), moved.steps

        return jax.lax.cond(progress <= 1, go, lambda state: (state, jnp.int32(0)), state)

    def rows(self, state: State, features: Array, batch: Batch, powers: Powers) -> Rows:
        """Features or latents, with the powers that make J copies of them.

        Copies are a power of the likelihood without latents, and where latents are summed up by
        their mean and scatter; otherwise each kept copy has power 1 and only the first J count. The
        others follow the same conditionals, so that they are in place when their turn comes.
        """
        counted = (jnp.arange(self.kept_copies) < powers.copies).astype(features.dtype)
        if state.latents is None:
            width = features.shape[1]
            power = (powers.copies * batch.power)[None]
            return Rows(features[None], jnp.zeros((width, width), features.dtype), power, counted)
        if self.kept_copies == 1:
            return Rows(*state.latents, (powers.copies * batch.power)[None], counted)
        power = jnp.broadcast_to(batch.power, (self.kept_copies, len(batch.power)))
        return Rows(*state.latents, power, counted)

    def refresh(
        self,
        keys: tuple[Key[Array, ""], Key[Array, ""]],
        state: State,
        batch: Batch,
        powers: Powers,
    ) -> State:
        """The likelihood's parameters with omega integrated out, then the prior's scales."""
        key_parameters, key_scales = keys
        features = self.model.body(state.body, batch.x)
        z, scatter, power, counted = self.rows(state, features, batch, powers)
        weights = state.coefficients[1:]
        extra = Sums(jnp.zeros((), z.dtype), jnp.sum((scatter @ weights) * weights))
        tied = self.model.prior.tied(state.coefficients)
        if tied is not None:
            extra += Sums(powers.prior * tied.count, powers.prior * tied.loss)
        eta = top.predictor(state.coefficients, z.reshape(-1, z.shape[-1]))
        y = jnp.tile(batch.y, (z.shape[0], 1))
        power = (power * counted[:, None]).reshape(-1)
        parameters = self.new_parameters(
            key_parameters, state.parameters, y, eta, power, extra, powers.prior
        )
        scales = self.new_scales(key_scales, state, powers.prior)
        return state._replace(parameters=parameters, scales=scales)

    def target(self, state: State, batch: Batch, powers: Powers) -> Target:
        """The body's log density given the top (omega integrated out), or given the latents."""
        model = self.model
        counted = (jnp.arange(self.kept_copies) < powers.copies).astype(batch.x.dtype)
        shares = counted / jnp.sum(counted)

        def given_top(body: Body, rows: Array, key: Any) -> Array:
            eta = top.predictor(state.coefficients, model.body(body, batch.x[rows], key))
            density = model.likelihood.log_density(state.parameters, batch.y[rows], eta, None)
            return powers.copies * batch.power[rows] * density

        def given_latents(body: Body, rows: Array, key: Any) -> Array:
            # The copies' mean carries the whole gradient: sum_j |Z^j - F|^2 = J |mean - F|^2 + const.
            assert state.latents is not None
            z = jnp.tensordot(shares, state.latents.z[:, rows], axes=1)
            squared = jnp.sum((z - model.body(body, batch.x[rows], key)) ** 2, axis=1)
            return -powers.copies * batch.power[rows] * squared / (2 * model.latent_variance)

        by_row = given_latents if model.has_latents else given_top

        def log_density(body: Body, rows: Array, weights: Array, key: Any) -> Array:
            likelihood = jnp.sum(jnp.where(weights > 0, weights * by_row(body, rows, key), 0))
            return powers.prior * model.body.log_prior(body, model.body_scales) + likelihood

        n_rows = jnp.sum(batch.power > 0).astype(jnp.int32)
        return Target(log_density, n_rows, batch.x.shape[0])

    def visit(
        self, key: Key[Array, ""], state: State, features: Array, batch: Batch, powers: Powers
    ) -> tuple[State, Quadratic | None, Int[Array, ""]]:
        """Block by block: omega given the predictors, Statistics, the block's coefficients.

        Also returns the omegas of a likelihood with one block (only there can latents exist) and
        how often jitter was needed.
        """
        likelihood, coefficients = self.model.likelihood, state.coefficients
        noise = likelihood.noise_variance(state.parameters)
        width, k = features.shape[1], batch.y.shape[1]
        prior = self.model.prior.quadratic(state.scales, width, k, noise)
        rows = self.rows(state, features, batch, powers)
        blocks = jnp.asarray(likelihood.blocks(k))
        keys = jax.random.split(key, (len(blocks), 2))

        def one(coefficients: Array, block_keys: tuple[Array, Array]) -> tuple[Array, Any]:
            block, (key_omega, key_top) = block_keys
            statistics, quadratics = self.summed(
                key_omega, state.parameters, coefficients, rows, batch.y, block
            )
            statistics = Statistics(
                statistics.precision.at[:, 1:, 1:].add(rows.scatter[None] / noise),
                statistics.linear,
            )
            own = Quadratic(powers.prior * prior.w, powers.prior * prior.h[:, block])
            drawn = self.new_top(key_top, statistics.with_prior(own))
            new = drawn.coefficients.astype(coefficients.dtype)
            return coefficients.at[:, block].set(new), (drawn.jitters, quadratics)

        if len(blocks) == 1:
            coefficients, (jitters, quadratics) = one(coefficients, (blocks[0], keys[0]))
            return state._replace(coefficients=coefficients), quadratics, jitters
        coefficients, (jitters, _) = jax.lax.scan(one, coefficients, (blocks, keys))
        total = jnp.sum(jitters, dtype=jnp.int32)
        return state._replace(coefficients=coefficients), None, total

    def summed(
        self,
        key: Key[Array, ""],
        parameters: Parameters,
        coefficients: Array,
        rows: Rows,
        y: Array,
        block: Int[Array, " b"],
    ) -> tuple[Statistics, Quadratic]:
        """Statistics over rows and kept copies (one after the other), and the omegas behind them."""

        def one(copy: tuple[Array, ...]) -> tuple[Statistics, Quadratic]:
            key_copy, z, power, counted = copy
            eta = top.predictor(coefficients, z)
            quadratic = self.new_quadratic(key_copy, parameters, block, y, eta, power)
            statistics = summarise(top.design(z), quadratic)
            return jax.tree.map(lambda leaf: counted * leaf, statistics), quadratic

        n_copies = rows.z.shape[0]
        if n_copies == 1:
            statistics, quadratic = one((key, rows.z[0], rows.power[0], rows.counted[0]))
            return statistics, jax.tree.map(lambda leaf: leaf[None], quadratic)
        keys = jax.random.split(key, n_copies)
        parts, quadratics = jax.lax.map(one, (keys, rows.z, rows.power, rows.counted))
        return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), parts), quadratics

    def monitor(self, state: State, batch: Batch) -> Monitor:
        """Log posterior (up to a constant) and noise variance of a state."""
        model = self.model
        likelihood = model.log_likelihood(state.body, state.coefficients, state.parameters, batch)
        prior = model.log_prior(state.body, state.coefficients, state.parameters, state.scales)
        noise = jnp.asarray(model.likelihood.noise_variance(state.parameters), batch.x.dtype)
        return Monitor(likelihood + prior, noise)


def finite(tree: Any) -> Bool[Array, ""]:
    """Whether every number of a PyTree is finite."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))


def row_normals(
    key: Key[Array, ""], copies: int, rows: Float[Array, "n p"]
) -> Float[Array, "c n p"]:
    """Standard normal rows for each copy, keyed by the rows' blocks."""

    def normal(key_block: Key[Array, ""], part: Array) -> Array:
        return jax.random.normal(key_block, part.shape, part.dtype)

    if copies == 1:
        return by_block(normal, key, rows)[None]
    keys = jax.random.split(key, copies)
    return jax.vmap(lambda key_copy: by_block(normal, key_copy, rows))(keys)
