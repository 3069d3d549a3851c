"""One module per revision. A published one is never edited again."""
