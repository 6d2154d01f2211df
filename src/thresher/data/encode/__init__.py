"""Raw rows → feature ids.

For training: `encode` reads a source (`sources`, `user_files`) in two passes, `rows_to_codes` and `codes_to_ids`.
For prediction: `row_encoder`. Both use `transforms` to turn raw values into categories.
"""
