"""`GIClassifier` and `GIRegressor` for notebooks, which the distribution `morrow` brings and the client names.

They train in this process, so they need what a trainer needs. No other module of the client does.
"""

try:
    from estimators import GIClassifier, GIRegressor, OutsideHorizon
except ImportError as error:
    raise ImportError(f"The estimators need a trainer's packages ({error}): pip install 'morrow[trainer]'") from error

__all__ = ["GIClassifier", "GIRegressor", "OutsideHorizon"]
