"""Theories of the papers: studies with code of their own, which train nothing or no transformer."""
