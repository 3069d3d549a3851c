"""Generic JSON checks: maximum nesting (`nesting`, without msgspec) and strict decoding (`strict_json`)."""
