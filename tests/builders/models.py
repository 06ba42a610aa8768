"""GPU models of the catalog by key, and those that most tests are about."""

from partitioning.models import known_models

MODELS = {model.key: model for model in known_models()}
A30 = MODELS["A30-24GB"]
A100 = MODELS["A100-40GB"]
H100 = MODELS["H100-80GB"]
T4 = MODELS["T4"]
