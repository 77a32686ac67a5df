"""Where the build has the package: the folder for PYTHONPATH."""
from daemons import BUILD

PACKAGE = BUILD / "clients" / "python"
