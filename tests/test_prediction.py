"""Predictions against quadrature, closed forms and simulation (math.md 7; T23, T25, T26)."""

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from scipy import integrate, stats

from scalemix import diagnostics, posterior
from scalemix.bodies import MLP
from scalemix.body_updates import Adam
from scalemix.engines import Gibbs, Model, State
from scalemix.fit import Draw
from scalemix.likelihoods import Gaussian, Hinge, Likelihood, Logit, Multinomial
from scalemix.posterior import Posterior
from scalemix.priors import Ridge
from scalemix.rows import Batch

QUADRATURE = 1e-8
"""T25, relative, in float64."""


def posterior_of(
    likelihood: Likelihood, coefficients: np.ndarray, parameters=(), latent_scale=None
) -> Posterior:
    """A posterior of draws (chains, draws, 1 + width, k) whose features are the inputs."""
    model = Model(likelihood, Ridge(1.0, intercept_scale=1.0), MLP(()), None, latent_scale)
    return Posterior(model, Draw([], coefficients, parameters))


class Mixture(NamedTuple):
    """Some draws of a Gaussian model with q outputs, and their predictive as scipy has it."""

    posterior: Posterior
    x: np.ndarray
    means: np.ndarray
    """(draws, n, q)."""
    covariances: np.ndarray
    """(draws, q, q)."""

    def distribution(self, y: float, row: int, output: int) -> float:
        deviation = np.sqrt(self.covariances[:, output, output])
        return stats.norm.cdf(y, self.means[:, row, output], deviation).mean()


def gaussian_mixture(
    q: int, latent_scale: float | None, dtype=np.float64, rows: int = 6
) -> Mixture:
    """2 chains of 5 draws: modes that disagree, scales from .2 to 1.5."""
    generator = np.random.default_rng(7)
    chains, draws, p = 2, 5, 3
    coefficients = generator.normal(scale=2.0, size=(chains, draws, 1 + p, q)).astype(dtype)
    variances = generator.uniform(0.04, 2.0, size=(chains, draws)).astype(dtype)
    x = generator.normal(size=(rows, p)).astype(dtype)
    flat = coefficients.reshape(-1, 1 + p, q).astype(np.float64)
    means = flat[:, :1] + np.einsum("np,spq->snq", x.astype(np.float64), flat[:, 1:])
    covariances = variances.reshape(-1, 1, 1) * np.eye(q)
    if latent_scale is not None:
        covariances = covariances + latent_scale**2 * np.einsum(
            "spq,spr->sqr", flat[:, 1:], flat[:, 1:]
        )
    made = posterior_of(Gaussian(), coefficients, variances, latent_scale)
    return Mixture(made, x, means, covariances)


MIXTURES = [(1, None), (2, None), (1, 0.7), (2, 0.7)]
NAMES = ["one output", "two outputs", "latents", "latents, two outputs"]


# -- T25: Gaussian --------------------------------------------------------------------------------


@pytest.mark.parametrize(("q", "latent_scale"), MIXTURES, ids=NAMES)
def test_gaussian_density_and_moments(q: int, latent_scale: float | None) -> None:
    """The average over draws of N(mu, tau_0^2 I + tau_z^2 W'W): density, mean, two variances."""
    mixture = gaussian_mixture(q, latent_scale)
    y = np.random.default_rng(8).normal(scale=3.0, size=(len(mixture.x), q))
    ours = posterior.log_density(mixture.posterior, mixture.x, y)
    density = [
        np.mean(
            [
                stats.multivariate_normal.pdf(y[i], mean[i], covariance)
                for mean, covariance in zip(mixture.means, mixture.covariances, strict=True)
            ]
        )
        for i in range(len(y))
    ]
    assert ours == pytest.approx(np.log(density), rel=QUADRATURE)
    mean, aleatoric, epistemic = posterior.moments(mixture.posterior, mixture.x)
    assert mean == pytest.approx(mixture.means.mean(axis=0), rel=QUADRATURE)
    variances = np.diagonal(mixture.covariances, axis1=1, axis2=2).mean(axis=0)
    assert aleatoric == pytest.approx(np.tile(variances, (len(y), 1)), rel=QUADRATURE)
    assert epistemic == pytest.approx(mixture.means.var(axis=0), rel=QUADRATURE)
    eta = posterior.eta(mixture.posterior, mixture.x)
    assert eta == pytest.approx(np.moveaxis(mixture.means, 0, 1), rel=QUADRATURE, abs=1e-12)


@pytest.mark.parametrize(("q", "latent_scale"), MIXTURES, ids=NAMES)
def test_quantiles_invert_the_averaged_distribution(q: int, latent_scale: float | None) -> None:
    mixture = gaussian_mixture(q, latent_scale)
    levels = np.array([0.001, 0.05, 0.5, 0.9, 0.999])
    ours = posterior.quantiles(mixture.posterior, mixture.x, levels)
    assert ours.shape == (len(mixture.x), q, len(levels))
    for row in range(2):
        for output in range(q):
            for index, level in enumerate(levels):
                root = scipy.optimize.brentq(
                    lambda y, row=row, output=output, level=level: (
                        mixture.distribution(y, row, output) - level
                    ),
                    -60, 60, xtol=1e-13, rtol=1e-14,
                )  # fmt: skip
                # Where the density is flat (.001) a rounding of the CDF is 1e-13 / 1e-3 away.
                assert ours[row, output, index] == pytest.approx(root, rel=QUADRATURE, abs=1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
def test_quantiles_never_cross(dtype) -> None:
    """Non-decreasing to the last bit, where the CDF is steep and where it is flat between modes."""
    mixture = gaussian_mixture(2, None, dtype)
    levels = np.linspace(0.0005, 0.9995, 50)
    ours = posterior.quantiles(mixture.posterior, mixture.x, levels)
    assert np.all(np.diff(ours, axis=-1) >= 0)
    assert np.all(np.diff(ours[..., ::10], axis=-1) > 0)


def test_integrating_the_top_out() -> None:
    """Draws of beta ~ N(m, V), q = 1, tau_z > 0: section 7's mean and variance, to 5 errors.

    mean m'f; variance tau_0^2 + f'Vf + tau_z^2 (m_W'm_W + tr V_WW).
    """
    generator = np.random.default_rng(3)
    p, draws, noise, tau_z = 3, 40_000, 0.3, 0.6
    m, root = generator.normal(size=1 + p), 0.4 * generator.normal(size=(1 + p, 1 + p))
    covariance = root @ root.T
    coefficients = generator.multivariate_normal(m, covariance, size=draws)[None, :, :, None]
    made = posterior_of(Gaussian(), coefficients, np.full((1, draws), noise), tau_z)
    x = generator.normal(size=(3, p))
    f = np.column_stack([np.ones(3), x])
    mean, aleatoric, epistemic = posterior.moments(made, x)
    spread = np.einsum("ni,ij,nj->n", f, covariance, f)
    assert np.all(np.abs(mean[:, 0] - f @ m) < 5 * np.sqrt(spread / draws))
    squared = np.sum(coefficients[0, :, 1:, 0] ** 2, axis=1)
    expected = noise + tau_z**2 * (m[1:] @ m[1:] + np.trace(covariance[1:, 1:]))
    error = tau_z**2 * squared.std() / np.sqrt(draws)
    assert np.all(np.abs(aleatoric[:, 0] - expected) < 5 * error)
    assert np.all(np.abs(epistemic[:, 0] / spread - 1) < 5 * np.sqrt(2 / draws))


# -- T25: two and more classes --------------------------------------------------------------------


def log_normal_average(
    log_function: Callable[[np.ndarray], np.ndarray], mean: float, scale: float, cuts: tuple
) -> float:
    """Log E exp(log_function(N(mean, scale^2))): adaptive quadrature of 1e-11, scaled by its peak.

    The range is cut where the integrand bends (`cuts`, in the units of the predictor), and about
    its peak, which may lie many standard deviations away.
    """

    def exponent(t: np.ndarray) -> np.ndarray:
        return log_function(mean + scale * t) - t**2 / 2

    grid = np.linspace(-40, 40, 160_001)
    values = exponent(grid)
    peak = grid[np.argmax(values)]
    inside = [*((cut - mean) / scale for cut in cuts), *(peak + d for d in (-3, -0.1, 0, 0.1, 3))]
    breaks = sorted({-40.0, 40.0, *np.clip(inside, -40, 40)})
    total = sum(
        integrate.quad(
            lambda t: np.exp(exponent(t) - values.max()), *ends, epsabs=0, epsrel=1e-11, limit=400
        )[0]
        for ends in itertools.pairwise(breaks)
        if exponent(np.linspace(*ends, 50)).max() > values.max() - 60  # else e^-60 of the whole
    )
    return values.max() + np.log(total / np.sqrt(2 * np.pi))


def line(scale: float) -> np.ndarray:
    """Coefficients with eta = scale x, whose latents of tau_z = 1 leave the variance scale^2."""
    return np.array([[[[0.0], [scale]]]])


@pytest.mark.parametrize("scale", [1e-7, 0.01, 0.5, 2.0, 5.0, 20.0])
def test_logistic_normal(scale: float) -> None:
    """E sigma(N(mu, s^2)), s up to 20 and tiny: probability, its complement, log density."""
    means = np.array([-30.0, -8.0, -1.2, 0.0, 0.4, 5.0, 40.0])
    made = posterior_of(Logit(), line(scale), (), latent_scale=1.0)
    x = (means / scale)[:, None]
    logs = posterior.log_probabilities(made, x)
    densities = [posterior.log_density(made, x, np.full((len(x), 1), y)) for y in (-1.0, 1.0)]
    for row, mean in enumerate(means):
        for column, sign in enumerate((-1, 1)):
            expected = log_normal_average(
                lambda eta, sign=sign: -np.logaddexp(0, -sign * eta), mean, scale, (0,)
            )
            # The rule leaves out 2e-17 of the normal law, which counts where p itself is tiny.
            tolerance = QUADRATURE + 2e-17 / np.exp(expected)
            assert abs(logs[row, column] - expected) < tolerance
            assert abs(densities[column][row] - expected) < tolerance
    assert np.exp(logs).sum(axis=1) == pytest.approx(1.0, abs=1e-12)


def test_logistic_without_latents_and_with_a_still_one() -> None:
    """tau_z = 0 is plugging in; a latent of no spread is the same, without NaN."""
    x = np.array([[-3.0], [0.0], [0.7]])
    plain = posterior.log_probabilities(posterior_of(Logit(), line(1.5)), x)
    assert np.exp(plain[:, 1]) == pytest.approx(1 / (1 + np.exp(-1.5 * x[:, 0])), rel=1e-12)
    still = posterior.log_probabilities(posterior_of(Logit(), line(1.5), (), 0.0), x)
    assert still == pytest.approx(plain, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("variance", [0.01, 0.6, 2.0])
@pytest.mark.parametrize("scale", [0.05, 1.0, 4.0])
def test_hinge_marginal_and_normalised_probability(variance: float, scale: float) -> None:
    """The closed form of E exp(-(2 / tau_0^2) (1 - y eta)_+), and E of the normalised loss."""
    means = np.array([-3.0, -0.03, 0.2, 0.999, 2.5])
    parameters = np.full((1, 1), variance)
    made = posterior_of(Hinge(np.sqrt(variance)), line(scale), parameters, latent_scale=1.0)
    x = (means / scale)[:, None]
    logs = posterior.log_probabilities(made, x)

    def log_loss(eta: np.ndarray, y: float) -> np.ndarray:
        return -2 / variance * np.maximum(1 - y * eta, 0)

    for column, y in enumerate((-1.0, 1.0)):
        ours = posterior.log_density(made, x, np.full((len(x), 1), y))

        def log_normalised(eta: np.ndarray, y: float = y) -> np.ndarray:
            return log_loss(eta, y) - np.logaddexp(log_loss(eta, 1), log_loss(eta, -1))

        for row, mean in enumerate(means):
            expected = log_normal_average(
                lambda eta, y=y: log_loss(eta, y), mean, scale, (-1, 1, mean)
            )
            assert ours[row] == pytest.approx(expected, rel=QUADRATURE, abs=QUADRATURE)
            bends = (-1, -4 * variance, -variance / 2, 0, variance / 2, 4 * variance, 1)
            expected = log_normal_average(log_normalised, mean, scale, bends)
            assert abs(np.exp(logs[row, column]) - np.exp(expected)) < QUADRATURE
    assert np.exp(logs).sum(axis=1) == pytest.approx(1.0, abs=1e-10)


def test_class_probabilities_are_averaged_over_draws() -> None:
    """Of probabilities, not of logits: the softmax of each draw, then the mean."""
    generator = np.random.default_rng(5)
    coefficients = generator.normal(scale=2.0, size=(2, 4, 3, 3))
    x = generator.normal(size=(5, 2))
    made = posterior_of(Multinomial(), coefficients)
    ours = np.exp(posterior.log_probabilities(made, x))
    flat = coefficients.reshape(-1, 3, 3)
    eta = flat[:, :1] + np.einsum("np,spk->snk", x, flat[:, 1:])
    odds = np.exp(eta)
    expected = (odds / odds.sum(axis=2, keepdims=True)).mean(axis=0)
    assert ours == pytest.approx(expected, rel=1e-12)
    labels = np.eye(3)[[0, 2, 1, 1, 0]]
    density = posterior.log_density(made, x, labels)
    assert np.exp(density) == pytest.approx((expected * labels).sum(axis=1), rel=1e-12)


# -- Rows and samples -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
def test_a_row_does_not_depend_on_the_others(dtype) -> None:
    """Two chunks and a bit of a third, against the same rows alone and in another order."""
    mixture = gaussian_mixture(2, 0.7, dtype, rows=600)
    y = mixture.means.mean(axis=0).astype(dtype)
    order = np.random.default_rng(1).permutation(600)[:70]
    levels = np.array([0.05, 0.5, 0.95])

    def everything(rows: np.ndarray) -> list[np.ndarray]:
        made, x = mixture.posterior, mixture.x[rows]
        return [
            posterior.log_density(made, x, y[rows]),
            posterior.quantiles(made, x, levels),
            posterior.eta(made, x),
            *posterior.moments(made, x),
        ]

    whole, part = everything(np.arange(600)), everything(order)
    alone = everything(np.array([417]))
    for every, some, one in zip(whole, part, alone, strict=True):
        assert every.dtype == np.float64
        assert np.array_equal(every[order], some)
        assert np.array_equal(every[417:418], one)


def test_a_new_number_of_rows_compiles_nothing() -> None:
    mixture = gaussian_mixture(1, None, rows=40)
    posterior.moments(mixture.posterior, mixture.x[:5])
    before = posterior._moments_chunk._cache_size()
    for n in (1, 7, 40):
        posterior.moments(mixture.posterior, mixture.x[:n])
    assert posterior._moments_chunk._cache_size() == before


@pytest.mark.parametrize("latent_scale", [None, 0.7], ids=["features", "latents"])
def test_samples_follow_the_predictive(latent_scale: float | None, seed: int) -> None:
    """Kolmogorov-Smirnov against the averaged CDF; outputs are correlated through the latents."""
    mixture = gaussian_mixture(2, latent_scale)
    words = np.array([0, seed], np.uint32)
    n = 2_000
    samples = posterior.sample(mixture.posterior, mixture.x, n, words)
    assert samples.shape == (len(mixture.x), n, 2)
    for row in (0, 3):
        for output in range(2):

            def distribution(values: np.ndarray, row: int = row, output: int = output):
                deviation = np.sqrt(mixture.covariances[:, output, output])
                at = (values[:, None] - mixture.means[:, row, output]) / deviation
                return stats.norm.cdf(at).mean(axis=1)

            # Four tests at 1e-4 with a fixed seed.
            assert stats.kstest(samples[row, :, output], distribution).pvalue > 1e-4
    # Covariance of the two outputs: mean of the draws' covariances, and covariance of their means.
    means = mixture.means[:, 0]
    expected = mixture.covariances[:, 0, 1].mean() + np.cov(means.T, bias=True)[0, 1]
    products = (samples[0, :, 0] - means[:, 0].mean()) * (samples[0, :, 1] - means[:, 1].mean())
    assert abs(products.mean() - expected) < 5 * products.std() / np.sqrt(n)
    assert np.array_equal(samples, posterior.sample(mixture.posterior, mixture.x, n, words))


@pytest.mark.parametrize(
    ("likelihood", "parameters"),
    [(Logit(), ()), (Hinge(), np.full((1, 1), 2.0))],
    ids=["logit", "hinge"],
)
def test_sampled_labels_have_the_predicted_frequency(likelihood, parameters, seed: int) -> None:
    made = posterior_of(likelihood, line(1.2), parameters, latent_scale=1.0)
    x, n = np.array([[-1.5], [0.3], [1.0]]), 200
    labels = posterior.sample(made, x, n, np.array([1, seed], np.uint32))[:, :, 0]
    assert set(np.unique(labels)) == {-1.0, 1.0}
    expected = np.exp(posterior.log_probabilities(made, x))[:, 1]
    error = np.sqrt(expected * (1 - expected) / n)
    assert np.all(np.abs((labels == 1).mean(axis=1) - expected) < 5 * error)


# -- T23: the conjugate model ---------------------------------------------------------------------


def last_states(engine: Gibbs, seeds: np.ndarray, batch: Batch, sweeps: int) -> State:
    """Where independent chains stand after some sweeps."""

    @jax.jit
    def run(seeds: jax.Array) -> State:
        def chain(seed: jax.Array) -> State:
            key = jax.random.key(seed)

            def sweep(time: jax.Array, state: State) -> State:
                return engine.step(jax.random.fold_in(key, time), time, None, state, batch)[0]

            return jax.lax.fori_loop(1, sweeps, sweep, engine.initial(key, batch))

        return jax.vmap(chain)(seeds)

    return jax.device_get(run(seeds))


def test_conjugate_model_is_recovered(seed: int) -> None:
    """NIG (prior tied to the noise), tau_z = 0: Gibbs against Student's t, moments and predictive.

    20 sweeps from an arbitrary start are plenty (tau_0^2 forgets all but d / (n + d) a sweep), and
    only the last state of each chain is used: independent draws, whose errors are known.
    """
    generator = np.random.default_rng(seed)
    n, p, chains, scale, intercept_scale = 18, 2, 2_000, 1.3, 2.0
    x = generator.normal(size=(n, p))
    y = 0.4 + x @ [1.0, -0.6] + 0.5 * generator.normal(size=n)
    prior = Ridge(scale, tied_to_noise=True, intercept_scale=intercept_scale)
    engine = Gibbs(Model(Gaussian(), prior, MLP(())), Adam())
    with jax.enable_x64(True):
        batch = Batch(jnp.asarray(x), jnp.asarray(y)[:, None], jnp.ones(n))
        state = last_states(engine, np.arange(chains), batch, 20)

    design = np.column_stack([np.ones(n), x])
    inverse = np.diag([intercept_scale**-2, *[scale**-2] * p])
    v_n = np.linalg.inv(inverse + design.T @ design)
    m_n = v_n @ design.T @ y
    a_n = 1.0 + n / 2
    c_n = 0.05 + (y @ y - m_n @ np.linalg.solve(v_n, m_n)) / 2

    beta = state.coefficients[:, :, 0]
    covariance = c_n / (a_n - 1) * v_n
    sd = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(beta.mean(axis=0) - m_n) < 5 * sd / np.sqrt(chains))
    centred = (beta - m_n) / sd
    products = centred[:, :, None] * centred[:, None]
    error = products.std(axis=0) / np.sqrt(chains)
    assert np.all(np.abs(products.mean(axis=0) - covariance / np.outer(sd, sd)) < 5 * error)
    noise = state.parameters
    assert stats.kstest(noise, stats.invgamma(a_n, scale=c_n).cdf).pvalue > 1e-4

    made = Posterior(engine.model, Draw([], state.coefficients[:, None], noise[:, None]))
    new = np.array([[0.0, 0.0], [1.0, -1.0], [4.0, 3.0]])
    f = np.column_stack([np.ones(3), new])
    spread = np.sqrt(c_n / a_n * (1 + np.einsum("ni,ij,nj->n", f, v_n, f)))
    predictive = stats.t(2 * a_n, f @ m_n, spread)
    shifts = np.array([-2.0, -0.5, 0.0, 1.0])
    target = (f @ m_n)[:, None] + shifts * spread[:, None]
    repeated = np.repeat(new, len(shifts), axis=0)
    ours = np.exp(posterior.log_density(made, repeated, target.reshape(-1, 1))).reshape(3, -1)
    each = stats.norm.pdf(target[..., None], (f @ beta.T)[:, None], np.sqrt(noise))
    error = each.std(axis=2) / np.sqrt(chains)
    expected = np.stack([predictive.pdf(column) for column in target.T], axis=1)
    assert np.all(np.abs(ours - expected) < 5 * error)


# -- T26: calibration -----------------------------------------------------------------------------


class Calibration(NamedTuple):
    truth: np.ndarray
    """(simulations, quantities)."""
    draws: np.ndarray
    """(simulations, draws, quantities)."""
    probability: np.ndarray
    """Predictive CDF at a new observation, (simulations,)."""


NEW = np.array([1.0, 0.8, -1.1])
"""A new row with its 1 in front."""


@functools.cache
def simulated() -> Calibration:
    """Linear Gaussian regression with everything learned, truths from the prior itself."""
    simulations, n, p, kept, thinning = 640, 15, 2, 31, 5
    generator = np.random.default_rng(2026)
    variance = stats.invgamma.rvs(5, scale=5, size=simulations, random_state=generator)
    noise = stats.invgamma.rvs(1, scale=0.05, size=simulations, random_state=generator)
    weights = generator.normal(size=(simulations, p)) * np.sqrt(variance)[:, None]
    beta = np.column_stack([generator.normal(size=simulations), weights])
    x = generator.normal(size=(simulations, n, p))
    eta = beta[:, :1] + np.einsum("snp,sp->sn", x, beta[:, 1:])
    y = eta + np.sqrt(noise)[:, None] * generator.normal(size=(simulations, n))
    engine = Gibbs(Model(Gaussian(), Ridge("learn", intercept_scale=1.0), MLP(())), Adam())

    @jax.jit
    def run(x: jax.Array, y: jax.Array) -> State:
        def chain(seed: jax.Array, x: jax.Array, y: jax.Array) -> State:
            key, batch = jax.random.key(seed), Batch(x, y, jnp.ones(n))

            def sweep(time: jax.Array, state: State) -> State:
                return engine.step(jax.random.fold_in(key, time), time, None, state, batch)[0]

            def keep(state: State, index: jax.Array) -> tuple[State, State]:
                first = 1 + index * thinning
                state = jax.lax.fori_loop(first, first + thinning, sweep, state)
                return state, state

            start = engine.initial(jax.random.fold_in(key, 0), batch)
            _, states = jax.lax.scan(keep, start, jnp.arange(kept + 10))
            return jax.tree.map(lambda leaf: leaf[10:], states)  # 50 sweeps of warm-up

        return jax.vmap(chain)(jnp.arange(simulations), x, y)

    with jax.enable_x64(True):
        states = jax.device_get(run(x, y[:, :, None]))
    coefficients = states.coefficients[..., 0]
    drawn = [coefficients, states.parameters[..., None], states.scales[..., None]]
    new_eta = coefficients @ NEW
    draws = np.concatenate([*drawn, new_eta[..., None]], axis=2)
    truth = np.column_stack([beta, noise, variance, beta @ NEW])
    new_y = beta @ NEW + np.sqrt(noise) * generator.normal(size=simulations)
    scale = np.sqrt(states.parameters)
    probability = stats.norm.cdf((new_y[:, None] - new_eta) / scale).mean(axis=1)
    return Calibration(truth, draws, probability)


def test_ranks_are_uniform() -> None:
    """Simulation-based calibration: b_0, W_0, tau_0^2, the weights' variance, a new row's mean."""
    ranks = diagnostics.sbc_ranks(simulated().truth, simulated().draws)
    p_values = diagnostics.sbc_chi_square(ranks, n_draws=31, bins=16)
    assert p_values.min() > 1e-4  # six quantities, one fixed seed


def test_ranks_of_narrowed_draws_are_not() -> None:
    """The planted fault: draws with seven tenths of their spread are found out."""
    truth, draws, _ = simulated()
    centre = draws.mean(axis=1, keepdims=True)
    ranks = diagnostics.sbc_ranks(truth, centre + 0.7 * (draws - centre))
    assert diagnostics.sbc_chi_square(ranks, n_draws=31, bins=16).max() < 1e-4


def test_intervals_cover_what_they_say() -> None:
    """90 % predictive intervals hold 90 % of new observations, to three standard errors.

    y lies in the central interval of the averaged CDF where that CDF is between .05 and .95. An
    average over 31 draws makes it narrower by some tenths of a per cent, a quarter of an error.
    """
    probability = simulated().probability
    covered = np.mean((probability > 0.05) & (probability < 0.95))
    assert abs(covered - 0.9) < 3 * np.sqrt(0.9 * 0.1 / len(probability))
