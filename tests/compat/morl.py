"""One learning of the envelope algorithm of morl-baselines, for every trade-off of the simulator; run by morl.sh."""

import gymnasium as gym
import numpy as np
from mo_gymnasium.wrappers import LinearReward
from morl_baselines.common.evaluation import policy_evaluation_mo
from morl_baselines.multi_policy.envelope.envelope import Envelope

from cirl_gym import VectorReward


def make() -> VectorReward:
    return VectorReward(gym.make("cirl_gym:CIRLTumour-v0"), signs=(-1, -1))


env, weights = make(), np.array([0.3, 0.7])
small = {"net_arch": [32, 32], "batch_size": 64, "log": False, "seed": 0}
agent = Envelope(env, initial_epsilon=1.0, epsilon_decay_steps=2000, **small)
agent.train(total_timesteps=4000, eval_env=make(), ref_point=np.array([-20.0, -20.0]), verbose=False)
every = (np.array([1.0, 0.0]), weights, np.array([0.0, 1.0]))
returned = [policy_evaluation_mo(agent, make(), w=w, rep=10)[2] for w in every]
print("returns of (tumour, side effects) by weights of tumour 1, .3, 0:", np.round(returned, 2).tolist())
assert returned[0][0] > returned[2][0], "weighing the tumour alone must lower it more than not weighing it"
scalar = LinearReward(make(), weight=weights)
scalar.reset(seed=0)
_, paid, _, _, info = scalar.step(1)
assert np.isclose(paid, info["vector_reward"] @ weights)
