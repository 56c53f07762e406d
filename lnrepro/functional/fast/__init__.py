"""Functions of `lnrepro.functional` written for the speed of a backend.

Each file has one subject. Its header says what the form gains, measured where, and a
test holds it to the plain form in values and gradients (tests/functional/test_fast.py).
"""
