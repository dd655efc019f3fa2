"""Certificates: a finite check of a trained network that proves its answers right for problems of every size."""
