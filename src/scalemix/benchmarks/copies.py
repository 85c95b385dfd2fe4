"""What J copies cost: seconds of an epoch at J = 1 and J = 10, side by side in one run.

    python -m scalemix.benchmarks.copies

An epoch is one sweep of `Gibbs` whose body makes one pass over the rows by Adam. Copies are a power
of the likelihood where that has the same law (no latents; with latents for a Gaussian likelihood,
by the latents' mean and scatter) and then cost next to nothing; otherwise each copy's latents are
kept and drawn, and cost what ten draws of every row cost.

Programs are compiled first. Then J = 1 and J = 10 take turns, so that whatever else the machine
does meets both, and medians over the turns are printed.
"""

import statistics
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from scalemix import fit
from scalemix.bodies import MLP
from scalemix.body_updates import Adam
from scalemix.engines import Gibbs, Model
from scalemix.likelihoods import Gaussian, Hinge, Likelihood, Logit, Multinomial
from scalemix.priors import Ridge
from scalemix.rows import Batch, padded

__all__ = ["COLUMNS", "Timing", "lines", "main", "measure", "settings"]

COPIES = 10
ROWS, INPUTS, CLASSES = 4096, 20, 5
"""One full block of rows, so that none is padding."""
WIDTH, BATCH_SIZE = 64, 256
"""The paper's body, and the estimators' batch for so many rows."""
LATENT_SCALE = 0.1
TURNS = 9
"""Repetitions of each program, in turns."""
SECONDS_A_TURN = 0.3
"""Enough epochs are put into one repetition that it takes about this long at J = 1."""
FOREVER = 1_000_000
"""Moves of the body, which so never ends to move and keeps its learning rate."""
COLUMNS = ("head", "tau_z", "seconds, J = 1", f"seconds, J = {COPIES}", "ratio")


class Timing(NamedTuple):
    """Median seconds of an epoch."""

    head: str
    latent_scale: float
    one: float
    many: float

    @property
    def ratio(self) -> float:
        """What the copies multiply the time by."""
        return self.many / self.one


def rows(likelihood: Likelihood, n: int, generator: np.random.Generator) -> Batch:
    """Rows of a smooth function with noise, in the form of the likelihood's targets."""
    x = generator.standard_normal((n, INPUTS)).astype(np.float32)
    width = CLASSES if likelihood.target == "indicators" else 1
    score = np.sin(x[:, :width]) + x[:, width : 2 * width] + generator.standard_normal((n, width))
    targets = {
        "real": score,
        "signs": np.where(score > 0, 1, -1),
        "indicators": score == score.max(axis=1, keepdims=True),
    }
    arrays: tuple[Any, ...] = (
        x,
        targets[likelihood.target].astype(np.float32),
        np.ones_like(x[:, 0]),
    )
    return padded(Batch(*arrays))


def settings() -> Iterator[tuple[Likelihood, float]]:
    """Every head and latent scale that is measured."""
    for scale in (0.0, LATENT_SCALE):
        for likelihood in (Gaussian(), Hinge(), Logit(), Multinomial()):
            if scale == 0 or likelihood.allows_latents:
                yield likelihood, scale


class _Chain:
    """One chain that can be run for some epochs at a time, always by the same program."""

    def __init__(self, likelihood: Likelihood, scale: float, copies: int, batch: Batch) -> None:
        body = MLP((WIDTH,), output=1 if scale > 0 else None)
        prior = Ridge(intercept_scale=likelihood.default_intercept_scale)
        model = Model(likelihood, prior, body, None, scale if scale > 0 else None)
        self.engine = Gibbs(model, Adam(batch_size=BATCH_SIZE), copies=copies)
        self.batch = jax.device_put(batch)
        self.running = fit.begin(np.array([[0, copies]], np.uint32))

    def seconds(self, epochs: int) -> float:
        """Seconds of an epoch, over so many."""
        schedule = fit.Schedule(0, 1, epochs, FOREVER)
        start = time.perf_counter()
        self.running = fit.run(self.engine, self.running, self.batch, schedule).running
        jax.block_until_ready(self.running.state)
        return (time.perf_counter() - start) / epochs


def measure(likelihood: Likelihood, scale: float, n: int = ROWS, turns: int = TURNS) -> Timing:
    """Compile both programs, then let them take turns."""
    batch = rows(likelihood, n, np.random.default_rng(0))
    chains = [_Chain(likelihood, scale, copies, batch) for copies in (1, COPIES)]
    for chain in chains:
        chain.seconds(1)
    epochs = max(1, round(SECONDS_A_TURN / min(chains[0].seconds(1) for _ in range(3))))
    measured = [[chain.seconds(epochs) for chain in chains] for _ in range(turns)]
    one, many = (statistics.median(column) for column in zip(*measured, strict=True))
    return Timing(likelihood.name, scale, one, many)


def lines(timings: Iterable[Timing]) -> Iterator[str]:
    """The table as text, each line as soon as it is measured."""
    yield "{:<12} {:>6} {:>15} {:>16} {:>7}".format(*COLUMNS)
    for timing in timings:
        yield (
            f"{timing.head:<12} {timing.latent_scale:>6.1f} {timing.one:>15.5f} "
            f"{timing.many:>16.5f} {timing.ratio:>7.2f}"
        )


def main() -> None:
    """Print the table."""
    print(
        f"{ROWS} rows of {INPUTS} inputs, body ({WIDTH},), Adam on minibatches of {BATCH_SIZE}, "
        f"one chain; medians of {TURNS} turns\n"
    )
    for line in lines(measure(*setting) for setting in settings()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
