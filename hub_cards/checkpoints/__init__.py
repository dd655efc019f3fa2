"""Checkpoints: loading them, their folders, and the certificates in them."""
