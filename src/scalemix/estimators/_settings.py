"""From parameters and sizes to an engine and a schedule."""

from typing import Any, NamedTuple

import numpy as np

from scalemix.bodies import MLP
from scalemix.body_updates import Adam
from scalemix.engines import EM, Engine, Gibbs, Model
from scalemix.estimators import _options as options
from scalemix.fit import Schedule
from scalemix.likelihoods import Gaussian, Hinge, Likelihood, Logit, Multinomial
from scalemix.priors import Flat, Prior, Ridge

LIKELIHOODS: dict[str, type[Likelihood]] = {
    kind.name: kind for kind in (Gaussian, Logit, Hinge, Multinomial)
}
SETTLING = 50
"""Sweeps of the warm-up after the body's last move."""
KEPT = 70
"""Draws kept of a chain by default."""
THINNING, MOST_THINNING = 5, 40
"""Sweeps that make one kept draw by default. Where omega is drawn the chains mix more slowly, so they
are thinned more, as far as `OMEGAS` allows."""
OMEGAS = 2e7
"""Draws of omega that a fit may cost before the thinning is lowered (about 2 s)."""
ANNEALED = 2 / 3
"""The share of a `j_copies` run in which J rises; the rest is kept."""
STEPS_AN_EPOCH = 16
"""`batch_size="auto"` makes about this many steps an epoch, of 16 to 1024 rows."""


class Settings(NamedTuple):
    """What the driver is given."""

    engine: Engine
    schedule: Schedule


def likelihood(name: str, noise_scale: float | None) -> Likelihood:
    """The likelihood of a word; refuses a noise scale where it has none."""
    kind = LIKELIHOODS[name]
    if noise_scale is None:
        return kind()
    if kind in (Gaussian, Hinge):
        return kind(noise_scale=float(noise_scale))
    raise ValueError(
        f"found noise_scale={noise_scale!r} with likelihood {name!r}, which has no noise scale; "
        "use noise_scale=None, or likelihood 'gaussian' (regression) or 'hinge' (two classes)"
    )


def prior(value: str | Prior, default_intercept_scale: float) -> Prior:
    """The prior of a word, or the object itself, with its intercept's scale settled."""
    chosen = {"ridge": Ridge, "flat": Flat}[value]() if isinstance(value, str) else value
    if isinstance(chosen, Ridge):
        return chosen.with_intercept_scale(default_intercept_scale)
    return chosen


def model(given: dict[str, Any], chosen: Likelihood, standardised: bool) -> Model:
    """The model of an estimator's parameters."""
    width = given["latent_width"]
    hidden = options.widths(given["hidden_layer_sizes"])
    body = MLP(hidden, given["activation"], given["residual"], float(given["dropout"]), width)
    n_layers = len(hidden) + (width is not None)
    scales: Any = options.body_scales(given["body_prior_scale"], n_layers)
    latent_scale = (
        given["latent_scale"] if width is not None and given["latent_scale"] > 0 else None
    )
    # A real target that is not standardised can be anywhere; so can log-odds.
    intercept = chosen.default_intercept_scale
    if chosen.target == "real" and not standardised:
        intercept = 10.0
    return Model(chosen, prior(given["prior"], intercept), body, scales, latent_scale)


def settle(given: dict[str, Any], fitted: Model, n_rows: int, k: int) -> Settings:
    """Engine and schedule for n rows and k predictors."""
    update = Adam(
        learning_rate=float(given["learning_rate"]),
        batch_size=_batch_size(given["batch_size"], n_rows),
        validation_fraction=float(given["validation_fraction"])
        if given["early_stopping"]
        else None,
    )
    epochs = int(given["max_epochs"])
    if given["engine"] == "em":
        return Settings(EM(fitted, update), Schedule(epochs - 1, 1, 1, epochs))
    if given["engine"] == "j_copies":
        annealing = int(np.ceil(ANNEALED * epochs))
        engine = Gibbs(
            fitted,
            update,
            int(given["copies"]),
            given["copies_schedule"],
            given["copies_target"],
            annealing,
        )
        kept = max(epochs - annealing, 1)
        return Settings(engine, Schedule(epochs - kept, kept, 1, epochs))
    return Settings(Gibbs(fitted, update), _sampling_schedule(given, fitted, n_rows * k))


def _batch_size(value: int | str, n_rows: int) -> int:
    if value != "auto":
        return int(value)
    # Powers of two, so that successive fits share a compiled program.
    return int(np.clip(2 ** np.floor(np.log2(max(n_rows, 1) / STEPS_AN_EPOCH)), 16, 1024))


def _sampling_schedule(given: dict[str, Any], fitted: Model, n_omegas: int) -> Schedule:
    """The body moves once a sweep for `max_epochs` sweeps of the warm-up, then it stays."""
    has_body = bool(fitted.body.hidden_layer_sizes) or fitted.body.output is not None
    moves = int(given["max_epochs"]) if has_body else 0
    warmup = given["n_warmup"]
    warmup = moves + SETTLING if warmup == "auto" else int(warmup)
    thinning = THINNING
    if fitted.likelihood.name != "gaussian":
        affordable = OMEGAS / (KEPT * int(given["n_chains"]) * n_omegas)
        thinning = int(np.clip(affordable, THINNING, MOST_THINNING))
    if given["thinning"] != "auto":
        thinning = int(given["thinning"])
    draws = KEPT * thinning if given["n_draws"] == "auto" else int(given["n_draws"])
    if given["thinning"] == "auto":
        thinning = min(thinning, draws)
    if thinning > draws:
        raise ValueError(
            f"found thinning={thinning} with n_draws={draws}; no draw would be kept: give a thinning "
            "of at most n_draws"
        )
    return Schedule(warmup, draws // thinning, thinning, min(moves, warmup))
