"""Gradient Interpolation for notebooks: scikit-learn's conventions around the trainer's own steps, without a server.

GIClassifier, GIRegressor   `fit(X, y, t)` carries out a cycle in this process; `predict(X, t)` answers as the API does
OutsideHorizon              raised for a moment that the fit is not validated for
"""

from contracts.errors import OutsideHorizon
from estimators.gi import GIClassifier, GIRegressor

__all__ = ["GIClassifier", "GIRegressor", "OutsideHorizon"]
