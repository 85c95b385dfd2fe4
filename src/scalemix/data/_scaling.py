"""Standardisation: columns to mean 0 and standard deviation 1, and back."""

from typing import NamedTuple

import numpy as np


class Scaling(NamedTuple):
    """x -> (x - mean) / scale, per column; computed in float64 before any rounding to float32."""

    mean: np.ndarray
    scale: np.ndarray
    """Standard deviation; 1 for a column that does not vary."""

    @classmethod
    def of(cls, columns: np.ndarray, weights: np.ndarray) -> "Scaling":
        """Weighted moments of (n, p) columns: a weight of 2 is a repeated row."""
        mean = np.average(columns, axis=0, weights=weights)
        deviation = np.sqrt(np.average((columns - mean) ** 2, axis=0, weights=weights))
        # A constant column leaves only rounding errors of its mean.
        varies = deviation > 10 * np.finfo(np.float64).eps * np.abs(mean)
        return cls(mean, np.where(varies, deviation, 1.0))

    @classmethod
    def identity(cls, width: int) -> "Scaling":
        """Leave columns as they are."""
        return cls(np.zeros(width), np.ones(width))

    def forward(self, columns: np.ndarray) -> np.ndarray:
        """To standard units."""
        return (columns - self.mean) / self.scale

    def backward(self, columns: np.ndarray) -> np.ndarray:
        """To the units of the data; the last axis is the column."""
        return columns * self.scale + self.mean
