"""EM climbs, to the right place, along the right gradient (math.md section 5; T14-T17, T29, E43).

The objective is the log posterior with omega and the latents integrated out. scipy and scikit-learn
say where its top is; quadrature says what the expectations behind its gradient are.
"""

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from scipy import integrate, special, stats
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model import Ridge as SklearnRidge

from scalemix import top
from scalemix.bodies import MLP
from scalemix.body_updates import Adam, Target
from scalemix.engines import EM, Engine, Gibbs, Model, State
from scalemix.likelihoods import Gaussian, Hinge, Likelihood, Logit, Multinomial
from scalemix.likelihoods.hinge import SMOOTHING
from scalemix.priors import Flat, Ridge
from scalemix.rows import Batch

N, P = 60, 3


def data(seed: int, likelihood: Likelihood, k: int = 1, dtype=np.float64) -> Batch:
    """Rows that follow the model, with noise; classes overlap."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(N, P))
    eta = 0.5 + x @ generator.normal(size=(P, k))
    if likelihood.target == "real":
        y = eta + 0.5 * generator.normal(size=(N, k))
    elif likelihood.target == "signs":
        y = np.where(generator.uniform(size=(N, 1)) < special.expit(2 * eta[:, :1]), 1.0, -1.0)
    else:
        gumbel = -np.log(-np.log(generator.uniform(size=(N, k))))
        y = np.eye(k)[np.argmax(eta + gumbel, axis=1)]
    arrays = (x, y, generator.uniform(0.3, 2.0, N))
    return Batch(*(jnp.asarray(array.astype(dtype)) for array in arrays))


def climb(engine: Engine, batch: Batch, seed: int, sweeps: int) -> tuple[State, np.ndarray]:
    """The state after some sweeps with the body left alone, and the objective before and along."""

    def sweep(state: State, time: jax.Array) -> tuple[State, jax.Array]:
        state, _ = engine.step(jax.random.key(0), time, None, state, batch)
        return state, engine.monitor(state, batch).log_joint

    @jax.jit  # from the first draw on: one program compiles faster than many small ones
    def run(seed: jax.Array) -> tuple[State, jax.Array]:
        start = engine.initial(jax.random.key(seed), batch)
        state, path = jax.lax.scan(sweep, start, jnp.arange(sweeps))
        return state, jnp.append(engine.monitor(start, batch).log_joint, path)

    state, path = run(seed)
    return state, np.asarray(path)


class Case(NamedTuple):
    likelihood: Likelihood
    outputs: int
    latent_scale: float | None
    tied: bool = False


CASES = {
    "gaussian": Case(Gaussian(), 1, None),
    "gaussian tied": Case(Gaussian(), 2, None, tied=True),
    "gaussian latents": Case(Gaussian(), 1, 0.6),
    "gaussian latents, two outputs": Case(Gaussian(), 2, 0.6),
    "logit": Case(Logit(), 1, None),
    "hinge": Case(Hinge(), 1, None),
    "multinomial": Case(Multinomial(), 3, None),
}


def engine_of(case: Case, body: MLP | None = None) -> EM:
    prior = (
        Ridge(0.7, tied_to_noise=True, intercept_scale=2.0)
        if case.tied
        else Ridge("learn", intercept_scale=2.0)
    )
    return EM(Model(case.likelihood, prior, body or MLP(()), None, case.latent_scale), Adam())


def smoothed_hinge(state: State, batch: Batch) -> float:
    """log_joint of the hinge with |u| replaced by sqrt(u^2 + eps^2), from its definition."""
    beta = np.asarray(state.coefficients)[:, 0]
    margin = np.asarray(batch.y)[:, 0] * (beta[0] + np.asarray(batch.x) @ beta[1:])
    u, variance = 1 - margin, float(state.parameters)
    loss = (u + np.sqrt(u**2 + SMOOTHING**2)) / variance  # (2 / tau_0^2) times a half
    scale = float(state.scales)
    log_prior = stats.norm.logpdf(beta[0], 0, 2.0)
    log_prior += stats.norm.logpdf(beta[1:], 0, np.sqrt(scale)).sum()
    log_prior += stats.invgamma.logpdf(scale, 5.0, scale=5.0)
    return log_prior - np.sum(np.asarray(batch.power) * loss)


class Climb(NamedTuple):
    engine: EM
    batch: Batch
    state: State
    path: np.ndarray


@functools.cache
def climb_of(name: str) -> Climb:
    """3000 sweeps of a case, compiled once for the tests that look at it."""
    case, seed = CASES[name], list(CASES).index(name)
    with jax.enable_x64(True):
        batch = data(seed, case.likelihood, case.outputs)
        if case.latent_scale is not None:  # there a power is 0 or 1
            batch = batch._replace(power=jnp.ones(N).at[-3:].set(0))
        engine = engine_of(case)
        return Climb(engine, batch, *climb(engine, batch, seed, 3000))


# -- T14: it climbs -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_em_never_goes_down(name: str) -> None:
    """F along EM, scales learned, rows weighted."""
    _, batch, _, path = climb_of(name)
    # The first latents are scattered at random: an E-step stands behind the second sweep on.
    path = path[1:] if CASES[name].latent_scale is not None else path
    # The hinge is climbed in its smoothed form, within n eps / tau_0^2 of the true one at each end.
    slack = SMOOTHING * np.asarray(batch.power).sum() / 2.0 if name == "hinge" else 0.0
    assert np.all(np.diff(path) >= -1e-12 * np.abs(path[1:]) - slack)
    assert path[-1] - path[0] > 1.0  # it went somewhere


@pytest.mark.usefixtures("x64")
def test_smoothed_hinge_never_goes_down(seed: int) -> None:
    """What EM climbs with |u| smoothed: exactly monotone, without any slack."""
    _, batch, _, _ = climb_of("hinge")
    engine = engine_of(CASES["hinge"])
    state = jax.jit(engine.initial)(jax.random.key(seed), batch)
    step = jax.jit(engine.step, static_argnums=2)
    values = [smoothed_hinge(state, batch)]
    for time in range(60):
        state, _ = step(jax.random.key(0), jnp.int32(time), None, state, batch)
        values.append(smoothed_hinge(state, batch))
    assert np.all(np.diff(values) >= -1e-12 * np.abs(values[1:]))


# -- T15: where it ends ---------------------------------------------------------------------------

COEFFICIENTS, OBJECTIVE = 2e-4, 1e-8


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", [name for name in CASES if name != "hinge"])
def test_fixed_point_is_the_optimum(name: str) -> None:
    """The same top as a quasi-Newton method on an objective that is written here (with log scales).

    Started from EM's end: a stationary point that is no maximum would be left behind.
    """
    case = CASES[name]
    engine, batch, state, path = climb_of(name)
    x, y, power = (np.asarray(array) for array in batch)
    shape = state.coefficients.shape
    gaussian, learns = isinstance(case.likelihood, Gaussian), not case.tied

    def objective(flat: np.ndarray) -> float:
        beta, logs = flat[: np.prod(shape)].reshape(shape), flat[np.prod(shape) :]
        noise = np.exp(logs[0]) if gaussian else 1.0
        variance = np.exp(logs[-1]) if learns else 0.49 * noise
        eta = beta[0] + x @ beta[1:]
        intercept_variance = 4.0 * (noise if case.tied else 1.0)
        total = stats.norm.logpdf(beta[0], 0, np.sqrt(intercept_variance)).sum()
        total += stats.norm.logpdf(beta[1:], 0, np.sqrt(variance)).sum()
        if learns:
            total += stats.invgamma.logpdf(variance, 5.0, scale=5.0)
        match case.likelihood:
            case Gaussian():
                total += stats.invgamma.logpdf(noise, 1.0, scale=0.05)
                covariance = noise * np.eye(shape[1])
                if case.latent_scale is not None:
                    covariance = covariance + case.latent_scale**2 * beta[1:].T @ beta[1:]
                rows = stats.multivariate_normal.logpdf(y - eta, np.zeros(shape[1]), covariance)
            case Logit():
                rows = -np.log1p(np.exp(-y * eta))[:, 0]
            case Multinomial():
                rows = (y * (eta - special.logsumexp(eta, axis=1, keepdims=True))).sum(axis=1)
        return -(total + np.sum(power * rows))

    logs = [np.log(float(state.parameters))] if gaussian else []
    logs += [np.log(float(state.scales))] if learns else []
    end = np.concatenate([np.asarray(state.coefficients).ravel(), logs])
    best = scipy.optimize.minimize(objective, end, method="BFGS", options={"gtol": 1e-6})
    assert objective(end) - best.fun < OBJECTIVE
    assert np.abs(best.x - end).max() < COEFFICIENTS
    # And the monitor is this objective, up to a constant.
    moved = objective(end + 0.1) + float(
        engine.monitor(shifted(state, 0.1, gaussian, learns), batch).log_joint
    )
    assert moved == pytest.approx(objective(end) + path[-1], abs=OBJECTIVE)


def shifted(state: State, by: float, gaussian: bool, learns: bool) -> State:
    """All coefficients moved by a number, all learned scales by a factor exp(by)."""
    return state._replace(
        coefficients=state.coefficients + by,
        parameters=state.parameters * np.exp(by) if gaussian else state.parameters,
        scales=state.scales * np.exp(by) if learns else state.scales,
    )


@pytest.mark.usefixtures("x64")
def test_hinge_fixed_point_is_the_support_vector_machine(seed: int) -> None:
    """Against the dual quadratic programme, and by strong concavity of the smoothed objective.

    The smoothed objective has curvature at least min 1 / v: a gradient g at EM's end bounds what
    is left to climb by |g|^2 max v / 2. The dual gives a bound from above on the true objective.
    """
    batch = data(seed, Hinge())
    model = Model(Hinge(), Ridge(1.5, intercept_scale=2.0), MLP(()))
    engine = EM(model, Adam())
    state, path = climb(engine, batch, seed, 20_000)
    beta = np.asarray(state.coefficients)[:, 0]
    x, y, power = np.asarray(batch.x), np.asarray(batch.y)[:, 0], np.asarray(batch.power)
    signed = y[:, None] * np.column_stack([np.ones(N), x])
    variances = np.array([4.0, 2.25, 2.25, 2.25])

    def primal(beta: np.ndarray) -> float:
        return np.sum(beta**2 / (2 * variances)) + power @ np.maximum(1 - signed @ beta, 0)

    def dual(alpha: np.ndarray) -> tuple[float, np.ndarray]:
        combined = alpha @ signed
        gradient = signed @ (variances * combined) - 1
        return np.sum(variances * combined**2) / 2 - alpha.sum(), gradient

    start = np.full(N, 0.1)
    options = {"ftol": 1e-16, "gtol": 1e-12, "maxiter": 20_000, "maxfun": 100_000}
    solved = scipy.optimize.minimize(
        dual, start, jac=True, bounds=[(0, p) for p in power], method="L-BFGS-B", options=options
    )
    best = variances * (solved.x @ signed)
    smoothing = SMOOTHING * power.sum() / 2  # each loss is within eps / 2 of its smoothed form
    assert primal(best) + solved.fun < 1e-4  # the duality gap: scipy has found the optimum
    assert primal(beta) + solved.fun < smoothing + OBJECTIVE
    assert np.abs(beta - best).max() < 1e-2  # what a duality gap of 1e-4 says of scipy's own

    u = 1 - signed @ beta
    slope = power * (1 + u / np.sqrt(u**2 + SMOOTHING**2)) / 2
    gradient = beta / variances - slope @ signed
    assert np.sum(gradient**2) * variances.max() / 2 < OBJECTIVE
    assert np.sqrt(np.sum(gradient**2)) * variances.max() < COEFFICIENTS
    # The objective that is reported is the hinge's own.
    constant = 0.5 * np.sum(np.log(variances))
    assert path[-1] + constant == pytest.approx(-primal(beta), abs=OBJECTIVE)


@pytest.mark.usefixtures("x64")
def test_logit_is_scikit_learns(seed: int) -> None:
    """A ridge on the weights, an intercept that is free (its prior is 1e-12 of the rows)."""
    batch = data(seed, Logit())
    engine = EM(Model(Logit(), Ridge(1.3, intercept_scale=1e6), MLP(())), Adam())
    state, _ = climb(engine, batch, seed, 2000)
    x, y, power = (np.asarray(array) for array in batch)
    peer = LogisticRegression(C=1.3**2, tol=1e-10, max_iter=10_000)
    peer.fit(x, y[:, 0], sample_weight=power)
    expected = np.concatenate([peer.intercept_, peer.coef_[0]])
    assert np.asarray(state.coefficients)[:, 0] == pytest.approx(expected, abs=COEFFICIENTS)


@pytest.mark.usefixtures("x64")
def test_multinomial_is_scikit_learns(seed: int) -> None:
    """Predictors of all classes, their weights pulled to 0: the same symmetric parametrisation."""
    batch = data(seed, Multinomial(), 3)
    engine = EM(Model(Multinomial(), Ridge(1.3, intercept_scale=1e3), MLP(())), Adam())
    state, _ = climb(engine, batch, seed, 3000)
    x, y, power = (np.asarray(array) for array in batch)
    peer = LogisticRegression(C=1.3**2, tol=1e-10, max_iter=10_000)
    peer.fit(x, y.argmax(axis=1), sample_weight=power)
    expected = np.vstack([peer.intercept_, peer.coef_.T])
    ours = np.array(state.coefficients)
    # scikit-learn leaves a constant in the intercepts open; ours pulls their sum to 0, slowly.
    ours[0] -= ours[0].mean()
    expected[0] -= expected[0].mean()
    assert ours == pytest.approx(expected, abs=COEFFICIENTS)


@pytest.mark.usefixtures("x64")
def test_gaussian_is_scikit_learns_ridge(seed: int) -> None:
    """alpha = tau_0^2 / v, in a single sweep: there is nothing to iterate."""
    batch = data(seed, Gaussian(), 2)
    engine = EM(Model(Gaussian(0.6), Ridge(1.3, intercept_scale=1e6), MLP(())), Adam())
    state, _ = climb(engine, batch, seed, 1)
    x, y, power = (np.asarray(array) for array in batch)
    peer = SklearnRidge(alpha=0.6**2 / 1.3**2).fit(x, y, sample_weight=power)
    expected = np.vstack([peer.intercept_, peer.coef_.T])
    assert np.asarray(state.coefficients) == pytest.approx(expected, abs=1e-9)  # linear algebra


# -- T16, T17: its gradient -----------------------------------------------------------------------

GRADIENT = 1e-6


def expected_latent(likelihood: Likelihood, y: float, f: float, variance: float) -> float:
    """E[Z | y, f], Z ~ N(f, variance), b_0 = .3 and W_0 = -1.2, by quadrature over Z."""

    def weight(z: float) -> float:
        eta = 0.3 - 1.2 * z
        match likelihood:
            case Gaussian():
                return stats.norm.pdf(y, eta, 0.5)
            case Logit():
                return special.expit(y * eta)
            case Hinge():
                return np.exp(-max(1 - y * eta, 0) * 2 / 0.6)
        raise TypeError(likelihood)

    scale = np.sqrt(variance)
    # Ten standard deviations, cut at the hinge's kink.
    kink = (0.3 - y) / 1.2
    breaks = sorted(
        {f - 10 * scale, np.clip(kink, f - 9.9 * scale, f + 9.9 * scale), f + 10 * scale}
    )

    def moment(power: int) -> float:
        return sum(
            integrate.quad(
                lambda z: z**power * weight(z) * stats.norm.pdf(z, f, scale),
                low, high, epsabs=1e-13, epsrel=1e-11, limit=200,
            )[0]
            for low, high in itertools.pairwise(breaks)
        )  # fmt: skip

    return moment(1) / moment(0)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("likelihood", [Gaussian(0.5), Logit(), Hinge(np.sqrt(0.6))], ids=str)
def test_fisher_identity(likelihood: Likelihood) -> None:
    """(1.2): d/df log p(y | f) = (E[Z | y, f] - f) / tau_z^2, the right side by quadrature."""
    variance, parameters = 0.7, likelihood.initial(jnp.float64)
    coefficients = jnp.array([[0.3], [-1.2]])
    spread = top.spread(coefficients, variance)
    features = np.array([-2.0, -0.4, 0.1, 0.9, 2.5])
    signs = [1.0, -1.0] if likelihood.target == "signs" else [0.2]

    @jax.jit
    def gradient(f: jax.Array, y: jax.Array) -> jax.Array:
        def total(f: jax.Array) -> jax.Array:
            eta = top.predictor(coefficients, f[:, None])
            return jnp.sum(likelihood.log_density(parameters, y, eta, spread))

        return jax.grad(total)(f)

    for y in signs:
        ours = gradient(jnp.asarray(features), jnp.full((5, 1), y))
        expected = [(expected_latent(likelihood, y, f, variance) - f) / variance for f in features]
        assert np.asarray(ours) == pytest.approx(np.array(expected), rel=GRADIENT, abs=GRADIENT)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["logit", "hinge", "multinomial", "gaussian"])
def test_surrogate_touches_the_objective(name: str, seed: int) -> None:
    """Heads: at the eta where (w, h) were expected, h - w eta is the gradient of log L."""
    case = CASES[name]
    batch = data(seed, case.likelihood, case.outputs)
    parameters = case.likelihood.initial(jnp.float64)
    eta = jnp.asarray(np.random.default_rng(seed + 1).normal(size=batch.y.shape))

    def total(eta: jax.Array) -> jax.Array:
        return jnp.sum(batch.power * case.likelihood.log_density(parameters, batch.y, eta, None))

    expected = np.asarray(jax.grad(total)(eta))
    for block in case.likelihood.blocks(case.outputs):
        w, h = case.likelihood.expect(parameters, batch.y, eta, batch.power, jnp.asarray(block))
        ours = np.asarray(h - w * eta[:, block])
        assert ours == pytest.approx(expected[:, block], rel=GRADIENT, abs=GRADIENT)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("latents", [False, True], ids=["features", "latents"])
def test_body_gradient_is_that_of_the_marginal_likelihood(latents: bool, seed: int) -> None:
    """At the refresh point: given E[Z | y], or given the top, d/dB is d/dB of -log L - log p(B)."""
    case = CASES["gaussian latents, two outputs"] if latents else CASES["logit"]
    batch = data(seed, case.likelihood, case.outputs)._replace(power=jnp.ones(N))
    engine = engine_of(case, MLP((5,), "tanh", output=2))
    state = jax.jit(engine.initial)(jax.random.key(seed), batch)
    if latents:  # the refresh point: E[Z | y] at the state's own top
        features = engine.model.body(state.body, batch.x)
        eta = top.predictor(state.coefficients, features)
        block = jnp.arange(case.outputs)
        expected = case.likelihood.expect(state.parameters, batch.y, eta, batch.power, block)
        quadratics = jax.tree.map(lambda leaf: leaf[None], expected)
        one = jnp.ones(())
        refreshed = engine.new_latents(None, state, features, quadratics, batch, one)
        state = state._replace(latents=refreshed)
    target = engine.target(state, batch, engine.powers(jnp.int32(0), jnp.float64))

    def objective(body: list) -> jax.Array:
        model = engine.model
        likelihood = model.log_likelihood(body, state.coefficients, state.parameters, batch)
        return likelihood + model.body.log_prior(body, None)

    rows, ones = jnp.arange(N), jnp.ones(N)
    ours = jax.jit(jax.grad(lambda body: target.log_density(body, rows, ones, None)))(state.body)
    expected = jax.jit(jax.grad(objective))(state.body)
    for mine, theirs in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        assert np.asarray(mine) == pytest.approx(np.asarray(theirs), rel=GRADIENT, abs=1e-9)


def test_logit_is_backpropagation(seed: int) -> None:
    """T17: the gradient of sum w (eta - h / w)^2 / 2 through a net is that of cross-entropy.

    Labels 0 and 1, probabilities by softplus, float32: 1e-5 of the gradient's size.
    """
    body = MLP((16, 8), "relu")
    batch = data(seed, Logit(), dtype=np.float32)._replace(power=jnp.ones(N, jnp.float32))
    key_body, key_top = jax.random.split(jax.random.key(seed))
    parameters = jax.jit(body.initial, static_argnums=(1, 2))(key_body, P, np.dtype(np.float32))
    coefficients = jax.random.normal(key_top, (9, 1), jnp.float32)
    assert coefficients.dtype == jnp.float32

    def predict(weights: tuple) -> jax.Array:
        return top.predictor(weights[1], body(weights[0], batch.x))

    def surrogate(weights: tuple, w: jax.Array, h: jax.Array) -> jax.Array:
        return jnp.sum(0.5 * w * predict(weights) ** 2 - h * predict(weights))

    def cross_entropy(weights: tuple) -> jax.Array:
        eta, labels = predict(weights), (batch.y + 1) / 2
        return jnp.sum(jax.nn.softplus(eta) - labels * eta)

    @jax.jit
    def gradients(weights: tuple) -> tuple:
        quadratic = Logit().expect((), batch.y, predict(weights), batch.power, jnp.arange(1))
        return jax.grad(surrogate)(weights, *quadratic), jax.grad(cross_entropy)(weights)

    ours, expected = gradients((parameters, coefficients))
    size = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(expected))
    for mine, theirs in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        assert np.abs(np.asarray(mine - theirs)).max() < 1e-5 * size


# -- T29, E43: how many steps an epoch is ----------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "padded", "batch_size", "held_out"),
    [
        (50, 64, 32, None),
        (64, 64, 40, None),
        (33, 64, 100, None),
        (5, 64, 32, None),
        (50, 64, 7, 0.2),
    ],
)
def test_an_epoch_sees_each_real_row_once(
    n: int, padded: int, batch_size: int, held_out: float | None, seed: int
) -> None:
    """ceil(n / m) steps; padded rows never count; every step's weights add up to the rows' number.

    Without compilation, so that rows and weights of each step can be read. 64 rows in batches of 40
    leave no padded row to fill the second one with.
    """
    update = Adam(batch_size=batch_size, validation_fraction=held_out)
    seen: list[tuple[np.ndarray, np.ndarray]] = []

    def log_density(body: jax.Array, rows: jax.Array, weights: jax.Array, key) -> jax.Array:
        if key is not None:  # an optimiser's step, not a look at the rows held out
            seen.append((np.asarray(rows), np.asarray(weights)))
        return -jnp.sum(body**2)

    body = jnp.ones(1)
    key_memory, key_move = jax.random.split(jax.random.key(seed))
    memory = update.initial(key_memory, body, padded)
    target = Target(log_density, jnp.int32(n), padded)
    with jax.disable_jit():
        _, _, info = update.move(key_move, jnp.float32(0.1), body, memory, target)
    m = min(batch_size, padded)
    assert int(info.steps) == len(seen) == -(-n // m)
    learned = np.concatenate([rows[weights > 0] for rows, weights in seen])
    assert len(np.unique(learned)) == len(learned)
    assert learned.max() < n
    if held_out is None:
        assert len(learned) == n
    else:
        assert 0 < len(learned) < n
    for _, weights in seen:
        # A step stands for the whole of the rows; one whose rows are all held out for none.
        assert weights.sum() == pytest.approx(len(learned), rel=1e-6) or weights.sum() == 0


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("latents", [False, True], ids=["features", "latents"])
def test_copies_add_no_rows(latents: bool, seed: int) -> None:
    """E43: what Adam is told of J copies is n rows: ceil(n / m) steps, where a stack had ceil(n J / m).

    Their weight is in the density: J times that of one copy.
    """
    batch = data(seed, Gaussian())._replace(power=jnp.ones(N).at[-4:].set(0))
    body = MLP((), output=1)
    model = Model(Gaussian(0.5), Flat(), body, None, 0.5 if latents else None)
    one, ten = Gibbs(model, Adam()), Gibbs(model, Adam(), copies=10, copies_target="mle")
    state = jax.jit(one.initial)(jax.random.key(seed), batch)
    targets = []
    for engine in (one, ten):
        target = engine.target(state, batch, engine.powers(jnp.int32(0), jnp.float64))
        assert int(target.n_rows) == N - 4
        assert target.size == N
        targets.append(target)
    rows, ones = jnp.arange(N), jnp.ones(N)
    single, copied = (float(t.log_density(state.body, rows, ones, None)) for t in targets)
    prior = float(body.log_prior(state.body, None))
    assert copied - prior == pytest.approx(10 * (single - prior), rel=1e-12)
