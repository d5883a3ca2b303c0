#!/usr/bin/env bash
# The oldest versions that this package stands on: what pip chooses for it beside imitation, which pins
# gymnasium~=0.29 and stable-baselines3~=2.2.1. Builds that environment from nothing, shows that pip can resolve it,
# and runs the tests of environments, data and rewards there, on the installed package and not on this checkout.
# Takes some minutes and about 2 GB; not part of `make test`.
#
#   tests/compat/oldest.sh [FOLDER]      FOLDER is kept; without one a temporary folder is used and removed
#
#   PYTHON=python3.11                    the interpreter (Gymnasium 0.29 knows Python 3.8 to 3.11; newer ones may work)
#   TORCH="torch==2.13.0 --index-url URL"   which PyTorch, as in the Makefile
#   PINS="numpy==1.26.0 scipy==1.11.1"   further versions to hold, for instance the lowest of pyproject.toml
#   WITH=""                              what to install beside the package; default: imitation>=1.0.1
set -euo pipefail

PYTHON=${PYTHON:-python3}
TORCH=${TORCH:-torch==2.13.0}
PINS=${PINS:-}
WITH=${WITH-imitation>=1.0.1}
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

if [ $# -gt 0 ]; then
    mkdir -p "$1"
    folder=$(cd "$1" && pwd)
    if [ -n "$(ls -A "$folder")" ]; then
        echo "error: $folder is not empty" >&2
        exit 1
    fi
else
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
fi

# A wheel, built from a copy: building would leave its folders in the checkout. The tests lie apart from the package,
# so that only the installed one can be imported.
mkdir "$folder/source" "$folder/run"
cp -R "$checkout"/{pyproject.toml,README.md,LICENSE,cirl_gym,agents,irl} "$folder/source"
cp -R "$checkout"/{pyproject.toml,tests,examples,docs} "$folder/run"

"$PYTHON" -m venv "$folder/venv"
pip() { "$folder/venv/bin/python" -m pip --disable-pip-version-check "$@"; }
# PyTorch first, and held from then on, or a resolver replaces it.
# shellcheck disable=SC2086  # both are lists of words
{
    pip install --quiet $TORCH
    printf '%s\n' "${TORCH%% *}" gymnasium==0.29.1 stable-baselines3==2.2.1 sb3-contrib==2.2.1 $PINS >"$folder/pins"
    # Without the pins of the old set: imitation alone must lead pip to it.
    printf '%s\n' "${TORCH%% *}" $PINS >"$folder/held"
}
if [ -n "$WITH" ]; then
    pip install --quiet --constraint "$folder/held" "$folder/source[parquet]" "$WITH"
else
    pip install --quiet --constraint "$folder/pins" "$folder/source[parquet]"
fi
pip install --quiet --constraint "$folder/pins" pytest hypothesis
pip check
pip list | grep -iE '^(cirl-gym|imitation|gymnasium|stable[-_]baselines3|sb3[-_]contrib|torch|numpy|scipy|pandas|pyarrow) '

"$folder/venv/bin/python" - <<'CHECK'
from importlib.metadata import version

oldest = {"gymnasium": "0.29.1", "stable-baselines3": "2.2.1", "sb3-contrib": "2.2.1"}
found = {name: version(name) for name in oldest}
assert found == oldest, f"pip chose {found}, expected {oldest}"
CHECK

cd "$folder/run"
export OMP_NUM_THREADS=1
# All of tests/cirl_gym but what is about tuning, diagnosis and a benchmark; of the others what is about tables and
# vectorised environments. The native vector forms need gymnasium >= 1.1: test_env_returns is of them throughout, other
# tests skip themselves, and test_registration holds the error that a user gets.
"$folder/venv/bin/pytest" -p no:cacheprovider tests/cirl_gym --ignore-glob='*/test_tuning*.py' \
    --ignore-glob='*/test_diagnos*.py' --ignore-glob='*/test_tumour_growth*.py' --ignore-glob='*/test_env_returns.py' \
    tests/agents/test_sb3_vec_env.py
