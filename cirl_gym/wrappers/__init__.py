"""Wrappers for any Gymnasium environment, each with a single and a vector form.

:mod:`~cirl_gym.wrappers.history` shows the whole history instead of the present, for algorithms without memory;
:mod:`~cirl_gym.wrappers.learned_reward` pays the reward that a run has found, and plays a policy and adds up its
outcomes under any weights. Their names are importable from :mod:`cirl_gym`.
"""
