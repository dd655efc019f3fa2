"""The claims of the papers, with what they ask of measurements."""
