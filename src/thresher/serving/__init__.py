"""Bundles: saving, opening and exporting trained models, and predicting with them."""
