"""Embedded data sets, so that every experiment runs without a download.

All are generated here, except the digits, which scikit-learn contains.
"""
