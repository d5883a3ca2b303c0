"""What was found, for people: on a terminal, and as one HTML page with pictures that loads nothing from anywhere.

A report is a list of sections (:mod:`irl.report.section`, with the renderers of both), one for each finding: of a run
(:mod:`irl.report.run`), of a diagnosis (:mod:`irl.report.diagnosis`), of baselines and of two runs
(:mod:`irl.report.comparison`). A new finding is a record in :mod:`irl.result.result` and a section here.
"""
