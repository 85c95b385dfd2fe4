"""J copies draw from p(theta)^rho p(y | theta)^J, the Gaussian head without a row for each copy."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import joint
import numpy as np
import pytest
from joint import case
from scipy import stats

from scalemix.engines import Gibbs, State
from scalemix.likelihoods import Gaussian, Hinge, Logit, Multinomial
from scalemix.priors import Ridge
from scalemix.rows import Batch

pytestmark = pytest.mark.usefixtures("x64")


# The joint test with J copies. Classes: the generic one. Gaussian: all copies see one y, so y and the
# copies are drawn from p(theta)^rho prod_i N_q(y_i; b + W f_i, S)^J, S = t I + tau_z^2 W' W.


def gaussian_copies(rng: np.random.Generator, size: int, case: joint.Case) -> joint.Draws:
    """Independent draws of (theta, mean and scatter of J explicit copies of Z, y)."""
    parts, found = [], 0
    while found < size:
        part = _some_gaussian_copies(rng, 4 * size, case)
        parts.append(part)
        found += len(part.y)
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:size], *parts)


def _some_gaussian_copies(rng: np.random.Generator, size: int, case: joint.Case) -> joint.Draws:
    n, k, copies = len(case.x), case.n_targets, case.engine.copies
    tau = case.engine.model.latent_scale
    # Integrated over y_i, N(.; S)^J leaves |S|^((1 - J) / 2). With t^((1 - J) k / 2) in its place
    # tau_0^2 keeps its kind of law; the rest, |t I| / |S| <= 1 to a power, is the acceptance.
    theta = joint.prior_draws(rng, size, case, left_behind=n * (copies - 1) * k / 2)
    weights, t = theta.coefficients[:, 1:], theta.noise[:, None, None]
    gram = np.eye(k) + tau**2 / t * (weights.swapaxes(1, 2) @ weights)
    log_accept = -n * (copies - 1) / 2 * np.linalg.slogdet(gram)[1]
    accepted = np.log(rng.uniform(size=size)) < log_accept
    theta = jax.tree.map(lambda leaf: leaf[accepted], theta)

    size, weights, t = len(theta.noise), theta.coefficients[:, 1:], theta.noise[:, None, None]
    features = joint.body_features(theta.body, case.x, size)
    root = np.linalg.cholesky(t * gram[accepted] / copies)
    noise = rng.standard_normal((size, n, k))
    y = joint.predictor(theta.coefficients, features) + noise @ root.swapaxes(1, 2)
    width = weights.shape[1]
    covariance = np.linalg.inv(np.eye(width) / tau**2 + weights @ weights.swapaxes(1, 2) / t)
    residual = y - theta.coefficients[:, :1]
    linear = features / tau**2 + residual @ weights.swapaxes(1, 2) / t
    root = np.linalg.cholesky(covariance)
    each = rng.standard_normal((size, copies, n, width)) @ root.swapaxes(1, 2)[:, None]
    each = each + (linear @ covariance)[:, None]
    mean = each.mean(axis=1, keepdims=True)
    scatter = np.einsum("mjna,mjnb->mab", each - mean, each - mean)
    return joint.Draws(joint.as_state(case, theta, mean, scatter), y)


JOINT: dict[str, dict[str, Any]] = {
    "gaussian": {
        "likelihood": Gaussian(),
        "prior": Ridge(intercept_scale=1.0),
        "rows": 2,
        "width": 2,
        "latent_scale": 0.5,
        "copies": 2,
    },
    "gaussian, three copies, two outputs, mle": {
        "likelihood": Gaussian(noise_scale=1.0),
        "prior": Ridge(0.8, intercept_scale=2.5),
        "rows": 2,
        "targets": 2,
        "width": 2,
        "latent_scale": 1.0,
        "copies": 3,
        "copies_target": "mle",
    },
    "gaussian, tied prior, body drawn": {
        "likelihood": Gaussian(),
        "prior": Ridge(1.5, tied_to_noise=True, intercept_scale=1.0),
        "rows": 2,
        "width": 1,
        "latent_scale": 0.5,
        "copies": 2,
        "body_update": joint.LinearBody(),
    },
    "gaussian without latents": {
        "likelihood": Gaussian(),
        "prior": Ridge(intercept_scale=1.0),
        "copies": 4,
    },
    "logit": {
        "likelihood": Logit(),
        "prior": Ridge(intercept_scale=2.5),
        "rows": 4,
        "width": 1,
        "latent_scale": 2**0.5,
        "copies": 2,
    },
    "logit, body drawn, mle": {
        "likelihood": Logit(),
        "prior": Ridge(2.5, intercept_scale=2.5),
        "rows": 4,
        "width": 1,
        "latent_scale": 2**0.5,
        "copies": 2,
        "copies_target": "mle",
        "body_update": joint.LinearBody(),
    },
    "hinge": {
        "likelihood": Hinge(),
        "prior": Ridge(2.5, intercept_scale=2.5),
        "rows": 3,
        "width": 1,
        "latent_scale": 1.0,
        "copies": 2,
    },
    "hinge without latents": {
        "likelihood": Hinge(),
        "prior": Ridge(2.5, intercept_scale=2.5),
        "rows": 4,
        "copies": 3,
    },
    "multinomial": {
        "likelihood": Multinomial(),
        "prior": Ridge(2.5, intercept_scale=2.5),
        "rows": 3,
        "targets": 3,
        "copies": 2,
    },
}


def copies_case(name: str) -> joint.Case:
    setting = case(**JOINT[name])
    summed_up = isinstance(JOINT[name]["likelihood"], Gaussian) and "latent_scale" in JOINT[name]
    return setting._replace(start=gaussian_copies) if summed_up else setting


@pytest.mark.parametrize("name", ["gaussian"])
def test_leaves_the_joint_law(name: str, seed: int) -> None:
    joint.assert_invariant(copies_case(name), seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", JOINT)
def test_leaves_the_joint_law_with_more_states(name: str, seed: int) -> None:
    joint.assert_invariant(copies_case(name), seed, states=100_000)


# The law of the copies' mean and scatter, given everything else.


@pytest.mark.parametrize(
    ("width", "rows", "copies"),
    [
        (1, 3, 5),
        (2, 3, 4),
        (3, 1, 3),  # 2 degrees of freedom for 3 x 3: a singular scatter
    ],
)
def test_mean_and_scatter_have_the_law_of_a_stack(
    width: int, rows: int, copies: int, seed: int
) -> None:
    rng, size, tau, noise = np.random.default_rng(seed), 20_000, 1.3, 0.6
    setting = case(
        Gaussian(noise), Ridge(intercept_scale=1.0), rows=rows + 1, inputs=width,
        latent_scale=tau, copies=copies, power=[1.0] * rows + [0.0],
    )  # fmt: skip
    beta = np.array([[0.3], [1.2], [-0.7], [0.5]])[: 1 + width]
    y = np.array([[1.0], [-2.0], [0.4], [9.0]])[[*range(rows), 3]]
    theta = joint.Prior(np.full(1, noise**2), np.ones(1), beta[None], [])
    start = joint.as_state(setting, theta, setting.x[None, None])
    given = jax.tree.map(lambda leaf: leaf[0], start)

    def latents(key: jax.Array) -> Any:
        batch = Batch(setting.x, jnp.asarray(y), setting.power)
        return setting.engine.new_latents(
            key, given, jnp.asarray(setting.x), None, batch, jnp.asarray(float(copies))
        )

    program = jax.jit(jax.vmap(latents), compiler_options=joint.QUICK_COMPILE)
    drawn = jax.tree.map(np.asarray, program(jax.random.split(jax.random.key(seed), size)))
    drawn_mean = drawn.z[:, 0, :rows]

    precision = np.eye(width) / tau**2 + beta[1:] @ beta[1:].T / noise**2
    covariance = np.linalg.inv(precision)
    features = setting.x[:rows]
    centre = (features / tau**2 + (y[:rows] - beta[0]) @ beta[1:].T / noise**2) @ covariance
    root = np.linalg.cholesky(covariance)
    stack = centre + rng.standard_normal((size, copies, rows, width)) @ root.T
    mean = stack.mean(axis=1)
    scatter = np.einsum("mjna,mjnb->mab", stack - mean[:, None], stack - mean[:, None])

    def summaries(mean: np.ndarray, scatter: np.ndarray) -> dict[str, np.ndarray]:
        along = np.einsum("a,mab,b->m", beta[1:, 0], scatter, beta[1:, 0])
        found = {f"mean_{i}{a}": mean[:, i, a] for i in range(rows) for a in range(width)}
        found |= {f"T_{a}{b}": scatter[:, a, b] for a in range(width) for b in range(a + 1)}
        found |= {f"root {a}": np.linalg.eigvalsh(scatter)[:, a] for a in range(width)}
        found["W' T W"] = along
        found |= {f"mean_0{a} W' T W": mean[:, 0, a] * along for a in range(width)}
        found["sum mean^2"] = (mean**2).sum((1, 2))
        found["sum mean W"] = mean.sum(1) @ beta[1:, 0]
        found["W' T W |mean|^2"] = along * (mean**2).sum((1, 2))
        return found

    degrees = rows * (copies - 1)
    one, other = summaries(drawn_mean, drawn.scatter), summaries(mean, scatter)
    for a in range(width - degrees):
        # Roots that are 0 but for rounding: no law to compare.
        assert np.abs(one.pop(f"root {a}")).max() < 1e-12 * np.abs(scatter).max()
        del other[f"root {a}"]
    verdict = joint.compared(one, other)
    print(verdict)
    assert verdict.p >= 1e-4
    if degrees >= width:
        wishart = stats.wishart(degrees, covariance).rvs(size, random_state=rng)
        wishart = wishart.reshape(size, width, width)
        for a, b in [(0, 0), (width - 1, 0), (width - 1, width - 1)]:
            p = stats.ks_2samp(drawn.scatter[:, a, b], wishart[:, a, b], method="asymp").pvalue
            assert p > 1e-4 / 3


def test_omegas_of_copies_add_up(seed: int) -> None:
    # PG(J, eta) is the sum of J draws of PG(1, eta), at whole J and with a fractional rest.
    size, key = 20_000, jax.random.key(seed)
    power, eta = np.array([4.0, 20.0, 2.6]), np.array([0.0, -1.5, 6.0])
    parts = [[1.0] * 4, [1.0] * 20, [1.0, 1.0, 0.6]]
    flat = np.concatenate([power, *parts])
    tilt = np.concatenate([eta, np.repeat(eta, [len(part) for part in parts])])

    def draw(key: jax.Array) -> jax.Array:
        rows = (jnp.ones((len(flat), 1)), jnp.asarray(tilt)[:, None], jnp.asarray(flat))
        return Logit().draw(key, (), *rows, jnp.arange(1)).w[:, 0]

    program = jax.jit(jax.vmap(draw), compiler_options=joint.QUICK_COMPILE)
    omega = np.asarray(program(jax.random.split(key, size)))
    begin = len(power)
    for index, part in enumerate(parts):
        summed = omega[:, begin : begin + len(part)].sum(axis=1)
        begin += len(part)
        assert stats.ks_2samp(omega[:, index], summed, method="asymp").pvalue > 1e-4


# The target, by quadrature on the two coefficients.

F = np.array([-1.5, -0.6, 0.1, 0.8, 1.7, 2.2])
REAL = np.array([-1.4, 0.3, -0.2, 1.1, 0.9, 2.6])
SIGNS = np.array([-1.0, -1.0, 1.0, -1.0, 1.0, 1.0])
TAU, NOISE, WEIGHT_SCALE, INTERCEPT_SCALE = 0.8, 0.7, 1.5, 1.0


def log_likelihood(name: str, b: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Sum of log p(y_i | f_i, b, w), the latents integrated out."""
    mean = b[..., None] + w[..., None] * F
    scale = TAU * np.abs(w)[..., None]
    if name == "gaussian":
        return stats.norm.logpdf(REAL, mean, np.sqrt(NOISE**2 + scale**2)).sum(-1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    total = np.zeros_like(mean)
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        total += weight / (1 + np.exp(-SIGNS * (mean + scale * node)))
    return np.log(total).sum(-1)


def moments_by_quadrature(name: str, copies: int, rho: int) -> np.ndarray:
    """E of `moments` under p(b, w)^rho L(b, w)^J."""
    grid_b, grid_w = np.linspace(-6, 6, 301), np.linspace(-9, 9, 451)
    b, w = np.meshgrid(grid_b, grid_w, indexing="ij")
    prior = -0.5 * (b**2 / INTERCEPT_SCALE**2 + w**2 / WEIGHT_SCALE**2)
    log_density = rho * prior + copies * log_likelihood(name, b, w)
    mass = np.exp(log_density - log_density.max())
    mass /= mass.sum()
    assert mass[[0, -1]].sum() + mass[:, [0, -1]].sum() < 1e-8  # the grid holds the target
    return np.array([(mass * part).sum() for part in (b, w, b**2, w**2, b * w)])


def moments(state: State) -> jax.Array:
    """b, w, their squares and product."""
    b, w = state.coefficients[:, 0]
    return jnp.stack([b, w, b**2, w**2, b * w])


FAST_TARGETS = [("gaussian", 4, 4), ("logit", 4, 1)]
TARGETS = [
    pytest.param(name, copies, rho, marks=() if found else pytest.mark.slow)
    for name in ("gaussian", "logit")
    for copies, rho in ((1, 1), (4, 1), (4, 4), (10, 10))
    for found in [(name, copies, rho) in FAST_TARGETS]
]


@pytest.mark.parametrize(("name", "copies", "rho"), TARGETS)
def test_moments_are_those_of_the_powered_posterior(
    name: str, copies: int, rho: int, seed: int
) -> None:
    chains = 200 if name == "logit" else 2_000
    setting = case(
        Gaussian(NOISE) if name == "gaussian" else Logit(),
        Ridge(WEIGHT_SCALE, intercept_scale=INTERCEPT_SCALE),
        rows=len(F), latent_scale=TAU, copies=copies,
        copies_target="map" if rho == copies else "mle",
    )._replace(x=F[:, None])  # fmt: skip
    y = (REAL if name == "gaussian" else SIGNS)[:, None]
    averages = joint.posterior_averages(
        setting, seed, y, moments, chains=chains, warmup=150, kept=150
    )
    away = joint.standard_errors_away(averages, moments_by_quadrature(name, copies, rho))
    print(away)
    # 5 standard errors: 3e-6 for all five together.
    assert np.all(np.abs(away) < 5)


def test_sixteen_copies_have_a_quarter_of_the_spread(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.linspace(-1, 1, 60)
    y = (0.5 + x + rng.standard_normal(60))[:, None]

    def slope(state: State) -> jax.Array:
        return state.coefficients[1]

    def spread(copies: int) -> float:
        setting = case(
            Gaussian(), Ridge(intercept_scale=1.0), rows=60, inputs=1, copies=copies
        )._replace(x=x[:, None])  # fmt: skip
        draws = joint.posterior_averages(setting, seed, y, slope, chains=8_000, warmup=10, kept=1)
        return float(draws.std())

    # A spread from 8000 draws is known to 1%; the t-like tails of J = 1 take another 2% off.
    assert spread(16) / spread(1) == pytest.approx(0.25, abs=0.03)


@pytest.mark.slow
def test_statistics_of_four_copies_agree_with_a_stack(seed: int) -> None:
    # A stack of four copies of every row, each with a latent of its own, is p(theta) L^4: "mle".
    rng, size, copies = np.random.default_rng(seed), 10_000, 4
    rows, tau = 5, 0.9
    few = case(
        Gaussian(), Ridge(intercept_scale=1.0), rows=rows, latent_scale=tau, copies=copies,
        copies_target="mle",
    )  # fmt: skip
    many = case(
        Gaussian(), Ridge(intercept_scale=1.0), rows=rows * copies, latent_scale=tau
    )._replace(x=np.tile(few.x, (copies, 1)))
    y = rng.standard_normal((rows, 1)) + few.x[:, :1]

    def state(chains: int) -> tuple[joint.Prior, np.ndarray]:
        theta = joint.prior_draws(rng, chains, many)
        return theta, few.x + tau * rng.standard_normal((chains, copies, *few.x.shape))

    def summary(state: State) -> jax.Array:
        beta = state.coefficients
        noise, scales = state.parameters[None], state.scales[None]
        parts = [beta.ravel(), (beta**2).ravel(), beta[0] * beta[1], beta[0] * beta[2]]
        return jnp.concatenate([*parts, noise, scales, beta[1] ** 2 / noise, beta[1] ** 2 / scales])

    def final(setting: joint.Case, y: np.ndarray, start: State) -> dict[str, np.ndarray]:
        batch = Batch(setting.x, y, setting.power)
        key = jax.random.key(int(rng.integers(2**31)))
        values = joint.averaged(setting.engine, key, start, batch, 9, 1, summary, False)
        return {str(i): column for i, column in enumerate(np.asarray(values).T)}

    theta, each = state(size)
    mean = each.mean(axis=1, keepdims=True)
    scatter = np.einsum("mjna,mjnb->mab", each - mean, each - mean)
    by_statistics = final(few, y, joint.as_state(few, theta, mean, scatter))
    theta, each = state(size)
    stacked = each.reshape(size, 1, copies * rows, -1)
    by_stack = final(many, np.tile(y, (copies, 1)), joint.as_state(many, theta, stacked))
    # Starts are alike in law and so are the kernels, so ten sweeps need not have converged.
    verdict = joint.compared(by_statistics, by_stack)
    print(verdict)
    assert verdict.p >= joint.LEVEL
    wrong = final(few._replace(power=few.power * 0.8), y, joint.as_state(few, theta, mean, scatter))
    assert joint.compared(wrong, by_stack).p < 1e-6  # the comparison can fail


# No copy has rows of its own where none is needed.


def shapes(jaxpr: Any) -> Iterator[tuple[int, ...]]:
    """Shapes of all values of a program and of the programs inside it."""
    for equation in jaxpr.eqns:
        for variable in (*equation.invars, *equation.outvars):
            yield getattr(variable.aval, "shape", ())
        for parameter in equation.params.values():
            for inner in jax.tree.leaves(parameter, is_leaf=lambda leaf: hasattr(leaf, "eqns")):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from shapes(inner)


def largest(setting: joint.Case) -> int:
    """Elements of the largest array of a sweep."""
    rng = np.random.default_rng(0)
    theta = joint.prior_draws(rng, 1, setting)
    z = None
    if setting.engine.model.has_latents:
        z = np.zeros((1, setting.engine.kept_copies, *setting.x.shape))
    state = jax.tree.map(lambda leaf: leaf[0], joint.as_state(setting, theta, z))
    y = jnp.ones((len(setting.x), setting.n_targets))
    batch = Batch(jnp.asarray(setting.x), y, jnp.asarray(setting.power))

    def sweep(key: jax.Array, state: State) -> Any:
        return setting.engine.step(key, jnp.int32(0), None, state, batch)

    program = jax.make_jaxpr(sweep)(jax.random.key(0), state)
    return max(int(np.prod(shape)) for shape in shapes(program.jaxpr))


def test_copies_take_no_rows() -> None:
    # 101 rows of one input: designs have 202 elements, random bits at most three words a row.
    rows, copies = 101, 13
    wide = {"prior": Ridge(intercept_scale=1.0), "rows": rows, "inputs": 1, "copies": copies}
    assert largest(case(Gaussian(), **wide, latent_scale=1.0)) < rows * copies
    assert largest(case(Hinge(), **wide)) < rows * copies
    assert largest(case(Logit(), **wide)) < rows * copies
    # The search finds them where they are.
    assert largest(case(Logit(), **wide, latent_scale=1.0)) >= rows * copies


def schedule(engine: Gibbs, times: range, dtype: Any) -> list[tuple[float, float]]:
    """J and rho at each time."""
    powers = [engine.powers(jnp.int32(time), dtype) for time in times]
    return [(float(at.copies), float(at.prior)) for at in powers]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_geometric_schedule(dtype: Any) -> None:
    def engine(copies: int, annealing: int, **settings: Any) -> Gibbs:
        made: Callable[..., joint.Case] = case
        settings = {"copies_schedule": "geometric", "annealing": annealing, **settings}
        return made(Gaussian(), Ridge(), copies=copies, **settings).engine

    def raised(engine: Gibbs, times: range) -> list[float]:
        return [copies for copies, _ in schedule(engine, times, dtype)]

    # Whole powers stay whole: a rounding error must not raise 2 to 3.
    assert raised(engine(16, 4), range(7)) == [1, 2, 4, 8, 16, 16, 16]
    assert raised(engine(125, 3), range(5)) == [1, 5, 25, 125, 125]
    assert raised(engine(1000, 3), range(5)) == [1, 10, 100, 1000, 1000]
    # ceil(10^(t/5)) = ceil of 1, 1.58, 2.51, 3.98, 6.31, 10.
    assert raised(engine(10, 5), range(8)) == [1, 2, 3, 4, 7, 10, 10, 10]
    assert raised(engine(10, 5, copies_schedule="constant"), range(3)) == [10, 10, 10]
    assert schedule(engine(16, 4), range(3), dtype) == [(1, 1), (2, 2), (4, 4)]
    assert schedule(engine(16, 4, copies_target="mle"), range(3), dtype) == [(1, 1), (2, 1), (4, 1)]
