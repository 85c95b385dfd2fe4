"""The only driver: sweeps in a scan, chains side by side, phases, progress, trouble, resumption."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from scalemix import top
from scalemix.bodies import Parameters as Body
from scalemix.engines import Engine, Monitor, State
from scalemix.rows import Batch

CHUNKS = 5
"""Each phase is run in this many calls of one compiled program, between which progress is shown."""
PATIENCE = 10
"""A chain that fails this many sweeps in a row is given up."""
WATCHED_ROWS = 16
"""Rows whose predictor is kept in each draw for the diagnostics."""


class Schedule(NamedTuple):
    """How many sweeps, and which are kept."""

    warmup: int
    kept: int
    """Draws kept after the warm-up."""
    thinning: int
    """Sweeps from one kept draw to the next."""
    body_moves: int
    """The body moves in this many sweeps from the first one on."""


class Health(NamedTuple):
    """Failed sweeps of a chain: such a sweep is undone and the next one tries with its own key."""

    failures: Int[Array, ""]
    streak: Int[Array, ""]
    """Failures in a row up to now."""
    first: Int[Array, ""]
    """Index of the first failed sweep, -1 if there was none."""
    parts: Bool[Array, " 4"]
    """Whether body, top, scales or latents were ever not finite; none of them: the features were."""
    jitters: Int[Array, ""]
    """Factorisations that needed jitter."""
    body_steps: Int[Array, ""]


PARTS = ("the body or its features", "the top layer", "a scale", "the latents")
CAUSES = (
    "a learning rate that is too large, or targets of very different sizes (standardize=True helps)",
    "features that do not vary, under a flat prior (prior='ridge' helps)",
    "a noise scale that ran to 0 because the body repeats the targets exactly (fix noise_scale)",
    "a latent_scale that is far from the size of the features",
)


class Draw(NamedTuple):
    """What is kept of a state: everything that prediction needs."""

    body: Body | None
    """`None` in a chunk in which it stayed; joined, its draws axis is then of length 1."""
    coefficients: Float[Array, "d k"]
    parameters: Any


class Trace(NamedTuple):
    """Invariant quantities of a kept draw, for the diagnostics."""

    monitor: Monitor
    eta: Float[Array, "watched k"]
    """The predictor at the first rows."""


class Running(NamedTuple):
    """Where the chains stand; enough to go on as if never interrupted."""

    keys: UInt32[Array, "chains 2"]
    """Raw key of each chain."""
    time: int
    """Sweeps done."""
    state: State | None
    """`None` before the first sweep."""
    health: Health


class Fitted(NamedTuple):
    """What a run leaves, as NumPy arrays with leading axes (chains, kept draws)."""

    draws: Draw
    trace: Trace
    warmup: Trace | None
    """States spread evenly over the warm-up; None without one."""
    running: Running


class NotFinite(ValueError):
    """A chain could not be healed."""


Progress = Callable[[str, int, int], None]
"""Called with the phase, the sweeps done and their total."""


def _key(seed: UInt32[Array, " 2"]) -> Key[Array, ""]:
    return jax.random.wrap_key_data(seed, impl="threefry2x32")


@partial(jax.jit, static_argnames=("n_kept", "keep_body"))
def advance(
    engine: Engine,
    seeds: UInt32[Array, "chains 2"],
    begin: Int[Array, ""],
    end: Int[Array, ""],
    body_moves: Int[Array, ""],
    fresh: Bool[Array, ""],
    state: State,
    health: Health,
    batch: Batch,
    thinning: Int[Array, ""],
    n_kept: int,
    keep_body: bool,
) -> tuple[State, Health, tuple[Draw, Trace]]:
    """Run `n_kept * thinning` sweeps from sweep `begin`, keeping every `thinning`-th state.

    Sweeps at or beyond `end` leave the state alone, and a `fresh` run replaces the given state by
    the engine's start: one program serves all phases and any number of sweeps.
    """

    def started(_: State) -> State:
        return jax.vmap(lambda seed: engine.initial(jax.random.fold_in(_key(seed), 0), batch))(
            seeds
        )

    state = jax.lax.cond(fresh, started, lambda given: given, state)

    def sweep(time: Array, chain: tuple[State, Health], seed: Array) -> tuple[State, Health]:
        state, health = chain
        key = jax.random.fold_in(_key(seed), time + 1)
        progress = (time + 1).astype(batch.x.dtype) / body_moves
        new, info = engine.step(key, time, progress, state, batch)
        kept = jax.tree.map(lambda fresh, old: jnp.where(info.finite, fresh, old), new, state)
        return kept, _examined(health, info, new, time)

    def sweeps(time: Array, chains: tuple[State, Health]) -> tuple[State, Health]:
        return jax.vmap(partial(sweep, time))(chains, seeds)

    def keep(carry: tuple[State, Health], index: Array) -> tuple[Any, tuple[Draw, Trace]]:
        first = begin + index * thinning
        carry = jax.lax.fori_loop(first, jnp.minimum(first + thinning, end), sweeps, carry)
        return carry, jax.vmap(lambda state: _kept(engine, state, batch, keep_body))(carry[0])

    carry, kept = jax.lax.scan(keep, (state, health), jnp.arange(n_kept))
    return *carry, jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), kept)


def _kept(engine: Engine, state: State, batch: Batch, keep_body: bool) -> tuple[Draw, Trace]:
    features = engine.model.body(state.body, batch.x[:WATCHED_ROWS])
    eta = engine.model.likelihood.identified(top.predictor(state.coefficients, features))
    body = state.body if keep_body else None
    return Draw(body, state.coefficients, state.parameters), Trace(
        engine.monitor(state, batch), eta
    )


def _examined(health: Health, info: Any, new: State, time: Array) -> Health:
    def bad(tree: Any) -> Array:
        leaves = [jnp.any(~jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]
        return jnp.any(jnp.stack(leaves)) if leaves else jnp.bool_(False)

    failed = ~info.finite
    trees = (new.body, new.coefficients, (new.parameters, new.scales), new.latents)
    return Health(
        health.failures + failed,
        jnp.where(failed, health.streak + 1, 0),
        jnp.where(failed & (health.first < 0), time, health.first).astype(jnp.int32),
        health.parts | jnp.stack([bad(tree) for tree in trees]),
        health.jitters + info.jitters,
        health.body_steps + info.body_steps,
    )


def begin(seeds: Any) -> Running:
    """Chains before their first sweep; `seeds` (chains, 2) is one raw uint32 key a chain."""
    none: Any = np.zeros(len(seeds), np.int32)
    health = Health(none, none, none - 1, (none[:, None] > np.arange(len(PARTS))[None]), none, none)
    return Running(seeds, 0, None, health)


def _blank(engine: Engine, seeds: Any, batch: Batch) -> State:
    """Zeros in the shape of the chains' states, without compiling anything."""
    state = jax.eval_shape(jax.vmap(lambda seed: engine.initial(_key(seed), batch)), seeds)
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), state)


def run(
    engine: Engine,
    running: Running,
    batch: Batch,
    schedule: Schedule,
    progress: Progress | None = None,
) -> Fitted:
    """Run the warm-up, then the draws.

    Parameters
    ----------
    engine
        Its `step` is one sweep of one chain.
    running
        From `begin`, or `Fitted.running` of an earlier run: with no warm-up in the new schedule the
        chains go on exactly as if they had not been interrupted.
    batch
        Padded rows.
    schedule
        Numbers of sweeps from where `running` stands (`body_moves` counts from the first of all).
    progress
        Told after every chunk.
    """
    length = -(-schedule.kept // CHUNKS)
    moves = schedule.body_moves > running.time + schedule.warmup
    program = _Program(engine, batch, schedule, length, keep_body=moves)
    points = min(schedule.warmup, CHUNKS * length)
    running, warmup = program.run(running, "warm-up", schedule.warmup, points, progress)
    total = schedule.kept * schedule.thinning
    running, (draws, trace) = program.run(running, "draws", total, schedule.kept, progress)
    _refuse_diverged(trace)
    if not program.keep_body:
        assert running.state is not None
        body = jax.tree.map(lambda leaf: np.asarray(leaf)[:, None], running.state.body)
        draws = draws._replace(body=body)
    return Fitted(draws, trace, warmup[1], running)


class _Program(NamedTuple):
    """The compiled `advance` of a fit, called for chunks of one length."""

    engine: Engine
    batch: Batch
    schedule: Schedule
    length: int
    keep_body: bool
    """Whether the body moves while draws are kept."""

    def run(
        self, running: Running, name: str, sweeps: int, points: int, progress: Progress | None
    ) -> tuple[Running, Any]:
        """Run a phase, keeping `points` states spread evenly over its sweeps, the last among them."""
        if sweeps == 0:
            return running, (None, None)
        thinning = -(-sweeps // points)
        first, end, parts = running.time, running.time + sweeps, []
        while running.time < end:
            with jax.enable_x64(True):
                fresh = running.state is None
                given = running.state
                if given is None:
                    given = _blank(self.engine, running.keys, self.batch)
                state, health, kept = advance(
                    self.engine, running.keys, np.int32(running.time), np.int32(end),
                    np.int32(self.schedule.body_moves), np.bool_(fresh), given, running.health,
                    self.batch,
                    np.int32(thinning), self.length, self.keep_body,
                )  # fmt: skip
            parts.append(jax.device_get(kept))
            time = min(running.time + self.length * thinning, end)
            running = Running(running.keys, time, state, health)
            _refuse_failed(running, done=time == end)
            if progress is not None:
                progress(name, time - first, sweeps)
        n_kept = -(-sweeps // thinning)

        def joined(*leaves: np.ndarray) -> np.ndarray:
            return np.concatenate(leaves, axis=1)[:, :n_kept]

        return running, jax.tree.map(joined, *parts)


def _refuse_diverged(trace: Trace) -> None:
    """Raise when kept draws are so far out that their log posterior overflows."""
    lost = ~np.isfinite(trace.monitor.log_joint).all(axis=1)
    if lost.any():
        raise NotFinite(
            f"chain {np.argmax(lost)} diverged: its log posterior is not finite, so {PARTS[0]} or the "
            f"top layer is out of all proportion; the likely cause is {CAUSES[0]}"
        )


def _refuse_failed(running: Running, done: bool) -> None:
    """Raise when a chain cannot be healed: it fails too often in a row, or in all of a short run."""
    health = jax.device_get(running.health)
    hopeless = done & (health.failures >= running.time)
    lost = np.flatnonzero((health.streak >= PATIENCE) | hopeless)
    if lost.size == 0:
        return
    chain = lost[0]
    which = int(np.argmax(health.parts[chain]))
    raise NotFinite(
        f"chain {chain} cannot go on: {PARTS[which]} was not finite first at sweep "
        f"{health.first[chain]} and in {health.failures[chain]} sweeps of {running.time}; "
        f"the likely cause is {CAUSES[which]}"
    )
