"""JSON before its meaning: how deep it may be nested (`nesting`, without msgspec), and strict decoding (`strict_json`)."""
