"""HTTP: the REST endpoints, the endpoints for operators, and the OpenAPI document that describes both.

    application ─▶ endpoints, ops ─▶ description ─▶ http ─▶ request_shapes

An endpoint is a function and an `Operation` with its path, access, shapes and codes. Routes, access checks and the document
are made from the operations. Nothing is imported here, so that a command that only decodes statistics loads no server.
"""
