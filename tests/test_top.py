"""Linear algebra of the top layer against dense formulas (math.md T9, section 4.4, section 8)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scalemix import linalg, top
from scalemix.quadratic import Quadratic, Statistics
from scalemix.rows import summarise

pytestmark = pytest.mark.usefixtures("x64")

DENSE = 1e-10
"""Agreement with the dense formula in float64, whose own rounding is some 1e-13 here."""

# Compiled once for the size 4 that most tests share.
factorise, solve, draw = (jax.jit(f) for f in (linalg.factorise, linalg.solve, linalg.draw))


def spectrum(generator: np.random.Generator, eigenvalues: np.ndarray) -> np.ndarray:
    """A symmetric matrix with the given eigenvalues."""
    turned, _ = np.linalg.qr(generator.normal(size=(len(eigenvalues), len(eigenvalues))))
    return (turned * eigenvalues) @ turned.T


# -- Factors --------------------------------------------------------------------------------------


def test_factor_solves_and_draws(seed: int) -> None:
    """solve is P^-1 h; draw is P^-1 h + R e with R R' = P^-1."""
    generator = np.random.default_rng(seed)
    precision = spectrum(generator, np.geomspace(0.1, 100, 4))
    linear = generator.normal(size=4)
    factor = factorise(jnp.asarray(precision))
    assert int(factor.jitters) == 0
    assert bool(factor.finite)
    lower = np.asarray(factor.scale)[:, None] * np.asarray(factor.lower)
    assert lower @ lower.T == pytest.approx(precision, rel=DENSE, abs=DENSE)
    mean = np.linalg.solve(precision, linear)
    assert np.asarray(solve(factor, jnp.asarray(linear))) == pytest.approx(mean, rel=DENSE)
    draws = [draw(factor, jnp.asarray(linear), unit) for unit in jnp.eye(4)]
    root = np.stack([np.asarray(draw) - mean for draw in draws], axis=1)
    covariance = np.linalg.inv(precision)
    assert root @ root.T == pytest.approx(covariance, rel=DENSE, abs=DENSE)


def test_units_of_the_columns_do_not_matter(seed: int) -> None:
    """Columns from 1e-9 to 1e9: a condition number of 1e36, and no jitter in correlation form."""
    generator = np.random.default_rng(seed)
    precision = spectrum(generator, np.linspace(1, 3, 4))
    units = np.array([1e-9, 1e-4, 1e5, 1e9])
    scaled = precision * units * units[:, None]
    linear = generator.normal(size=4)
    factor = factorise(jnp.asarray(scaled))
    assert int(factor.jitters) == 0
    result = np.asarray(solve(factor, jnp.asarray(linear * units)))
    assert result * units == pytest.approx(np.linalg.solve(precision, linear), rel=DENSE)


def test_float32_survives_columns_of_different_scale(seed: int) -> None:
    """In the users' dtype: 1e-5 is some hundred roundings of float32, times a condition of 3."""
    generator = np.random.default_rng(seed)
    precision = spectrum(generator, np.linspace(1, 3, 4))
    units = np.array([1e-6, 1e-2, 1e2, 1e6])
    scaled = (precision * units * units[:, None]).astype(np.float32)
    linear = generator.normal(size=4)
    factor = factorise(jnp.asarray(scaled))
    assert factor.lower.dtype == jnp.float32
    assert int(factor.jitters) == 0
    result = np.asarray(solve(factor, jnp.asarray((linear * units).astype(np.float32))))
    assert result * units == pytest.approx(np.linalg.solve(precision, linear), rel=1e-5, abs=1e-5)


def test_singular_matrix_is_jittered_and_counted(seed: int) -> None:
    """Rank 2 of 4. The solution in the span is right to the jitter's size, 1e-10 and a few tens."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(2, 4))
    precision = rows.T @ rows
    precision -= 1e-12 * np.eye(4)  # below zero for sure, where rounding alone may be lucky
    factor = factorise(jnp.asarray(precision))
    assert int(factor.jitters) >= 1
    assert bool(factor.finite)
    linear = rows.T @ generator.normal(size=2)
    solution = np.asarray(solve(factor, jnp.asarray(linear)))
    assert np.all(np.isfinite(solution))
    assert precision @ solution == pytest.approx(linear, rel=1e-6, abs=1e-6)


def test_jitter_knows_the_units_of_the_columns() -> None:
    """Two equal columns call for jitter; one of scale 1e-9 beside them does not feel it.

    1e-10 on its own precision of 1e-18 would be everything; of its unit diagonal it is nothing.
    """
    precision = np.diag([1.0, 1.0, 1e-18, 4.0])
    precision[0, 1] = precision[1, 0] = 1 + 1e-12
    factor = factorise(jnp.asarray(precision))
    assert int(factor.jitters) >= 1
    solution = np.asarray(solve(factor, jnp.array([1.0, 1.0, 1e-9, 2.0])))
    assert solution[2:] == pytest.approx([1e9, 0.5], rel=1e-8)


def test_jitter_is_raised_tenfold_until_it_is_enough() -> None:
    """A correlation of 1 + 2e-6: the eigenvalue -2e-6 takes 1e-10 up to 1e-5, six times."""
    precision = np.eye(4)
    precision[0, 1] = precision[1, 0] = 1 + 2e-6
    factor = factorise(jnp.asarray(precision))
    assert int(factor.jitters) == 6
    assert bool(factor.finite)


def test_dead_column_gets_unit_precision_and_is_counted(seed: int) -> None:
    """A feature that is 0 for every row, no prior: the others are as without it."""
    generator = np.random.default_rng(seed)
    alive = spectrum(generator, np.array([1.0, 2.0, 5.0]))
    precision = np.zeros((4, 4))
    keep = [0, 1, 3]
    precision[np.ix_(keep, keep)] = alive
    linear = np.insert(generator.normal(size=3), 2, 0.0)
    factor = factorise(jnp.asarray(precision))
    assert int(factor.jitters) == 1
    solution = np.asarray(solve(factor, jnp.asarray(linear)))
    assert solution[2] == 0
    assert solution[keep] == pytest.approx(np.linalg.solve(alive, linear[keep]), rel=DENSE)
    drawn = np.asarray(draw(factor, jnp.asarray(linear), jnp.ones(4)))
    assert np.all(np.isfinite(drawn))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_hopeless_matrix_is_reported(value: float) -> None:
    """It comes to an end, and says that it failed; beside it in a batch others are unharmed."""
    precision = np.eye(4)
    precision[1, 0] = precision[0, 1] = value
    factor = factorise(jnp.asarray(precision))
    assert not bool(factor.finite)
    batch = jnp.stack([jnp.eye(4), jnp.asarray(precision)])
    factors = jax.vmap(factorise)(batch)
    assert np.asarray(jax.vmap(lambda one: one.finite)(factors)).tolist() == [True, False]
    assert int(factors.jitters[0]) == 0
    statistics = Statistics(jnp.asarray(precision)[None], jnp.ones((1, 4)))
    assert not bool(top.mode(statistics).finite)


def test_indefinite_matrix_is_given_up() -> None:
    """An eigenvalue of -1 in correlation form: no jitter up to 1e-2 mends it."""
    factor = factorise(jnp.eye(4).at[0, 1].set(2.0).at[1, 0].set(2.0))
    assert not bool(factor.finite)


# -- Statistics and coefficients ------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False], ids=["one matrix", "one a predictor"])
def test_summarise_and_mode(shared: bool, seed: int) -> None:
    """P_k = D' diag(w_k) D + diag(v), h_k = D' h_k, with rows of weight 0; the mode solves them."""
    generator = np.random.default_rng(seed)
    n, d, k = 40, 4, 3
    design = generator.normal(size=(n, d))
    w = generator.uniform(size=(n, 1 if shared else k))
    w[::5] = 0
    h, prior = generator.normal(size=(n, k)), generator.uniform(1, 2, size=(d, 1))
    quadratic = Quadratic(jnp.asarray(w), jnp.asarray(h))
    statistics = summarise(jnp.asarray(design), quadratic)
    pulled = generator.normal(size=(d, k))
    statistics = statistics.with_prior(Quadratic(jnp.asarray(prior), jnp.asarray(pulled)))
    mode = top.mode(statistics)
    for j in range(k):
        precision = (design.T * w[:, 0 if shared else j]) @ design + np.diag(prior[:, 0])
        linear = design.T @ h[:, j] + pulled[:, j]
        assert np.asarray(statistics.precision[0 if shared else j]) == pytest.approx(
            precision, rel=DENSE, abs=DENSE
        )
        assert np.asarray(statistics.linear[j]) == pytest.approx(linear, rel=DENSE, abs=DENSE)
        assert np.asarray(mode.coefficients[:, j]) == pytest.approx(
            np.linalg.solve(precision, linear), rel=DENSE, abs=DENSE
        )


def test_summarise_adds_up_in_float64(seed: int) -> None:
    """Float32 rows: their Gram matrix is that of the same numbers in float64, to the last digits.

    In float32 the smallest eigenvalue of this one, 1e-8 of the largest, would be lost.
    """
    generator = np.random.default_rng(seed)
    n = 3000
    first = generator.normal(size=n)
    design = np.stack([first, first + 1e-4 * generator.normal(size=n)], axis=1).astype(np.float32)
    ones = jnp.ones((n, 1), jnp.float32)
    statistics = summarise(jnp.asarray(design), Quadratic(ones, ones))
    wide = design.astype(np.float64)
    smallest = np.linalg.eigvalsh(wide.T @ wide)[0]
    ours = np.linalg.eigvalsh(np.asarray(statistics.precision[0]))[0]
    assert ours == pytest.approx(smallest, rel=1e-6)  # 1e-16 times the condition number 1e8, 100x


def test_statistics_of_parts_add_up_to_those_of_the_whole(seed: int) -> None:
    generator = np.random.default_rng(seed)
    design = jnp.asarray(generator.normal(size=(30, 3)))
    quadratic = Quadratic(
        jnp.asarray(generator.uniform(size=(30, 2))), jnp.asarray(generator.normal(size=(30, 2)))
    )

    def part(rows: slice) -> Statistics:
        return summarise(design[rows], jax.tree.map(lambda leaf: leaf[rows], quadratic))

    both = part(slice(0, 11)) + part(slice(11, 30))
    whole = summarise(design, quadratic)
    for ours, expected in zip(both, whole, strict=True):
        assert np.asarray(ours) == pytest.approx(np.asarray(expected), rel=DENSE, abs=DENSE)


def test_draws_have_the_law_that_the_statistics_say(key: jax.Array, seed: int) -> None:
    """Two outputs that share a matrix: right means and covariance, independent of each other."""
    generator = np.random.default_rng(seed)
    precision = spectrum(generator, np.array([0.5, 2.0, 4.0]))
    linear = generator.normal(size=(2, 3))
    statistics = Statistics(jnp.asarray(precision)[None], jnp.asarray(linear))
    n = 40_000
    draws = jax.jit(jax.vmap(lambda one: top.draw(one, statistics).coefficients))(
        jax.random.split(key, n)
    )
    flat = np.asarray(draws).transpose(0, 2, 1).reshape(n, 6)
    covariance = np.kron(np.eye(2), np.linalg.inv(precision))
    mean = np.linalg.solve(precision, linear.T).T.ravel()
    sd = np.sqrt(np.diag(covariance))
    # 5 standard errors, of means and of products of normals (variance at most 2 after scaling).
    assert np.abs((flat.mean(axis=0) - mean) / sd).max() < 5 / np.sqrt(n)
    scaled = (np.cov(flat.T) - covariance) / np.outer(sd, sd)
    assert np.abs(scaled).max() < 5 * np.sqrt(2 / n)


# -- Latents --------------------------------------------------------------------------------------

TAU = 0.8


def dense_latents(features, coefficients, w, h):
    """Mean and covariance of each row from its precision matrix w W W' + I / tau_z^2."""
    p = features.shape[1]
    intercept, weights = coefficients[0], coefficients[1:]
    means, covariances = [], []
    for f, wi, hi in zip(features, w, h, strict=True):
        precision = wi * weights @ weights.T + np.eye(p) / TAU**2
        linear = weights @ (hi - wi * intercept) + f / TAU**2
        covariances.append(np.linalg.inv(precision))
        means.append(covariances[-1] @ linear)
    return np.stack(means), np.stack(covariances)


@pytest.mark.parametrize(("p", "q"), [(5, 1), (5, 3), (2, 3), (1, 1)])
def test_latent_law_is_the_dense_one(p: int, q: int, seed: int) -> None:
    """T9: the linear map of the normals; a precision for each row, 0 and very large among them."""
    generator = np.random.default_rng(seed)
    w = np.array([0.0, 1e-6, 0.3, 1.0, 40.0, 1e6])
    n = len(w)
    features, coefficients = generator.normal(size=(n, p)), generator.normal(size=(1 + p, q))
    h = w[:, None] * generator.normal(size=(n, q))
    mean, covariance = dense_latents(features, coefficients, w, h)
    quadratic = Quadratic(jnp.asarray(w)[:, None], jnp.asarray(h))
    betas = jnp.asarray(coefficients)
    ours = top.latent_mean(jnp.asarray(features), betas, quadratic, TAU**2)
    # With w = 1e6 the dense inverse itself loses six digits, relative to the mean's size.
    tolerance = np.where(w > 1e3, 1e-8, DENSE)[:, None]
    assert np.all(np.abs(np.asarray(ours) - mean) < tolerance * (1 + np.abs(mean)))
    columns = [
        top.latent_noise(jnp.tile(unit[None], (n, 1)), betas, quadratic.w, TAU**2)
        for unit in jnp.eye(p)
    ]
    root = np.stack([np.asarray(column) for column in columns], axis=2)
    difference = np.abs(root @ np.swapaxes(root, 1, 2) - covariance)
    assert np.all(difference < tolerance[:, None])
    assert root[0] == pytest.approx(TAU * np.eye(p), abs=1e-15)  # a row that says nothing


def test_latent_covariance_is_that_of_a_row(seed: int) -> None:
    generator = np.random.default_rng(seed)
    coefficients = generator.normal(size=(5, 2))
    _, (expected,) = dense_latents(np.zeros((1, 4)), coefficients, [3.0], np.zeros((1, 2)))
    ours = top.latent_covariance(jnp.asarray(coefficients), jnp.asarray(3.0), TAU**2)
    assert np.asarray(ours) == pytest.approx(expected, rel=DENSE, abs=DENSE)


def test_spread_is_what_latents_leave_in_the_predictor(seed: int) -> None:
    coefficients = np.random.default_rng(seed).normal(size=(4, 2))
    expected = TAU**2 * coefficients[1:].T @ coefficients[1:]
    ours = top.spread(jnp.asarray(coefficients), TAU**2)
    assert np.asarray(ours) == pytest.approx(expected, rel=DENSE)


@jax.jit
def draw_scatters(keys: jax.Array, degrees: jax.Array, coefficients: jax.Array) -> jax.Array:
    w = jnp.asarray(1.4)
    return jax.vmap(lambda key: top.latent_scatter(key, degrees, coefficients, w, TAU**2))(keys)


@pytest.mark.parametrize("degrees", [0, 1, 2, 3, 50])
def test_scatter_has_its_mean_and_its_rank(degrees: int, key: jax.Array, seed: int) -> None:
    """Wishart(degrees, S): mean degrees S and variances, also with fewer degrees than columns."""
    p, n = 3, 8_000
    coefficients = np.random.default_rng(seed).normal(size=(1 + p, 2))
    _, (covariance,) = dense_latents(np.zeros((1, p)), coefficients, [1.4], np.zeros((1, 2)))

    keys = jax.random.split(key, n)
    scatters = np.asarray(draw_scatters(keys, jnp.asarray(float(degrees)), coefficients))
    if degrees == 0:
        assert np.all(scatters == 0)
        return
    # Var S_ij = degrees (S_ij^2 + S_ii S_jj).
    diagonal = np.diag(covariance)
    variance = degrees * (covariance**2 + np.outer(diagonal, diagonal))
    assert np.abs(scatters.mean(axis=0) - degrees * covariance).max() < 5 * np.sqrt(
        variance.max() / n
    )
    # Kurtosis of a Wishart entry is at most that of chi^2_1, 15: Var(s^2) <= 14 s^4 / n.
    relative = scatters.var(axis=0) / variance - 1
    assert np.abs(relative).max() < 5 * np.sqrt(14 / n)
    rank = np.linalg.matrix_rank(scatters[:200], tol=1e-9, hermitian=True)
    assert np.all(rank == min(degrees, p))
