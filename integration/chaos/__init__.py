"""Chaos runs: random kills, reshards, stalls and faults over one query, repeatable by their seed.

python -m integration.chaos --seeds 1-200
python -m integration.chaos --seed 17
"""
