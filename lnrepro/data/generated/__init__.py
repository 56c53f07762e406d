"""Data sets that are generated here, so that every experiment runs without a download."""
