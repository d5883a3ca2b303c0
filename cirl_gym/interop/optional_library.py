"""Loading a library that is not required, with an error that says how to get it."""

from __future__ import annotations

import importlib
from types import ModuleType

MINARI = 'pip install "minari>=0.5.4" h5py pillow  (Python 3.11 or newer)'
IMITATION = (
    "pip install cirl-gym imitation  (a fresh environment, with Gymnasium 0.29); or, beside a newer Gymnasium: "
    "pip install scikit-learn tqdm rich matplotlib tensorboard datasets pyyaml wasabi jsonpickle, and then "
    "pip install --no-deps imitation==1.0.1 seals==0.2.1 huggingface-sb3==3.0"
)
D3RLPY = (
    "pip install --no-deps d3rlpy==2.8.1 gym==0.26.2, and then "
    "pip install structlog dataclasses-json click colorama tqdm scikit-learn h5py  "
    "(d3rlpy's own requirements would replace Gymnasium by 1.0.0)"
)


def load_library(module: str, install: str) -> ModuleType:
    """Import a module.

    Args:
        module: its full name.
        install: the commands that install it and what it needs, for the message.

    Raises:
        ImportError: it, or something that it needs, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} cannot be imported ({error}). To install it: {install}") from error
