"""Both environments, ``CIRLTumour-v0`` and ``CIRLCounterfactual-v0``, each single and as a native vector form.

:mod:`~cirl_gym.envs.process` steps n rows and knows nothing of Gymnasium; :mod:`~cirl_gym.envs.forms` makes both forms
of it; :mod:`~cirl_gym.envs.options` checks what constructors and ``reset`` are given; :mod:`~cirl_gym.envs.tumour` and
:mod:`~cirl_gym.envs.counterfactual` are the environments; :mod:`~cirl_gym.envs.picture` draws them.
"""
