"""Python reads this first in each process of an MLflow server: a start in two thirds of its time.

Nearly all that the server loads stays. Looking for garbage among it while it loads, and taking it apart at the end,
takes as long as half of the loading itself.
"""

import atexit
import gc

gc.set_threshold(50_000)
atexit.register(gc.freeze)
