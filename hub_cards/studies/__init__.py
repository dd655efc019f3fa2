"""Studies: each theory or experiment in one place, with its code, data and picture."""
