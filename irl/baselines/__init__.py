"""The paper's baselines: other methods on the episodes of a finished run, each judged in the same way (section 5).

:mod:`irl.baselines.methods` lets them learn, from the run's batch alone; :mod:`irl.baselines.judge` measures every
policy on the same patients and the same noise. What comes out is a row of :mod:`irl.result.baselines`.
"""
