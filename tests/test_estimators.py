"""The estimators' promised surface: words, shapes, errors, files, equivariance."""

import copy
import inspect
import pickle
import subprocess
import sys
from typing import Any

import jax
import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import scalemix
from scalemix import DeepBayesClassifier, DeepBayesRegressor
from scalemix.priors import Flat, Ridge

# One shape for most tests, so that they share compiled programs. Short chains may drift: said once.
SMALL: dict[str, Any] = {
    "hidden_layer_sizes": (6,), "n_chains": 2, "max_epochs": 10, "n_warmup": 20, "n_draws": 30,
    "thinning": 1, "batch_size": 32, "random_state": 0,
}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def rows(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(n, 3))
    return x, np.sin(x[:, 0]) + 0.5 * x[:, 1] + 0.3 * generator.normal(size=n)


X, Y = rows()
LABELS = np.where(Y > 0, "up", "down")
MANY = np.digitize(Y, [-0.5, 0.5]) * 10


@pytest.fixture(scope="module")
def regressor() -> DeepBayesRegressor:
    return DeepBayesRegressor(**SMALL).fit(X, Y)


@pytest.fixture(scope="module")
def classifier() -> DeepBayesClassifier:
    return DeepBayesClassifier(**SMALL).fit(X, LABELS)


@pytest.fixture
def compilations() -> Any:
    seen: list[str] = []

    def listen(event: str, duration: float, **_: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seen
    jax.monitoring.unregister_event_duration_listener(listen)


# --- words -----------------------------------------------------------------------------------------

DEFAULTS = {
    "hidden_layer_sizes": (24, 24), "activation": "relu", "residual": False, "dropout": 0.0,
    "body_prior_scale": "learn", "likelihood": "auto", "prior": "ridge", "engine": "gibbs",
    "body_update": "auto", "n_chains": 8, "n_warmup": "auto", "n_draws": "auto", "thinning": "auto",
    "copies": 10, "copies_schedule": "geometric", "copies_target": "map", "latent_width": None,
    "latent_scale": 1.0, "noise_scale": None, "standardize": True, "random_state": None, "verbose": 0,
}  # fmt: skip


@pytest.mark.parametrize("kind", [DeepBayesRegressor, DeepBayesClassifier])
def test_parameters_have_the_promised_names_and_defaults(kind: type) -> None:
    parameters = inspect.signature(kind).parameters
    found = {name: parameters[name].default for name in DEFAULTS}
    assert found == DEFAULTS
    for name in (
        "max_epochs",
        "batch_size",
        "learning_rate",
        "early_stopping",
        "validation_fraction",
    ):
        assert name in parameters
    for name in parameters:
        assert f"{name}" in kind.__doc__, f"{name} is not documented"


# --- errors ----------------------------------------------------------------------------------------

BAD_PARAMETERS = [
    ("regression", {"likelihood": "laplace"}, ["'laplace'", "'gaussian'"]),
    ("regression", {"likelihood": "heteroscedastic"}, ["'heteroscedastic'", "'gaussian'"]),
    ("regression", {"likelihood": "logit"}, ["'logit'", "'gaussian'"]),
    ("classes", {"likelihood": "leaky_hinge"}, ["'leaky_hinge'", "'hinge'", "'multinomial'"]),
    ("regression", {"prior": "lasso"}, ["'lasso'", "'ridge'", "'flat'"]),
    ("classes", {"prior": "flat"}, ["'flat'", "'logit'", "improper", "'ridge'"]),
    ("regression", {"engine": "bootstrap"}, ["'bootstrap'", "'gibbs'", "'em'", "'j_copies'"]),
    ("regression", {"body_update": "mclmc"}, ["'mclmc'", "'auto'", "'adam'"]),
    ("regression", {"latent_width": (2, 3)}, ["(2, 3)", "one whole number"]),
    ("regression", {"latent_width": 0}, ["latent_width=0", "at least 1"]),
    ("regression", {"latent_scale": -1.0}, ["latent_scale=-1.0", "at least 0"]),
    ("regression", {"activation": "gelu"}, ["'gelu'", "'relu'", "'tanh'"]),
    ("regression", {"hidden_layer_sizes": (3, 0)}, ["hidden_layer_sizes=0", "at least 1"]),
    ("regression", {"hidden_layer_sizes": "24"}, ["'24'", "tuple"]),
    ("regression", {"hidden_layer_sizes": (3, 4), "residual": True}, ["(3, 4)", "same width"]),
    ("regression", {"body_prior_scale": (1.0, 2.0, 3.0)}, ["body_prior_scale", "1 of them"]),
    ("regression", {"noise_scale": 0.0}, ["noise_scale=0.0", "above 0"]),
    ("classes", {"noise_scale": 0.5}, ["noise_scale=0.5", "'logit'", "'hinge'"]),
    ("regression", {"n_chains": 0}, ["n_chains=0", "at least 1"]),
    ("regression", {"n_draws": 2.5}, ["n_draws=2.5", "whole number", "'auto'"]),
    ("regression", {"n_draws": 5, "thinning": 6}, ["thinning=6", "n_draws=5"]),
    ("regression", {"dropout": 1.0}, ["dropout=1.0", "below 1"]),
    ("regression", {"standardize": "yes"}, ["'yes'", "True or False"]),
    ("regression", {"copies_target": "mode"}, ["'mode'", "'map'", "'mle'"]),
    ("classes", {"temperature": "learn"}, ["'learn'", "expected 1"]),
    ("classes", {"engine": "em", "latent_width": 1}, ["'em'", "'logit'", "closed form"]),
    ("many", {"likelihood": "hinge"}, ["3 classes", "'hinge'", "'multinomial'"]),
    ("many", {"latent_width": 2}, ["'multinomial'", "latent_width=None"]),
]  # fmt: skip


@pytest.mark.parametrize(("task", "options", "fragments"), BAD_PARAMETERS)
def test_bad_parameters_are_refused_by_name(
    compilations: list[str], task: str, options: dict[str, Any], fragments: list[str]
) -> None:
    kind = DeepBayesRegressor if task == "regression" else DeepBayesClassifier
    target = {"regression": Y, "classes": LABELS, "many": MANY}[task]
    with pytest.raises(ValueError) as caught:
        kind(**(SMALL | options)).fit(X, target)
    message = str(caught.value)
    assert "\n" not in message
    for fragment in fragments:
        assert fragment in message, message
    assert not compilations, "refused only after something was compiled"


def with_value(value: float) -> np.ndarray:
    changed = X.copy()
    changed[3, 1] = value
    return changed


BAD_DATA = [
    (with_value(np.nan), Y, None, ["NaN"]),
    (with_value(np.inf), Y, None, ["infinity"]),
    (X, np.where(np.arange(60) == 5, np.nan, Y), None, ["NaN"]),
    (X[:, 0], Y, None, ["2D array"]),
    (X[:1], Y[:1], None, ["1 sample", "minimum of 2"]),
    (X, Y[:-1], None, ["60", "59"]),
    (X, Y, -np.ones(60), ["Negative"]),
    (X, Y, np.zeros(60), ["non-zero number"]),
    (pd.DataFrame({"a": X[:, 0], "town": ["x"] * 60}), Y, None, ["'town'", "not numbers"]),
    (pl.DataFrame({"a": X[:, 0], "town": ["x"] * 60}), Y, None, ["'town'", "not numbers"]),
    (pa.table({"a": X[:, 0], "town": ["x"] * 60}), Y, None, ["'town'", "not numbers"]),
]


@pytest.mark.parametrize(("x", "y", "weights", "fragments"), BAD_DATA)
def test_bad_data_are_refused(
    compilations: list[str], x: Any, y: Any, weights: Any, fragments: list[str]
) -> None:
    with pytest.raises(ValueError) as caught:
        DeepBayesRegressor(**SMALL).fit(x, y, sample_weight=weights)
    for fragment in fragments:
        assert fragment in str(caught.value)
    assert not compilations


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="1 class"):
        DeepBayesClassifier(**SMALL).fit(X, np.ones(60))


def test_values_beyond_float32_are_refused() -> None:
    with pytest.raises(ValueError, match="too large for float32"):
        DeepBayesRegressor(**SMALL, standardize=False).fit(X * 1e300, Y)


def test_no_prediction_is_nan(regressor: DeepBayesRegressor) -> None:
    with pytest.raises(ValueError, match="row 1 has no prediction"):
        regressor.predict(np.array([[0, 0, 0], [2e38, -2e38, 2e38]]))
    diverging = SMALL | {"learning_rate": 1e30, "early_stopping": False}
    with pytest.raises(ValueError, match="the body or its features"):
        DeepBayesRegressor(**diverging).fit(X, Y)


def test_methods_refuse_what_they_cannot_do(
    regressor: DeepBayesRegressor, classifier: DeepBayesClassifier
) -> None:
    with pytest.raises(ValueError, match=r"coverage=1\.5"):
        regressor.predict_interval(X, coverage=1.5)
    with pytest.raises(ValueError, match="alpha"):
        regressor.predict_quantiles(X, [])
    with pytest.raises(ValueError, match="n_samples=0"):
        regressor.sample_y(X, 0)
    with pytest.raises(ValueError, match="59 targets for 60 rows"):
        regressor.log_predictive_density(X, Y[1:])
    with pytest.raises(ValueError, match="'sideways'"):
        classifier.log_predictive_density(X, ["sideways"] * 60)
    with pytest.raises(NotFittedError):
        DeepBayesRegressor().predict_interval(X)


# --- shapes and meanings ---------------------------------------------------------------------------


def test_shapes_and_types(regressor: DeepBayesRegressor) -> None:
    mean, std = regressor.predict(X, return_std=True)
    assert mean.shape == std.shape == (60,)
    assert regressor.predict_interval(X).shape == (60, 2)
    assert regressor.predict_interval(X, [0.5, 0.9]).shape == (60, 2, 2)
    assert regressor.predict_quantiles(X, [0.1, 0.5, 0.9]).shape == (60, 3)
    assert regressor.sample_y(X, 4, random_state=0).shape == (60, 4)
    assert regressor.sample_f(X).shape == (60, 60)
    assert regressor.sample_f(X, 7, random_state=0).shape == (60, 7)
    assert regressor.log_predictive_density(X, Y).shape == (60,)
    arrays = [mean, std, regressor.predict_interval(X), regressor.sample_f(X)]
    assert {array.dtype for array in arrays} == {np.dtype(np.float64)}
    assert all(np.all(np.isfinite(array)) for array in arrays)


def test_predictions_agree_with_each_other(regressor: DeepBayesRegressor) -> None:
    mean, std = regressor.predict(X, return_std=True)
    aleatoric, epistemic = regressor.decompose_variance(X)
    assert_allclose(aleatoric + epistemic, std**2, rtol=1e-6)
    f = regressor.sample_f(X)
    # float32 averages of 60 draws
    assert_allclose(f.mean(axis=1), mean, atol=1e-5)
    assert_allclose(f.var(axis=1), epistemic, rtol=1e-3, atol=1e-8)
    # 4000 samples: five standard errors of a mean are .08 std
    samples = regressor.sample_y(X, 4000, random_state=1)
    assert np.all(np.abs(samples.mean(axis=1) - mean) < 0.08 * std + 5 * np.sqrt(epistemic / 60))
    inner, outer = regressor.predict_interval(X, 0.5), regressor.predict_interval(X, 0.95)
    assert np.all((outer[:, 0] < inner[:, 0]) & (inner[:, 1] < outer[:, 1]))
    # Half of the samples fall inside the 50 % interval: binomial with 240,000 trials, in clusters
    inside = (samples > inner[:, :1]) & (samples < inner[:, 1:])
    assert abs(inside.mean() - 0.5) < 0.02


def test_log_density_is_in_the_units_of_y(regressor: DeepBayesRegressor) -> None:
    # Integrates to 1 over y at one row, by the trapezoid rule on a fine grid.
    mean, std = regressor.predict(X[:1], return_std=True)
    grid = np.linspace(mean[0] - 12 * std[0], mean[0] + 12 * std[0], 4001)
    density = np.exp(regressor.log_predictive_density(np.repeat(X[:1], 4001, axis=0), grid))
    assert_allclose(np.trapezoid(density, grid), 1, atol=1e-4)  # float32 densities


def test_a_row_does_not_see_the_other_rows(regressor: DeepBayesRegressor) -> None:
    many = rows(700, seed=3)[0]
    together = regressor.predict_quantiles(many, [0.1, 0.9])
    alone = np.concatenate(
        [regressor.predict_quantiles(many[i : i + 1], [0.1, 0.9]) for i in (0, 255, 256, 699)]
    )
    assert_allclose(alone, together[[0, 255, 256, 699]], rtol=1e-6, atol=1e-6)


def test_several_outputs() -> None:
    targets = np.column_stack([Y, 100 * X[:, 2] + 3])
    model = DeepBayesRegressor(**SMALL).fit(X, targets)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (60, 2)
    assert model.predict_interval(X).shape == (60, 2, 2)
    assert model.predict_interval(X, [0.5, 0.8, 0.9]).shape == (60, 2, 2, 3)
    assert model.sample_y(X, 5, random_state=0).shape == (60, 2, 5)
    assert model.log_predictive_density(X, targets).shape == (60,)
    assert 20 < std[:, 1].mean() / std[:, 0].mean() < 500, "the second output is in its own units"


def test_classifier_probabilities(classifier: DeepBayesClassifier) -> None:
    probabilities = classifier.predict_proba(X)
    assert_array_equal(classifier.classes_, ["down", "up"])
    assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    assert_allclose(np.exp(classifier.predict_log_proba(X)), probabilities, atol=1e-6)
    decision = classifier.decision_function(X)
    assert_array_equal(
        np.argsort(decision, kind="stable"),
        np.argsort(
            classifier.predict_log_proba(X)[:, 1] - classifier.predict_log_proba(X)[:, 0],
            kind="stable",
        ),
    )
    assert_array_equal(classifier.predict(X), np.where(decision > 0, "up", "down"))
    assert classifier.sample_f(X).shape == (60, 60)
    share = (classifier.sample_y(X, 4000, random_state=0) == "up").mean(axis=1)
    # binomial with 4000 trials: five standard errors
    assert np.all(np.abs(share - probabilities[:, 1]) < 0.05)
    log = classifier.log_predictive_density(X, LABELS)
    assert_allclose(
        np.exp(log), probabilities[np.arange(60), (LABELS == "up").astype(int)], atol=1e-6
    )
    assert classifier.score(X, LABELS) > 0.8


def test_many_classes() -> None:
    model = DeepBayesClassifier(**SMALL).fit(X, MANY)
    assert_array_equal(model.classes_, [0, 10, 20])
    assert model.predict_proba(X).shape == model.decision_function(X).shape == (60, 3)
    assert model.sample_f(X).shape == (60, 3, 60)
    assert set(np.unique(model.sample_y(X, 3, random_state=0))) <= {0, 10, 20}
    assert model.score(X, MANY) > 0.6


@pytest.mark.parametrize("engine", ["em", "j_copies"])
def test_a_mode_has_no_epistemic_variance(engine: str) -> None:
    model = DeepBayesRegressor(**(SMALL | {"engine": engine, "copies": 3})).fit(X, Y)
    aleatoric, epistemic = model.decompose_variance(X)
    _, std = model.predict(X, return_std=True)
    assert_array_equal(epistemic, 0)
    assert_allclose(aleatoric, std**2, rtol=1e-6)
    assert model.diagnostics_["chains"] == 1
    assert model.diagnostics_["engine"] == engine


PAPER = {
    "DA-GR": DeepBayesRegressor(
        hidden_layer_sizes=(6,), likelihood="gaussian", prior="flat", engine="j_copies", copies=3,
        copies_schedule="constant", copies_target="mle", latent_width=1, latent_scale=1.0,
        noise_scale=0.1, body_update="adam", n_chains=1, early_stopping=False, random_state=0),
    "DA-SVM": DeepBayesClassifier(
        hidden_layer_sizes=(6,), likelihood="hinge", prior="ridge", engine="j_copies", copies=3,
        copies_schedule="constant", copies_target="mle", latent_width=1, latent_scale=0.1,
        noise_scale=0.1, body_update="adam", n_chains=1, early_stopping=False, random_state=0),
    "DA-logit": DeepBayesClassifier(
        hidden_layer_sizes=(6,), likelihood="logit", prior=Ridge(scale=100.0), latent_width=1,
        latent_scale=0.0, engine="em", body_update="adam", n_chains=1, early_stopping=False,
        random_state=0),
}  # fmt: skip


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_settings_learn(name: str) -> None:
    model = clone(PAPER[name])
    model.fit(X, Y if name == "DA-GR" else LABELS)
    # Far better than the mean (R^2 of 0) or the majority class (at most .6 here).
    assert model.score(X, Y if name == "DA-GR" else LABELS) > (0.5 if name == "DA-GR" else 0.75)


def test_linear_model_without_a_body() -> None:
    model = DeepBayesRegressor(**(SMALL | {"hidden_layer_sizes": ()})).fit(X, Y)
    assert "exact" in model.diagnostics_["body"]
    # Least squares on standardised inputs, within a few posterior standard deviations (.04).
    fitted = (
        np.column_stack([np.ones(60), X])
        @ np.linalg.lstsq(np.column_stack([np.ones(60), X]), Y, rcond=None)[0]
    )
    assert_allclose(model.predict(X), fitted, atol=0.06)


# --- equivariance ----------------------------------------------------------------------------------


def test_units_do_not_matter(regressor: DeepBayesRegressor) -> None:
    other = DeepBayesRegressor(**SMALL).fit(X * [1, 1e3, 1e-4] + [5, 0, 1], 1000 * Y + 1e5)
    mean, std = regressor.predict(X, return_std=True)
    scaled, scaled_std = other.predict(X * [1, 1e3, 1e-4] + [5, 0, 1], return_std=True)
    # The same numbers after scaling inside, but for float32 rounding that Adam's steps amplify.
    assert_allclose((scaled - 1e5) / 1000, mean, atol=0.02)
    assert_allclose(scaled_std / 1000, std, rtol=0.05)


@pytest.mark.slow
def test_diabetes_is_invariant_to_columns_and_units() -> None:
    x, y = load_diabetes(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(x, y, random_state=0)
    order = np.random.default_rng(0).permutation(x.shape[1])

    def loss(columns: np.ndarray, scale: float, shift: float) -> float:
        losses = []
        for seed in range(5):
            model = DeepBayesRegressor(random_state=seed).fit(
                train_x[:, columns], scale * train_y + shift
            )
            density = model.log_predictive_density(test_x[:, columns], scale * test_y + shift)
            losses.append(-density.mean())
        return float(np.mean(losses))

    plain = loss(np.arange(x.shape[1]), 1.0, 0.0)
    assert abs(loss(order, 1.0, 0.0) - plain) < 0.05
    assert abs(loss(np.arange(x.shape[1]), 1000.0, 1e5) - plain - np.log(1000)) < 0.05


def test_a_seed_fixes_the_numbers(regressor: DeepBayesRegressor) -> None:
    again = DeepBayesRegressor(**SMALL).fit(X, Y)
    assert_array_equal(again.predict(X), regressor.predict(X))
    other = DeepBayesRegressor(**(SMALL | {"random_state": 1})).fit(X, Y)
    assert np.any(other.predict(X) != regressor.predict(X))


def test_a_second_fit_of_the_same_padded_shape_compiles_nothing(
    regressor: DeepBayesRegressor, compilations: list[str]
) -> None:
    regressor.predict(X)
    model = DeepBayesRegressor(**(SMALL | {"learning_rate": 0.02, "n_warmup": 25})).fit(
        X[:50], Y[:50]
    )
    model.predict(X[:7])
    assert not compilations


def test_whole_weights_with_latents_are_repeated_rows() -> None:
    options = SMALL | {"hidden_layer_sizes": (), "latent_width": 1, "early_stopping": False}
    weights = np.tile([1, 2, 0], 20)
    repeated = np.repeat(np.arange(60), weights)
    weighted = DeepBayesRegressor(**options).fit(X, Y, sample_weight=weights)
    plain = DeepBayesRegressor(**options).fit(X[repeated], Y[repeated])
    assert_allclose(weighted.predict(X), plain.predict(X), rtol=1e-5, atol=1e-5)  # float32 moments
    with pytest.raises(ValueError, match="whole weights"):
        DeepBayesRegressor(**options).fit(X, Y, sample_weight=weights + 0.5)


def test_class_weights_are_sample_weights() -> None:
    options = SMALL | {"early_stopping": False}
    by_class = DeepBayesClassifier(**options, class_weight={"up": 2.0, "down": 1.0}).fit(X, LABELS)
    by_row = DeepBayesClassifier(**options).fit(
        X, LABELS, sample_weight=np.where(LABELS == "up", 2.0, 1.0)
    )
    # The only difference is that inputs are standardised under the same weights: none.
    assert_array_equal(by_class.predict_proba(X), by_row.predict_proba(X))


# --- ecosystem -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [pd.DataFrame, pl.DataFrame, lambda x, schema: pa.table(dict(zip(schema, x.T, strict=True)))],
)
def test_frames_are_arrays_with_names(frame: Any, regressor: DeepBayesRegressor) -> None:
    names = ["a", "b", "c"]
    table = frame(X, columns=names) if frame is pd.DataFrame else frame(X, schema=names)
    model = DeepBayesRegressor(**SMALL).fit(table, Y)
    assert_array_equal(model.feature_names_in_, names)
    assert_array_equal(model.predict(table), regressor.predict(X))


def test_pipeline_and_grid_search() -> None:
    search = GridSearchCV(
        make_pipeline(StandardScaler(), DeepBayesRegressor(**SMALL)),
        {"deepbayesregressor__noise_scale": [0.1, 0.5]},
        cv=2,
    )
    search.fit(X, Y)
    assert search.best_estimator_.predict(X).shape == (60,)


def test_copies_predict_the_same(regressor: DeepBayesRegressor, tmp_path: Any) -> None:
    fresh = pickle.loads(pickle.dumps(DeepBayesRegressor(**SMALL).fit(X, Y)))
    expected = regressor.predict(X)
    after = pickle.loads(pickle.dumps(regressor))
    joblib.dump(regressor, tmp_path / "model.joblib")
    for model in (fresh, after, copy.deepcopy(regressor), joblib.load(tmp_path / "model.joblib")):
        assert_array_equal(model.predict(X), expected)
    assert clone(regressor).get_params() == regressor.get_params()


# --- files -----------------------------------------------------------------------------------------

SAVED = {
    "regressor": (DeepBayesRegressor(**SMALL), Y),
    "outputs": (DeepBayesRegressor(**SMALL), np.column_stack([Y, -Y])),
    "linear": (DeepBayesRegressor(**(SMALL | {"hidden_layer_sizes": ()})), Y),
    "flat": (DeepBayesRegressor(**(SMALL | {"prior": Flat(), "engine": "em"})), Y),
    "latents": (DeepBayesRegressor(**(SMALL | {"latent_width": 2})), Y),
    "labels": (DeepBayesClassifier(**SMALL, class_weight={"up": 2.0, "down": 1.0}), LABELS),
    "hinge": (DeepBayesClassifier(**(SMALL | {"likelihood": "hinge", "prior": Ridge(2.0)})), Y > 0),
    "many": (DeepBayesClassifier(**SMALL), MANY),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("outputs", "linear", "flat") else [])
        for name in SAVED
    ],
)
def test_a_loaded_model_predicts_bit_for_bit(name: str, tmp_path: Any) -> None:
    model, target = SAVED[name]
    model = clone(model).fit(X, target)
    model.save(tmp_path / "model.safetensors")
    loaded = scalemix.load(tmp_path / "model.safetensors")
    assert type(loaded) is type(model)
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert_array_equal(
        loaded.log_predictive_density(X, target), model.log_predictive_density(X, target)
    )
    if isinstance(model, DeepBayesClassifier):
        assert loaded.classes_.dtype == model.classes_.dtype
        assert_array_equal(loaded.classes_, model.classes_)
    else:
        assert_array_equal(loaded.predict_interval(X), model.predict_interval(X))
    assert loaded.diagnostics_ == model.diagnostics_
    refitted = loaded.fit(X, target)
    assert_array_equal(refitted.predict(X), model.predict(X))


def test_a_damaged_file_is_refused_in_one_line(
    regressor: DeepBayesRegressor, tmp_path: Any
) -> None:
    path = tmp_path / "model.safetensors"
    regressor.save(path)
    whole = path.read_bytes()
    assert len(whole) < 1_000_000
    generator = np.random.default_rng(0)
    for position in generator.integers(0, len(whole), 40):
        damaged = bytearray(whole)
        damaged[position] ^= 1 + int(generator.integers(0, 255))
        path.write_bytes(bytes(damaged))
        with pytest.raises(ValueError) as caught:
            scalemix.load(path)
        assert "\n" not in str(caught.value)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="cut short"):
        scalemix.load(path)
    with pytest.raises(FileNotFoundError):
        scalemix.load(tmp_path / "nothing")


def test_an_unfitted_model_is_not_saved(tmp_path: Any) -> None:
    with pytest.raises(NotFittedError):
        DeepBayesRegressor().save(tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


# --- trouble is said -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("default::sklearn.exceptions.ConvergenceWarning")
def test_drifting_chains_are_reported() -> None:
    # The body moves while draws are kept, from a random start: halves of the chains must differ.
    options = SMALL | {"n_warmup": 0, "n_draws": 60, "hidden_layer_sizes": (), "noise_scale": 1e-3}
    x, y = rows(60, seed=1)
    with pytest.warns(ConvergenceWarning, match="still drift") as caught:
        slow = options | {"latent_width": 1, "latent_scale": 1.0, "likelihood": "gaussian"}
        DeepBayesRegressor(**slow).fit(x, y)
    assert "raise n_warmup" in str(caught[0].message)


def test_verbose_speaks_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    DeepBayesRegressor(**SMALL, verbose=1).fit(X, Y)
    out, err = capsys.readouterr()
    assert out == ""
    assert "gaussian" in err


def test_a_default_fit_ends() -> None:
    # Stands guard against the deadlock seen in one release of JAX's CPU backend; alone it takes
    # under 10 s.
    code = (
        "import numpy as np; from scalemix import DeepBayesRegressor; "
        "x = np.linspace(-1, 1, 100)[:, None]; print(DeepBayesRegressor(random_state=0)"
        ".fit(x, np.sin(x[:, 0])).predict(x[:1]).shape)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=240
    )
    assert done.stdout.strip() == "(1,)", done.stderr
