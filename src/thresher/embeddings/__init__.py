"""The interface of embedding methods, PEP and the uniform table."""
