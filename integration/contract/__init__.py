"""Kinesis's own behaviour, tested: one suite for our double, for the local servers, and for AWS.

Each test is written from the documentation of AWS. `differences.py` lists where a server departs
from it; a difference that goes away fails the suite, and so does one that is not listed.
"""
