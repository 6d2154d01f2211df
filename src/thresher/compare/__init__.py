"""Methods side by side under one protocol: same data, retraining, seeds, early stopping and tuning budget for all."""
