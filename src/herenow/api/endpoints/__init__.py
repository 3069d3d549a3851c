"""The endpoints of the REST contract, one module per noun. Each ends with `OPERATIONS`, the table of its rows.

Only `api.application` imports from here, and from each module its `OPERATIONS` alone.
"""
