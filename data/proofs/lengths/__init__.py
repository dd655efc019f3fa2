"""Proofs for one length after the other: what distant tokens can do to attention, and the search for the worst problem."""
