"""Engines: `Gibbs` draws (J copies included), `EM` climbs. `Model` is what they fit.

`Engine` is the contract: `initial`, one sweep `step`, and `monitor`; `State`, `Info`, `Monitor` are
what they return.
"""

from scalemix.engines._base import Engine as Engine
from scalemix.engines._base import Info as Info
from scalemix.engines._base import Latents as Latents
from scalemix.engines._base import Monitor as Monitor
from scalemix.engines._base import State as State
from scalemix.engines._model import Model as Model
from scalemix.engines.em import EM as EM
from scalemix.engines.gibbs import SCHEDULES as SCHEDULES
from scalemix.engines.gibbs import TARGETS as TARGETS
from scalemix.engines.gibbs import Gibbs as Gibbs
