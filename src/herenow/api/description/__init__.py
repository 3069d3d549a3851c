"""`Operation`, the description of an endpoint, and the documents made from operations: `/openapi.json` and `/docs`."""
