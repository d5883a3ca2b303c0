"""Processes without Gymnasium, many rows at once: state in, state out, random numbers handed in.

:mod:`~cirl_gym.worlds.tumour` is the simulator, as pure functions and as a world that a rollout acts in;
:mod:`~cirl_gym.worlds.exact` is what the simulator alone can answer exactly: its optimum, and what the other action
would have led to.
"""
