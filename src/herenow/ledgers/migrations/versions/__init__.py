"""One module per revision. The code of a published revision is never edited."""
