"""Every method of the paper by name, and the rivals beyond it: each turns a split, a recipe and seeds into outputs.

A method that needs a library of its own imports it when it runs.
"""

from benchmarks.paper.methods.adagraph import adagraph_method
from benchmarks.paper.methods.cdot import cdot_method
from benchmarks.paper.methods.cida import cida_method
from benchmarks.paper.methods.deep_ode import deep_ode_method
from benchmarks.paper.methods.ftpl import ftpl_method
from benchmarks.paper.methods.ftrl import ftrl_method
from benchmarks.paper.methods.generative import generative_method
from benchmarks.paper.methods.house import (
    extrapolated_linear_method,
    gbdt_method,
    naive_method,
    network_method,
)
from benchmarks.paper.methods.ordinal import ordinal_method
from benchmarks.paper.splits import Method
from trainer.methods.plans import PLANS

METHODS: dict[str, Method] = {
    **{name: network_method(name) for name in PLANS},
    "naive": naive_method,
    "gbdt": gbdt_method,
    "extrapolated_linear": extrapolated_linear_method,
    "cdot": cdot_method,
    "cida": cida_method,
    "adagraph": adagraph_method,
    "ordinal": ordinal_method,
    "generative": generative_method,
    "deep_ode": deep_ode_method,
    "ftpl": ftpl_method,
    "ftrl": ftrl_method,
}
