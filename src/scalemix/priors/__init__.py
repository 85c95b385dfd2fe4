"""Priors on the top layer: `Ridge` (its scale learned, or fixed, or tied to the noise), `Flat`.

`Prior` is the contract: a normal law of the coefficients given scales, and the scales' update.
"""

from scalemix.priors._base import Prior as Prior
from scalemix.priors._base import Scales as Scales
from scalemix.priors.ridge import Flat as Flat
from scalemix.priors.ridge import Ridge as Ridge
