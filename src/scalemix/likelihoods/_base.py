"""The contract of a likelihood: what it gives to the house, and what it may assume."""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from scalemix.quadratic import Quadratic, Sums

Parameters = Any
"""A likelihood's own parameters (a noise variance, ...): a PyTree of arrays, () when it has none."""
Scalar = Float[Array, ""]
Row = Float[Array, " n"]
"""A number a row."""
Rows = Float[Array, "n k"]
"""Targets or predictors."""
Columns = Int[Array, " b"]
"""Predictors of a block."""
Spread = Float[Array, "k k"] | None
"""Covariance that latents leave in the predictors of a row; `None` without latents."""
RandomKey = Key[Array, ""]


class Likelihood(eqx.Module):
    """L(y, eta), with the augmentation that makes it Gaussian in eta.

    Targets `y` and predictors `eta` have shape (n, k); `power` (n,) raises each row's likelihood to
    a power and is never a factor on (w, h): `draw` targets L^power. Methods marked *exact* draw from
    or evaluate the stated law without approximation.
    """

    name: ClassVar[str]
    """The word of the interface."""
    target: ClassVar[str]
    """`"real"`, `"signs"` (-1 and 1) or `"indicators"` (one column a class)."""
    default_intercept_scale: ClassVar[float]
    """Prior standard deviation of an intercept for which the prior names none."""
    allows_latents: ClassVar[bool]
    """Whether the top latents Z have a Gaussian conditional given omega."""
    latents_in_closed_form: ClassVar[bool]
    """Whether E[Z | y] and copies of Z need no omega of their own (a Gaussian likelihood)."""
    allows_flat_prior: ClassVar[bool]
    """Whether the posterior of the top is proper under a flat prior."""

    def blocks(self, n_predictors: int) -> np.ndarray:
        """Columns drawn together, (blocks, columns), in the order in which they are drawn."""
        return np.arange(n_predictors)[None]

    def identified(self, eta: Rows) -> Rows:
        """The part of the predictors that the likelihood sees, for diagnostics."""
        return eta

    @abstractmethod
    def initial(self, dtype: Any) -> Parameters:
        """Parameters to start a chain from."""

    @abstractmethod
    def draw(
        self,
        key: RandomKey,
        parameters: Parameters,
        y: Rows,
        eta: Rows,
        power: Row,
        block: Columns,
    ) -> Quadratic:
        """Draw omega | y, eta under L^power and return its `Quadratic` for the block's columns."""

    @abstractmethod
    def expect(
        self,
        parameters: Parameters,
        y: Rows,
        eta: Rows,
        power: Row,
        block: Columns,
    ) -> Quadratic:
        """The `Quadratic` of EM: the expectation of (w, h) over omega | y, eta."""

    def refresh(
        self,
        key: RandomKey,
        parameters: Parameters,
        y: Rows,
        eta: Rows,
        power: Row,
        extra: Sums,
        prior_power: Scalar,
    ) -> Parameters:
        """Draw the likelihood's own parameters with omega integrated out, prior^prior_power.

        `extra` joins the rows' sums: what copies scatter about their mean, and the coefficients of a
        prior that is tied to the noise.
        """
        return parameters

    def maximise(
        self,
        parameters: Parameters,
        y: Rows,
        eta: Rows,
        power: Row,
        extra: Sums,
        prior_power: Scalar,
    ) -> Parameters:
        """The mode of what `refresh` draws from."""
        return parameters

    def log_prior(self, parameters: Parameters) -> Scalar | float:
        """Log density of the parameters' prior, constants left out."""
        return 0.0

    def noise_variance(self, parameters: Parameters) -> Scalar | float:
        """The variance to which a tied prior is tied; 1 where the likelihood has none."""
        return 1.0

    @abstractmethod
    def log_density(
        self,
        parameters: Parameters,
        y: Rows,
        mean: Rows,
        spread: Spread,
    ) -> Row:
        """Log of E[L(y, eta)], eta ~ N(mean, spread); `spread=None` is L at eta = mean itself.

        `spread` is what the latent Z leaves in the predictor, latent_scale^2 W'W.
        """

    @abstractmethod
    def sample(
        self,
        key: RandomKey,
        parameters: Parameters,
        mean: Rows,
        spread: Spread,
    ) -> Rows:
        """One new observation a row, eta ~ N(mean, spread)."""


class Regression(Likelihood):
    """A likelihood of real targets whose predictive has moments and a distribution function."""

    @abstractmethod
    def moments(
        self,
        parameters: Parameters,
        mean: Rows,
        spread: Spread,
    ) -> tuple[Rows, Rows]:
        """Mean and variance of a new observation, per output."""

    @abstractmethod
    def cumulative(
        self,
        parameters: Parameters,
        y: Rows,
        mean: Rows,
        spread: Spread,
    ) -> Rows:
        """Distribution function of a new observation, per output."""


class Classification(Likelihood):
    """A likelihood of classes."""

    @abstractmethod
    def log_probabilities(
        self,
        parameters: Parameters,
        mean: Rows,
        spread: Spread,
    ) -> Float[Array, "n c"]:
        """Log probability of each class (finite where the class is merely improbable)."""


def sample_predictor(key: RandomKey, mean: Rows, spread: Spread) -> Rows:
    """A draw of N(mean, spread) for likelihoods of one predictor; the mean without latents."""
    if spread is None:
        return mean
    return mean + jnp.sqrt(spread[0, 0]) * jax.random.normal(key, mean.shape, mean.dtype)


def sample_signs(key: RandomKey, log_probabilities: Float[Array, "n 2"]) -> Float[Array, "n 1"]:
    """-1 or 1 a row, with the log probabilities of -1 and 1."""
    uniform = jax.random.uniform(key, log_probabilities.shape[:1], log_probabilities.dtype)
    positive = uniform < jnp.exp(log_probabilities[:, 1])
    return jnp.where(positive, 1.0, -1.0).astype(log_probabilities.dtype)[:, None]
