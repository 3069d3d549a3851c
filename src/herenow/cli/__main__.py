"""`python -m herenow.cli` does what `herenow` does, where the script is not on the path."""

from herenow.cli import main

main(prog_name="herenow")
