"""The driver: chains, resumption, padding, compilation, failing sweeps, and no deadlock."""

import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scalemix import fit
from scalemix.bodies import MLP
from scalemix.body_updates import Adam
from scalemix.engines import Gibbs, Model
from scalemix.likelihoods import Gaussian, Hinge, Likelihood, Logit
from scalemix.priors import Ridge
from scalemix.quadratic import Quadratic
from scalemix.rows import BLOCK, Batch, by_block, pad, padded

N, P, CHAINS = 50, 3, 3
SAME = 1e-9
"""Float64 sums in another order, over 25 sweeps of Adam and Gibbs on 50 rows."""
SCHEDULE = fit.Schedule(warmup=10, kept=5, thinning=3, body_moves=20)
"""25 sweeps. The body moves while draws are kept, and then stays. One draw a chunk, here and below:
the number is part of the program."""


def rows(seed: int, likelihood: Likelihood, n: int = N) -> Batch:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(n, P))
    eta = np.sin(2 * x[:, :1]) + 0.5 * x[:, 1:2] + 0.3 * generator.normal(size=(n, 1))
    y = eta if likelihood.target == "real" else np.sign(eta)
    return Batch(x, y, np.ones(n))


def engine_of(likelihood: Likelihood) -> Gibbs:
    prior = Ridge("learn", intercept_scale=1.0)
    return Gibbs(Model(likelihood, prior, MLP((5,), "tanh")), Adam(batch_size=16))


def seeds_of(seed: int, chains: int = CHAINS) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**32, (chains, 2), dtype=np.uint32)


def fitted(
    likelihood: Likelihood, seeds: np.ndarray, batch: Batch, schedule: fit.Schedule = SCHEDULE
) -> fit.Fitted:
    return fit.run(engine_of(likelihood), fit.begin(seeds), batch, schedule)


def compare(ours: object, expected: object, tolerance: float = 0.0) -> None:
    """Every array of two PyTrees; with tolerance 0 to the last bit."""
    assert jax.tree.structure(ours) == jax.tree.structure(expected)
    for mine, theirs in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        assert np.shape(mine) == np.shape(theirs)
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


# -- Chains ---------------------------------------------------------------------------------------


SLOW = pytest.mark.slow  # two programs with a Polya-Gamma sampler: ten seconds each to compile


@pytest.mark.parametrize(
    "likelihood", [Gaussian(), pytest.param(Logit(), marks=SLOW)], ids=["gaussian", "logit"]
)
def test_chains_side_by_side_are_single_chains(likelihood: Likelihood) -> None:
    """vmap changes nothing: 25 sweeps, body, top, scales and omega, to 1e-8 of float64."""
    batch, seeds = padded(rows(0, likelihood)), seeds_of(1)
    together = fitted(likelihood, seeds, batch)
    for chain in range(CHAINS):
        alone = fitted(likelihood, seeds[chain : chain + 1], batch)
        for all_chains, one in ((together.draws, alone.draws), (together.trace, alone.trace)):
            ours = jax.tree.map(lambda leaf, c=chain: leaf[c : c + 1], all_chains)
            compare(ours, one, 1e-8)
    first, second = together.draws.coefficients[:2]
    assert np.abs(first - second).min() > 1e-6  # the chains are not one another


# -- Resumption -----------------------------------------------------------------------------------


def joined(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize(
    ("first", "second"),
    [((4, 3), (1, 3)), ((2, 4), (1, 7))],
    ids=["at a draw", "between draws, other chunks"],
)
def test_a_resumed_run_is_the_uninterrupted_one(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    """To the last bit: 10 + 12 or 18 sweeps and the rest of 25 after them, against 10 + 15."""
    batch, seeds = padded(rows(0, Gaussian())), seeds_of(1)
    schedule = SCHEDULE._replace(body_moves=30)
    whole = fitted(Gaussian(), seeds, batch, schedule)
    kept, thinning = first
    begun = fitted(Gaussian(), seeds, batch, schedule._replace(kept=kept, thinning=thinning))
    kept, thinning = second
    rest = schedule._replace(warmup=0, kept=kept, thinning=thinning)
    ended = fit.run(engine_of(Gaussian()), begun.running, batch, rest)
    assert ended.running.time == whole.running.time == 25
    assert ended.warmup is None
    compare(jax.device_get(ended.running), jax.device_get(whole.running))
    last = jax.tree.map(lambda leaf: leaf[:, -1:], (whole.draws, whole.trace))
    compare((ended.draws, ended.trace), last)
    if first == (4, 3):
        compare(jax.tree.map(joined, begun.trace, ended.trace), whole.trace)
        compare(jax.tree.map(joined, begun.draws, ended.draws), whole.draws)


def test_a_resumed_run_knows_that_the_body_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves are counted from the first sweep of all, not from where the run goes on."""
    kept = []

    def advance(*arguments: object) -> None:
        kept.append(arguments[-1])
        raise InterruptedError

    monkeypatch.setattr(fit, "advance", advance)
    start = fit.begin(seeds_of(1))
    for time, warmup in [(0, 10), (12, 10), (0, 20), (22, 0)]:
        schedule = SCHEDULE._replace(warmup=warmup)
        with pytest.raises(InterruptedError):
            fit.run(
                engine_of(Gaussian()),
                start._replace(time=time),
                padded(rows(0, Gaussian())),
                schedule,
            )
    # 20 moves: they reach into the draws after 10 sweeps, not after 22 or 20.
    assert kept == [True, False, False, False]


def test_the_body_stays_after_its_moves() -> None:
    batch = padded(rows(0, Gaussian()))
    result = fitted(Gaussian(), seeds_of(1), batch)
    theta = result.draws.body[0][0]
    steps = np.abs(np.diff(theta, axis=1)).max(axis=(0, 2, 3))
    # Draws after 13, 16, 19, 22 and 25 sweeps; the body moves in the first 20.
    assert np.all(steps[:3] > 0)
    assert steps[3] == 0
    assert result.running.health.body_steps.tolist() == [20 * 4] * CHAINS  # ceil(50 / 16) a sweep


# -- Padding --------------------------------------------------------------------------------------


def padded_to(batch: Batch, size: int) -> Batch:
    return Batch(*(pad(np.asarray(array), size) for array in batch))


@pytest.mark.parametrize(
    ("likelihood", "size"),
    [
        (Gaussian(), 128),
        pytest.param(Logit(), 128, marks=SLOW),
        pytest.param(Logit(), 2 * BLOCK, marks=SLOW),
    ],
    ids=["gaussian to 128", "logit to 128", "logit to two blocks"],
)
def test_padding_changes_nothing(likelihood: Likelihood, size: int) -> None:
    """64 rows or more, blocks or one: the same omega, minibatches, draws and objective."""
    batch, seeds = rows(0, likelihood), seeds_of(1, 1)
    expected = fitted(likelihood, seeds, padded_to(batch, 64))
    ours = fitted(likelihood, seeds, padded_to(batch, size))
    compare((ours.draws, ours.trace), (expected.draws, expected.trace), SAME)
    compare(ours.running.health, expected.running.health)


@pytest.mark.parametrize(
    "likelihood", [Hinge(), pytest.param(Logit(), marks=SLOW)], ids=["hinge", "logit"]
)
def test_padding_leaves_omega_alone(likelihood: Likelihood) -> None:
    """The first 50 rows' omega out of 50, of 128 and of two blocks: the same to rounding."""
    batch = rows(0, likelihood)
    eta = np.random.default_rng(4).normal(size=(N, 1))
    parameters, block = likelihood.initial(jnp.float32), jnp.arange(1)

    @jax.jit
    def drawn(y: jax.Array, eta: jax.Array, power: jax.Array) -> Quadratic:
        def draw(key: jax.Array, *part: jax.Array) -> Quadratic:
            return likelihood.draw(key, parameters, *part, block)

        return by_block(draw, jax.random.key(2), y, eta, power)

    arrays = [array.astype(np.float32) for array in (batch.y, eta, batch.power)]
    expected = drawn(*arrays)
    for size in (128, 2 * BLOCK):
        ours = drawn(*(pad(array, size) for array in arrays))
        compare(jax.tree.map(lambda leaf: leaf[:N], ours), expected, 1e-6)  # float32
        assert np.all(np.asarray(ours.w)[N:] == 0)
        assert np.all(np.asarray(ours.h)[N:] == 0)


# -- Compilation ----------------------------------------------------------------------------------


def test_a_second_fit_of_the_same_padded_shapes_compiles_nothing() -> None:
    """Other rows, another number of them, other seeds, warm-up, thinning and moves of the body."""
    fitted(Gaussian(), seeds_of(1), padded(rows(0, Gaussian())))
    before = fit.advance._cache_size()
    other = fit.Schedule(warmup=23, kept=4, thinning=2, body_moves=40)
    result = fitted(Gaussian(), seeds_of(2), padded(rows(3, Gaussian(), n=61)), other)
    assert result.draws.coefficients.shape[:2] == (CHAINS, 4)
    assert fit.advance._cache_size() == before


def test_progress_is_told_after_every_chunk() -> None:
    told = []
    engine, batch = engine_of(Gaussian()), padded(rows(0, Gaussian()))
    fit.run(engine, fit.begin(seeds_of(1)), batch, SCHEDULE, lambda *what: told.append(what))
    assert told[:5] == [("warm-up", done, 10) for done in (2, 4, 6, 8, 10)]
    assert told[5:] == [("draws", done, 15) for done in (3, 6, 9, 12, 15)]


# -- Sweeps that fail -----------------------------------------------------------------------------


class Planted(Gibbs):
    """Its top is NaN in the sweeps that are marked."""

    failing: jax.Array | None = None

    def step(self, key, time, progress, state, batch):
        new, info = Gibbs.step(self, key, time, progress, state, batch)
        bad = self.failing[time]
        spoilt = jnp.where(bad, jnp.nan, new.coefficients)
        return new._replace(coefficients=spoilt), info._replace(finite=info.finite & ~bad)


PLANTED = fit.Schedule(warmup=20, kept=5, thinning=4, body_moves=0)
"""Chunks of four sweeps."""


def planted(failing: list[int], schedule: fit.Schedule = PLANTED) -> fit.Fitted:
    model = Model(Gaussian(), Ridge(1.0, intercept_scale=1.0), MLP(()))
    marked = np.isin(np.arange(60), failing)
    engine = Planted(model, Adam(), failing=marked)
    batch = padded(rows(0, Gaussian()))
    return fit.run(engine, fit.begin(seeds_of(1, 2)), batch, schedule)


def test_a_failed_sweep_is_undone_and_counted() -> None:
    """Sweep 3 of the warm-up, 27 to 31 of the draws: left out, and the chain goes on."""
    result = planted([3, *range(27, 32)])
    health, draws = result.running.health, result.draws.coefficients
    assert np.asarray(health.failures).tolist() == [6, 6]
    assert np.asarray(health.first).tolist() == [3, 3]
    assert np.asarray(health.streak).tolist() == [0, 0]
    assert np.asarray(health.parts).tolist() == [[False, True, False, False]] * 2
    assert np.all(np.isfinite(draws))
    # Draws after 24, 28, 32, 36, 40 sweeps: nothing happened between the second and the third.
    assert np.array_equal(draws[:, 2], draws[:, 1])
    assert np.all(draws[:, 3] != draws[:, 2])
    clean = planted([]).running.health
    assert np.asarray(clean.failures).tolist() == [0, 0]
    assert np.asarray(clean.first).tolist() == [-1, -1]


def test_a_short_run_is_healed_too() -> None:
    """Its chunks are single sweeps: one that fails is not yet a chain that cannot go on."""
    short = fit.Schedule(warmup=5, kept=5, thinning=1, body_moves=0)
    result = planted([0, 1], short)
    assert np.asarray(result.running.health.failures).tolist() == [2, 2]
    assert np.all(np.isfinite(result.draws.coefficients))
    with pytest.raises(fit.NotFinite):
        planted(list(range(60)), short)


@pytest.mark.parametrize(("failing", "first"), [(range(60), 0), (range(12, 60), 12)])
def test_a_chain_that_cannot_be_healed_is_refused_by_name(failing: range, first: int) -> None:
    """Which part, when first, and what to do."""
    with pytest.raises(fit.NotFinite, match=f"the top layer .* first at sweep {first} ") as error:
        planted(list(failing))
    assert "likely cause" in str(error.value)
    assert "prior='ridge' helps" in str(error.value)


# -- No deadlock ----------------------------------------------------------------------------------

CHOLESKY = """
import jax
import jax.numpy as jnp

def chain(key):
    def sweep(state, key):
        rows = jax.random.normal(key, (64, 24)) + 0.1 * state
        lower = jnp.linalg.cholesky(rows.T @ rows / 64 + jnp.eye(24))
        noise = jax.random.normal(jax.random.fold_in(key, 1), (24,))
        state = jax.scipy.linalg.solve_triangular(lower, noise, lower=True)
        return state, state[0]
    return jax.lax.scan(sweep, jnp.zeros(24), jax.random.split(key, 300))[1]

with jax.enable_x64(True):
    result = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), 8))
    print(bool(jnp.all(jnp.isfinite(result))))
"""


def test_cholesky_under_vmap_and_scan_does_not_hang() -> None:
    """Some releases of JAX deadlocked here (see pyproject.toml). It takes seconds; 120 are a hang."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHOLESKY)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "True"
