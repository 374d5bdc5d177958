"""The networks that are trained, by name or by import path. Importing this needs no torch."""

from eris.models.registry import ModelFactory, model_by_name, model_factory, model_names

__all__ = ["ModelFactory", "model_by_name", "model_factory", "model_names"]
