"""What every test runs under: strict JAX on the CPU, and randomness that belongs to the test."""

import hashlib
import os
from collections.abc import Iterator
from importlib.metadata import version

# Read when JAX is imported, so these stand before it. Commands that a test starts inherit them.
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the same numbers with and without an accelerator
os.environ.setdefault("MPLBACKEND", "agg")  # figures need no screen
# Tests compile hundreds of programs and run each for a moment: half of the usual optimisation
# halves their time. Commands that a test starts for a user's sake run without it.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=1"
    + (" --xla_cpu_use_fusion_emitters=false" if version("jaxlib") < "0.10" else ""),
)

import jax
import numpy as np
import pytest


@pytest.fixture(scope="session", autouse=True)
def strict_jax() -> Iterator[None]:
    """Run the tests under JAX's strict modes, and leave them behind.

    An implicit broadcast of a vector over a matrix raises (it hides shape errors), and so does an
    untyped key. Strict dtype promotion is left out: Optax multiplies floats and step counts. The
    modes are local to this thread, so code that runs in threads of its own is not held to them.
    """
    with jax.numpy_rank_promotion("raise"), jax.legacy_prng_key("error"):
        yield


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fail a test that leaves the process in another state than it found it in."""
    before = global_state()
    yield
    assert global_state() == before, "the test, or the code that it ran, changed global state"


def global_state() -> dict[str, object]:
    """What a careless test or module would change for all that run after it."""
    return {
        "jax_enable_x64": jax.config.jax_enable_x64,
        "jax_default_matmul_precision": jax.config.jax_default_matmul_precision,
        "jax_numpy_dtype_promotion": jax.config.jax_numpy_dtype_promotion,
        "jax_debug_nans": jax.config.jax_debug_nans,
        "np.geterr": np.geterr(),
        "cwd": os.getcwd(),
    }


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed of the test's own, for NumPy and for `random_state`.

    It comes from the test's name, so that adding, removing or reordering tests moves no result.
    31 bits: the same number for a 32-bit signed integer and for any wider one.
    """
    digest = hashlib.sha256(request.node.nodeid.encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


@pytest.fixture
def key(seed: int) -> jax.Array:
    """A random key of the test's own, the same in float32 and in float64."""
    return jax.random.key(seed)


@pytest.fixture
def x64() -> Iterator[None]:
    """Run the test in double precision: `@pytest.mark.usefixtures("x64")` or an argument."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def keys_used_once() -> Iterator[None]:
    """Raise where a key is consumed twice inside the test."""
    with jax.debug_key_reuse(True):
        yield
