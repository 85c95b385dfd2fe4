"""The deep body: a multi-layer perceptron, plain or residual, in unit-weight coordinates."""

from collections.abc import Callable
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

Parameters = list[tuple[Float[Array, "fan_in width"], Float[Array, " width"]]]
"""Weights and biases of each layer."""

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "identity": lambda t: t,
    "logistic": jax.nn.sigmoid,
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
}


class MLP(eqx.Module):
    """Row-wise features f(x), of the last hidden layer or of a linear map of it to `output`.

    Layer l is act(theta_l f / sqrt(fan_l) + b_l), fan_l its number of inputs: with theta of unit
    variance every layer keeps the size of its signal, whatever its width. A weight in the usual
    coordinates is theta / sqrt(fan). No activation follows the linear map to `output`.

    `hidden_layer_sizes=()` without `output` is the identity: features are the inputs.
    """

    hidden_layer_sizes: tuple[int, ...] = eqx.field(static=True)
    activation: str = eqx.field(static=True, default="relu")
    residual: bool = eqx.field(static=True, default=False)
    """Add each hidden layer's input to its output, from the second hidden layer on."""
    dropout: float = eqx.field(static=True, default=0.0)
    output: int | None = eqx.field(static=True, default=None)
    """Width of a last linear map; `None`: features are the last hidden layer."""

    def __check_init__(self) -> None:
        """Refuse a residual body whose layers cannot be added."""
        if self.residual and len(set(self.hidden_layer_sizes)) > 1:
            raise ValueError(
                f"found residual=True with hidden_layer_sizes={self.hidden_layer_sizes}; a residual "
                "body adds a layer's input to its output: give every layer the same width"
            )

    def widths(self, n_inputs: int) -> tuple[int, ...]:
        """Numbers of units from the inputs to the features."""
        last = () if self.output is None else (self.output,)
        return (n_inputs, *self.hidden_layer_sizes, *last)

    def n_features(self, n_inputs: int) -> int:
        """Width of what feeds the top layer."""
        return self.widths(n_inputs)[-1]

    def initial(self, key: Key[Array, ""], n_inputs: int, dtype: jnp.dtype) -> Parameters:
        """An optimiser's start: theta ~ N(0, 2) (He et al. 2015) before a ReLU, else N(0, 1); b = 0."""
        gain = jnp.sqrt(jnp.asarray(2.0 if self.activation == "relu" else 1.0, dtype))
        widths = self.widths(n_inputs)
        shapes = list(pairwise(widths))
        ends = np.cumsum([rows * columns for rows, columns in shapes])
        normals = jnp.split(
            jax.random.normal(key, (int(ends[-1]) if shapes else 0,), dtype), ends[:-1]
        )
        return [
            (gain * theta.reshape(shape), jnp.zeros(shape[1:], dtype))
            for theta, shape in zip(normals, shapes, strict=bool(shapes))
        ]

    def __call__(
        self, parameters: Parameters, x: Float[Array, "n p"], key: Key[Array, ""] | None = None
    ) -> Float[Array, "n f"]:
        """Features of rows. With a key, hidden units are dropped (training only)."""
        features = x
        for index, (theta, bias) in enumerate(parameters):
            into = features @ theta / jnp.sqrt(jnp.asarray(theta.shape[0], x.dtype)) + bias[None]
            if index == len(self.hidden_layer_sizes):
                return into
            out = ACTIVATIONS[self.activation](into)
            features = features + out if self.residual and index > 0 else out
            if key is not None and self.dropout > 0:
                features = self._dropped(jax.random.fold_in(key, index), features)
        return features

    def _dropped(self, key: Key[Array, ""], features: Array) -> Array:
        keep = jax.random.bernoulli(key, 1 - self.dropout, features.shape)
        return jnp.where(keep, features / (1 - self.dropout), 0).astype(features.dtype)

    def log_prior(
        self, parameters: Parameters, scales: Float[Array, " layers"] | None
    ) -> Float[Array, ""] | float:
        """Log prior, constants left out: theta_l, b_l ~ N(0, s_l^2).

        In the usual coordinates a weight has standard deviation s_l / sqrt(fan_l), a bias s_l.
        `scales` holds s_l; `None` is s_l^2 = fan_l: weights of unit variance.
        """
        total: Array | float = 0.0
        for index, (theta, bias) in enumerate(parameters):
            variance = theta.shape[0] if scales is None else scales[index] ** 2
            total = total - 0.5 * (jnp.sum(theta**2) + jnp.sum(bias**2)) / variance
        return total
