"""Outcome models: what would happen to this patient under each action. The only place in cirl_gym that needs torch."""
