"""The scale-mixture identities, by integrating the real mixtures (math.md section 2, T1, T2, E16).

Each likelihood is held to the mixture that it claims to be: the integral over the augmentation
variable must give its density, and `expect` must give the means of (w, h) under the mixing law.
What is expected comes from quadrature of the definitions of the mixtures, never from the code.
"""

import functools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import stats

from scalemix.likelihoods import Gaussian, Hinge, Logit, Multinomial
from scalemix.likelihoods.hinge import SMOOTHING

pytestmark = pytest.mark.usefixtures("x64")

# The integrals are good to 1e-12; 1e-8 is what the identities are asked to hold to in float64.
IDENTITY = 1e-8
POWERS = [0.37, 1.0, 2.6]
PREDICTORS = np.array([-7.3, -1.6, -0.4, 0.0, 0.9, 3.1])
ALL = jnp.arange(1)


# -- Polya-Gamma ----------------------------------------------------------------------------------


def polya_gamma_density(omega: mpmath.mpf, b: float) -> mpmath.mpf:
    """Density of PG(b, 0) by its alternating series, in the working precision."""
    b, total, n = mpmath.mpf(b), mpmath.mpf(0), 0
    while True:
        size = 2 * n + b
        exponent = size**2 / (8 * omega)
        if exponent > 150:  # what is left is below 1e-60
            break
        total += (-1) ** n * mpmath.rf(b, n) / mpmath.factorial(n) * size * mpmath.exp(-exponent)
        n += 1
    return 2 ** (b - 1) * total / mpmath.sqrt(2 * mpmath.pi * omega**3)


@functools.cache
def polya_gamma_grid(b: float) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights of PG(b, 0): the trapezoidal rule in log omega.

    There the integrand is analytic and dies at both ends (at the lower one as exp(-b^2 / 8 omega),
    at the upper one as exp(-pi^2 omega / 2)), so the rule is exact to rounding.
    """
    with mpmath.workdps(45):  # at omega = 9 the series cancels 20 digits
        low = mpmath.log(mpmath.mpf(b) ** 2 / (8 * 50))
        logs = mpmath.linspace(low, mpmath.log(9), 260)
        omegas = [mpmath.exp(t) for t in logs]
        density = np.array([float(polya_gamma_density(w, b)) for w in omegas])
    grid = np.array([float(w) for w in omegas])
    return grid, density * grid * float(logs[1] - logs[0])


def polya_gamma_moments(b: float, tilts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log of E exp(-omega t^2 / 2), and E omega under the tilted law, for each t."""
    grid, weights = polya_gamma_grid(b)
    kernel = np.exp(-np.outer(tilts**2 / 2, grid)) * weights
    mass = kernel.sum(axis=1)
    return np.log(mass), (kernel @ grid) / mass


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_logit_is_its_polya_gamma_mixture(power: float, y: float) -> None:
    """sigma(y eta)^b = 2^-b int exp(-w eta^2 / 2 + h eta) PG(b, 0) with the code's h."""
    n = len(PREDICTORS)
    signs, eta = jnp.full((n, 1), y), jnp.asarray(PREDICTORS)[:, None]
    log_density = np.asarray(Logit().log_density((), signs, eta, None))
    quadratic = Logit().expect((), signs, eta, jnp.full(n, power), ALL)
    log_mixture, mean = polya_gamma_moments(power, PREDICTORS)
    h = np.asarray(quadratic.h)[:, 0]
    mixture = -power * np.log(2.0) + h * PREDICTORS + log_mixture
    assert mixture == pytest.approx(power * log_density, rel=IDENTITY, abs=1e-10)
    assert np.asarray(quadratic.w)[:, 0] == pytest.approx(mean, rel=IDENTITY)


def test_power_one_over_n_is_not_a_factor_on_the_exponent() -> None:
    """E16: E exp(-Q / n) is not L^(1/n); PG(1/n) is.

    With Q = log 2 - y eta / 2 + omega eta^2 / 2, over ten rows. The printed display is off by
    per cents in the log; the law with the power inside is right to quadrature.
    """
    n = 10
    eta = np.random.default_rng(16).normal(scale=2.0, size=n)
    right = float(np.sum(-np.log1p(np.exp(-eta)))) / n
    ones = jnp.ones((n, 1))

    log_printed, _ = polya_gamma_moments(1.0, eta / np.sqrt(n))
    printed = float(np.sum(-np.log(2.0) / n + eta / (2 * n) + log_printed))
    assert abs(printed / right - 1) > 0.01

    power = jnp.full(n, 1 / n)
    quadratic = Logit().expect((), ones, jnp.asarray(eta)[:, None], power, ALL)
    log_power, mean = polya_gamma_moments(1 / n, eta)
    ours = float(np.sum(-np.log(2.0) / n + log_power + np.asarray(quadratic.h)[:, 0] * eta))
    assert ours == pytest.approx(right, rel=IDENTITY)
    assert np.asarray(quadratic.w)[:, 0] == pytest.approx(mean, rel=IDENTITY)


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("member", [0.0, 1.0])
def test_softmax_is_logistic_in_each_class_given_the_others(power: float, member: float) -> None:
    """P(y)^b as a function of eta_k is int exp(-w eta_k^2 / 2 + h eta_k - w c^2 / 2) PG(b, 0).

    Up to a factor that eta_k does not enter: the log difference is compared between values of it.
    """
    block, others = jnp.array([1]), np.array([0.3, -1.2, 0.8])
    rest = np.log(np.sum(np.exp(others)))
    n = len(PREDICTORS)
    eta = jnp.asarray(np.insert(np.tile(others, (n, 1)), 1, PREDICTORS, axis=1))
    y = jnp.tile(jnp.array([[0.0, member, 1 - member, 0.0]]), (n, 1))
    quadratic = Multinomial().expect((), y, eta, jnp.full(n, power), block)
    log_mixture, mean = polya_gamma_moments(power, PREDICTORS - rest)
    w, h = np.asarray(quadratic.w)[:, 0], np.asarray(quadratic.h)[:, 0]
    assert w == pytest.approx(mean, rel=IDENTITY)
    # h is linear in omega, h = a + omega c: its mean fixes a once c is known, and c completes
    # the square, exp(-omega (eta - c)^2 / 2).
    constant = h - mean * rest
    assert np.ptp(constant) < 1e-12  # no dependence on eta
    mixture = constant * PREDICTORS + log_mixture
    log_density = power * np.asarray(Multinomial().log_density((), y, eta, None))
    assert np.ptp(mixture - log_density) < IDENTITY


# -- Hinge ----------------------------------------------------------------------------------------


def hinge_moments(margin: float, scale: float) -> tuple[float, float, float]:
    """Log of int N(m; 1 + lambda, scale lambda) dlambda, and the means of 1 / lambda and lambda.

    The trapezoidal rule in log lambda, over the range in which the exponent (1 - m + lambda)^2 /
    (2 scale lambda) is within 60 of its least value, which it takes at lambda = |1 - m|.
    """
    gap = abs(1 - margin)
    reach = np.arccosh(1 + 60 * scale / gap)
    logs = np.log(gap) + np.linspace(-reach, reach, 4001)
    lam = np.exp(logs)
    exponent = -((1 + lam - margin) ** 2) / (2 * scale * lam)
    kernel = lam * np.exp(exponent - exponent.max()) / np.sqrt(2 * np.pi * scale * lam)
    mass = kernel.sum()
    log_mass = np.log(mass * (logs[1] - logs[0])) + exponent.max()
    return log_mass, (kernel / lam).sum() / mass, (kernel * lam).sum() / mass


@pytest.mark.parametrize("variance", [0.01, 1.0, 3.0])
@pytest.mark.parametrize("power", POWERS)
def test_hinge_is_its_flat_mixture(variance: float, power: float) -> None:
    """exp(-(2 / tau_0^2) (1 - m)_+)^b = int N-kernel dlambda; w and h are its conditional means.

    T2: E[1 / lambda] = 1 / |1 - m| and E[lambda] = |1 - m| + tau_0^2 / b.
    """
    margins = [-1.3, 0.2, 0.999, 1.5]
    y = np.array([1.0, -1.0, -1.0, 1.0])
    likelihood = Hinge(np.sqrt(variance))
    parameters = likelihood.initial(jnp.float64)
    signs, eta = jnp.asarray(y)[:, None], jnp.asarray(margins * y)[:, None]
    powers = jnp.full(4, power)
    log_density = power * np.asarray(likelihood.log_density(parameters, signs, eta, None))
    quadratic = likelihood.expect(parameters, signs, eta, powers, ALL)
    scale = variance / power
    for row, margin in enumerate(margins):
        log_mass, inverse, mean = hinge_moments(margin, scale)
        gap = abs(1 - margin)
        assert log_mass == pytest.approx(log_density[row], rel=IDENTITY, abs=1e-9)
        assert inverse == pytest.approx(1 / gap, rel=IDENTITY)
        assert mean == pytest.approx(gap + scale, rel=IDENTITY)
        # EM smooths |1 - m|: a relative difference of half the squared ratio, and no more.
        smoothed = IDENTITY + 0.5 * (SMOOTHING / gap) ** 2
        w, h = float(quadratic.w[row, 0]), float(quadratic.h[row, 0])
        assert w == pytest.approx(inverse / scale, rel=smoothed)
        # h = w y (1 + lambda): its mean is y (E w + 1 / scale).
        assert h == pytest.approx(y[row] * (inverse + 1) / scale, rel=smoothed)


def test_hinge_draws_are_pairs_of_one_lambda(key: jax.Array) -> None:
    """w and h of a draw come from the same lambda, whose mean is |1 - m| + tau_0^2 / b (T2)."""
    n, variance, power, margin = 40_000, 0.6, 1.7, 0.3
    parameters = jnp.asarray(variance)
    y = jnp.where(jnp.arange(n) % 2 == 0, 1.0, -1.0)[:, None]
    quadratic = Hinge().draw(key, parameters, y, margin * y, jnp.full(n, power), ALL)
    w, h = np.asarray(quadratic.w), np.asarray(quadratic.h)
    lam = power / (variance * w)
    assert h == pytest.approx(w * np.asarray(y) * (1 + lam), rel=1e-12)  # rounding
    error = lam.std() / np.sqrt(n)
    assert abs(lam.mean() - (abs(1 - margin) + variance / power)) < 5 * error


# -- Gaussian -------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", POWERS)
def test_gaussian_quadratic_is_its_log_density(power: float, seed: int) -> None:
    """No augmentation: b log N(y; eta, tau_0^2 I) is -w |eta|^2 / 2 + h'eta and a constant."""
    generator = np.random.default_rng(seed)
    y, variance = np.array([[0.4, -1.1]]), 0.3
    etas = generator.normal(size=(6, 2))
    ys, powers, block = jnp.asarray(np.tile(y, (6, 1))), jnp.full(6, power), jnp.arange(2)
    quadratic = Gaussian().expect(jnp.asarray(variance), ys, jnp.asarray(etas), powers, block)
    assert quadratic.w.shape == (6, 1)
    density = power * stats.norm.logpdf(y, etas, np.sqrt(variance)).sum(axis=1)
    kernel = (-0.5 * np.asarray(quadratic.w) * etas**2 + np.asarray(quadratic.h) * etas).sum(axis=1)
    assert np.ptp(density - kernel) < IDENTITY
    ours = power * np.asarray(Gaussian().log_density(jnp.asarray(variance), ys, etas, None))
    assert ours == pytest.approx(density, rel=IDENTITY)


@pytest.mark.parametrize("likelihood", [Gaussian(), Logit(), Hinge()], ids=lambda one: one.name)
def test_a_row_of_power_zero_says_nothing(likelihood) -> None:
    y, eta = jnp.array([[1.0], [-1.0]]), jnp.array([[1.0], [0.4]])  # the first on the hinge's kink
    quadratic = likelihood.expect(likelihood.initial(jnp.float64), y, eta, jnp.zeros(2), ALL)
    assert np.all(np.asarray(quadratic.w) == 0)
    assert np.all(np.asarray(quadratic.h) == 0)
