#!/usr/bin/env bash
# The recipe of docs/own_environment.md with ICU-Sepsis, as it is printed there, in a fresh virtual environment (some
# 2 GB; PyTorch first, and held). Says what was found, and how long it took.
#
#   tests/compat/sepsis.sh [VENV]      VENV has icu-sepsis, this package's requirements and pytest already; without
#                                      one it is made and removed
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
venv=${1:-}
if [ -z "$venv" ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    venv=$folder/venv
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet ${TORCH:-torch==2.13.0}
    mkdir "$folder/source"
    cp -R "$root"/{pyproject.toml,README.md,LICENSE,cirl_gym,agents,irl} "$folder/source"
    "$venv/bin/pip" install --quiet "$folder/source" icu-sepsis pytest "torch==2.13.0"
fi
cd "$root"
OMP_NUM_THREADS=1 "$venv/bin/python" -m pytest -p no:cacheprovider -s -m slow -k icu_sepsis --durations 1 \
    tests/irl/test_recipes.py
