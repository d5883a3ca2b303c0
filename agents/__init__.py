"""Policies: the successor-feature agent, the stochastic expert, behaviour cloning."""
