"""HTTP: the REST contract, the endpoints of operators, and the OpenAPI document that describes both.

    application ─▶ endpoints, ops ─▶ description ─▶ http ─▶ request_shapes

An endpoint is a function and a row that says its path, access, shapes and codes; routes, access checks and the document are
all made from these rows. Code outside this package imports `api.application` (`make_app`, `CONTRACT`) and the modules that
`api.ops` and `api.http` name as theirs for others. Nothing is imported here: a command that only reads the statistics of a
server must not load one.
"""
