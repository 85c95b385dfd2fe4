"""What is fitted: a body, a top, a likelihood and their priors, with the log densities of the whole."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from scalemix import top
from scalemix.bodies import MLP, Parameters
from scalemix.likelihoods import Likelihood
from scalemix.likelihoods import Parameters as LikelihoodParameters
from scalemix.priors import Flat, Prior, Scales
from scalemix.rows import Batch


class Model(eqx.Module):
    """y_i ~ L(b_0 + W_0' Z_i), Z_i ~ N(f_B(x_i), tau_z^2 I); Z_i = f_B(x_i) without latents."""

    likelihood: Likelihood
    prior: Prior
    body: MLP
    body_scales: Float[Array, " layers"] | None = None
    """Prior standard deviations s_l of the body's layers; `None` is s_l^2 = fan-in."""
    latent_scale: Float[Array, ""] | float | None = None
    """tau_z; `None`: features go straight into the top."""

    def __check_init__(self) -> None:
        """Refuse pairs that have no exact augmentation, by name."""
        name = self.likelihood.name
        if self.latent_scale is not None and not self.likelihood.allows_latents:
            raise ValueError(
                f"found likelihood '{name}' with latent_scale > 0: it has no Gaussian conditional of "
                "the latents; use latent_width=None or latent_scale=0, or likelihood gaussian, "
                "logit or hinge"
            )
        if isinstance(self.prior, Flat) and not self.likelihood.allows_flat_prior:
            raise ValueError(
                f"found prior 'flat' with likelihood '{name}': its posterior is improper when the "
                "classes can be separated; use prior='ridge', or likelihood='gaussian'"
            )

    @property
    def has_latents(self) -> bool:
        """Whether noise enters between the body and the top."""
        return self.latent_scale is not None

    @property
    def latent_variance(self) -> Array | float:
        """tau_z^2, 0 without latents."""
        return 0.0 if self.latent_scale is None else self.latent_scale**2

    def spread(self, coefficients: Float[Array, "d k"]) -> Float[Array, "k k"] | None:
        """What the latents leave in the predictor; `None` without latents."""
        if not self.has_latents:
            return None
        return top.spread(coefficients, self.latent_variance).astype(coefficients.dtype)

    def log_likelihood(
        self,
        body: Parameters,
        coefficients: Float[Array, "d k"],
        parameters: LikelihoodParameters,
        batch: Batch,
    ) -> Float[Array, ""]:
        """Sum of power_i log p(y_i | f_i, beta), omega and Z integrated out."""
        eta = top.predictor(coefficients, self.body(body, batch.x))
        rows = self.likelihood.log_density(parameters, batch.y, eta, self.spread(coefficients))
        return jnp.sum(jnp.where(batch.power > 0, batch.power * rows, 0))

    def log_prior(
        self,
        body: Parameters,
        coefficients: Float[Array, "d k"],
        parameters: LikelihoodParameters,
        scales: Scales,
    ) -> Float[Array, ""] | float:
        """Log prior of everything, constants left out."""
        noise = self.likelihood.noise_variance(parameters)
        return (
            self.body.log_prior(body, self.body_scales)
            + self.prior.log_density(scales, coefficients, noise)
            + self.likelihood.log_prior(parameters)
        )
