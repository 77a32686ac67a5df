"""loaderproof: measures what a data loader for robot learning does to time, masks and order. README.md is the design."""
__version__ = "0.1.0"
