"""How good predicted chances of the experts' actions are, whoever predicts them."""

from __future__ import annotations

from irl.result.codec import LogProbability, NotNegative, Record, Share, Some


class ShareScore(Record, frozen=True):
    """A figure between 0 and 1 and its standard error."""

    value: Share
    standard_error: NotNegative
    """With patients as the unit; 0 where there is one alone, of whom nothing can be said."""


class LogLikelihoodScore(Record, frozen=True):
    """Mean log-probability of a decision and its standard error."""

    value: LogProbability
    """Nearer to 0 is better; minus the logarithm of the number of actions is pure chance."""
    standard_error: NotNegative
    """With patients as the unit; 0 where there is one alone, of whom nothing can be said."""


class ChanceScores(Record, frozen=True, kw_only=True):
    """Chances of the next action, held against the actions taken (:func:`irl.checks.chances.judged_chances`)."""

    decisions: Some
    """How many were judged."""
    patients: Some
    """By how many patients."""
    log_likelihood: LogLikelihoodScore
    """Per decision."""
    accuracy: ShareScore
    """Of the likeliest action (the first of equals): mean over episodes of the share of their decisions that it meets
    (paper, appendix H)."""
    auroc: ShareScore | None
    """Area under the receiver operating characteristic: how often a decision for an action had a higher chance of it
    than one against it (half of equals). Of more than two actions the mean over those taken, each against the rest.
    None where one action alone was taken."""
    auprc: ShareScore | None
    """Area under precision over recall (average precision): of two actions that of the one taken more rarely, whose
    frequency is what chance would reach; of more the mean over those taken. None where one action alone was taken."""
    brier: ShareScore
    """Mean squared distance of the chances from what was done, halved: 0 is perfect, 1 certain and always wrong."""
    calibration_error: ShareScore
    """Expected distance between the chance of the likeliest action and how often it was taken, in ten groups of about
    as many decisions by that chance. Chance alone keeps it above 0 in a small sample."""
