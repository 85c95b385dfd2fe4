"""Data before it is rows: `Scaling` of columns, and checks of frames."""

from scalemix.data._frames import refuse_text_columns as refuse_text_columns
from scalemix.data._scaling import Scaling as Scaling
