"""Likelihoods: each one file, each a `draw`, an `expect`, a `refresh` and a density.

`Gaussian` (real targets, several outputs), `Logit` and `Hinge` (two classes), `Multinomial` (any
number of classes); `Likelihood`, `Regression` and `Classification` are the contract.
"""

from scalemix.likelihoods._base import Classification as Classification
from scalemix.likelihoods._base import Likelihood as Likelihood
from scalemix.likelihoods._base import Parameters as Parameters
from scalemix.likelihoods._base import Regression as Regression
from scalemix.likelihoods.gaussian import Gaussian as Gaussian
from scalemix.likelihoods.hinge import Hinge as Hinge
from scalemix.likelihoods.logit import Logit as Logit
from scalemix.likelihoods.multinomial import Multinomial as Multinomial
