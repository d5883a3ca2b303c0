"""Names of a package that are loaded when they are first used, so that importing it loads no heavy library."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module, metadata
from typing import Any


def attach(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and the sorted names for ``__all__`` of a package, which has a ``__version__`` too.

    Args:
        package: its ``__name__``.
        modules: which names a module holds, separated by blanks, by its name, with a dot in front: below the package.
    """
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def getattr_(name: str) -> Any:
        if name == "__version__":
            return metadata.version("cirl-gym")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name], package), name)

    def dir_() -> list[str]:
        return sorted({*vars(sys.modules[package]), "__version__", *homes})

    return getattr_, dir_, sorted(homes)
