"""Raw rows → feature ids: `encode` for training, `row_encoder` for prediction; both use `transforms`."""
