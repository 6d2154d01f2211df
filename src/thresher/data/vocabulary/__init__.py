"""The values of one field → ids: codes while encoding, a compact index in bundles."""
