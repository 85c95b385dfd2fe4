"""Estimators from one file."""

from os import PathLike
from typing import Any

import jax
import numpy as np

from scalemix import files
from scalemix.data import Scaling
from scalemix.estimators import _settings
from scalemix.estimators._classifier import DeepBayesClassifier
from scalemix.estimators._regressor import DeepBayesRegressor
from scalemix.fit import Draw
from scalemix.posterior import Posterior
from scalemix.priors import Flat, Ridge

ESTIMATORS = {kind.__name__: kind for kind in (DeepBayesRegressor, DeepBayesClassifier)}
PRIORS = {"ridge": Ridge, "flat": Flat}


def load(path: str | PathLike[str]) -> Any:
    """Read a model that `save` wrote: the same predictions, bit for bit. Executes no code.

    Parameters
    ----------
    path
        Of the file.

    Returns
    -------
    The fitted estimator.

    Raises
    ------
    ValueError
        In one line, when the file is cut short, altered, of a newer version, or no scalemix model.
    """
    arrays, header = files.read(path)
    try:
        return _restored(arrays, header)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(
            f"{str(path)!r} is a scalemix file but holds no model ({error!r}); expected one that "
            "save() wrote"
        ) from error


def _restored(arrays: dict[str, np.ndarray], header: dict[str, Any]) -> Any:
    parameters = {name: _revived(value) for name, value in header["parameters"].items()}
    estimator = ESTIMATORS[header["estimator"]](**parameters)
    estimator.n_features_in_ = header["n_features_in"]
    if header["feature_names_in"]:
        estimator.feature_names_in_ = np.array(header["feature_names_in"], dtype=object)
    estimator.diagnostics_ = header["diagnostics"]
    estimator._scaling_x = Scaling(arrays["scaling_x/mean"], arrays["scaling_x/scale"])
    estimator._set_own_state(arrays, header)
    likelihood = _settings.likelihood(header["likelihood"], estimator.noise_scale)
    model = _settings.model(estimator.get_params(deep=False), likelihood, estimator.standardize)
    leaves = [arrays[name] for name in sorted(arrays) if name.startswith("draws/")]
    widths = model.body.widths(1)
    body: Any = [(0, 0)] * (len(widths) - 1)
    coefficients: Any = 0
    skeleton = Draw(body, coefficients, likelihood.initial(np.float32))
    draws = jax.tree.unflatten(jax.tree.structure(skeleton), leaves)
    estimator._posterior = Posterior(model, draws)
    return estimator


def _revived(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict) and "pairs" in value:
        return {key: weight for key, weight in value["pairs"]}
    if isinstance(value, dict):
        options = dict(value)
        return PRIORS[options.pop("prior")](**options)
    return value
