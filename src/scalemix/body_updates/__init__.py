"""Body updates: how the body moves between two visits of the top. `Adam` optimises it.

`BodyUpdate` is the contract; a `Target` is all that an update sees of the rest of the house.
"""

from scalemix.body_updates._adam import Adam as Adam
from scalemix.body_updates._base import Body as Body
from scalemix.body_updates._base import BodyUpdate as BodyUpdate
from scalemix.body_updates._base import Info as Info
from scalemix.body_updates._base import LogDensity as LogDensity
from scalemix.body_updates._base import Target as Target
