"""`python -m herenow.cli` is the same as `herenow`, for environments without the script on the path."""

from herenow.cli import main

main(prog_name="herenow")
