"""Endpoints and pages for operators: health, metrics, statistics, the dashboard, and the files of the SDK.

Code outside `api` imports only `stats`, `stats_collect` and `store_errors`. `stats` and `store_errors` do not import `node`.
"""
