"""Scores of samples: thresholds, areas and calibration."""
