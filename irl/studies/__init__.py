"""Studies beside or upon one fit: windows of time, discount factors, members of an ensemble, baselines, comparisons.

Each asks a question of its own with the pieces of :mod:`irl.max_margin`, :mod:`irl.preferences` and :mod:`irl.checks`,
and answers it with a record of :mod:`irl.result`.
"""
