"""Rows: their batch, their padding, their randomness and the one sum over them."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from scalemix.quadratic import Quadratic, Statistics

BLOCK = 4096
"""Rows that share one key. Randomness belongs to the global block of a row, so that streamed,
sharded and in-memory rows draw the same numbers."""
SIZES = (64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, BLOCK)
"""Padded sizes up to one block; beyond it, whole blocks."""

T = TypeVar("T")


class Batch(NamedTuple):
    """Rows with their powers. A padded row has power 0 and stands behind all others."""

    x: Float[Array, "n p"]
    y: Float[Array, "n k"]
    """Real targets; -1 and 1 for two classes; indicators of the class for more."""
    power: Float[Array, " n"]
    """Each row's likelihood is raised to it: a sample weight, a tempering, 0 for a padded row."""


def padded_size(n: int) -> int:
    """The smallest size of the list that holds n rows."""
    for size in SIZES:
        if n <= size:
            return size
    return -(-n // BLOCK) * BLOCK


def pad(array: np.ndarray, size: int) -> np.ndarray:
    """Append rows of zeros up to `size`."""
    return np.concatenate([array, np.zeros((size - len(array), *array.shape[1:]), array.dtype)])


def padded(batch: Batch) -> Batch:
    """Pad a batch of NumPy arrays with rows of power 0, so that few shapes are ever compiled."""
    size = padded_size(len(batch.power))
    rows: Any = (pad(np.asarray(array), size) for array in batch)
    return Batch(*rows)


def by_block(function: Callable[..., T], key: Key[Array, ""], *arrays: Array) -> T:
    """Apply `function(key, *rows)` with the key of each row's block, results in row order.

    With partitionable random bits the draws of a shorter block are the first of a full one, so a
    batch that is padded differently draws the same numbers for the same rows.
    """
    n = arrays[0].shape[0]
    if n <= BLOCK:
        return function(jax.random.fold_in(key, 0), *arrays)
    if n % BLOCK:
        raise ValueError(f"found {n} rows; more than {BLOCK} come in whole blocks: pad them first")
    keys = jax.vmap(lambda block: jax.random.fold_in(key, block))(jnp.arange(n // BLOCK))
    blocks = [array.reshape(-1, BLOCK, *array.shape[1:]) for array in arrays]
    result = jax.vmap(function)(keys, *blocks)
    return jax.tree.map(lambda leaf: leaf.reshape(n, *leaf.shape[2:]), result)


def summarise(design: Float[Array, "n d"], quadratic: Quadratic) -> Statistics:
    """Sum rows once: P_k = D' diag(w_k) D and h_k = D' h_k, in the precision of the head.

    The sums are float64 where the caller's trace allows it (float32 Gram matrices lose the small
    eigenvalues on which intervals depend).
    """
    head = jax.dtypes.canonicalize_dtype(np.float64)
    design = design.astype(head)
    weighted = design[None, :, :] * quadratic.w.T.astype(head)[:, :, None]
    precision = jnp.einsum("knd,ne->kde", weighted, design)
    return Statistics(precision, quadratic.h.T.astype(head) @ design)
