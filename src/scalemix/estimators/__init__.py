"""scikit-learn estimators: `DeepBayesRegressor`, `DeepBayesClassifier`, and `load`."""

from scalemix.estimators._classifier import DeepBayesClassifier as DeepBayesClassifier
from scalemix.estimators._regressor import DeepBayesRegressor as DeepBayesRegressor
from scalemix.estimators._saving import load as load
