"""What a fit says of itself, on quantities that no symmetry of the network changes."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from scipy import stats

from scalemix import diagnostics
from scalemix.engines import Engine
from scalemix.fit import Draw, Fitted

DRIFT = 1.1
"""R-hat between the halves of chains from which the draws are called unsettled."""
MODES = ("em", "j_copies")
"""Engines that climb."""
FEWEST_DRAWS = 20
"""Fewer draws a chain say nothing of convergence."""


def is_mode(engine: Engine) -> bool:
    """Whether the engine climbs to a mode instead of sampling the posterior."""
    return engine.name == "em" or getattr(engine, "copies", 1) > 1


def chosen_chains(engine: Engine, fitted: Fitted) -> np.ndarray:
    """All chains of a sampler; the one with the highest log posterior of a climber."""
    log_joint = fitted.trace.monitor.log_joint
    if is_mode(engine):
        return np.array([np.argmax(log_joint.mean(axis=1))])
    return np.arange(len(log_joint))


def of_chains(draws: Draw, chains: np.ndarray) -> Draw:
    """The draws of some chains."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[chains], draws)


def _quantities(fitted: Fitted) -> dict[str, Any]:
    """Traces of shape (chains, draws, ...)."""
    trace = fitted.trace
    return {
        "log_joint": trace.monitor.log_joint,
        "noise_scale": np.sqrt(trace.monitor.noise),
        "predictor": trace.eta.reshape(*trace.eta.shape[:2], -1),
    }


def summary(engine: Engine, fitted: Fitted, kept: np.ndarray) -> dict[str, Any]:
    """The estimator's `diagnostics_`.

    For each quantity the worst of: `r_hat_within` (between the halves of each chain: drift),
    `r_hat` (between chains too: disagreement of modes, no fault), `ess_bulk`, `ess_tail`, and the
    Monte Carlo standard error of its mean, `mcse_mean`. Empty for a mode.
    """
    health = jax.device_get(fitted.running.health)
    chains, draws = fitted.trace.monitor.noise.shape
    result: dict[str, Any] = {
        "engine": "j_copies" if engine.name == "gibbs" and is_mode(engine) else engine.name,
        "likelihood": engine.model.likelihood.name,
        "body": _body(engine),
        "chains": len(kept),
        "draws": int(len(kept) * draws),
        "sweeps": int(fitted.running.time),
        "failed_sweeps": int(health.failures.sum()),
        "jittered_factorisations": int(health.jitters.sum()),
        "body_steps": int(health.body_steps.max()),
        "log_joint": float(fitted.trace.monitor.log_joint[kept].mean()),
    }
    if is_mode(engine) or draws < FEWEST_DRAWS:
        return result
    measures = {
        "r_hat_within": (diagnostics.within_chain_r_hat, np.max),
        "r_hat": (diagnostics.r_hat, np.max),
        "ess_bulk": (diagnostics.effective_sample_size_bulk, np.min),
        "ess_tail": (diagnostics.effective_sample_size_tail, np.min),
        "mcse_mean": (diagnostics.monte_carlo_error_mean, np.max),
    }
    quantities = _quantities(fitted)
    for name, (measure, worst) in measures.items():
        result[name] = {key: float(worst(measure(trace))) for key, trace in quantities.items()}
    result["drift_threshold"] = _threshold(
        chains, draws, sum(v[0, 0].size for v in quantities.values())
    )
    return result


def _body(engine: Engine) -> str:
    if not engine.model.body.widths(1)[1:]:
        return "none (a linear model, exact)"
    return f"optimised by {engine.body_update.name} (approximate)"


def _threshold(chains: int, draws: int, quantities: int) -> float:
    """The larger of 1.1 and what independent draws exceed in one fit of a hundred."""
    m = draws // 2
    f = stats.f.isf(0.01 / (2 * quantities), chains, chains * (2 * m - 2))
    return float(max(DRIFT, np.sqrt(1 + (f - 1) / m)))


def warnings(summary: dict[str, Any]) -> Iterator[str]:
    """What a user should know before trusting the draws."""
    if summary["failed_sweeps"]:
        yield (
            f"{summary['failed_sweeps']} sweeps were not finite and were undone; predictions are "
            "finite, but look at the targets' scale and at learning_rate"
        )
    drifting = [
        f"{name} ({value:.2f})"
        for name, value in summary.get("r_hat_within", {}).items()
        if value > summary["drift_threshold"]
    ]
    if drifting:
        yield (
            "the chains still drift: R-hat between the halves of each chain exceeds "
            f"{summary['drift_threshold']:.2f} for {', '.join(drifting)}; raise n_warmup and n_draws"
        )
