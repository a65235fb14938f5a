"""LiteRT: the file that runs on phones, boards and microcontrollers, in float32, float16 or int8.

An int8 file computes with integers alone. The converter derives their scales from TensorFlow's
fake quantisation; what it made of them is read back and compared with `policies.quantization`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from eagerly.export.interface import in_float32, inputs, outputs
