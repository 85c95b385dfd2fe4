"""Bayesian deep learning by scale mixtures of normals.

`DeepBayesRegressor` and `DeepBayesClassifier` are scikit-learn estimators; `load` reads a saved one.
The functional core is public too: `scalemix.random`, `likelihoods`, `priors`, `engines`, `metrics`,
`diagnostics`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scalemix.estimators import DeepBayesClassifier as DeepBayesClassifier
    from scalemix.estimators import DeepBayesRegressor as DeepBayesRegressor
    from scalemix.estimators import load as load

__version__ = "0.1.0.dev0"
__all__ = ["DeepBayesClassifier", "DeepBayesRegressor", "load"]


def __getattr__(name: str) -> Any:
    """Import the estimators when they are first asked for: the command line starts without JAX."""
    if name in __all__:
        return getattr(import_module("scalemix.estimators"), name)
    raise AttributeError(f"module 'scalemix' has no attribute {name!r}")


def __dir__() -> list[str]:
    """With the names that are imported late."""
    return sorted([*globals(), *__all__])
