"""Case studies on open data of intensive care: decisions whose reasons are known, and some whose are not.

:mod:`~irl.case_studies.study` reads the small files that say what a study is, :mod:`~irl.case_studies.table` makes its
table from a MEDS data set, :mod:`~irl.case_studies.findings` says what was found and whether it is what medicine knows.
"""
