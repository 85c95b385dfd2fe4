"""Estimators to one file and back."""

from os import PathLike
from typing import Any

import jax
import numpy as np

import scalemix.estimators as estimators
from scalemix import files
from scalemix.data import Scaling
from scalemix.estimators import _settings
from scalemix.fit import Draw
from scalemix.posterior import Posterior
from scalemix.priors import Flat, Ridge

PRIORS = {"ridge": Ridge, "flat": Flat}


def save(estimator: Any, path: str | PathLike[str]) -> None:
    """Write a fitted estimator."""
    arrays = {f"draws/{index:03d}": leaf for index, leaf in enumerate(_leaves(estimator))}
    arrays |= {
        "scaling_x/mean": estimator._scaling_x.mean,
        "scaling_x/scale": estimator._scaling_x.scale,
    }
    header = {
        "estimator": type(estimator).__name__,
        "parameters": {
            name: _plain(name, value) for name, value in estimator.get_params(deep=False).items()
        },
        "likelihood": estimator._posterior.model.likelihood.name,
        "n_features_in": int(estimator.n_features_in_),
        "feature_names_in": [str(name) for name in getattr(estimator, "feature_names_in_", [])],
        "diagnostics": estimator.diagnostics_,
    }
    own_arrays, own_header = estimator._own_state()
    files.write(path, arrays | own_arrays, header | own_header)


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
    kinds = {"DeepBayesRegressor": estimators.DeepBayesRegressor,
             "DeepBayesClassifier": estimators.DeepBayesClassifier}  # fmt: skip
    parameters = {name: _revived(value) for name, value in header["parameters"].items()}
    estimator = kinds[header["estimator"]](**parameters)
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


def _leaves(estimator: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(estimator._posterior.draws)]


def _plain(name: str, value: Any) -> Any:
    """A parameter as JSON; a random state that is no integer is left out."""
    if isinstance(value, Ridge):
        scale = "learn" if value.scale is None else value.scale
        return {"prior": "ridge", "scale": scale, "tied_to_noise": value.tied_to_noise,
                "intercept_scale": value.intercept_scale}  # fmt: skip
    if isinstance(value, Flat):
        return {"prior": "flat"}
    if name == "random_state" and not isinstance(value, int | np.integer | None):
        return None
    if name == "class_weight" and isinstance(value, dict):
        # Labels need not be strings, so a dictionary becomes pairs.
        return {"pairs": [[_plain("", key), float(weight)] for key, weight in value.items()]}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list | np.ndarray):
        return [_plain("", item) for item in value]
    return value


def _revived(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict) and "pairs" in value:
        return {key: weight for key, weight in value["pairs"]}
    if isinstance(value, dict):
        options = dict(value)
        return PRIORS[options.pop("prior")](**options)
    return value
