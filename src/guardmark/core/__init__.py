"""The vocabulary: frozen values and protocols, standard library only."""
