"""The REST endpoints, one module per noun. Each ends with its table `OPERATIONS`, which `api.application` imports."""
