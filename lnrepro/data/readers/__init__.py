"""Parsers of the official files, one module for each family of data sets."""
