"""The sections of what policies come to (:mod:`irl.result.consequences`): what ending is worth, and other weights."""

from __future__ import annotations

from irl.report.section import Details, Part, Section, Slider, Table, explained, percent, short
from irl.result.consequences import Consequences, Followed
from irl.result.result import Result

_NAMES = {"expert": "experts, as predicted", "cirl": "preferences alone (CIRL)", "cloning": "behaviour cloning"}
_LISTED = 4
"""Actions that have a column of their own, at most: else the likeliest are named."""
_OPEN = 3
"""Sliders that stand open, at most."""


def endings_section(result: Result) -> Section | None:
    """How long episodes last by every policy, and what that is worth; None in a run of an earlier version."""
    found = result.consequences
    if found is None:
        return None
    every = {"experts, as observed": found.observed}
    every |= {_NAMES.get(name, name): policy for name, policy in found.policies.items()}
    columns = [_numbers(result, found, policy) for policy in every.values()]
    heads = ["policy", *columns[0]]
    rows = [[name, *row.values()] for name, row in zip(every, columns, strict=True)]
    terms = explained(
        f"What {found.episodes} imagined episodes of each policy come to in the world model, all from the same first "
        "observations; above them the experts as they were observed. Outcomes are means over all steps, in their own "
        "units.",
        "Where all weights are negative, every further step costs, and a policy that ends an episode early stops the "
        "cost. If the preferences alone end episodes much earlier than the experts as predicted, the weights may say "
        "how episodes end and not what was wanted.",
        "What an end means: whoever recovers, dies or is watched no longer is the same to these sums.",
    )
    table = Table("What every policy comes to", heads, rows)
    shown = () if found.sentence in result.headline else (found.sentence,)  # once on a terminal
    return Section("endings", "What ending an episode is worth", (found.sentence, terms, table), shown)


def other_weights_section(result: Result) -> Section | None:
    """What would be done by other weights, a slider for each outcome that may be read; None where none is known."""
    found = result.consequences
    sliders = [] if found is None else _sliders(result, found)
    if found is None or not sliders:
        return None
    terms = explained(
        f"What the best policy of other weights comes to, over {found.other_episodes} imagined episodes in the world "
        "model from the same first observations: how long they last, what is done, and the mean of every outcome.",
        "Move the slider: the weight of its outcome takes another share of all, the others keep their signs and their "
        "proportions. Where nothing changes over a part of the slider, the decisions cannot tell these weights apart "
        "by what they lead to.",
        "Policies without mistakes and habits, in the outcome model: they are no advice, and experts of these weights "
        "would err.",
    )
    more = tuple(sliders[_OPEN:])
    page: list[Part] = [terms, *sliders[:_OPEN], *([Details("Further outcomes", more)] if more else [])]
    return Section("other-weights", "If the weights were others", tuple(page))


def _sliders(result: Result, found: Consequences) -> list[Slider]:
    sliders = []
    for i, name in enumerate(result.features):
        of = [one for one in found.other_weights if one.feature == name]
        if not of or name in result.uninterpreted:
            continue
        columns = [_numbers(result, found, one.followed) for one in of]
        rows = [[percent(one.share), *row.values()] for one, row in zip(of, columns, strict=True)]
        table = Table(f"By the share of {name} in all weights", ["share of all weights", *columns[0]], rows)
        here = next(place for place, one in enumerate(of) if one.found)
        sliders.append(Slider(f"weight-{i}", f"Share of {name} in all weights", table, here))
    return sliders


def _numbers(result: Result, found: Consequences, policy: Followed) -> dict[str, str]:
    """What one policy comes to, by the head of its column."""
    said = {"actions of an episode": f"{policy.length:.1f}"}
    if len(found.actions) == 2:
        said[f"share of {found.actions[1]}"] = percent(policy.taken[1])
    elif len(found.actions) <= _LISTED:
        said |= {f"share of {name}": percent(share) for name, share in zip(found.actions, policy.taken, strict=True)}
    else:
        order = sorted(range(len(policy.taken)), key=lambda a: -policy.taken[a])[:_LISTED]
        said["actions"] = ", ".join(f"{found.actions[a]} {percent(policy.taken[a])}" for a in order)
    return said | dict(zip(result.features, map(short, policy.outcomes), strict=True))
