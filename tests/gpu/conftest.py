"""These scripts run on a GPU machine with its torch, through gpu_run.sh. pytest does not collect them."""
collect_ignore_glob = ["test_*.py"]
