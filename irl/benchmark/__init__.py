"""The paper's tables and figure: every method, in all six settings, with many seeds (section 5).

:mod:`irl.benchmark.parts` makes what jobs share, :mod:`irl.benchmark.jobs` computes one method with one seed in one
setting, :mod:`irl.benchmark.run` has all of it done by joblib, :mod:`irl.benchmark.figures` counts together what came
out, and :mod:`irl.benchmark.report` makes tables and pictures of it. :mod:`irl.benchmark.table` is one method on one
split of a table by patient, and :mod:`irl.benchmark.table_report` the report of these.
"""
