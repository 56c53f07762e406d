"""Generated data sets, so that every experiment runs without a download."""
