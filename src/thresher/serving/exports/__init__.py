"""Exports of a bundle for other engines: ONNX, PyTorch programs, Triton, quantized rows."""
