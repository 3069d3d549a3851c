"""HTTP: the REST contract, what operators ask, and the document that describes both.

One module per noun. `app` puts them together; `operations` is what an endpoint says of itself, from which routes,
access checks and the OpenAPI document are all made, so that they cannot disagree.
"""
