"""The tiny models of the local guards, for workers of a cluster."""

from tests.inference.conftest import classifier_folder, transformers

__all__ = ["classifier_folder", "transformers"]
