"""Body update `adam`: one epoch of minibatch steps on the log posterior of the body."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from scalemix.body_updates._base import Body, BodyUpdate, Info, Target

FINAL_RATE = 0.02
"""The learning rate is constant for half of the moves, then falls linearly to this fraction."""


class Memory(NamedTuple):
    """Adam's moments, and what early stopping remembers."""

    optimiser: Any
    luck: Float[Array, " n"]
    """A uniform a row; the rows with the smallest are held out."""
    best: Body
    best_score: Float[Array, ""]
    since_best: Int[Array, ""]


class Adam(BodyUpdate):
    """Optimises: the result is a point, not a draw (approximate as a posterior of the body).

    One move is one epoch: ceil(n / batch_size) steps on disjoint minibatches of a random order, each
    on log p(B) + (n / m) sum over the m rows of the minibatch. With `validation_fraction` the
    body with the best held-out log likelihood is kept, and moving ends `patience` epochs after it.
    """

    learning_rate: float = 0.01
    batch_size: int = eqx.field(static=True, default=32)
    validation_fraction: float | None = None
    patience: int = 20

    name: ClassVar[str] = "adam"
    samples: ClassVar[bool] = False

    def _optimiser(self, scale: Array | float) -> optax.GradientTransformation:
        return optax.chain(optax.scale_by_adam(b1=0.9, b2=0.99), optax.scale(-1.0 * scale))

    def initial(self, key: Key[Array, ""], body: Body, target_size: int) -> Memory:
        """Zero moments, and the lot that says which rows are held out."""
        luck = jnp.zeros(target_size, jnp.float32)
        if self.validation_fraction is not None:
            luck = jax.random.uniform(key, (target_size,), jnp.float32)
        worst = jnp.float32(-jnp.inf)
        return Memory(self._optimiser(1.0).init(body), luck, body, worst, jnp.int32(0))

    def move(
        self,
        key: Key[Array, ""],
        progress: Float[Array, ""],
        body: Body,
        memory: Memory,
        target: Target,
    ) -> tuple[Body, Memory, Info]:
        """One epoch, and one look at the rows held out."""
        learned = self._learned(memory, target)
        moved, optimiser, steps = self._epoch(
            key, progress, body, memory.optimiser, target, learned
        )
        memory = memory._replace(optimiser=optimiser)
        if self.validation_fraction is None:
            return moved, memory, Info(steps, jnp.bool_(True))
        return self._judged(moved, memory, target, learned, steps, progress < 1)

    def _learned(self, memory: Memory, target: Target) -> Float[Array, " n"]:
        """1 for rows that are learned from; 0 for padded rows and those held out, at least one."""
        real = jnp.arange(target.size) < target.n_rows
        if self.validation_fraction is None:
            return real.astype(jnp.float32)
        n_held = jnp.maximum(jnp.floor(self.validation_fraction * target.n_rows), 1).astype(
            jnp.int32
        )
        threshold = jnp.sort(jnp.where(real, memory.luck, 2.0))[n_held - 1]
        return (real & (memory.luck > threshold)).astype(jnp.float32)

    def _epoch(
        self,
        key: Key[Array, ""],
        progress: Array,
        body: Body,
        optimiser_state: Any,
        target: Target,
        learned: Array,
    ) -> tuple[Body, Any, Array]:
        size = min(self.batch_size, target.size)
        order = self._order(key, target)
        n_steps = -(-target.n_rows // size)
        n_learned = jnp.sum(learned)
        rate = self.learning_rate * jnp.interp(
            progress, jnp.array([0.5, 1.0]), jnp.array([1.0, FINAL_RATE])
        )
        optimiser = self._optimiser(rate)

        def step(index: Array, carry: tuple[Body, Any]) -> tuple[Body, Any]:
            body, state = carry
            rows = jax.lax.dynamic_slice(order, (index * size,), (size,))
            weights = jnp.where(index * size + jnp.arange(size) < target.size, learned[rows], 0)
            weights = weights * n_learned / jnp.maximum(jnp.sum(weights), 1)
            key_step = jax.random.fold_in(key, index + 1)
            gradient = jax.grad(target.log_density)(body, rows, weights, key_step)
            ascent = jax.tree.map(jnp.negative, gradient)
            updates, state = optimiser.update(ascent, state)
            return optax.apply_updates(body, updates), state

        body, state = jax.lax.fori_loop(0, n_steps, step, (body, optimiser_state))
        return body, state, n_steps

    def _order(self, key: Key[Array, ""], target: Target) -> Int[Array, " n"]:
        """Real rows in random order, then padded ones up to a multiple of the batch size.

        A full batch keeps the order, so that weights and repeated rows give the same sums.
        """
        size = min(self.batch_size, target.size)
        rows = jnp.arange(target.size)
        if size < target.size:
            uniform = jax.random.uniform(key, (target.size,), jnp.float32)
            rows = jnp.argsort(jnp.where(rows < target.n_rows, uniform, 2.0))
        surplus = -target.size % size
        return jnp.concatenate([rows, jnp.full(surplus, target.size - 1, rows.dtype)])

    def _judged(
        self,
        moved: Body,
        memory: Memory,
        target: Target,
        learned: Array,
        steps: Array,
        more: Bool[Array, ""],
    ) -> tuple[Body, Memory, Info]:
        """Remember the best body, and return to it after the last move or when patience is spent."""
        rows = jnp.arange(target.size)
        held_out = jnp.where(rows < target.n_rows, 1 - learned, 0)
        nothing = jnp.zeros_like(held_out)
        score: Array = target.log_density(moved, rows, held_out, None) - target.log_density(
            moved, rows, nothing, None
        )
        going = memory.since_best < self.patience
        score = score.astype(jnp.float32)
        better = going & (score > memory.best_score)
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), moved, memory.best)
        since = jnp.where(better, 0, memory.since_best + 1)
        memory = memory._replace(
            best=best, best_score=jnp.where(better, score, memory.best_score), since_best=since
        )
        goes_on = (since < self.patience) & more
        body = jax.tree.map(lambda new, kept: jnp.where(goes_on, new, kept), moved, best)
        return body, memory, Info(steps, going)
