"""What both estimators share: validation, the run, diagnostics, chunks of predictions.

No mathematics lives here: rows go to the driver, draws to `posterior`.
"""

import sys
import warnings
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from scalemix import fit, posterior
from scalemix.data import Scaling, refuse_text_columns
from scalemix.engines import Model
from scalemix.estimators import _diagnostics, _options, _saving, _settings
from scalemix.rows import Batch, padded

Floats = NDArray[np.float64]


class DeepBayes(BaseEstimator):
    """The part of an estimator that knows no kind of target."""

    _posterior: posterior.Posterior
    _scaling_x: Scaling
    n_features_in_: int
    diagnostics_: dict[str, Any]

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to one file, atomically; `scalemix.load` reads it.

        The file holds arrays and a JSON header, no code: every parameter, the kept draws, scalings,
        feature names, classes and diagnostics. A `random_state` that is no integer is not kept.

        Parameters
        ----------
        path
            Where to write; an existing file is replaced whole.
        """
        check_is_fitted(self)
        _saving.save(self, path)

    def _features(self, X: ArrayLike, reset: bool) -> Floats:
        refuse_text_columns(X)
        return validate_data(self, X, reset=reset, dtype=np.float64)

    def _rows(self, X: ArrayLike) -> NDArray[np.float32]:
        """New rows in the units of the fit; refuses what float32 cannot hold."""
        check_is_fitted(self)
        return _single(self._scaling_x.forward(self._features(X, reset=False)), "X")

    def _weights(self, sample_weight: ArrayLike | None, x: Floats) -> Floats:
        weights = _check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True)
        # Newer versions of scikit-learn have said so already.
        if not np.any(weights):
            raise ValueError("found sample weights that are all 0; expected a non-zero number")
        return weights

    def _run(self, model: Model, x: Floats, y: Floats, weights: Floats) -> None:
        """Run the chains on rows in the units of the fit and keep what prediction needs."""
        x, y, weights = _without_fractions(model, x, y, weights)
        settings = _settings.settle(self.get_params(deep=False), model, len(x), y.shape[1])
        rows: Any = (_single(x, "X"), _single(y, "y"), _single(weights, "sample_weight"))
        batch = padded(Batch(*rows))
        random = check_random_state(self.random_state)
        seeds = random.randint(0, 2**32, size=(self.n_chains, 2), dtype=np.uint32)
        with _Progress(int(self.verbose)) as progress:
            progress.say(_choices(settings.engine))
            running = fit.begin(seeds)
            fitted = fit.run(settings.engine, running, batch, settings.schedule, progress.update)
        kept = _diagnostics.chosen_chains(settings.engine, fitted)
        draws = _diagnostics.of_chains(fitted.draws, kept)
        self._posterior = posterior.Posterior(model, draws)
        self.diagnostics_ = _diagnostics.summary(settings.engine, fitted, kept)
        for message in _diagnostics.warnings(self.diagnostics_):
            warnings.warn(message, ConvergenceWarning, stacklevel=3)

    def __sklearn_is_fitted__(self) -> bool:
        """Whether `fit` or `load` has been here."""
        return hasattr(self, "_posterior")


def scaling(columns: Floats, weights: Floats, wanted: bool) -> Scaling:
    """The standardisation of columns, or none."""
    return Scaling.of(columns, weights) if wanted else Scaling.identity(columns.shape[1])


def _single(values: Floats, name: str) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    if not np.all(np.isfinite(single)):
        raise ValueError(
            f"found values in {name} that are too large for float32; expected magnitudes below 3e38: "
            "rescale them, or use standardize=True"
        )
    return single


def _without_fractions(
    model: Model, x: Floats, y: Floats, weights: Floats
) -> tuple[Floats, Floats, Floats]:
    """Drop rows of weight 0; with latents, repeat rows by their whole weights.

    A latent belongs to a row: two equal rows have two of them, and a power on the row's likelihood
    is another model. So whole weights become repeated rows, and others are refused.
    """
    if model.has_latents:
        if np.any(weights != np.round(weights)):
            raise ValueError(
                "found sample_weight with fractions and latent_scale > 0; a row's latent has no "
                "fractional power: use whole weights, latent_width=None or latent_scale=0"
            )
        index = np.repeat(np.arange(len(x)), weights.astype(int))
        return x[index], y[index], np.ones(len(index))
    used = weights > 0
    return x[used], y[used], weights[used]


def _choices(engine: Any) -> str:
    model = engine.model
    return f"likelihood {model.likelihood.name}, engine {engine.name}, body update adam"


class _Progress:
    """Progress on standard error, at `verbose` of 1 or more; a bar where it is a terminal."""

    def __init__(self, verbose: int) -> None:
        self.verbose = verbose
        self.bar: Any = None
        self.tasks: dict[str, Any] = {}

    def __enter__(self) -> Self:
        if self.verbose:
            from rich.console import Console
            from rich.progress import Progress

            self.bar = Progress(console=Console(file=sys.stderr), transient=True)
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def say(self, message: str) -> None:
        """One line."""
        if self.bar is not None:
            self.bar.console.print(message)

    def update(self, phase: str, done: int, total: int) -> None:
        """How far a phase is."""
        if self.bar is None:
            return
        if phase not in self.tasks:
            self.tasks[phase] = self.bar.add_task(phase, total=total)
        self.bar.update(self.tasks[phase], completed=done)


def check_alpha(name: str, values: ArrayLike) -> Floats:
    """Probabilities strictly between 0 and 1, at least one."""
    levels = np.atleast_1d(np.asarray(values, float))
    if levels.ndim != 1 or levels.size == 0 or not np.all((levels > 0) & (levels < 1)):
        raise ValueError(f"found {name}={values!r}; expected numbers above 0 and below 1")
    return levels


def count(name: str, value: Any) -> int:
    """A whole number of at least 1."""
    _options.whole(name, value, 1)
    return int(value)
