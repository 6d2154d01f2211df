"""Logistic regression, FM, DeepFM and AutoInt."""
