"""Questions beside or upon one fit: windows of time, discount factors, two runs compared, a run's outcome model judged.

Each asks with the pieces of :mod:`irl.preferences` and :mod:`irl.checks`, or of :mod:`cirl_gym.diagnostics`, and answers
with a record that ``result.json`` or a document of its own keeps.
"""
