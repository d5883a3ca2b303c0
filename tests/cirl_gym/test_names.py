"""What an unknown name may have meant."""

import pytest

from cirl_gym.names import did_you_mean

COLUMNS = ["heart_rate", "wbc", "Mean arterial pressure", "creatinine"]


@pytest.mark.parametrize(
    ("unknown", "said"),
    [
        ("HeartRate", " (did you mean 'heart_rate'?)"),
        ("WBC", " (did you mean 'wbc'?)"),
        ("mean_arterial_presure", " (did you mean 'Mean arterial pressure'?)"),
        (["wbcc", "kreatinine"], " (did you mean 'wbc', 'creatinine'?)"),
        (["zzz"], ""),
        ("---", ""),
    ],
)
def test_the_most_similar_name_is_offered(unknown, said):
    assert did_you_mean(unknown, COLUMNS) == said


def test_nothing_is_offered_where_nothing_is_known():
    assert did_you_mean("wbc", []) == ""
