"""The contract of a body update: how the body moves between two visits of the top."""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple, Protocol

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, Key

Body = Any
"""The body's parameters, a PyTree."""


class LogDensity(Protocol):
    """log p(body) plus the rows' log likelihoods, given the top (or the latents)."""

    def __call__(
        self,
        body: Body,
        rows: Int[Array, " m"],
        weights: Float[Array, " m"],
        key: Key[Array, ""] | None,
    ) -> Float[Array, ""]:
        """Rows enter with the given weights; a key turns dropout on."""
        ...


class Target(NamedTuple):
    """What a body update sees: a function of the body, and how many rows stand behind it."""

    log_density: LogDensity
    n_rows: Int[Array, ""]
    """Real rows; they stand before the padded ones."""
    size: int
    """Rows with the padding."""


class Info(NamedTuple):
    """What one move did."""

    steps: Int[Array, ""]
    """Optimiser or sampler steps taken."""
    accepted: Bool[Array, ""]
    """Whether the body moved."""


class BodyUpdate(eqx.Module):
    """A kernel for the body given the rest of the state."""

    name: ClassVar[str]
    """The word of the interface."""
    samples: ClassVar[bool]
    """Whether the body is sampled in every sweep, or optimised and then left where it is."""

    @abstractmethod
    def initial(self, key: Key[Array, ""], body: Body, target_size: int) -> Any:
        """Memory for the first move."""

    @abstractmethod
    def move(
        self,
        key: Key[Array, ""],
        progress: Float[Array, ""],
        body: Body,
        memory: Any,
        target: Target,
    ) -> tuple[Body, Any, Info]:
        """Move once. `progress` runs from 0 at the first move to 1 after the last one."""
