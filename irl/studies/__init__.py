"""Questions beside or upon one fit: windows of time, discount factors, two runs compared, models and decisions judged.

Each asks with the pieces of :mod:`irl.preferences` and :mod:`irl.checks`, or of :mod:`cirl_gym.diagnostics`; a record
that ``result.json`` or a document of its own keeps is the answer.
"""
