"""The trainer: everything between the events of a task and a released version of its model."""

import os

# Before torch is loaded, which reads it once. Threads that spin while they wait make a fit several times slower where
# other processes want the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
