"""Endpoints and pages for operators: health, metrics, statistics, the dashboard, and the files of the SDK.

Code outside `api` imports `stats` (the shapes of `/api/v1/stats`), `stats_collect` (`encode_report`, the report of one
worker) and `store_errors` (sentences for errors of the store). `stats` and `store_errors` load nothing of a node.
"""
