"""J copies by their statistics, invariances of the marginal, no hard latents (T19, T27, T28)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scalemix import top
from scalemix.bodies import MLP
from scalemix.body_updates import Adam
from scalemix.engines import EM, Gibbs, Latents, Model, State
from scalemix.likelihoods import Gaussian, Hinge, Logit
from scalemix.priors import Flat, Ridge
from scalemix.quadratic import Statistics
from scalemix.rows import Batch

ROWS, INPUTS, WIDTH, COPIES = 30, 4, 2, 6
NOISE, LATENT_SCALE = 0.4, 0.8
TOLERANCES = {np.float64: 1e-11, np.float32: 1e-5}
"""Relative to the size of the numbers compared: T19."""


def close(ours: np.ndarray, expected: np.ndarray, dtype: type) -> None:
    difference = np.abs(np.asarray(ours, np.float64) - expected).max()
    assert difference < TOLERANCES[dtype] * np.abs(expected).max()


class Recorded:
    """Keeps the Statistics from which the coefficients would be drawn."""

    def __init__(self) -> None:
        self.statistics: list[Statistics] = []

    def __call__(self, key: jax.Array, statistics: Statistics) -> top.Top:
        self.statistics.append(statistics)
        return top.mode(statistics)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("likelihood", "dtype"),
    [(Gaussian(), np.float64), (Gaussian(), np.float32), (Hinge(), np.float64)],
    ids=["gaussian", "gaussian in float32", "hinge"],
)
def test_statistics_stand_for_the_stack(likelihood, dtype, seed, monkeypatch) -> None:
    """Gram matrix, least squares and body gradient of n J rows, from n rows and a p1 x p1 scatter.

    Gaussian copies are kept as mean and scatter; those of other likelihoods one by one.
    """
    generator = np.random.default_rng(seed)
    x, y = generator.normal(size=(ROWS, INPUTS)), generator.normal(size=(ROWS, 1))
    y = y if likelihood.target == "real" else np.sign(y)
    stack = generator.normal(size=(COPIES, ROWS, WIDTH)) + x[:, :WIDTH]
    # The stack in the dtype of the test is the truth; its sums are formed in float64.
    x, y, stack = (array.astype(dtype).astype(np.float64) for array in (x, y, stack))
    mean = stack.mean(axis=0)
    scatter = np.einsum("jni,jnl->il", stack - mean, stack - mean)
    kept = Latents(jnp.asarray(mean, dtype)[None], jnp.asarray(scatter, dtype))
    if not likelihood.latents_in_closed_form:
        kept = Latents(jnp.asarray(stack, dtype), jnp.zeros((WIDTH, WIDTH), dtype))

    body = MLP((5,), "tanh", output=WIDTH)
    prior = Flat() if likelihood.allows_flat_prior else Ridge(1e8, intercept_scale=1e8)
    model = Model(likelihood, prior, body, None, LATENT_SCALE)
    engine = Gibbs(model, Adam(), copies=COPIES, copies_target="mle")
    batch = Batch(jnp.asarray(x, dtype), jnp.asarray(y, dtype), jnp.ones(ROWS, dtype))
    weights = jax.jit(body.initial, static_argnums=(1, 2))(
        jax.random.key(seed), INPUTS, np.dtype(dtype)
    )
    coefficients = generator.normal(size=(1 + WIDTH, 1)).astype(dtype)
    parameters = jnp.asarray(NOISE if isinstance(likelihood, Gaussian) else 2.0, dtype)
    state = State(weights, (), jnp.asarray(coefficients), parameters, (), kept)
    powers = engine.powers(jnp.int32(0), dtype)

    recorded = Recorded()
    monkeypatch.setattr(top, "draw", recorded)
    features = body(weights, batch.x)
    new, quadratics, _ = engine.visit(jax.random.key(1), state, features, batch, powers)
    design = np.concatenate([np.ones((COPIES, ROWS, 1)), stack], axis=2)
    w = np.asarray(quadratics.w, np.float64)[..., 0]
    h = np.asarray(quadratics.h, np.float64)[..., 0]
    if isinstance(likelihood, Gaussian):
        w, h = np.full((COPIES, ROWS), 1 / NOISE), np.tile(y[:, 0] / NOISE, (COPIES, 1))
    gram = np.einsum("jni,jn,jnl->il", design, w, design)
    linear = np.einsum("jni,jn->i", design, h)
    close(recorded.statistics[0].precision[0], gram, dtype)
    close(recorded.statistics[0].linear[0], linear, dtype)
    solution = np.linalg.solve(gram, linear)
    close(np.asarray(new.coefficients)[:, 0], solution, dtype)
    if isinstance(likelihood, Gaussian):  # of n J rows, by another route
        rows = design.reshape(-1, 1 + WIDTH)
        least_squares = np.linalg.lstsq(rows, np.tile(y[:, 0], COPIES), rcond=None)[0]
        close(np.asarray(new.coefficients)[:, 0], least_squares, dtype)

    target = engine.target(state, batch, powers)
    rows, ones = jnp.arange(ROWS), jnp.ones(ROWS, dtype)
    ours = jax.jit(jax.grad(lambda body: target.log_density(body, rows, ones, None)))(weights)

    def stacked(weights: list) -> jax.Array:
        residual = jnp.asarray(stack) - body(weights, jnp.asarray(x))[None]
        return -jnp.sum(residual**2) / (2 * LATENT_SCALE**2) + body.log_prior(weights, None)

    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), weights)
    expected = jax.jit(jax.grad(stacked))(wide)
    for mine, theirs in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        assert mine.dtype == dtype
        close(np.asarray(mine), np.asarray(theirs), dtype)


def test_copies_beyond_the_schedule_do_not_count(seed) -> None:
    """While J_t < J the last copies are there, and have no say in the body's gradient."""
    generator = np.random.default_rng(seed)
    stack = generator.normal(size=(4, ROWS, WIDTH)).astype(np.float32)
    body = MLP((), output=WIDTH)
    model = Model(Logit(), Ridge(1.0, intercept_scale=1.0), body, None, LATENT_SCALE)
    engine = Gibbs(model, Adam(), copies=4, copies_schedule="geometric", annealing=10)
    x = jnp.asarray(generator.normal(size=(ROWS, WIDTH)), jnp.float32)
    ones = jnp.ones((ROWS, 1), jnp.float32)
    batch = Batch(x, ones, ones[:, 0])
    weights = [(jnp.eye(WIDTH, dtype=jnp.float32), jnp.zeros(WIDTH, jnp.float32))]
    powers = engine.powers(jnp.int32(3), jnp.float32)
    assert float(powers.copies) == 2  # ceil(4^.3)

    @jax.jit
    def gradient(stack: jax.Array) -> jax.Array:
        latents = Latents(stack, jnp.zeros((WIDTH, WIDTH), jnp.float32))
        state = State(weights, (), jnp.ones((1 + WIDTH, 1), jnp.float32), (), (), latents)
        target = engine.target(state, batch, powers)
        ((theta, _),) = jax.grad(target.log_density)(weights, jnp.arange(ROWS), batch.power, None)
        return theta

    changed = stack.copy()
    changed[2:] += 100.0
    assert np.array_equal(gradient(stack), gradient(changed))
    changed[1] += 1.0
    assert not np.array_equal(gradient(stack), gradient(changed))


# -- T27 ------------------------------------------------------------------------------------------

INVARIANT = 1e-10
"""Sums of 30 log densities in float64: rounding is 1e-13 or less."""


def transformed(weights: list, coefficients: np.ndarray, matrix: np.ndarray, shift: np.ndarray):
    """F -> F A + d by the body's last layer, W_0 -> A^-1 W_0, b_0 -> b_0 - d' A^-1 W_0."""
    *rest, (theta, bias) = weights
    turned = np.linalg.solve(matrix, coefficients[1:])
    new = np.concatenate([coefficients[:1] - shift[None] @ turned, turned])
    return [*rest, (theta @ matrix, bias @ matrix + shift)], jnp.asarray(new)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("likelihood", [Gaussian(), Logit(), Hinge()], ids=lambda one: one.name)
def test_invariances_of_the_marginal(likelihood, seed) -> None:
    """Sign, rotation and location leave log p(y | f, beta) alone; scale does not."""
    generator = np.random.default_rng(seed)
    k = 2 if isinstance(likelihood, Gaussian) else 1
    y = generator.normal(size=(ROWS, k))
    y = y if likelihood.target == "real" else np.sign(y)
    x = jnp.asarray(generator.normal(size=(ROWS, INPUTS)))
    batch = Batch(x, jnp.asarray(y), jnp.ones(ROWS))
    body = MLP((5,), "tanh", output=3)
    model = Model(likelihood, Ridge(1.0, intercept_scale=1.0), body, None, LATENT_SCALE)
    weights = jax.jit(body.initial, static_argnums=(1, 2))(
        jax.random.key(seed), INPUTS, np.dtype(np.float64)
    )
    coefficients = generator.normal(size=(4, k))
    parameters = likelihood.initial(jnp.float64)

    @jax.jit
    def evaluate(weights: list, coefficients: jax.Array) -> jax.Array:
        return model.log_likelihood(weights, coefficients, parameters, batch)

    value = float(evaluate(weights, jnp.asarray(coefficients)))
    rotation, _ = np.linalg.qr(generator.normal(size=(3, 3)))
    none, shift = np.zeros(3), generator.normal(size=3)
    for matrix, moved in [(-np.eye(3), none), (rotation, none), (np.eye(3), shift)]:
        new = float(evaluate(*transformed(weights, coefficients, matrix, moved)))
        assert new == pytest.approx(value, rel=INVARIANT)
    scaled = float(evaluate(*transformed(weights, coefficients, 2.0 * np.eye(3), none)))
    assert abs(scaled - value) > 1e-4 * abs(value)
    # Without the latents' noise even the scale is free.
    silent = Model(likelihood, model.prior, body)
    for matrix in (2.0 * np.eye(3), rotation):
        new = transformed(weights, coefficients, matrix, none)
        assert float(silent.log_likelihood(*new, parameters, batch)) == pytest.approx(
            float(silent.log_likelihood(weights, jnp.asarray(coefficients), parameters, batch)),
            rel=INVARIANT,
        )


# -- T28 ------------------------------------------------------------------------------------------


def berkson(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """y = Z + e, Z = f + e_z with f known: regression of y on f is unbiased, slope 1."""
    generator = np.random.default_rng(seed)
    f = generator.normal(size=n)
    z = f + LATENT_SCALE * generator.normal(size=n)
    return f, z + np.sqrt(NOISE) * generator.normal(size=n)


def deming_slope(f: np.ndarray, y: np.ndarray, ratio: float) -> float:
    """Where alternating hard maximisation over Z and W_0 ends (math.md 4.1)."""
    (s_ff, s_fy), (_, s_yy) = np.cov(f, y)
    difference = s_yy - ratio * s_ff
    return (difference + np.sqrt(difference**2 + 4 * ratio * s_fy**2)) / (2 * s_fy)


@pytest.mark.usefixtures("x64")
def test_em_keeps_the_latents_variance_and_misses_the_deming_slope(seed) -> None:
    """There is no path with hard latents: EM's slope is maximum likelihood's, not Deming's."""
    n = 2000
    f, y = berkson(seed, n)
    model = Model(Gaussian(np.sqrt(NOISE)), Flat(), MLP(()), None, LATENT_SCALE)
    engine = EM(model, Adam())
    batch = Batch(jnp.asarray(f)[:, None], jnp.asarray(y)[:, None], jnp.ones(n))

    @jax.jit
    def climbed(key: jax.Array) -> State:
        def sweep(_: int, state: State) -> State:
            return engine.step(key, jnp.int32(0), None, state, batch)[0]

        return jax.lax.fori_loop(0, 500, sweep, engine.initial(key, batch))

    state = climbed(jax.random.key(seed))
    ours = float(state.coefficients[1, 0])

    # The marginal is y ~ N(b + W f, tau_0^2 + tau_z^2 W^2), the intercept maximised out: profile W.
    def negative(weight: float) -> float:
        residual = y - weight * f - np.mean(y - weight * f)
        variance = NOISE + LATENT_SCALE**2 * weight**2
        return n / 2 * np.log(variance) + np.sum(residual**2) / (2 * variance)

    grid = np.linspace(0.2, 3, 281)
    coarse = grid[np.argmin([negative(weight) for weight in grid])]
    fine = coarse + np.linspace(-0.01, 0.01, 2001)
    likeliest = fine[np.argmin([negative(weight) for weight in fine])]
    deming = deming_slope(f, y, NOISE / LATENT_SCALE**2)
    assert ours == pytest.approx(likeliest, abs=1e-5)  # the fine grid's step
    assert abs(ours - 1) < 0.1  # consistent: four standard errors of a slope at n = 2000
    assert deming > 1.3  # and this one is not

    # The variance term itself: what the M-step adds to mu' mu is n times the latents' covariance.
    weight = ours
    covariance = LATENT_SCALE**2 * NOISE / (NOISE + LATENT_SCALE**2 * weight**2)
    assert float(state.latents.scatter[0, 0]) == pytest.approx(n * covariance, rel=1e-6)


@pytest.mark.usefixtures("x64")
def test_alternating_hard_maximisation_is_the_deming_slope(seed) -> None:
    """The planted fault: leave the scatter out and the same M-step ends at Deming's slope."""
    n = 2000
    f, y = berkson(seed, n)
    model = Model(Gaussian(np.sqrt(NOISE)), Flat(), MLP(()), None, LATENT_SCALE)
    engine = EM(model, Adam())
    batch = Batch(jnp.asarray(f)[:, None], jnp.asarray(y)[:, None], jnp.ones(n))

    @jax.jit
    def hard(key: jax.Array) -> State:
        def sweep(_: int, state: State) -> State:
            state = engine.step(key, jnp.int32(0), None, state, batch)[0]
            nothing = jnp.zeros_like(state.latents.scatter)
            return state._replace(latents=state.latents._replace(scatter=nothing))

        return jax.lax.fori_loop(0, 500, sweep, engine.initial(key, batch))

    ours = float(hard(jax.random.key(seed)).coefficients[1, 0])
    assert ours == pytest.approx(deming_slope(f, y, NOISE / LATENT_SCALE**2), abs=1e-6)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("likelihood", [Logit(), Hinge()], ids=lambda one: one.name)
def test_em_refuses_latents_without_a_closed_expectation(likelihood) -> None:
    """Rather than plugging in the mode of Z."""
    model = Model(likelihood, Ridge(1.0, intercept_scale=1.0), MLP(()), None, LATENT_SCALE)
    with pytest.raises(ValueError, match="no closed form"):
        EM(model, Adam())
