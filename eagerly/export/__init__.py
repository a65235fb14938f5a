"""Trained policies as files that act elsewhere: SavedModel, LiteRT, ONNX and C."""
