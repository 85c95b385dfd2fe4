"""Random draws that JAX does not have: `f(key, *parameters, shape=None)`, keys first.

Each function broadcasts its parameters, works under `jax.jit` and `jax.vmap` in float32 and
float64, and says whether it is exact and what it costs. The draw of element i depends on the key,
on the flat index i and on the element's own parameters only, so a longer array begins with the
draws of a shorter one.

- `polya_gamma`: Polya-Gamma PG(b, z) for every real b >= 0
- `polya_gamma_mean`, `polya_gamma_variance`: its moments, with gradients
- `inverse_gaussian`: inverse Gaussian, Levy's distribution included
- `generalized_inverse_gaussian`: generalized inverse Gaussian with p = 1/2
- `gamma`: Gamma with rate 1, of one array and for few draws: quick to compile
"""

from typing import NoReturn

from scalemix.random._gamma import gamma
from scalemix.random._inverse_gaussian import generalized_inverse_gaussian, inverse_gaussian
from scalemix.random._polya_gamma import polya_gamma, polya_gamma_mean, polya_gamma_variance

__all__ = [
    "gamma",
    "generalized_inverse_gaussian",
    "inverse_gaussian",
    "polya_gamma",
    "polya_gamma_mean",
    "polya_gamma_variance",
]


def __getattr__(name: str) -> NoReturn:
    """Refuse a sampler that does not exist, with the list of those that do."""
    raise AttributeError(f"scalemix.random has no {name!r}; it has {', '.join(__all__)}")
