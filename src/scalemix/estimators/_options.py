"""The words of the interface, and what each parameter may be. Refusals name what exists."""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from scalemix.bodies import ACTIVATIONS
from scalemix.engines import SCHEDULES, TARGETS
from scalemix.priors import Prior

REGRESSION_LIKELIHOODS = ("auto", "gaussian")
CLASSIFICATION_LIKELIHOODS = ("auto", "logit", "hinge", "multinomial")
PRIORS = ("ridge", "flat")
ENGINES = ("gibbs", "em", "j_copies")
BODY_UPDATES = ("auto", "adam")


def _refuse(name: str, found: Any, expected: str) -> None:
    raise ValueError(f"found {name}={found!r}; expected {expected}")


def one_of(name: str, value: Any, words: Sequence[str]) -> None:
    """A word of a list."""
    if not isinstance(value, str) or value not in words:
        _refuse(name, value, "one of " + ", ".join(repr(word) for word in words))


def whole(name: str, value: Any, least: int, *words: Any) -> None:
    """A whole number of at least `least`, or one of the words."""
    if any(value is word or value == word for word in words if isinstance(value, type(word))):
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        allowed = "".join(f", or {word!r}" for word in words)
        _refuse(name, value, f"a whole number of at least {least}{allowed}")


def real(
    name: str,
    value: Any,
    above: float,
    below: float = float("inf"),
    closed: bool = False,
    none: bool = False,
) -> None:
    """A finite number in an open interval; `closed` admits its lower end, `none` admits None."""
    if none and value is None:
        return
    good = isinstance(value, Real) and not isinstance(value, bool) and value < below
    if not good or not (value > above or (closed and value == above)):
        lower = "at least" if closed else "above"
        upper = "" if below == float("inf") else f" and below {below:g}"
        _refuse(
            name, value, f"a finite number {lower} {above:g}{upper}" + (" or None" if none else "")
        )


def flag(name: str, value: Any) -> None:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        _refuse(name, value, "True or False")


def widths(hidden_layer_sizes: Any) -> tuple[int, ...]:
    """Hidden layer sizes as a tuple: () for none, a whole number for one."""
    sizes = hidden_layer_sizes
    if isinstance(sizes, Integral) and not isinstance(sizes, bool):
        sizes = (sizes,)
    if not isinstance(sizes, Sequence | np.ndarray) or isinstance(sizes, str):
        _refuse("hidden_layer_sizes", hidden_layer_sizes, "a tuple of whole numbers, () for none")
    for size in sizes:
        whole("hidden_layer_sizes", size, 1)
    return tuple(int(size) for size in sizes)


def body_scales(value: Any, n_layers: int) -> np.ndarray | None:
    """Prior standard deviations of the body's layers; None is learned (s^2 = fan-in for now)."""
    if isinstance(value, str):
        one_of("body_prior_scale", value, ("learn",))
        return None
    if isinstance(value, Real):
        real("body_prior_scale", value, 0)
        return np.full(n_layers, float(value))
    if not isinstance(value, Sequence | np.ndarray) or len(value) != n_layers:
        _refuse(
            "body_prior_scale", value, f"'learn', a number, or {n_layers} of them, one per layer"
        )
    for scale in value:
        real("body_prior_scale", scale, 0)
    return np.asarray(value, float)


def check(estimator: Any, likelihoods: Sequence[str]) -> None:
    """Check every parameter by itself, before anything is compiled."""
    given = estimator.get_params(deep=False)
    widths(given["hidden_layer_sizes"])
    for name, words in (
        ("activation", tuple(ACTIVATIONS)),
        ("likelihood", likelihoods),
        ("engine", ENGINES),
        ("body_update", BODY_UPDATES),
        ("copies_schedule", SCHEDULES),
        ("copies_target", TARGETS),
    ):
        one_of(name, given[name], words)
    if not isinstance(given["prior"], Prior):
        one_of("prior", given["prior"], PRIORS)
    for name in ("residual", "standardize", "early_stopping"):
        flag(name, given[name])
    whole("n_chains", given["n_chains"], 1)
    for name, least in (("n_warmup", 0), ("n_draws", 1), ("thinning", 1), ("batch_size", 1)):
        whole(name, given[name], least, "auto")
    whole("max_epochs", given["max_epochs"], 1)
    whole("copies", given["copies"], 1)
    _check_latents(given)
    real("noise_scale", given["noise_scale"], 0, none=True)
    real("learning_rate", given["learning_rate"], 0)
    real("validation_fraction", given["validation_fraction"], 0, 1)
    real("dropout", given["dropout"], 0, 1, closed=True)
    whole("verbose", given["verbose"], 0, False, True)


def _check_latents(given: dict[str, Any]) -> None:
    width = given["latent_width"]
    if isinstance(width, tuple | list):
        _refuse("latent_width", width, "None or one whole number: one stochastic layer")
    whole("latent_width", width, 1, None)
    real("latent_scale", given["latent_scale"], 0, closed=True)
