"""Calls to AWS: credentials, connections over HTTP/1.1 and HTTP/2, requests, answers, errors."""
