"""scikit-learn estimators: `DeepBayesRegressor`, `DeepBayesClassifier`, and `load`."""

from scalemix.estimators._classifier import DeepBayesClassifier as DeepBayesClassifier
from scalemix.estimators._loading import load as load
from scalemix.estimators._regressor import DeepBayesRegressor as DeepBayesRegressor
