"""How an endpoint is described, and what is made of the descriptions: `/openapi.json` and `/docs`.

`operations` has the row of an endpoint, `openapi` the document, `page` the endpoints that serve it. Outside
`api` only tests import them.
"""
