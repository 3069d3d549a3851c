"""HTTP tools that all endpoints share. Code outside `api` imports only `peers` and `static_files`."""
