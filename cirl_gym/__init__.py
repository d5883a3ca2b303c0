"""Worlds and offline data for counterfactual inverse reinforcement learning, as a Gymnasium plugin."""
