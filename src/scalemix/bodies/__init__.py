"""Bodies: the trunk as (parameters, x) -> features, with its prior. `MLP`, plain or residual."""

from scalemix.bodies._mlp import ACTIVATIONS as ACTIVATIONS
from scalemix.bodies._mlp import MLP as MLP
from scalemix.bodies._mlp import Parameters as Parameters
