"""What a run found, as records of JSON files, and what may be said of it.

A record (:class:`irl.result.codec.Record`) is frozen and holds every field to its type, however it is made; a document
is one that is a file of its own. ``Result`` is ``result.json``, ``Baselines`` is ``baselines.json``. The verdict and
the sentences of the headline stand in :mod:`irl.result.sentences`. Nothing here knows an agent.
"""

from irl.result.baselines import Baselines
from irl.result.result import Result

__all__ = ["Baselines", "Result"]
