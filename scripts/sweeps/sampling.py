"""Sample the values of the next trial from what earlier ones reached, by optuna's tree-structured Parzen estimator.

Source: Bergstra et al. 2011, Algorithms for Hyper-Parameter Optimization, §4, https://papers.nips.cc/paper/4443
"""

from collections.abc import Sequence
from typing import Any

import optuna

from qkv.scripts.sweeps.space import Chosen, Dimension

DIGITS = 4  # of a sampled number, so that it can be typed again
# Values that were tried, and what they reached: None where the training failed.
Tried = tuple[Chosen, float | None]


def suggest(dimensions: Sequence[Dimension], tried: Sequence[Tried], seed: int, *, lower_is_better: bool) -> Chosen:
    """Return values to try next; the same ones for the same earlier trials and the same seed."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed + len(tried))
    study = optuna.create_study(direction="minimize" if lower_is_better else "maximize", sampler=sampler)
    distributions = {dimension.label: distribution(dimension) for dimension in dimensions}
    for chosen, value in tried:
        params = {dimension.label: parsed(dimension, chosen[dimension.label]) for dimension in dimensions}
        state = optuna.trial.TrialState.FAIL if value is None else optuna.trial.TrialState.COMPLETE
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=value, state=state))
    params = study.ask(distributions).params
    return {dimension.label: typed(dimension, params[dimension.label]) for dimension in dimensions}


def distribution(dimension: Dimension) -> Any:
    """Return optuna's distribution of a field."""
    if not dimension.is_range:
        return optuna.distributions.CategoricalDistribution(dimension.values)
    low, high = map(float, dimension.values)
    log = dimension.is_logarithmic
    if dimension.is_whole:
        return optuna.distributions.IntDistribution(int(low), int(high), log=log)
    return optuna.distributions.FloatDistribution(low, high, log=log)


def parsed(dimension: Dimension, value: str) -> Any:
    """Return a value as optuna has it."""
    if not dimension.is_range:
        return value
    return int(value) if dimension.is_whole else float(value)


def typed(dimension: Dimension, value: Any) -> str:
    """Return a value as it is typed, a number with few digits and within its range."""
    if not dimension.is_range or dimension.is_whole:
        return str(value)
    low, high = map(float, dimension.values)
    return f"{min(max(float(f'{value:.{DIGITS}g}'), low), high):g}"
