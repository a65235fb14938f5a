"""Exports trained policies to SavedModel, LiteRT, ONNX and C."""
