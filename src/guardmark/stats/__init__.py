"""Pure functions from counts to figures with intervals; each module is loaded on use."""
