"""Studies of structure in models of others: which carry it, and what it is good for."""
