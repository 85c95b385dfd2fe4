"""Estimators to one file."""

from os import PathLike
from typing import Any

import jax
import numpy as np

from scalemix import files
from scalemix.priors import Flat, Ridge


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
