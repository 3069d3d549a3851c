"""HTTP tools that all endpoints share: reading a request, making a response, error answers, CORS, canonical paths.

Code outside `api` imports `peers` (does a request come from this machine?) and `static_files` (files of the package as
routes).
"""
