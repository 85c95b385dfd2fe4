"""Every conditional that a sweep draws from, by ratios of densities (math.md T4, T5; E20-E40).

Where the conditional is right, the log joint minus the log conditional is one number wherever it is
evaluated. The joint is written here from the model; the conditional is what the engine hands to its
generators: the `Statistics` of the top, the shape and rate of a scale's inverse Gamma, the mean and
the root of the latents' normal law.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from scipy import special, stats

from scalemix import top
from scalemix.bodies import MLP
from scalemix.body_updates import Adam
from scalemix.engines import EM, Gibbs, Latents, Model, State
from scalemix.engines import gibbs as gibbs_module
from scalemix.likelihoods import Gaussian, Hinge, Likelihood, Logit, Multinomial
from scalemix.likelihoods import gaussian as gaussian_module
from scalemix.priors import Flat, Prior, Ridge
from scalemix.priors import ridge as ridge_module
from scalemix.rows import Batch

pytestmark = pytest.mark.usefixtures("x64")

CONSTANT = 1e-8
"""Range of the log ratio: sums of some hundred terms of order 1 in float64, with room to spare."""
ROWS, WIDTH = 7, 3
NOISE, LATENT_SCALE, WEIGHT_VARIANCE, INTERCEPT_SCALE = 0.3, 0.7, 1.7, 2.0
POINTS = 6
"""Values of the unknown at which the ratio is compared."""


class Recorded:
    """Stands for a generator: keeps what the law was, and returns something harmless."""

    def __init__(self, answer: Callable) -> None:
        self.seen: list = []
        self.answer = answer

    def __call__(self, *arguments):
        self.seen.append(arguments)
        return self.answer(*arguments)


def model_of(likelihood: Likelihood, prior: Prior | None = None, latents: bool = False) -> Model:
    """The identity as body: features are the inputs."""
    prior = Ridge("learn", intercept_scale=INTERCEPT_SCALE) if prior is None else prior
    return Model(likelihood, prior, MLP(()), None, LATENT_SCALE if latents else None)


def problem(seed: int, likelihood: Likelihood, k: int = 1) -> tuple[Batch, np.ndarray]:
    """Rows with a target of the likelihood's kind, and coefficients with their margins spread."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(ROWS, WIDTH))
    if likelihood.target == "real":
        y = generator.normal(size=(ROWS, k))
    elif likelihood.target == "signs":
        y = np.where(generator.normal(size=(ROWS, 1)) > 0, 1.0, -1.0)
    else:
        y = np.eye(k)[generator.integers(0, k, ROWS)]
    coefficients = generator.normal(size=(1 + WIDTH, y.shape[1]))
    return Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(ROWS)), coefficients


def state_of(model: Model, coefficients: np.ndarray, latents: Latents | None = None) -> State:
    """A state with scales of its own, so that no conditional can hide behind a 1."""
    parameters = model.likelihood.initial(jnp.float64)
    if isinstance(model.likelihood, Gaussian):
        parameters = jnp.asarray(NOISE)
    scales = model.prior.initial(jnp.float64)
    if not isinstance(scales, tuple):
        scales = jnp.asarray(WEIGHT_VARIANCE)
    return State([], (), jnp.asarray(coefficients), parameters, scales, latents)


def log_prior(coefficients: np.ndarray, variance: float = WEIGHT_VARIANCE) -> float:
    """Independent normals: intercepts in row 0 with their own scale."""
    intercepts = stats.norm.logpdf(coefficients[0], 0, INTERCEPT_SCALE).sum()
    return intercepts + stats.norm.logpdf(coefficients[1:], 0, np.sqrt(variance)).sum()


def climbed(engine: EM, state: State, batch: Batch, sweeps: int) -> State:
    """After some sweeps, which need no randomness, with the body left alone."""

    def sweep(_: int, state: State) -> State:
        return engine.step(jax.random.key(0), jnp.int32(0), None, state, batch)[0]

    return jax.jit(lambda state: jax.lax.fori_loop(0, sweeps, sweep, state))(state)


def eta_of(coefficients: np.ndarray, features: np.ndarray) -> np.ndarray:
    return coefficients[0] + features @ coefficients[1:]


def log_augmented(
    likelihood: Likelihood, y: np.ndarray, eta: np.ndarray, w: np.ndarray, power: np.ndarray
) -> np.ndarray:
    """Log kernel in eta of L^power and its augmentation, row by row, given the drawn precision w.

    Gaussian: the density itself. Logit: e^{b y eta / 2 - omega eta^2 / 2}. Hinge: N(m; 1 + lambda,
    s lambda), s = tau_0^2 / b, with lambda read off w = 1 / (s lambda).
    """
    power = power[:, None]
    match likelihood:
        case Gaussian():
            return (power * stats.norm.logpdf(y, eta, np.sqrt(NOISE))).sum(axis=1)
        case Logit():
            return (power * y * eta / 2 - w * eta**2 / 2)[:, 0]
        case Hinge():
            scale = float(likelihood.noise_scale) ** 2 / power
            lam = 1 / (scale * w)
            return (-((1 + lam - y * eta) ** 2) / (2 * scale * lam))[:, 0]
    raise TypeError(likelihood)


def normal_log_density(precision: np.ndarray, linear: np.ndarray, at: np.ndarray) -> float:
    """Log N(at; P^-1 h, P^-1)."""
    covariance = np.linalg.inv(precision)
    covariance = (covariance + covariance.T) / 2
    return stats.multivariate_normal.logpdf(at, covariance @ linear, covariance)


def inverse_gamma(at: float, shape: float, rate: float) -> float:
    return stats.invgamma.logpdf(at, shape, scale=rate)


@pytest.fixture
def recorded_top(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Keeps the Statistics from which coefficients are drawn; the draw is their mode."""
    recorded = Recorded(lambda key, statistics: top.mode(statistics))
    monkeypatch.setattr(top, "draw", recorded)
    return recorded


@pytest.fixture
def recorded_gamma(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Keeps the shapes of Gamma draws; with the draw 1 an inverse Gamma draw is its rate."""
    recorded = Recorded(lambda key, shape: jnp.ones_like(shape))
    for module in (gaussian_module, ridge_module):
        monkeypatch.setattr(module, "gamma", recorded)
    return recorded


@pytest.fixture
def omegas(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Stands for the Polya-Gamma sampler: the ratio is about the conditional given any omega."""

    def answer(key: jax.Array, b: jax.Array, z: jax.Array) -> jax.Array:
        return 0.2 + 0.15 * jnp.sin(5 * z) * jnp.ones_like(b)

    recorded = Recorded(answer)
    for name in ("logit", "multinomial"):
        monkeypatch.setattr(f"scalemix.likelihoods.{name}.polya_gamma", recorded)
    return recorded


# -- Coefficients ---------------------------------------------------------------------------------

HEADS = [Gaussian(), Logit(), Hinge(0.8)]


def names(values: list) -> list[str]:
    return [value.name for value in values]


@pytest.mark.parametrize("likelihood", HEADS, ids=names(HEADS))
@pytest.mark.parametrize(("copies", "target"), [(1, "map"), (3, "map"), (3, "mle")])
def test_coefficients(likelihood, copies, target, recorded_top, omegas, key, seed) -> None:
    """Weighted rows; two outputs for the Gaussian; J copies as a power, the prior's own rho."""
    batch, coefficients = problem(seed, likelihood, k=2)
    powers = np.random.default_rng(seed + 1).uniform(0.3, 2.5, ROWS)
    batch = batch._replace(power=jnp.asarray(powers))
    engine = Gibbs(model_of(likelihood), Adam(), copies=copies, copies_target=target)
    state = state_of(engine.model, coefficients)
    powers_of_sweep = engine.powers(jnp.int32(0), jnp.float64)
    _, quadratics, _ = engine.visit(key, state, batch.x, batch, powers_of_sweep)
    ((_, statistics),) = recorded_top.seen

    rho = copies if target == "map" else 1
    x, y, w = np.asarray(batch.x), np.asarray(batch.y), np.asarray(quadratics.w[0])
    if isinstance(likelihood, Logit):  # drawn from PG(J b, eta)
        ((_, b, z),) = omegas.seen
        assert np.asarray(b)[:, 0] == pytest.approx(copies * powers, rel=1e-12)
        assert np.asarray(z) == pytest.approx(eta_of(coefficients, x), rel=1e-12)
    differences = []
    for point in np.random.default_rng(seed + 2).normal(size=(POINTS, *coefficients.shape)):
        joint = rho * log_prior(point)
        joint += log_augmented(likelihood, y, eta_of(point, x), w, copies * powers).sum()
        conditional = sum(
            normal_log_density(
                np.asarray(statistics.precision[0]), np.asarray(statistics.linear[j]), point[:, j]
            )
            for j in range(point.shape[1])
        )
        differences.append(joint - conditional)
    assert np.ptp(differences) < CONSTANT


def test_coefficients_of_each_class_in_turn(recorded_top, omegas, key, seed) -> None:
    """One-vs-rest: class k is logistic in eta_k - c_k, with the classes before it already new."""
    likelihood, classes = Multinomial(), 3
    batch, coefficients = problem(seed, likelihood, k=classes)
    powers = np.random.default_rng(seed + 1).uniform(0.3, 2.5, ROWS)
    batch = batch._replace(power=jnp.asarray(powers))
    engine = Gibbs(model_of(likelihood), Adam())
    state = state_of(engine.model, coefficients)
    with jax.disable_jit():  # the scan over classes becomes a loop whose Statistics can be read
        new, _, _ = engine.visit(key, state, batch.x, batch, engine.powers(0, jnp.float64))
    assert len(recorded_top.seen) == classes

    x, y = np.asarray(batch.x), np.asarray(batch.y)
    current = np.array(coefficients)
    for j, (_, statistics) in enumerate(recorded_top.seen):
        others = np.delete(eta_of(current, x), j, axis=1)
        rest = special.logsumexp(others, axis=1)
        _, b, z = omegas.seen[j]
        assert np.asarray(b)[:, 0] == pytest.approx(powers, rel=1e-12)
        assert np.asarray(z)[:, 0] == pytest.approx(eta_of(current, x)[:, j] - rest, rel=1e-12)
        omega = np.asarray(omegas.answer(*omegas.seen[j]))[:, 0]
        differences = []
        for point in np.random.default_rng(seed + 2 + j).normal(size=(POINTS, 1 + WIDTH)):
            logit = eta_of(point[:, None], x)[:, 0] - rest
            joint = np.sum(powers * (y[:, j] - 0.5) * logit - omega * logit**2 / 2)
            joint += log_prior(point[:, None])
            differences.append(
                joint
                - normal_log_density(
                    np.asarray(statistics.precision[0]), np.asarray(statistics.linear[0]), point
                )
            )
        assert np.ptp(differences) < CONSTANT
        current[:, j] = np.asarray(new.coefficients)[:, j]  # the mode was "drawn"


@pytest.mark.parametrize("target", ["map", "mle"])
def test_coefficients_given_the_copies_of_latents(target, recorded_top, key, seed) -> None:
    """Gaussian, q = 2, p1 = 3: mean and scatter of the copies stand for the whole stack."""
    copies = 4
    batch, coefficients = problem(seed, Gaussian(), k=2)
    stack = np.random.default_rng(seed + 1).normal(size=(copies, ROWS, WIDTH))
    mean = stack.mean(axis=0)
    scatter = np.einsum("jni,jnl->il", stack - mean, stack - mean)
    engine = Gibbs(model_of(Gaussian(), latents=True), Adam(), copies=copies, copies_target=target)
    latents = Latents(jnp.asarray(mean)[None], jnp.asarray(scatter))
    state = state_of(engine.model, coefficients, latents)
    engine.visit(key, state, batch.x, batch, engine.powers(jnp.int32(0), jnp.float64))
    ((_, statistics),) = recorded_top.seen

    rho, y = (copies if target == "map" else 1), np.asarray(batch.y)
    differences = []
    for point in np.random.default_rng(seed + 2).normal(size=(POINTS, *coefficients.shape)):
        joint = rho * log_prior(point)
        for z in stack:
            joint += stats.norm.logpdf(y, eta_of(point, z), np.sqrt(NOISE)).sum()
        for j in range(2):
            joint -= normal_log_density(
                np.asarray(statistics.precision[0]), np.asarray(statistics.linear[j]), point[:, j]
            )
        differences.append(joint)
    assert np.ptp(differences) < CONSTANT


@pytest.mark.parametrize("target", ["map", "mle"])
def test_coefficients_given_copies_with_omegas_of_their_own(
    target, recorded_top, omegas, key, seed
) -> None:
    """Logit, J = 3: each copy of the latents has its augmentation; their Statistics add up."""
    copies = 3
    batch, coefficients = problem(seed, Logit())
    stack = np.random.default_rng(seed + 1).normal(size=(copies, ROWS, WIDTH))
    engine = Gibbs(model_of(Logit(), latents=True), Adam(), copies=copies, copies_target=target)
    latents = Latents(jnp.asarray(stack), jnp.zeros((WIDTH, WIDTH)))
    state = state_of(engine.model, coefficients, latents)
    powers = engine.powers(jnp.int32(0), jnp.float64)
    _, quadratics, _ = engine.visit(key, state, batch.x, batch, powers)
    ((_, statistics),) = recorded_top.seen
    drawn = np.asarray(quadratics.w)
    assert len(np.unique(drawn)) == copies * ROWS  # no two alike

    rho, y = (copies if target == "map" else 1), np.asarray(batch.y)
    differences = []
    for point in np.random.default_rng(seed + 2).normal(size=(POINTS, 1 + WIDTH, 1)):
        joint = rho * log_prior(point)
        for z, omega in zip(stack, drawn, strict=True):
            joint += log_augmented(Logit(), y, eta_of(point, z), omega, np.ones(ROWS)).sum()
        conditional = normal_log_density(
            np.asarray(statistics.precision[0]), np.asarray(statistics.linear[0]), point[:, 0]
        )
        differences.append(joint - conditional)
    assert np.ptp(differences) < CONSTANT


def test_a_tied_prior_has_the_noise_in_its_precision(recorded_top, key, seed) -> None:
    """NIG: beta | tau_0^2 ~ N(0, tau_0^2 V_0)."""
    batch, coefficients = problem(seed, Gaussian(), k=2)
    prior = Ridge(1.3, tied_to_noise=True, intercept_scale=INTERCEPT_SCALE)
    engine = Gibbs(model_of(Gaussian(), prior), Adam())
    state = state_of(engine.model, coefficients)
    engine.visit(key, state, batch.x, batch, engine.powers(jnp.int32(0), jnp.float64))
    ((_, statistics),) = recorded_top.seen
    x, y = np.asarray(batch.x), np.asarray(batch.y)
    scales = np.sqrt(NOISE) * np.array([INTERCEPT_SCALE, *[1.3] * WIDTH])[:, None]
    differences = []
    for point in np.random.default_rng(seed + 2).normal(size=(POINTS, *coefficients.shape)):
        joint = stats.norm.logpdf(point, 0, scales).sum()
        joint += stats.norm.logpdf(y, eta_of(point, x), np.sqrt(NOISE)).sum()
        for j in range(2):
            joint -= normal_log_density(
                np.asarray(statistics.precision[0]), np.asarray(statistics.linear[j]), point[:, j]
            )
        differences.append(joint)
    assert np.ptp(differences) < CONSTANT


# -- Scales ---------------------------------------------------------------------------------------

VARIANCES = np.array([0.02, 0.1, 0.5, 1.3, 4.0, 20.0])


@pytest.mark.parametrize("latents", [False, True], ids=["features", "latents"])
@pytest.mark.parametrize("tied", [False, True], ids=["free", "tied"])
@pytest.mark.parametrize(("copies", "target"), [(1, "map"), (3, "map"), (3, "mle")])
def test_noise_and_weight_variances(
    latents, tied, copies, target, recorded_gamma, key, seed
) -> None:
    """tau_0^2 and the learned weight variance: shape and rate of both inverse Gammas.

    Weighted rows without latents; copies as a power or as a stack; prior^rho with hyper-priors.
    """
    batch, coefficients = problem(seed, Gaussian(), k=2)
    generator = np.random.default_rng(seed + 1)
    powers = np.ones(ROWS) if latents else generator.uniform(0.3, 2.5, ROWS)
    batch = batch._replace(power=jnp.asarray(powers))
    prior = Ridge(1.3, tied_to_noise=True, intercept_scale=INTERCEPT_SCALE) if tied else None
    engine = Gibbs(
        model_of(Gaussian(), prior, latents), Adam(), copies=copies, copies_target=target
    )
    stack = np.asarray(batch.x)[None].repeat(copies, axis=0)
    kept = None
    if latents:
        stack = generator.normal(size=(copies, ROWS, WIDTH))
        mean = stack.mean(axis=0)
        scatter = np.einsum("jni,jnl->il", stack - mean, stack - mean)
        kept = Latents(jnp.asarray(mean)[None], jnp.asarray(scatter))
    state = state_of(engine.model, coefficients, kept)
    new = engine.refresh(
        tuple(jax.random.split(key)), state, batch, engine.powers(jnp.int32(0), jnp.float64)
    )

    rho = copies if target == "map" else 1
    shapes = [float(shape) for _, shape in recorded_gamma.seen]
    noise_differences, scale_differences = [], []
    for variance in VARIANCES:
        joint = rho * inverse_gamma(variance, 1.0, 0.05)
        for z in stack:
            density = stats.norm.logpdf(
                np.asarray(batch.y), eta_of(coefficients, z), np.sqrt(variance)
            )
            joint += np.sum(powers[:, None] * density)
        if tied:
            scales = np.sqrt(variance) * np.array([INTERCEPT_SCALE, *[1.3] * WIDTH])[:, None]
            joint += rho * stats.norm.logpdf(coefficients, 0, scales).sum()
        noise_differences.append(joint - inverse_gamma(variance, shapes[0], float(new.parameters)))
        joint = rho * (inverse_gamma(variance, 5.0, 5.0) + log_prior(coefficients, variance))
        if not tied:
            scale_differences.append(joint - inverse_gamma(variance, shapes[1], float(new.scales)))
    assert np.ptp(noise_differences) < CONSTANT
    assert len(shapes) == (1 if tied else 2)
    if not tied:
        assert np.ptp(scale_differences) < CONSTANT


def test_em_takes_the_modes_of_the_same_laws(recorded_gamma, key, seed) -> None:
    """`maximise` is rate / (shape + 1) of what `refresh` draws from."""
    batch, coefficients = problem(seed, Gaussian(), k=2)
    model = model_of(Gaussian())
    state = state_of(model, coefficients)
    keys = tuple(jax.random.split(key))
    gibbs, em = Gibbs(model, Adam()), EM(model, Adam())
    powers = gibbs.powers(jnp.int32(0), jnp.float64)
    rates = gibbs.refresh(keys, state, batch, powers)
    shapes = [float(shape) for _, shape in recorded_gamma.seen]
    modes = em.refresh(keys, state, batch, powers)
    # 1e-12: one division apart.
    assert float(modes.parameters) == pytest.approx(
        float(rates.parameters) / (shapes[0] + 1), 1e-12
    )
    assert float(modes.scales) == pytest.approx(float(rates.scales) / (shapes[1] + 1), 1e-12)


# -- Latents --------------------------------------------------------------------------------------


def latent_law(engine: Gibbs, state: State, batch: Batch, quadratics, key, monkeypatch):
    """Mean (n, p) and covariance (n, p, p) of the rows that `new_latents` draws."""

    nothing = jnp.zeros((WIDTH, WIDTH))
    monkeypatch.setattr(top, "latent_scatter", lambda *arguments: nothing)  # not looked at here

    def drawn(normals: np.ndarray) -> np.ndarray:
        monkeypatch.setattr(
            gibbs_module, "row_normals", lambda key, copies, rows: jnp.asarray(normals)[None]
        )
        copies = engine.powers(jnp.int32(0), jnp.float64).copies
        latents = engine.new_latents(key, state, batch.x, quadratics, batch, copies)
        return np.asarray(latents.z[0])

    mean = drawn(np.zeros((ROWS, WIDTH)))
    # The draw is linear in its normals: unit vectors give the columns of the root.
    units = [np.tile(unit, (ROWS, 1)) for unit in np.eye(WIDTH)]
    root = np.stack([drawn(unit) - mean for unit in units], axis=2)
    return mean, root @ np.swapaxes(root, 1, 2)


@pytest.mark.parametrize(
    ("likelihood", "copies"),
    [(Gaussian(), 1), (Gaussian(), 5), (Logit(), 1), (Hinge(0.8), 1)],
    ids=["gaussian", "gaussian mean of 5", "logit", "hinge"],
)
def test_latents(likelihood, copies, omegas, key, seed, monkeypatch) -> None:
    """Z_i | omega_i, y_i, with q = 2 (Gaussian) and p1 = 3; the mean of J copies has S / J."""
    batch, coefficients = problem(seed, likelihood, k=2)
    model = model_of(likelihood, latents=True)
    start = Latents(batch.x[None], jnp.zeros((WIDTH, WIDTH)))
    state = state_of(model, coefficients, start)
    engine = Gibbs(model, Adam(), copies=copies)
    eta = jnp.asarray(eta_of(coefficients, np.asarray(batch.x)))
    block = jnp.arange(batch.y.shape[1])
    quadratic = likelihood.draw(key, state.parameters, batch.y, eta, batch.power, block)
    quadratics = jax.tree.map(lambda leaf: leaf[None], quadratic)
    mean, covariance = latent_law(engine, state, batch, quadratics, key, monkeypatch)

    features, y = np.asarray(batch.x), np.asarray(batch.y)
    differences = []
    for point in np.random.default_rng(seed + 2).normal(size=(POINTS, ROWS, WIDTH)):
        joint = stats.norm.logpdf(point, features, LATENT_SCALE).sum(axis=1)
        joint += log_augmented(
            likelihood, y, eta_of(coefficients, point), np.asarray(quadratic.w), np.ones(ROWS)
        )
        conditional = [
            stats.multivariate_normal.logpdf(point[i], mean[i], copies * covariance[i])
            for i in range(ROWS)
        ]
        differences.append(joint - conditional)
    assert np.ptp(differences, axis=0).max() < CONSTANT


def test_latents_use_the_omega_of_their_sweep(omegas, key, seed) -> None:
    """Systematic scan: the weights drawn given the old eta are part of the state."""
    batch, coefficients = problem(seed, Logit())
    model = model_of(Logit(), Ridge(1.0, intercept_scale=1.0), latents=True)
    engine = Gibbs(model, Adam())
    start = Latents(batch.x[None], jnp.zeros((WIDTH, WIDTH)))
    state = state_of(model, coefficients, start)
    seen = []

    class Watched(Gibbs):
        def new_latents(self, key, state, features, quadratics, batch, copies):
            seen.append(quadratics)
            return Gibbs.new_latents(self, key, state, features, quadratics, batch, copies)

        def new_quadratic(self, *arguments):
            quadratic = Gibbs.new_quadratic(self, *arguments)
            seen.append(quadratic)
            return quadratic

    Watched(model, engine.body_update).step(key, jnp.int32(0), None, state, batch)
    drawn, used = seen  # one augmentation a sweep
    assert np.array_equal(np.asarray(drawn.w), np.asarray(used.w[0]))
    assert np.array_equal(np.asarray(drawn.h), np.asarray(used.h[0]))


# -- What the paper prints and must not come back (section 10) -------------------------------------


def scalar_svm(seed: int) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(seed)
    y = np.where(generator.normal(size=ROWS) > 0, 1.0, -1.0)
    z, f = generator.normal(size=(2, ROWS))
    return y, z, f, generator.uniform(0.2, 2.0, ROWS)


NOISE_SVM, LATENT_SVM = 0.25, 0.5
"""tau_0^2 and tau_z^2."""


def svm_weight_ratio(seed: int, mean: Callable, variance: Callable) -> float:
    """Range of log joint - log N(W_0; mean, variance): flat prior, no intercept, p1 = 1."""
    y, z, _, lam = scalar_svm(seed)
    weights = np.linspace(-1.5, 2.0, POINTS)
    joint = [np.sum(-((1 + lam - y * z * w) ** 2) / (2 * NOISE_SVM * lam)) for w in weights]
    law = stats.norm(mean(y, z, lam), np.sqrt(variance(z, lam)))
    return np.ptp(joint - law.logpdf(weights))


def right_weight_mean(y, z, lam):
    return np.sum(y * z * (1 + lam) / lam) / np.sum(z**2 / lam)


def right_weight_variance(z, lam):
    return NOISE_SVM / np.sum(z**2 / lam)


def test_printed_weight_mean_fails(seed) -> None:
    """E31: the printed mean has tau_0^2 in the denominator."""
    assert svm_weight_ratio(seed, right_weight_mean, right_weight_variance) < CONSTANT

    def printed(y, z, lam):
        return np.sum(y * z * (1 + lam) / lam) / (NOISE_SVM * np.sum(z**2 / lam))

    assert svm_weight_ratio(seed, printed, right_weight_variance) > 1e-2


def test_printed_weight_variance_fails(seed) -> None:
    """E32: 1 / (tau_0^2 sum z^2 / lambda) where tau_0^2 / sum z^2 / lambda belongs."""

    def printed(z, lam):
        return 1 / (NOISE_SVM * np.sum(z**2 / lam))

    assert svm_weight_ratio(seed, right_weight_mean, printed) > 1e-2


def test_printed_latent_mean_fails(seed) -> None:
    """E33: no slack in the numerator, W_0 for W_0^2 in the denominator."""
    y, _, f, lam = scalar_svm(seed)
    weight = 0.6
    points = np.linspace(-2, 2, POINTS)[:, None]
    joint = -((1 + lam - y * weight * points) ** 2) / (2 * NOISE_SVM * lam)
    joint -= (points - f) ** 2 / (2 * LATENT_SVM)
    spread = weight**2 * LATENT_SVM + NOISE_SVM * lam
    scale = np.sqrt(NOISE_SVM * LATENT_SVM * lam / spread)

    def range_of(mean: np.ndarray) -> float:
        return np.ptp(joint - stats.norm.logpdf(points, mean, scale), axis=0).min()

    right = (weight * LATENT_SVM * y * (1 + lam) + NOISE_SVM * lam * f) / spread
    printed = (weight * LATENT_SVM * y + NOISE_SVM * lam * f) / (
        weight * LATENT_SVM + NOISE_SVM * lam
    )
    assert range_of(right) < CONSTANT
    assert range_of(printed) > 1e-2


def test_the_code_has_the_right_scalar_svm(recorded_top, key, seed, monkeypatch) -> None:
    """The same closed forms out of the engine: W_0, b_0 jointly in place of W_0 alone, and Z."""
    y, z, f, lam = scalar_svm(seed)
    likelihood = Hinge(np.sqrt(NOISE_SVM))
    model = Model(likelihood, Ridge(1e4, intercept_scale=1e-6), MLP(()), None, np.sqrt(LATENT_SVM))
    batch = Batch(jnp.asarray(f)[:, None], jnp.asarray(y)[:, None], jnp.ones(ROWS))
    # Prior so wide, and the intercept held so tightly at 0, that the flat formula is met to 1e-6.
    monkeypatch.setattr(
        "scalemix.likelihoods.hinge.generalized_inverse_gaussian",
        lambda key, p, chi, psi: jnp.asarray(lam)[:, None],
    )
    latents = Latents(jnp.asarray(z)[None, :, None], jnp.zeros((1, 1)))
    state = state_of(model, np.array([[0.0], [0.6]]), latents)
    engine = Gibbs(model, Adam())
    powers = engine.powers(jnp.int32(0), jnp.float64)
    new, quadratics, _ = engine.visit(key, state, batch.x, batch, powers)
    ((_, statistics),) = recorded_top.seen
    covariance = np.linalg.inv(np.asarray(statistics.precision[0]))
    mean = covariance @ np.asarray(statistics.linear[0])
    assert mean[1] == pytest.approx(right_weight_mean(y, z, lam), rel=1e-6)
    assert covariance[1, 1] == pytest.approx(right_weight_variance(z, lam), rel=1e-6)

    intercept, weight = np.asarray(new.coefficients)[:, 0]
    zero = jnp.zeros((1, ROWS, 1))
    monkeypatch.setattr(gibbs_module, "row_normals", lambda key, copies, rows: zero)
    drawn = engine.new_latents(key, new, batch.x, quadratics, batch, powers.copies)
    spread = weight**2 * LATENT_SVM + NOISE_SVM * lam
    right = weight * LATENT_SVM * (y * (1 + lam) - intercept) + NOISE_SVM * lam * f
    # 1e-10: one division apart.
    assert np.asarray(drawn.z)[0, :, 0] == pytest.approx(right / spread, rel=1e-10, abs=1e-10)


def test_mle_copies_lose_the_prior_and_map_copies_keep_it(recorded_top, key, seed) -> None:
    """E20: with rho = 1 the copies concentrate at the maximum of the likelihood, not at the MAP."""
    batch, coefficients = problem(seed, Gaussian())
    x, y = np.asarray(batch.x), np.asarray(batch.y)[:, 0]
    design = np.column_stack([np.ones(ROWS), x])
    prior = np.diag([INTERCEPT_SCALE**-2.0, *[1 / WEIGHT_VARIANCE] * WIDTH])
    gram = design.T @ design / NOISE
    least_squares = np.linalg.lstsq(design, y, rcond=None)[0]
    posterior_mode = np.linalg.solve(gram + prior, design.T @ y / NOISE)
    assert np.abs(least_squares - posterior_mode).max() > 1e-4  # a hundred times the tolerance
    for target, limit in (("mle", least_squares), ("map", posterior_mode)):
        engine = Gibbs(model_of(Gaussian()), Adam(), copies=10**8, copies_target=target)
        state = state_of(engine.model, coefficients)
        new, _, _ = engine.visit(
            key, state, batch.x, batch, engine.powers(jnp.int32(0), jnp.float64)
        )
        # The prior weighs 1e-8 of the rows.
        assert np.asarray(new.coefficients)[:, 0] == pytest.approx(limit, abs=1e-6)


def test_least_squares_is_the_mean_of_the_draw_and_not_the_draw(recorded_top, key, seed) -> None:
    """E24: Cov / Var and the means are the mode of N(beta_hat, tau_0^2 (Z'Z)^-1), flat prior."""
    batch, coefficients = problem(seed, Gaussian())
    batch = batch._replace(x=batch.x[:, :1])
    engine = Gibbs(model_of(Gaussian(), Flat()), Adam())
    state = state_of(engine.model, coefficients[:2])
    engine.visit(key, state, batch.x, batch, engine.powers(jnp.int32(0), jnp.float64))
    ((_, statistics),) = recorded_top.seen
    z, y = np.asarray(batch.x)[:, 0], np.asarray(batch.y)[:, 0]
    slope = np.cov(z, y)[0, 1] / np.var(z, ddof=1)
    covariance = np.linalg.inv(np.asarray(statistics.precision[0]))
    mean = covariance @ np.asarray(statistics.linear[0])
    assert mean == pytest.approx([y.mean() - slope * z.mean(), slope], rel=1e-10)  # rounding
    assert covariance[1, 1] == pytest.approx(NOISE / np.sum((z - z.mean()) ** 2), rel=1e-10)


def test_body_follows_the_gradient_of_the_squared_loss(key, seed) -> None:
    """E25: not of f_B itself. Given Z: log p(B) - |Z - F|^2 / (2 tau_z^2), by finite differences.

    And an optimiser's step is no draw of B: the update says so.
    """
    batch, coefficients = problem(seed, Gaussian())
    body = MLP((), output=WIDTH)
    scales = jnp.array([1.4])
    model = Model(Gaussian(), Flat(), body, scales, LATENT_SCALE)
    engine = Gibbs(model, Adam())
    generator = np.random.default_rng(seed + 1)
    theta, bias = generator.normal(size=(WIDTH, WIDTH)), generator.normal(size=WIDTH)
    z = generator.normal(size=(ROWS, WIDTH))
    latents = Latents(jnp.asarray(z)[None], jnp.zeros((WIDTH, WIDTH)))
    state = state_of(model, coefficients, latents)._replace(
        body=[(jnp.asarray(theta), jnp.asarray(bias))]
    )
    target = engine.target(state, batch, engine.powers(jnp.int32(0), jnp.float64))
    rows, ones = jnp.arange(ROWS), jnp.ones(ROWS)

    def objective(flat: np.ndarray) -> float:
        theta, bias = flat[:-WIDTH].reshape(WIDTH, WIDTH), flat[-WIDTH:]
        features = np.asarray(batch.x) @ theta / np.sqrt(WIDTH) + bias
        return -np.sum((z - features) ** 2) / (2 * LATENT_SCALE**2) - np.sum(flat**2) / (2 * 1.4**2)

    ((d_theta, d_bias),) = jax.grad(target.log_density)(state.body, rows, ones, None)
    ours = np.concatenate([np.ravel(d_theta), np.ravel(d_bias)])
    flat = np.concatenate([theta.ravel(), bias])
    numerical = scipy.optimize.approx_fprime(flat, objective, 1e-6)
    assert ours == pytest.approx(numerical, rel=1e-4, abs=1e-4)  # a forward difference is that good
    assert not Adam.samples


def test_hinge_has_an_intercept_a_proper_prior_and_a_fixed_scale(key, seed) -> None:
    """E35: separated data with a flat prior are refused; the data cannot identify tau_0^2."""
    with pytest.raises(ValueError, match="prior 'flat' with likelihood 'hinge'"):
        model_of(Hinge(), Flat())
    batch, coefficients = problem(seed, Hinge())
    model = model_of(Hinge(0.8))
    state = state_of(model, coefficients)
    powers = Gibbs(model, Adam()).powers(jnp.int32(0), jnp.float64)
    for engine in (Gibbs(model, Adam()), EM(model, Adam())):
        new = engine.refresh(tuple(jax.random.split(key)), state, batch, powers)
        assert float(new.parameters) == 0.8 * 0.8
    # One class only: without an intercept no margin could be right at x = 0.
    one_class = batch._replace(x=jnp.zeros_like(batch.x), y=jnp.ones_like(batch.y))
    engine = EM(model, Adam())
    state = climbed(engine, state, one_class, 1000)
    # All seven margins reach 1 at the cost of an intercept of 1: at the kink of the hinge.
    assert float(state.coefficients[0, 0]) == pytest.approx(1.0, abs=1e-3)
    assert np.asarray(state.coefficients[1:]) == pytest.approx(0.0, abs=1e-12)


def test_printed_logit_scheme_has_another_fixed_point(key, seed) -> None:
    """E40: omega as sample weights on the labels solves sum omega (sigma(eta) - y) x = beta / v.

    Ours solves the score equation itself (math.md 4.3).
    """
    generator = np.random.default_rng(seed)
    n, variance = 60, 4.0
    x = generator.normal(size=(n, 2))
    y = np.where(generator.uniform(size=n) < special.expit(0.5 + x @ [1.5, -1.0]), 1.0, -1.0)
    design = np.column_stack([np.ones(n), x])
    batch = Batch(jnp.asarray(x), jnp.asarray(y)[:, None], jnp.ones(n))
    model = Model(Logit(), Ridge(np.sqrt(variance), intercept_scale=np.sqrt(variance)), MLP(()))
    engine = EM(model, Adam())
    state = state_of(model, np.zeros((3, 1)))
    state = climbed(engine, state, batch, 200)
    ours = np.asarray(state.coefficients)[:, 0]

    def weighted(beta: np.ndarray) -> np.ndarray:
        eta = design @ beta
        omega = np.tanh(eta / 2) / (2 * eta)
        return design.T @ (omega * (special.expit(eta) - (y + 1) / 2)) + beta / variance

    def score(beta: np.ndarray) -> np.ndarray:
        return design.T @ (special.expit(design @ beta) - (y + 1) / 2) + beta / variance

    assert np.abs(score(ours)).max() < 1e-8  # 200 sweeps are converged to rounding
    printed = scipy.optimize.root(weighted, ours, tol=1e-12)
    assert printed.success
    assert np.abs(printed.x - ours).max() > 1e-2
