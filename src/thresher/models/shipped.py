"""Importing this registers every model that ships with Thresher; a new one is one more line."""

from thresher.models.autoint import AutoInt
from thresher.models.deepfm import DeepFm
from thresher.models.fm import Fm
from thresher.models.logistic_regression import LogisticRegression

__all__ = ["AutoInt", "DeepFm", "Fm", "LogisticRegression"]
